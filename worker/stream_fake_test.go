package worker

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// fakeStreams is the streams of a fake engine. Its fields are guarded by the engine's lock.
type fakeStreams struct {
	frames  map[id.ExecutionID][]string // payloads
	batches [][]engine.FrameBatch

	// appendErr returns the outcome of an item: before nothing is appended, or unknown after the append. Nil: success.
	appendErr func(b engine.FrameBatch) (before, after error)
	blocked   chan struct{} // appends wait until it is closed; nil: they don't
}

func (f *fakeEngine) CheckFrame(frame *engine.FrameSpec) error {
	if len(frame.Payload) > engine.MaxFramePayload {
		return &fferr.InputError{Field: "payload", Reason: "is too large"}
	}
	return nil
}

func (f *fakeEngine) maxPayload() int { return engine.MaxFramePayload }

func (f *fakeEngine) inTx(pgx.Tx) frameAppender { return f }

func (f *fakeEngine) CountFrames(_ context.Context, leases []engine.Lease) ([]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make([]int64, len(leases))
	for i, l := range leases {
		counts[i] = int64(len(f.streams.frames[l.Execution]))
	}
	return counts, nil
}

func (f *fakeEngine) AppendFrameBatch(ctx context.Context, b engine.FrameBatch) (engine.Appended, error) {
	outcomes, err := f.AppendFramesEach(ctx, []engine.FrameBatch{b})
	if err != nil {
		return engine.Appended{}, err
	}
	return outcomes[0].Value, outcomes[0].Err
}

func (f *fakeEngine) AppendFramesEach(_ context.Context, batches []engine.FrameBatch) ([]fferr.Outcome[engine.Appended], error) {
	f.mu.Lock()
	blocked := f.streams.blocked
	f.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams.batches = append(f.streams.batches, slices.Clone(batches))
	outcomes := make([]fferr.Outcome[engine.Appended], len(batches))
	for i, b := range batches {
		outcomes[i] = f.appendOne(b)
	}
	return outcomes, nil
}

// appendOne appends the frames of a batch. The caller holds the lock.
func (f *fakeEngine) appendOne(b engine.FrameBatch) fferr.Outcome[engine.Appended] {
	var before, after error
	if f.streams.appendErr != nil {
		before, after = f.streams.appendErr(b)
	}
	if before != nil {
		return fferr.Outcome[engine.Appended]{Err: before}
	}
	if f.streams.frames == nil {
		f.streams.frames = make(map[id.ExecutionID][]string)
	}
	stored := f.streams.frames[b.Lease.Execution]
	if b.Behind != nil && *b.Behind != int64(len(stored)) {
		return fferr.Outcome[engine.Appended]{Err: &fferr.StreamMovedError{Frames: int64(len(stored))}}
	}
	for _, frame := range b.Frames {
		stored = append(stored, string(frame.Payload))
	}
	f.streams.frames[b.Lease.Execution] = stored
	return fferr.Outcome[engine.Appended]{Value: engine.Appended{Frames: int64(len(stored))}, Err: after}
}

// stored returns the payloads in the stream of an execution.
func (f *fakeEngine) stored(x id.ExecutionID) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.streams.frames[x])
}
