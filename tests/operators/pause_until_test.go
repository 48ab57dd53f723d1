package operators

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// pausedFor pauses the fixture's lane for a time.
func pausedFor(t *testing.T, f *fixture.Fixture, d time.Duration, reason string) {
	t.Helper()
	if err := operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{Until: f.Time().Add(d), Reason: reason}); err != nil {
		t.Fatal(err)
	}
}

// A pause ends at its instant in every way of claiming, although no operator and no background work ends it.
func TestPauseEndsByTheClock(t *testing.T) {
	for _, way := range []string{
		"from the head", "by another process", "in a transaction", "by a claimer", "after positions", "beside another lane", "beside a completion",
		"locking first",
	} {
		t.Run(way, func(t *testing.T) {
			f := fixture.NewCloned(t)
			for range 3 {
				f.Create(t)
			}
			take := waysToClaim(t, f)[way]
			pausedFor(t, f, time.Second, "")
			f.Advance(time.Second - time.Millisecond)
			if claimed := take(t); len(claimed) != 0 {
				t.Fatalf("claimed %v before the end", fixture.ExecutionsOf(claimed))
			}
			f.Advance(time.Millisecond)
			if claimed := take(t); len(claimed) == 0 {
				t.Error("claimed nothing at the end")
			}
		})
	}
}

// Grants are refused until the end, too.
func TestPauseOfGrantsEndsByTheClock(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t)
	pausedFor(t, f, time.Second, "")
	if _, err := interop.IssueClaimGrant(t.Context(), f.Engine, f.GrantSpec(x)); !errors.Is(err, fferr.ErrHalted) {
		t.Errorf("issued before the end: %v", err)
	}
	f.Advance(time.Second)
	if _, err := interop.IssueClaimGrant(t.Context(), f.Engine, f.GrantSpec(x)); err != nil {
		t.Error(err)
	}
}

// Lists have a pause until its end. Repeating a pause replaces the end, also by none; repeating an ended one begins anew.
func TestPauseIsListedUntilItsEnd(t *testing.T) {
	f := fixture.NewCloned(t)
	want := func(when string, want ...operator.PausedLane) {
		t.Helper()
		got := fixture.Listed(t, operator.PausedLanes(t.Context(), f.Engine))
		lanes := fixture.Listed(t, f.Lanes(t.Context(), engine.LaneFilter{}))
		if len(got) != len(want) || len(lanes) != len(want) {
			t.Fatalf("%s: %v and %v, want %v", when, got, lanes, want)
		}
		for i, lane := range want {
			summary := engine.LaneSummary{ID: lane.Lane, PausedSince: lane.Since, PausedUntil: lane.Until, PauseReason: lane.Reason}
			if got[i] != lane || lanes[i] != summary {
				t.Errorf("%s: %v and %v, want %v", when, got[i], lanes[i], lane)
			}
		}
	}
	paused := operator.PausedLane{Lane: f.Lane, Since: f.Time(), Until: f.Time().Add(time.Minute), Reason: "a"}
	pausedFor(t, f, time.Minute, "a")
	want("paused", paused)
	f.Advance(time.Second)
	pausedFor(t, f, time.Second, "a")
	paused.Until = f.Time().Add(time.Second)
	want("for a shorter time", paused)
	if err := operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{Reason: "b"}); err != nil {
		t.Fatal(err)
	}
	paused.Until, paused.Reason = time.Time{}, "b"
	f.Advance(time.Hour)
	want("without an end", paused)
	pausedFor(t, f, time.Second, "b")
	f.Advance(time.Second)
	want("ended")
	f.Advance(time.Second)
	pausedFor(t, f, time.Second, "b")
	paused.Since, paused.Until = f.Time(), f.Time().Add(time.Second)
	want("paused anew", paused)
}

// An end that has passed is refused, and changes nothing.
func TestPauseUntilThePastIsRefused(t *testing.T) {
	f := fixture.NewCloned(t)
	pausedFor(t, f, time.Minute, "a")
	for _, d := range []time.Duration{0, -time.Second} {
		err := operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{Until: f.Time().Add(d)})
		fixture.WantInputError(t, err, "Until")
	}
	if lanes := fixture.Listed(t, operator.PausedLanes(t.Context(), f.Engine)); len(lanes) != 1 || lanes[0].Reason != "a" {
		t.Errorf("paused are %v", lanes)
	}
}

// The sweep deletes the row of an ended pause, unless the lane has been paused again.
func TestRepairQueueForgetsEndedPauses(t *testing.T) {
	f := fixture.NewCloned(t)
	rows := func() int { return len(fixture.Texts(t, f.Pool, "SELECT name FROM ffx_pause")) }
	pausedFor(t, f, time.Second, "")
	f.Repair(t, 10)
	if n := rows(); n != 1 {
		t.Fatalf("%d rows before the end", n)
	}
	f.Advance(time.Second)
	tx := f.BeginTx(t)
	if err := operator.PauseLane(t.Context(), f.WithTx(tx), f.Lane, operator.LanePause{}); err != nil {
		t.Fatal(err)
	}
	f.Repair(t, 10)
	fixture.Commit(t, tx)
	f.Repair(t, 10)
	if n := rows(); n != 1 {
		t.Fatalf("%d rows although the lane is paused again", n)
	}
	pausedFor(t, f, time.Second, "")
	f.Advance(time.Second)
	f.Repair(t, 10)
	if n := rows(); n != 0 {
		t.Errorf("%d rows after the end", n)
	}
}
