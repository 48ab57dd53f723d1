package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// frames returns n frames of a mode.
func frames(n int, mode stream.Mode) []stream.FrameSpec {
	specs := make([]stream.FrameSpec, n)
	for i := range specs {
		specs[i] = stream.FrameSpec{Payload: fmt.Appendf(nil, `{"n":%d}`, i), Mode: mode}
	}
	return specs
}

// renew extends a lease past the next steps of a test's clock.
func renew(t *testing.T, f *fixture.Fixture, work engine.Claimed) {
	t.Helper()
	if _, err := f.Engine.RenewLease(t.Context(), work.Lease, time.Hour); err != nil {
		t.Fatal(err)
	}
}

// kept returns the numbers of an attempt's frames of a mode.
func kept(t *testing.T, f *fixture.Fixture, work engine.Claimed, mode stream.Mode) []int64 {
	t.Helper()
	return fixture.Collect(t, pgx.RowTo[int64], f.Pool, `
		SELECT ffx_number FROM ff_stream_frame
		WHERE partition_key = $1 AND execution_id = $2 AND attempt_index = $3 AND mode = $4
		ORDER BY ts_ms, seq`, work.ID.Partition(), work.ID.UUID(), work.Lease.Attempt, string(mode))
}

// requireNewest fails unless numbers end with last, without gaps, and are between least and most.
func requireNewest(t *testing.T, numbers []int64, last int64, least, most int) {
	t.Helper()
	if n := len(numbers); n < least || n > most || numbers[n-1] != last || numbers[0] != last-int64(n)+1 {
		t.Errorf("%d frames are kept, want %d to %d up to number %d: %d", n, least, most, last, numbers)
	}
}

// A hundred best-effort frames keep at least 64, however slowly they come, and the durable ones among them stay.
func TestBestEffortFramesAreTrimmed_S41_S42(t *testing.T) {
	f := fixture.New(t)
	eng := f.EngineOn(t, f.Pool, engine.Config{Streams: engine.StreamConfig{BestEffort: engine.BestEffort{TTL: 10 * time.Minute}}})
	work := f.Start(t)
	renew(t, f, work)
	appendTo(t, eng, work.Lease, frames(10, stream.Durable)...)
	appendTo(t, eng, work.Lease, frames(3, stream.Summary)...)
	deletions := 0
	for i := range 200 {
		f.Advance(10 * time.Second)
		appendTo(t, eng, work.Lease, frames(1, stream.BestEffort)...)
		if n := len(kept(t, f, work, stream.BestEffort)); n < min(i+1, 64) {
			t.Fatalf("after %d frames %d are kept", i+1, n)
		} else if n <= 120 && i > 120 {
			deletions++
		}
	}
	// One frame in 10 s is 120 within 20 min. The rate of the first frames is higher.
	requireNewest(t, kept(t, f, work, stream.BestEffort), 213, 64, 140)
	if deletions == 0 {
		t.Error("nothing was deleted")
	}
	if n := len(kept(t, f, work, stream.Durable)); n != 10 {
		t.Errorf("%d durable frames are left, want 10", n)
	}
	if n := len(kept(t, f, work, stream.Summary)); n != 3 {
		t.Errorf("%d summary frames are left, want 3", n)
	}
}

// Frames older than twice the TTL go even if they are few.
func TestBestEffortFramesExpire_S42(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	renew(t, f, work)
	appendTo(t, f.Engine, work.Lease, frames(15, stream.BestEffort)...)
	appendTo(t, f.Engine, work.Lease, frames(2, stream.Durable)...)
	f.Advance(61 * time.Second)
	appendTo(t, f.Engine, work.Lease, frames(1, stream.BestEffort)...)
	requireNewest(t, kept(t, f, work, stream.BestEffort), 18, 1, 1)
	if n := len(kept(t, f, work, stream.Durable)); n != 2 {
		t.Errorf("%d durable frames are left, want 2", n)
	}
}

