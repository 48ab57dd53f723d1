package streams

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// In the reference the writer's clock, read before the lock, makes the ids: a slow clock puts frames before those that
// readers have seen.
func TestIDsIncreaseWhenTheClockIsSetBack_S39(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	appendTo(t, f.Engine, work.Lease, texts("a", "b")...)
	f.Advance(time.Second)
	last := appendTo(t, f.Engine, work.Lease, texts("c")...).Last
	f.Advance(-time.Hour)
	for _, frames := range [][]stream.FrameSpec{texts("d"), patches(`{}`), texts("f", "g")} {
		appended := appendTo(t, f.Engine, work.Lease, frames...)
		if appended.First != (wire.FramePosition{TsMs: last.TsMs, Seq: last.Seq + 1}) {
			t.Errorf("%s after %s", appended.First, last)
		}
		last = appended.Last
	}
	wantFrames(t, f, work.ID, "a", "b", "c", "d", "{}", "f", "g")
}

// A millisecond that has all its numbers is followed by the next, though the clock hasn't come that far.
func TestIDsAfterAFullMillisecond_S39(t *testing.T) {
	for _, c := range []struct {
		name  string
		seq   int
		first wire.FramePosition // relative to now
	}{
		{"room for all", math.MaxInt32 - 2, wire.FramePosition{Seq: math.MaxInt32 - 1}},
		{"room for one", math.MaxInt32 - 1, wire.FramePosition{TsMs: 1}},
		{"none", math.MaxInt32, wire.FramePosition{TsMs: 1}},
	} {
		for name, frames := range map[string][]stream.FrameSpec{"durable": texts("b", "c"), "summary": patches("{}", "{}")} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				f := fixture.New(t)
				work := f.Start(t)
				f.SetAttempt(t, work.ID, 0, "ffx_stream_ts_ms = "+text(f.Time().UnixMilli())+", ffx_stream_seq = "+text(int64(c.seq))+
					", ffx_stream_frames = 0, ffx_stream_durable = 0")
				want := c.first
				want.TsMs += f.Time().UnixMilli()
				appended := appendTo(t, f.Engine, work.Lease, frames...)
				if appended.First != want || appended.Last != (wire.FramePosition{TsMs: want.TsMs, Seq: want.Seq + 1}) {
					t.Errorf("%+v, want the first at %s", appended, want)
				}
				wantFrames(t, f, work.ID, string(frames[0].Payload), string(frames[1].Payload))
			})
		}
	}
}

// A writer waits for the other one's transaction, and its ids are greater. A reader behind the frames that it sees has
// passed none: the first writer's frame is not committed, and the second's is not written.
func TestFramesAreOrderedByTheirCommits_S39_I32(t *testing.T) {
	for name, frames := range map[string][]stream.FrameSpec{"durable": texts("second"), "summary": patches(`{"second":1}`)} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			work := f.Start(t)
			tx := f.BeginTx(t)
			first := appendTo(t, f.WithTx(tx), work.Lease, texts("first")...)
			f.Advance(-time.Minute)
			rival := f.Rival(t)
			wait := appending(t, rival.Engine, work.Lease, frames...)
			rival.AwaitBlocked(t, f)
			wantFrames(t, f, work.ID)
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			got := wantFrames(t, f, work.ID, "first", string(frames[0].Payload))
			if len(got) == 2 && (got[0].ID != first.Last || got[1].ID.Compare(first.Last) <= 0) {
				t.Errorf("ids %s and %s", got[0].ID, got[1].ID)
			}
		})
	}
}

