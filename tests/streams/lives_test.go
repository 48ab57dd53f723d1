package streams

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A reclaim goes on with the stream of its attempt, a retry begins another one, a replay goes on with the last one, and a
// fork has none.
func TestStreamsOfSeveralLives(t *testing.T) {
	f := fixture.NewCloned(t)
	work := f.Start(t)
	appendTo(t, f.Engine, work.Lease, frames(2, stream.Durable)...)
	f.Advance(fixture.LeaseTTL + time.Second)
	if _, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	again := f.ClaimOne(t)
	if again.ID != work.ID || again.Lease.Attempt != 0 || again.Lease.Epoch == work.Lease.Epoch {
		t.Fatalf("reclaimed %+v", again.Lease)
	}
	if got := appendTo(t, f.Engine, again.Lease, frames(1, stream.Durable)...); got.Frames != 3 {
		t.Errorf("a reclaimed attempt has %d frames, want 3", got.Frames)
	}
	if _, err := f.Engine.FailExecution(t.Context(), again.Lease, engine.Failure{Message: "no", Class: policy.Transient}); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Hour)
	if _, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	retry := f.ClaimOne(t)
	if got := appendTo(t, f.Engine, retry.Lease, frames(1, stream.Durable)...); retry.Lease.Attempt != 1 || got.Frames != 1 {
		t.Errorf("attempt %d has %d frames, want attempt 1 with one", retry.Lease.Attempt, got.Frames)
	}
	if err := f.Engine.CompleteExecution(t.Context(), retry.Lease, nil); err != nil {
		t.Fatal(err)
	}
	page, err := f.Engine.ListAttempts(t.Context(), work.ID, "", 0)
	if err != nil || len(page.Items) != 2 || page.Items[0].Frames != 3 || page.Items[1].Frames != 1 || page.Items[1].FrameAt.UnixMilli() != f.Clock.Load() {
		t.Errorf("attempts %+v, %v", page.Items, err)
	}
	if _, err := operator.Replay(t.Context(), f.Engine, work.ID, operator.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	replayed := f.ClaimOne(t)
	if got := appendTo(t, f.Engine, replayed.Lease, frames(1, stream.Durable)...); replayed.Lease.Attempt != 1 || got.Frames != 2 {
		t.Errorf("attempt %d of a replay has %d frames, want attempt 1 with two", replayed.Lease.Attempt, got.Frames)
	}
	if err := f.Engine.CompleteExecution(t.Context(), replayed.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Fork(t.Context(), f.Engine, work.ID, operator.ForkSpec{}); err != nil {
		t.Fatal(err)
	}
	fork := f.ClaimOne(t)
	if got := appendTo(t, f.Engine, fork.Lease, frames(1, stream.Durable)...); fork.ID == work.ID || got.Frames != 1 {
		t.Errorf("a fork has %d frames, want one", got.Frames)
	}
}

// A replay continues the attempt and its stream, also for a reader that had its end before.
func TestTailGoesOnWithAReplay(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	appendTo(t, f.Engine, work.Lease, texts("before")...)
	if err := f.Engine.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}
	read := func(after stream.Position) (payloads []string, last stream.Position) {
		last = after
		for frame, err := range stream.Tail(t.Context(), f.Engine, work.ID, stream.TailOptions{After: after}) {
			if err != nil {
				t.Fatal(err)
			}
			payloads, last = append(payloads, string(frame.Payload)), frame.Position()
		}
		return payloads, last
	}
	payloads, end := read(stream.Position{})
	if !slices.Equal(payloads, []string{"before", ""}) {
		t.Errorf("before the replay %q", payloads)
	}
	if again, _ := read(end); len(again) != 0 {
		t.Errorf("after the end %q", again)
	}
	if _, err := operator.Replay(t.Context(), f.Engine, work.ID, operator.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	replayed := f.ClaimOne(t)
	appendTo(t, f.Engine, replayed.Lease, texts("replayed")...)
	if err := f.Engine.CompleteExecution(t.Context(), replayed.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if payloads, _ := read(end); !slices.Equal(payloads, []string{"replayed", ""}) {
		t.Errorf("after the replay %q", payloads)
	}
	if x, err := f.Engine.DescribeExecution(t.Context(), work.ID); err != nil || x.Attempt.Frames != 2 {
		t.Errorf("the attempt has %d frames, %v", x.Attempt.Frames, err)
	}
}