// A stream that is too fast for Most keeps that many, and the counts beside the rate agree with its frames.
func TestBestEffortFramesKeepAtMost(t *testing.T) {
	f := fixture.New(t)
	eng := f.EngineOn(t, f.Pool, engine.Config{Streams: engine.StreamConfig{BestEffort: engine.BestEffort{Least: 20, Most: 30}}})
	work := f.Start(t)
	for range 20 {
		appendTo(t, eng, work.Lease, slices.Concat(frames(7, stream.BestEffort), frames(1, stream.Durable))...)
	}
	numbers := kept(t, f, work, stream.BestEffort)
	if n := len(numbers); n < 30 || n > 30+16+6 {
		t.Errorf("%d frames are kept", n)
	}
	if got := fixture.Collect(t, pgx.RowTo[int], f.Pool, "SELECT ffx_kept FROM ff_stream_meta WHERE execution_id = $1", work.ID.UUID()); got[0] != len(numbers) {
		t.Errorf("%d frames are counted, %d kept", got[0], len(numbers))
	}
	if n := len(kept(t, f, work, stream.Durable)); n != 20 {
		t.Errorf("%d durable frames are left, want 20", n)
	}
}

// The newest 64 summary frames stay. The document has all patches.
func TestSummaryFramesAreTrimmed_S42(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	for i := range 50 {
		appendTo(t, f.Engine, work.Lease, frames(3, stream.Summary)...)
		if n := len(kept(t, f, work, stream.Summary)); n < min(3*i+3, 64) || n > 64+16+2 {
			t.Fatalf("after %d frames %d are kept", 3*i+3, n)
		}
	}
	requireNewest(t, kept(t, f, work, stream.Summary), 150, 64, 80)
	summary, err := stream.ReadSummary(t.Context(), f.Engine, work.ID, 0)
	if err != nil || summary.Version != 150 {
		t.Errorf("version %d, %v", summary.Version, err)
	}
}

// DurableMaxlen keeps the newest durable frames, by the fast path and under locks, and a tail reports the others.
func TestDurableMaxlenKeepsTheNewest(t *testing.T) {
	f := fixture.New(t)
	eng := f.EngineOn(t, f.Pool, engine.Config{Streams: engine.StreamConfig{DurableMaxlen: 40}})
	work := f.Start(t)
	for i := range 40 {
		specs := frames(5, stream.Durable)
		if i%4 == 3 {
			specs = append(specs, frames(1, stream.BestEffort)...)
		}
		appendTo(t, eng, work.Lease, specs...)
		if n := len(kept(t, f, work, stream.Durable)); n < min(5*i+5, 40) || n > 40+16+5 {
			t.Fatalf("after %d frames %d are kept", 5*i+5, n)
		}
	}
	if n := len(kept(t, f, work, stream.BestEffort)); n != 10 {
		t.Errorf("%d best-effort frames are left, want 10", n)
	}
	left := len(kept(t, f, work, stream.Durable))
	if err := eng.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}
	missing := int64(0)
	for _, err := range stream.Tail(context.WithoutCancel(t.Context()), eng, work.ID, stream.TailOptions{}) {
		if gap, ok := errors.AsType[*fferr.StreamGapError](err); ok {
			missing += gap.Frames
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if missing != int64(200-left) {
		t.Errorf("a tail misses %d frames, want %d", missing, 200-left)
	}
}

// Most appends delete nothing: 160 frames are trimmed at most ten times.
func TestTrimmingLags_S41(t *testing.T) {
	f := fixture.NewCloned(t)
	eng := f.EngineOn(t, f.Pool, engine.Config{Streams: engine.StreamConfig{BestEffort: engine.BestEffort{Least: 20, Most: 20}}})
	work := f.Start(t)
	trims, before := 0, 0
	for range 160 {
		appendTo(t, eng, work.Lease, frames(1, stream.BestEffort)...)
		n := len(kept(t, f, work, stream.BestEffort))
		if n <= before {
			trims++
		}
		before = n
	}
	if trims < 5 || trims > 10 {
		t.Errorf("160 appends trimmed %d times", trims)
	}
}