// An append that waits for the execution or its attempt acts on what was committed meanwhile (case 15).
func TestAppendActsOnWhatWasCommitted(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, f *fixture.Fixture, e *engine.Engine, l engine.Lease)
		want   error
	}{
		{"a frame", func(t *testing.T, _ *fixture.Fixture, e *engine.Engine, l engine.Lease) {
			appendTo(t, e, l, patches(`{"there":1}`)...)
		}, nil},
		{"the end", func(t *testing.T, _ *fixture.Fixture, e *engine.Engine, l engine.Lease) {
			if err := e.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrNotActive},
	} {
		for name, frames := range map[string][]stream.FrameSpec{"durable": texts("late"), "summary": patches(`{"late":1}`)} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				f := fixture.New(t)
				work := f.Start(t)
				tx := f.BeginTx(t)
				fixture.LockExecution(t, tx, work.ID)
				c.change(t, f, f.WithTx(tx), work.Lease)
				rival := f.Rival(t)
				wait := appending(t, rival.Engine, work.Lease, frames...)
				rival.AwaitBlocked(t, f)
				fixture.Commit(t, tx)
				if err := wait(); !errors.Is(err, c.want) {
					t.Fatalf("%v, want %v", err, c.want)
				}
				if c.want == nil {
					wantFrames(t, f, work.ID, `{"there":1}`, string(frames[0].Payload))
				} else {
					wantFrames(t, f, work.ID)
				}
			})
		}
	}
}

// The reference counts all frames at each append. Here an append is one statement, whose number of rows does not depend on
// the stream.
func TestAppendIsOneStatement_S41(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	log := new(fixture.StatementLog)
	e := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	names := func(frames ...stream.FrameSpec) []string {
		return queries(log.During(func() { appendTo(t, e, work.Lease, frames...) }))
	}
	for range 2 {
		if sent := names(texts("a", "b")...); !slices.Equal(sent, []string{"AppendFrames"}) {
			t.Errorf("durable frames took %q", sent)
		}
	}
	if first, second := names(fixture.Frames...), names(fixture.Frames...); !slices.Equal(first, second) {
		t.Errorf("frames of all modes took %q and %q", first, second)
	}
}

// Sixteen writers append to one stream while a tail follows: it gets every frame, in the order of their numbers (case 18).
func TestTailSkipsNoFrameOfManyWriters(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	const writers, each = 16, 10
	var writing []func() error
	for range writers {
		writing = append(writing, fixture.Async(t, func(ctx context.Context) error {
			for n := range each {
				frames := texts("x", "y")
				if n%3 == 0 {
					frames = patches(`{}`, `{}`)
				}
				if _, err := stream.Append(ctx, f.Engine, work.Lease, frames); err != nil && !errors.Is(err, fferr.ErrContention) {
					return err
				}
			}
			return nil
		}))
	}
	read := fixture.Async(t, func(ctx context.Context) error {
		last := int64(0)
		for frame, err := range stream.Tail(ctx, f.Engine, work.ID, stream.TailOptions{}) {
			switch {
			case err != nil:
				return err
			case frame.Closed != nil && frame.Number != last:
				return fmt.Errorf("closed at %d after %d frames", frame.Number, last)
			case frame.Closed == nil && frame.Number != last+1:
				return fmt.Errorf("frame %d after %d", frame.Number, last)
			}
			last = frame.Number
		}
		if last < writers*each {
			return fmt.Errorf("only %d frames", last)
		}
		return nil
	})
	for _, wait := range writing {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	if err := f.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Error(err)
	}
}

// A transaction that appends frames and then ends the lease takes the locks of the end first. Otherwise a cancel would hold the
// execution, wait for the attempt, and both would wait for each other.
func TestFramesBeforeAnEndTakeItsLocks(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	tx := f.BeginTx(t)
	bound := f.WithTx(tx)
	if _, err := stream.AppendBatch(t.Context(), bound, stream.Batch{Lease: work.Lease, Frames: texts("last"), Ends: true}); err != nil {
		t.Fatal(err)
	}
	rival, cancelled := f.Rival(t), make(chan error, 1)
	go func() { cancelled <- rival.CancelExecution(t.Context(), engine.CancelSpec{ID: work.ID}) }()
	rival.AwaitBlocked(t, f)
	if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '1ms'"); err != nil { // it has all locks that it needs
		t.Fatal(err)
	}
	if err := bound.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	if err := <-cancelled; !errors.Is(err, fferr.ErrEnded) {
		t.Errorf("the cancel returned %v", err)
	}
	wantFrames(t, f, work.ID, "last")
	if _, err := stream.AppendBatch(t.Context(), f.Engine, stream.Batch{Lease: work.Lease, Frames: texts("x"), Ends: true}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("outside a transaction: %v", err)
	}
}
