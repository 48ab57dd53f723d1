package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
)

// frameAppender appends frames: an engine, or one that is bound to a transaction.
type frameAppender interface {
	appendBatch(ctx context.Context, b stream.Batch) (stream.Appended, error)
	countFrames(ctx context.Context, leases []engine.Lease) ([]int64, error)
}

// WriteFrame writes a frame to the stream of the job, with the turn: readers see it once the turn is committed, behind the
// frames that the job's stream had in its buffer when the turn's function returned. If the turn is rolled back, so is the
// frame. A turn has at most [stream.MaxFrames] frames, and [stream.MaxBytes] bytes.
//
// Errors: [fferr.ErrInvalidInput], also after the return of the turn's function.
func (t *TurnTx) WriteFrame(_ context.Context, f stream.FrameSpec) error {
	if err := stream.Check(t.eng, &f); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.over:
		return t.turn.place.refuse(&fferr.InputError{Field: "turn", Reason: "is over: write frames before its function returns"})
	case len(t.frames) == stream.MaxFrames:
		return &fferr.InputError{Field: "frames", Reason: fmt.Sprintf("the turn has %d, the most that it may have", stream.MaxFrames)}
	case t.frameBytes+len(f.Payload) > stream.MaxBytes:
		return &fferr.InputError{Field: "frames", Reason: fmt.Sprintf("the turn has more than %d bytes of payloads", stream.MaxBytes)}
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
	count int64 // of the stream's frames, once committed
}

// appendFrames appends the turn's frames in its transaction, after the frames in the stream's buffer.
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
	t.joint, err = stream.join(ctx, eng, frames, t)
	if errors.Is(err, fferr.ErrInvalidInput) {
		err = t.place.refuse(err)
	}
	return err
}

// endJoint returns the stream to the appender, once the turn's transaction is over. Unless committed is set, the outcome is
// unknown.
func (t *turn) endJoint(committed bool) {
	if t.joint != nil {
		t.joint.end(committed)
		t.joint = nil
	}
}

// end returns the stream to the appender. Unless committed is set, the frames may be committed, now or later.
func (j *joint) end(committed bool) {
	s := j.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	switch {
	case j.stored == 0 || s.lost != nil:
	case committed:
		s.committed(j.try, j.count)
	default:
		s.tried(j.try)
	}
	s.change()
	remind(s.appender.hasty)
}

// complete notes that a transaction of the handler ends the lease.
func (s *Stream) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeRests()
	s.completing = true
}

// completeIn appends the frames in the buffer in a transaction that completes the execution. The next append, or its
// refusal, shows whether the transaction was committed.
func (s *Stream) completeIn(ctx context.Context, eng frameAppender) error {
	s.complete()
	j, err := s.join(ctx, eng, nil, nil)
	if j != nil {
		j.end(false)
	}
	return err
}

// join appends the frames in the buffer, and then others, in a transaction of the handler, whose turn is t, if any.
// join leaves out a buffered frame that the server refuses; the next flush reports it. The appender skips the stream
// until the caller ends the joint. join returns nil if there is nothing to append, or if an earlier transaction of the
// same turn has been committed.
func (s *Stream) join(ctx context.Context, eng frameAppender, others []stream.FrameSpec, t *turn) (*joint, error) {
	if err := s.hold(ctx); err != nil {
		return nil, err
	}
	j := &joint{stream: s, try: try{joint: true, turn: t}}
	joined, err := j.append(ctx, eng, others)
	if !joined {
		j.end(false)
		return nil, err
	}
	return j, nil
}

// append appends the frames in the buffer and others, and reports whether there were any.
func (j *joint) append(ctx context.Context, eng frameAppender, others []stream.FrameSpec) (bool, error) {
	s := j.stream
	for {
		s.mu.Lock()
		frames, behind, uncounted := slices.Clone(s.frames), s.count, s.uncounted
		s.mu.Unlock()
		if len(frames)+len(others) == 0 {
			return false, nil
		}
		if uncounted {
			counts, err := eng.countFrames(ctx, []engine.Lease{s.lease})
			if err != nil {
				return false, err
			}
			behind = counts[0]
		}
		joined, err := s.appendIn(ctx, eng, slices.Concat(frames, others), len(frames), behind)
		moved, isMoved := errors.AsType[*fferr.StreamMovedError](err)
		s.mu.Lock()
		s.count, s.uncounted = behind, false
		switch {
		case isMoved:
			committed, _ := s.moved(moved.Frames)
			s.mu.Unlock()
			if committed.turn != nil && committed.turn == j.turn { // the step will be found, too
				return false, nil
			}
			continue
		case joined.count > behind:
			s.locked()
			j.stored, j.count = int(joined.count-behind), joined.count
			j.frames, j.refused = min(joined.frames, len(frames)), joined.refused
		case joined.refused != nil && err == nil: // nothing else was in the buffer
			for range frames {
				s.refuse(1, joined.refused)
			}
			s.mu.Unlock()
			return false, nil
		}
		s.mu.Unlock()
		return err == nil, err
	}
}

// hold waits until the appender has no call with frames of the stream under way, and keeps it from another.
func (s *Stream) hold(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.err != nil {
			defer s.mu.Unlock()
			return s.err
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

// joinedFrames are frames that a transaction has appended.
type joinedFrames struct {
	count   int64 // of the stream's frames
	frames  int   // given, including refused ones
	refused error // of a frame of the buffer that was left out
}

// appendIn appends frames behind a number of others, and returns the result so far with an error. It leaves out
// frames of the buffer, the first buffered ones, that the server refuses.
func (s *Stream) appendIn(
	ctx context.Context, eng frameAppender, frames []stream.FrameSpec, buffered int, behind int64,
) (joinedFrames, error) {
	s.mu.Lock()
	ends := s.completing
	s.mu.Unlock()
	joined := joinedFrames{count: behind}
	most := stream.MaxFrames
	for joined.frames < len(frames) {
		rest, own := frames[joined.frames:], buffered-joined.frames
		n := fitting(rest, most, stream.MaxBytes)
		before := joined.count
		appended, err := eng.appendBatch(ctx, stream.Batch{Lease: s.lease, Frames: rest[:n], Behind: &before, Ends: ends})
		switch {
		case err == nil:
			joined.count, joined.frames = appended.Frames, joined.frames+n
			most = stream.MaxFrames
		case errors.Is(err, fferr.ErrInvalidInput) && own > 0 && n > own:
			most = own
		case errors.Is(err, fferr.ErrInvalidInput) && own > 0 && n > 1:
			most = n / 2
		case errors.Is(err, fferr.ErrInvalidInput) && own > 0:
			joined.frames, joined.refused = joined.frames+1, cmp.Or(joined.refused, err)
			most = stream.MaxFrames
		default:
			return joined, err
		}
	}
	return joined, nil
}
