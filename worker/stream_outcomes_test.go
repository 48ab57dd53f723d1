package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

// outcomes is a handler's stream on a fake engine whose answers are lost.
type outcomes struct {
	ctx    context.Context
	eng    *fakeEngine
	job    Job[struct{}]
	stream *Stream
}

// write writes a frame.
func (o *outcomes) write(n int) error { return o.stream.WriteFrame(o.ctx, frame(n)) }

// join appends the buffer and a frame in a transaction of a turn, which is committed. Its answer is lost unless answered is
// set.
func (o *outcomes) join(of *turn, answered bool, others ...stream.FrameSpec) error {
	j, err := o.stream.join(o.ctx, o.eng, others, of)
	if err == nil && j != nil {
		j.end(answered)
	}
	return err
}

// rollBack removes the frames behind the first n.
func (o *outcomes) rollBack(n int) {
	o.eng.mu.Lock()
	defer o.eng.mu.Unlock()
	o.eng.streams.frames[o.job.ID] = o.eng.streams.frames[o.job.ID][:n]
}

// Frames are stored once and in order, whatever appends of the same number of frames have unknown outcomes.
func TestUnknownOutcomesOfTransactionsLoseAndDoubleNoFrame(t *testing.T) {
	lost := errors.New("connection lost")
	for _, c := range []struct {
		name    string
		appends []error // of the appender's first calls, which have no effect
		run     func(o *outcomes) error
		want    int
	}{
		{"a turn of one frame is committed, then one is written", nil, func(o *outcomes) error {
			return errors.Join(o.join(new(turn), false, frame(0)), o.write(1))
		}, 2},
		{"the next append fails in transit", []error{lost}, func(o *outcomes) error {
			return errors.Join(o.join(new(turn), false, frame(0)), o.write(1))
		}, 2},
		{"a turn of one frame is rolled back, then one is written", nil, func(o *outcomes) error {
			err := o.join(new(turn), false, frame(9))
			o.rollBack(0)
			return errors.Join(err, o.write(0))
		}, 1},
		{"a turn is committed, and its repetition has as many frames", nil, func(o *outcomes) error {
			a := new(turn)
			return errors.Join(o.write(0), o.join(a, false, frame(1)), o.write(2), o.join(a, true))
		}, 3},
		{"a turn is rolled back, and its repetition has as many frames", nil, func(o *outcomes) error {
			a := new(turn)
			err := errors.Join(o.write(0), o.join(a, false, frame(9)))
			o.rollBack(0)
			return errors.Join(err, o.write(1), o.join(a, false))
		}, 2},
		{"a turn is committed, and the next turn has as many frames", nil, func(o *outcomes) error {
			return errors.Join(o.join(&turn{}, false, frame(0)), o.join(&turn{place: &place{}}, true, frame(1)), o.write(2))
		}, 3},
		{"the handler appends a frame itself, then writes one", nil, func(o *outcomes) error {
			_, err := o.eng.appendEach(o.ctx, []stream.Batch{{Lease: o.job.Lease, Frames: []stream.FrameSpec{frame(0)}}})
			return errors.Join(err, o.write(1))
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var failed error
			writing(t, Config{}, nil, func(ctx context.Context, job Job[struct{}]) (int, error) {
				o := &outcomes{ctx, job.eng.(*fakeEngine), job, job.Stream()}
				failed = c.run(o)
				answers := c.appends
				o.eng.mu.Lock()
				o.eng.streams.appendErr = func(b stream.Batch) (before, after error) {
					if len(answers) > 0 && *b.Behind != probing {
						before, answers = answers[0], answers[1:]
					}
					return before, nil
				}
				o.eng.mu.Unlock()
				return 0, errors.Join(failed, job.Stream().Flush(ctx))
			}, func(t *testing.T, b *bubble, x engine.Claimed) {
				b.pass(b.cfg.LeaseTTL)
				isCount(t, b.eng.stored(x.ID), c.want)
				if failed != nil || items(b.seen().done) != 1 {
					t.Errorf("not completed: %v", failed)
				}
			})
		})
	}
}

// An append whose backend waits in its commit makes repetitions busy. Once it is committed, its frames are not repeated.
func TestAppendThatIsCommittedLateIsNotRepeated(t *testing.T) {
	var calls int
	var busy chan struct{}
	writing(t, Config{}, func(f *fakeEngine) {
		busy = make(chan struct{})
		f.streams.appendErr = func(b stream.Batch) (before, after error) {
			calls++
			switch calls {
			case 1:
				return errors.New("connection lost"), nil
			case 2:
				defer close(busy)
				f.streams.frames = map[id.ExecutionID][]string{b.Lease.Execution: {"0", "1", "2", "3", "4"}}
				return fmt.Errorf("append: %w", fferr.ErrBusy), nil
			}
			return nil, nil
		}
	}, func(ctx context.Context, job Job[struct{}]) (int, error) {
		err := writeAll(ctx, job.Stream(), 5)
		<-busy
		for n := 5; n < 8; n++ {
			err = errors.Join(err, job.Stream().WriteFrame(ctx, frame(n)))
		}
		return 0, err
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		b.pass(b.cfg.LeaseTTL)
		isCount(t, b.eng.stored(x.ID), 8)
	})
}

// A turn in a goroutine that outlasts its handler is refused.
func TestTurnsFramesAreRefusedWhenTheStreamIsOver(t *testing.T) {
	t.Parallel()
	job := Job[struct{}]{eng: new(fakeEngine), steps: &steps{over: true}}
	_, err := job.Stream().join(t.Context(), new(fakeEngine), []stream.FrameSpec{frame(0)}, new(turn))
	if !errors.Is(err, ErrStreamOver) {
		t.Errorf("joined with %v", err)
	}
}

// A frame of the buffer that the server refuses does not fail a turn. A frame of the turn does.
func TestOnlyItsOwnFramesRefuseATurn(t *testing.T) {
	var joined, flushed, refused, again error
	writing(t, Config{}, func(f *fakeEngine) {
		f.streams.appendErr = refuseBad
	}, func(ctx context.Context, job Job[struct{}]) (int, error) {
		bad := stream.FrameSpec{Payload: []byte("bad")}
		s := job.Stream()
		eng := job.eng.(*fakeEngine)
		o := &outcomes{ctx, eng, job, s}
		if err := s.hold(ctx); err != nil { // the appender leaves the frames to the turn
			return 0, err
		}
		joined = errors.Join(o.write(0), o.write(1), s.WriteFrame(ctx, bad), o.write(2))
		s.mu.Lock()
		s.held = false
		s.mu.Unlock()
		joined = errors.Join(joined, o.join(new(turn), true, frame(3)))
		flushed = s.Flush(ctx)
		refused = o.join(new(turn), true, bad)
		again = errors.Join(s.hold(ctx), s.WriteFrame(ctx, bad))
		s.mu.Lock()
		s.held = false
		s.mu.Unlock()
		again = errors.Join(again, s.completeIn(ctx, eng))
		return 0, nil
	}, func(t *testing.T, b *bubble, x engine.Claimed) {
		isCount(t, b.eng.stored(x.ID), 4)
		if joined != nil || !errors.Is(flushed, fferr.ErrInvalidInput) {
			t.Errorf("the turn returned %v, the flush %v", joined, flushed)
		}
		if !errors.Is(refused, fferr.ErrInvalidInput) || again != nil {
			t.Errorf("the turn with a bad frame returned %v, the completion %v", refused, again)
		}
	})
}
