package worker

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

// fakeStreams is the streams of a fake engine. Its fields are guarded by the engine's lock.
type fakeStreams struct {
	frames  map[id.ExecutionID][]string // payloads
	batches [][]stream.Batch

	// appendErr returns the outcome of an item: before nothing is appended, or unknown after the append. Nil: success.
	appendErr func(b stream.Batch) (before, after error)
	blocked   chan struct{} // appends wait until it is closed; nil: they don't
}

func (f *fakeEngine) checkFrame(frame *stream.FrameSpec) error {
	if len(frame.Payload) > stream.MaxPayload {
		return &fferr.InputError{Field: "payload", Reason: "is too large"}
	}
	return nil
}

func (f *fakeEngine) maxPayload() int { return stream.MaxPayload }

func (f *fakeEngine) inTx(pgx.Tx) frameAppender { return f }

func (f *fakeEngine) countFrames(_ context.Context, leases []engine.Lease) ([]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make([]int64, len(leases))
	for i, l := range leases {
		counts[i] = int64(len(f.streams.frames[l.Execution]))
	}
	return counts, nil
}

func (f *fakeEngine) appendBatch(ctx context.Context, b stream.Batch) (stream.Appended, error) {
	outcomes, err := f.appendEach(ctx, []stream.Batch{b})
	if err != nil {
		return stream.Appended{}, err
	}
	return outcomes[0].Value, outcomes[0].Err
}

func (f *fakeEngine) appendEach(_ context.Context, batches []stream.Batch) ([]fferr.Outcome[stream.Appended], error) {
	f.mu.Lock()
	blocked := f.streams.blocked
	f.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams.batches = append(f.streams.batches, slices.Clone(batches))
	outcomes := make([]fferr.Outcome[stream.Appended], len(batches))
	for i, b := range batches {
		outcomes[i] = f.appendOne(b)
	}
	return outcomes, nil
}

// appendOne appends the frames of a batch. The caller holds the lock.
func (f *fakeEngine) appendOne(b stream.Batch) fferr.Outcome[stream.Appended] {
	var before, after error
	if f.streams.appendErr != nil {
		before, after = f.streams.appendErr(b)
	}
	if before != nil {
		return fferr.Outcome[stream.Appended]{Err: before}
	}
	if f.streams.frames == nil {
		f.streams.frames = make(map[id.ExecutionID][]string)
	}
	stored := f.streams.frames[b.Lease.Execution]
	if b.Behind != nil && *b.Behind != int64(len(stored)) {
		return fferr.Outcome[stream.Appended]{Err: &fferr.StreamMovedError{Frames: int64(len(stored))}}
	}
	for _, frame := range b.Frames {
		stored = append(stored, string(frame.Payload))
	}
	f.streams.frames[b.Lease.Execution] = stored
	return fferr.Outcome[stream.Appended]{Value: stream.Appended{Frames: int64(len(stored))}, Err: after}
}

// stored returns the payloads in the stream of an execution.
func (f *fakeEngine) stored(x id.ExecutionID) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.streams.frames[x])
}
