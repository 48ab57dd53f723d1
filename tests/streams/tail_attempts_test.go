package streams

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An attempt whose lease has expired ends with its reclaim, and the next one follows.
func TestTailGoesOnAfterAReclaim(t *testing.T) {
	f := fixture.NewCloned(t)
	work := f.Start(t)
	l := follow(t, f.Engine, work.ID, stream.TailOptions{})
	appendTexts(t, f.Engine, work.Lease, "a")
	l.want(t, "0 a")
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	again := f.ClaimOne(t)
	_, err := stream.Append(t.Context(), f.Engine, work.Lease, []stream.FrameSpec{{Payload: []byte("late")}})
	fixture.WantLeaseError(t, err, fferr.ErrStaleLease)
	appendTexts(t, f.Engine, again.Lease, "b")
	complete(t, f.Engine, again.Lease)
	if again.Lease.Attempt == 0 {
		l.want(t, "0 b")
	} else {
		l.want(t, "0 closed attempt_interrupted last=false", fmt.Sprintf("%d b", again.Lease.Attempt))
	}
	l.want(t, fmt.Sprintf("%d closed attempt_success last=true", again.Lease.Attempt))
	l.wantEnd(t)
}

// A suspension does not end the attempt: its frames go on, under another epoch.
func TestTailGoesOnAfterASuspension(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	l := follow(t, f.Engine, work.ID, stream.TailOptions{})
	appendTexts(t, f.Engine, work.Lease, "a")
	before := l.next(t)
	f.SuspendAgain(t, work.Lease, engine.Received("ready"))
	if err := f.Resume(t.Context(), work.ID, 0); err != nil {
		t.Fatal(err)
	}
	resumed := f.ClaimOne(t)
	appendTexts(t, f.Engine, resumed.Lease, "b")
	after := l.next(t)
	if before.String() != "0 a" || after.String() != "0 b" || before.frame.Epoch == after.frame.Epoch || after.frame.Epoch != resumed.Lease.Epoch {
		t.Errorf("got %q of epoch %d, then %q of %d", before, before.frame.Epoch, after, after.frame.Epoch)
	}
	complete(t, f.Engine, resumed.Lease)
	l.want(t, "0 closed attempt_success last=true")
	l.wantEnd(t)
}

// A tail that resumes at a position has all values behind it, for every position and page.
func TestTailResumesAnywhere(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t, fixture.Retrying(*policy.ImmediateRetries(1)))
	for attempt := range 2 {
		for batch := range 4 {
			frames := make([]stream.FrameSpec, 10)
			for i := range frames {
				frames[i] = stream.FrameSpec{Payload: fmt.Appendf(nil, "%d.%d", batch, i)}
				if i%3 == 1 {
					frames[i].Mode = stream.BestEffort
				}
			}
			if _, err := stream.Append(t.Context(), f.Engine, work.Lease, frames); err != nil {
				t.Fatal(err)
			}
			f.Advance(1)
		}
		if attempt == 0 {
			f.Fail(t, work.Lease, engine.Failure{})
			work = f.ClaimOne(t)
		}
	}
	complete(t, f.Engine, work.Lease)
	values := func(o stream.TailOptions) (all []string, positions []stream.Position) {
		for frame, err := range stream.Tail(t.Context(), f.Engine, work.ID, o) {
			v := value{frame, err}
			all, positions = append(all, v.String()), append(positions, frame.Position())
			if err != nil || frame.Trimmed != 0 {
				t.Fatalf("%s, %d trimmed", v, frame.Trimmed)
			}
		}
		return all, positions
	}
	for _, skip := range []bool{false, true} {
		all, positions := values(stream.TailOptions{SkipBestEffort: skip})
		if want := map[bool]int{false: 82, true: 58}[skip]; len(all) != want {
			t.Fatalf("%d values, want %d", len(all), want)
		}
		fixture.Check(t, func(r *rapid.T) {
			n := rapid.IntRange(0, len(all)-1).Draw(r, "position")
			at, err := stream.ParsePosition(positions[n].String())
			if err != nil || at != positions[n] {
				r.Fatalf("%s is read as %s: %v", positions[n], at, err)
			}
			rest, _ := values(stream.TailOptions{After: at, SkipBestEffort: skip})
			if n == len(all)-1 {
				rest = nil // behind the end of the execution a tail waits for a replay
			}
			if fmt.Sprint(rest) != fmt.Sprint(all[n+1:]) {
				r.Fatalf("behind %s: %q, want %q", at, rest, all[n+1:])
			}
		})
	}
}

// Frames that are no longer kept are noticed: durable ones by an error, behind which the tail goes on, others by a count.
func TestTailReportsMissingFrames(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	for n := range 10 {
		frame := stream.FrameSpec{Payload: fmt.Append(nil, n)}
		if n >= 5 && n < 8 {
			frame.Mode = stream.BestEffort
		}
		if _, err := stream.Append(t.Context(), f.Engine, work.Lease, []stream.FrameSpec{frame}); err != nil {
			t.Fatal(err)
		}
	}
	complete(t, f.Engine, work.Lease)
	drop := func(numbers ...int) {
		f.Exec(t, "DELETE FROM ff_stream_frame WHERE execution_id = $1 AND ffx_number = ANY ($2)", work.ID.UUID(), numbers)
	}
	want := func(gaps map[int]int64, trimmed map[int]int64, numbers ...int) {
		t.Helper()
		n := 0
		for frame, err := range stream.Tail(t.Context(), f.Engine, work.ID, stream.TailOptions{}) {
			gap, isGap := errors.AsType[*fferr.StreamGapError](err)
			switch {
			case isGap:
				if !errors.Is(err, fferr.ErrStreamGap) || gap.Frames != gaps[n] || gap.Execution != work.ID {
					t.Errorf("before value %d: %v, want %d frames", n, err, gaps[n])
				}
				delete(gaps, n)
			case err != nil:
				t.Fatal(err)
			case frame.Closed != nil:
				if n != len(numbers) {
					t.Errorf("closed after %d frames, want %d", n, len(numbers))
				}
			default:
				if int(frame.Number) != numbers[n] || frame.Trimmed != trimmed[n] {
					t.Errorf("value %d is frame %d with %d trimmed, want %d with %d", n, frame.Number, frame.Trimmed, numbers[n], trimmed[n])
				}
				n++
			}
		}
		if len(gaps) > 0 {
			t.Errorf("no gaps were reported before %v", gaps)
		}
	}
	drop(1, 2, 4)
	want(map[int]int64{0: 2, 1: 1}, nil, 3, 5, 6, 7, 8, 9, 10)
	drop(6, 7)
	want(map[int]int64{0: 2, 1: 1}, map[int]int64{2: 2}, 3, 5, 8, 9, 10)
	drop(8, 9)
	want(map[int]int64{0: 2, 1: 1, 2: 1}, map[int]int64{2: 3}, 3, 5, 10)
	drop(10)
	want(map[int]int64{0: 2, 1: 1, 2: 2}, nil, 3, 5)
}
