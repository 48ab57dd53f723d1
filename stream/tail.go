package stream

import (
	"cmp"
	"context"
	"iter"
	"math"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/streams"
)

// TailOptions selects the frames of [Tail].
type TailOptions struct {
	After          Position // default: from the beginning
	OneAttempt     bool     // only the attempt of After
	SkipBestEffort bool
}

// Tail follows the output of an execution: each committed frame once, in order, attempt after attempt. It needs no lease, and
// uses no connection while waiting.
//
//	for frame, err := range stream.Tail(ctx, eng, execution, stream.TailOptions{}) {
//		if err != nil {
//			return err
//		}
//		…
//	}
//
// Each attempt ends with an entry that has Closed set. Unless that is the Last, frames of a greater Attempt may follow, whose
// handler doesn't write the frames of finished turns and steps again. The tail ends with the execution. Another tail
// continues at any [Entry.Position], in any process.
//
// All tails of an engine share their reads and the connection of [engine.Engine.Listen]. They also poll once a second, or
// five times a second while no notifications arrive. After the first read a tail survives outages: it retries until the
// database is back.
//
// Errors: ctx's error, at once; [fferr.ErrNotFound] if the execution does not exist or retention has deleted it;
// [fferr.ErrInvalidInput], also on an engine bound to a transaction; [fferr.ErrCorruption]; [fferr.ErrUnavailable] or another
// database error if the first read fails, or if reads can't succeed any more: the pool is closed, or rights are missing. The
// tail ends after these errors. After a [*fferr.StreamGapError], which has the number of missing durable frames, the loop may
// continue.
func Tail(ctx context.Context, eng *engine.Engine, x id.ExecutionID, o TailOptions) iter.Seq2[Entry, error] {
	c := core.Of(eng)
	return func(yield func(Entry, error) bool) {
		const op = "tail stream"
		err := cmp.Or(c.CheckAwait(), checkStream(c, x, o.After.attempt))
		t := tail{
			execution: x, options: o, at: o.After, again: o.After.closed, size: streams.FirstSize,
			yield: func(f Entry, err error) bool { return yield(f, core.Wrap(op, err)) },
		}
		if err == nil {
			t.reader = hubOf(c).Reader(t.key().Channel())
			defer t.reader.Leave()
		}
		for goesOn := true; goesOn && err == nil; {
			goesOn, err = t.next(ctx)
		}
		if err != nil {
			yield(Entry{}, core.Wrap(op, err))
		}
	}
}

// tail is a running tail.
type tail struct {
	reader    *reader
	execution id.ExecutionID
	options   TailOptions
	at        Position
	again     bool // at is the end of an attempt, and a replay may have continued the attempt since
	size      int  // of the next page
	yield     func(Entry, error) bool
}

func (t *tail) key() core.StreamKey {
	return core.StreamKey{Execution: t.execution, Attempt: t.at.attempt}
}

// next waits for frames, or for the end of the attempt, and yields them. It reports whether the tail continues.
func (t *tail) next(ctx context.Context) (bool, error) {
	if t.at.closed && !t.again {
		if t.options.OneAttempt || t.at.attempt == math.MaxInt32 {
			return false, nil
		}
		t.at = Position{attempt: t.at.attempt + 1}
		t.reader.Follow(t.key().Channel())
	}
	a, err := t.reader.Await(ctx, request{
		key: t.key(), after: t.after(), through: lastFrame, size: t.size, skipBestEffort: t.options.SkipBestEffort,
	})
	switch {
	case err != nil:
		return false, err
	case a.state == nil:
		return false, &fferr.NotFoundError{Entity: "execution", ID: t.execution.String()}
	}
	bytes := 0
	for i := range a.frames {
		bytes += len(a.frames[i].Payload)
	}
	t.size = streams.NextSize(t.size, len(a.frames), bytes)
	for i := range a.frames {
		if !t.frame(&a.frames[i]) {
			return false, nil
		}
	}
	continued := len(a.frames) > 0 || a.closed == nil
	again := t.again && !continued
	t.again = false
	switch {
	case a.closed == nil || a.more:
		return true, nil
	case again:
		return !a.closed.Last, nil
	}
	return t.close(&a), nil
}

// after returns the position to read from. The zero value would leave out a frame 0-0.
func (t *tail) after() wire.FramePosition {
	if t.at.number == 0 && t.at.id == (wire.FramePosition{}) {
		return wire.FramePosition{TsMs: -1}
	}
	return t.at.id
}

// frame yields a frame, after the gap before it.
func (t *tail) frame(f *Entry) bool {
	if f.Number > 0 {
		itself := int64(0)
		if f.Mode == Durable {
			itself = 1
		}
		lost := f.durable - itself - t.at.durable
		if !t.options.SkipBestEffort {
			f.Trimmed = max(0, f.Number-1-t.at.number-max(0, lost))
		}
		if !t.gap(lost) {
			return false
		}
	}
	t.at = f.Position()
	return t.yield(*f, nil)
}

// gap yields the loss of durable frames after the tail's position.
func (t *tail) gap(lost int64) bool {
	if lost <= 0 {
		return true
	}
	return t.yield(Entry{}, &fferr.StreamGapError{Execution: t.execution, Attempt: t.at.attempt, Frames: lost, After: t.at.id})
}

// close yields the end of an attempt.
func (t *tail) close(a *answer) bool {
	if a.state.Attempts == 0 {
		return a.state.NextAttempt >= 0 && t.skip() // the execution ended without this attempt
	}
	if !t.gap(a.state.Durable - t.at.durable) {
		return false
	}
	f := Entry{
		Execution: t.execution, Attempt: t.at.attempt, Number: a.state.Frames, Closed: a.closed, durable: a.state.Durable,
	}
	if a.state.TsMs >= 0 {
		f.ID = wire.FramePosition{TsMs: a.state.TsMs, Seq: a.state.Seq}
	}
	t.at = f.Position()
	return t.yield(f, nil) && !a.closed.Last
}

// skip continues after an attempt that does not exist.
func (t *tail) skip() bool {
	t.at.closed = true
	return !t.options.OneAttempt
}
