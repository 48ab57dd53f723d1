package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
)

// frameAppender appends frames: an engine, or one that is bound to a transaction.
type frameAppender interface {
	AppendFramesEach(ctx context.Context, batches []engine.FrameBatch) ([]engine.Outcome[engine.Appended], error)
	CountFrames(ctx context.Context, leases []engine.Lease) ([]int64, error)
}

// WriteFrame writes a frame to the stream of the job, with the turn: readers see it once the turn is committed, behind the
// frames that the job's stream had in its buffer when the turn's function returned. If the turn is rolled back, so is the
// frame. A turn has at most [engine.MaxFrames] frames, and [engine.MaxFrameBatch] bytes.
//
// Errors: [engine.ErrInvalidInput], also after the return of the turn's function.
func (t *TurnTx) WriteFrame(_ context.Context, f engine.FrameSpec) error {
	if err := t.eng.CheckFrame(&f); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.over:
		return t.turn.place.refuse(&engine.InputError{Field: "turn", Reason: "is over: write frames before its function returns"})
	case len(t.frames) == engine.MaxFrames:
		return &engine.InputError{Field: "frames", Reason: fmt.Sprintf("the turn has %d, the most that it may have", engine.MaxFrames)}
	case t.frameBytes+len(f.Payload) > engine.MaxFrameBatch:
		return &engine.InputError{Field: "frames", Reason: fmt.Sprintf("the turn has more than %d bytes of payloads", engine.MaxFrameBatch)}
	}
	f.Payload = slices.Clone(f.Payload)
	t.frames = append(t.frames, f)
	t.frameBytes += len(f.Payload)
	return nil
}

// joint is frames that a transaction of the handler has appended.
type joint struct {
	stream *Stream
	try
	count int64 // of the stream's frames, if it is committed
}

// appendFrames appends the turn's frames in its transaction, behind those that the stream has in its buffer.
func (t *turn) appendFrames(ctx context.Context, eng frameAppender) error {
	stream, frames := t.steps.written(), t.current.frames
	switch {
	case len(frames) > 0:
		stream = t.stream()
	case stream == nil || t.current.end == nil:
		return nil
	}
	if t.current.end != nil {
		stream.complete()
	}
	var err error
	t.joint, err = stream.join(ctx, eng, frames)
	if errors.Is(err, engine.ErrInvalidInput) {
		err = t.place.refuse(err)
	}
	return err
}

// letGo gives the stream back to the appender, once the turn's transaction is over.
func (t *turn) letGo(committed bool) {
	if t.joint != nil {
		t.joint.letGo(committed)
		t.joint = nil
	}
}

func (j *joint) letGo(committed bool) {
	s := j.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	if committed && s.lost == nil {
		s.appended(j.frames, j.count)
	}
	s.change()
	s.appender.hasten()
}

// complete notes that a transaction of the handler ends the lease.
func (s *Stream) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.completing = true
}

// completeIn appends the frames in the buffer in a transaction that completes the execution. The next append, or its
// refusal, shows whether it is committed.
func (s *Stream) completeIn(ctx context.Context, eng frameAppender) error {
	s.complete()
	j, err := s.join(ctx, eng, nil)
	if j != nil {
		j.letGo(false)
	}
	return err
}

// join appends the frames in the buffer, and others behind them, in a transaction of the handler. The appender leaves the
// stream alone until the caller lets it go. It returns nil if there is nothing to append, or if an earlier try of the same
// turn has been committed.
func (s *Stream) join(ctx context.Context, eng frameAppender, others []engine.FrameSpec) (_ *joint, err error) {
	if err := s.hold(ctx); err != nil {
		return nil, err
	}
	j := &joint{stream: s}
	defer func() {
		if err != nil {
			j.letGo(false)
		}
	}()
	for {
		s.mu.Lock()
		frames, behind, uncounted := slices.Clone(s.frames), s.count, s.uncounted
		s.mu.Unlock()
		if len(frames)+len(others) == 0 {
			j.letGo(false)
			return nil, nil
		}
		if uncounted {
			counts, err := eng.CountFrames(ctx, []engine.Lease{s.lease})
			if err != nil {
				return nil, err
			}
			behind = counts[0]
		}
		count, err := s.appendIn(ctx, eng, slices.Concat(frames, others), behind)
		moved, isMoved := errors.AsType[*engine.StreamMovedError](err)
		s.mu.Lock()
		s.count, s.uncounted = behind, false
		switch {
		case isMoved:
			committed, _ := s.moved(moved.Frames)
			s.mu.Unlock()
			if committed.others > 0 { // the step will be found, too
				j.letGo(false)
				return nil, nil
			}
			continue
		case err == nil:
			j.try, j.count = try{len(frames), len(others)}, count
			s.tried(j.try)
		}
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return j, nil
	}
}

// hold waits until the appender has no call with frames of the stream under way, and keeps it from another.
func (s *Stream) hold(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.lost != nil {
			defer s.mu.Unlock()
			return s.lost
		}
		if !s.flying && !s.held {
			s.held = true
			s.mu.Unlock()
			return nil
		}
		wait := s.nextChange()
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// maxJointWait is how long frames in a handler's transaction wait for another transaction that has locked the attempt.
const maxJointWait = 6 * time.Second

// appendIn appends frames behind a number of others, and returns how many there are then.
func (s *Stream) appendIn(ctx context.Context, eng frameAppender, frames []engine.FrameSpec, behind int64) (int64, error) {
	pause := backoff.Backoff{First: repeatFirst, Max: repeatMax}
	began := time.Now()
	for len(frames) > 0 {
		n, bytes := 0, 0
		for n < min(len(frames), engine.MaxFrames) && bytes+len(frames[n].Payload) <= engine.MaxFrameBatch {
			bytes += len(frames[n].Payload)
			n++
		}
		outcomes, err := eng.AppendFramesEach(ctx, []engine.FrameBatch{{Lease: s.lease, Frames: frames[:n], Behind: &behind}})
		if err == nil {
			err = outcomes[0].Err
		}
		switch {
		case err == nil:
			behind, frames = outcomes[0].Value.Frames, frames[n:]
		case !errors.Is(err, engine.ErrBusy):
			return 0, err
		case time.Since(began) > maxJointWait:
			return 0, fmt.Errorf("append frames: %w", engine.ErrContention)
		case !backoff.Wait(ctx, pause.Next()):
			return 0, context.Cause(ctx)
		}
	}
	return behind, nil
}
