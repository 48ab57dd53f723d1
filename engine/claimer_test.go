package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// A claimer's memory, without the database: tests/claimer_test.go has the claims.

// at is a claimed execution of a priority and an age.
func at(priority int, created time.Duration) Claimed {
	return Claimed{
		Lease:     Lease{Execution: id.NewExecutionID("lane", id.Partitions{})},
		Priority:  priority,
		CreatedAt: time.UnixMilli(created.Milliseconds()),
	}
}

// wantBounds expects a claimer to go on behind exactly these executions.
func wantBounds(t *testing.T, c *Claimer, want ...Claimed) {
	t.Helper()
	same := func(b bound, x Claimed) bool {
		return b.priority == int32(x.Priority) && b.createdAtMs == x.CreatedAt.UnixMilli() && b.execution == x.Execution.UUID()
	}
	if !slices.EqualFunc(c.bounds, want, same) {
		t.Errorf("bounds %+v, want those of %+v", c.bounds, want)
	}
}

// A full look from which work of a high priority comes says nothing of the others: if it forgot their bounds,
// the next claim there would need one more.
func TestClaimer_bounds_of_other_priorities_stay_over_a_full_look(t *testing.T) {
	t.Parallel()
	c := new(Claimer)
	high, low := at(5, time.Second), at(1, time.Second)
	c.advance([]Claimed{high, low}, 2, true)
	higher := at(5, time.Minute)
	c.advance([]Claimed{higher}, 1, true)
	wantBounds(t, c, higher, low)
	c.advance([]Claimed{higher}, 1, true)
	wantBounds(t, c, higher)
}

// Of the work that a full look found before the bound there may be more than it took.
func TestClaimer_bound_goes_back_to_where_a_full_look_ended(t *testing.T) {
	t.Parallel()
	c := new(Claimer)
	c.advance([]Claimed{at(1, time.Hour)}, 1, true)
	older := at(1, time.Second)
	c.advance([]Claimed{older}, 1, true)
	wantBounds(t, c, older)
}

// A claim behind the bounds answers out of order when two run at once; the bound is the later one.
func TestClaimer_bound_only_rises_with_claims_behind_it(t *testing.T) {
	t.Parallel()
	c := new(Claimer)
	later := at(1, time.Hour)
	c.advance([]Claimed{later}, 1, false)
	c.advance([]Claimed{at(1, time.Second)}, 1, false)
	wantBounds(t, c, later)
}

// A look that was held up for a minute, as by a server that stood still, does not keep work waiting for ten.
func TestClaimer_looks_again_soon_after_one_that_was_held_up(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := new(Claimer)
		began := c.beginLook()
		time.Sleep(time.Minute)
		c.looked(began, 0)
		c.bounds = []bound{{priority: 1}}
		if c.mayLook() {
			t.Error("a slow look in vain is followed by another at once")
		}
		time.Sleep(2*time.Second + time.Millisecond)
		if !c.mayLook() {
			t.Error("after a short answer, want a full look within two seconds")
		}
		if c.current() == nil {
			t.Error("under full load a slow look is due after two seconds")
		}
		time.Sleep(8 * time.Second)
		if c.current() != nil {
			t.Error("under full load, want a full look within ten seconds")
		}
	})
}

// As long as slow looks find work, and nothing is found elsewhere, one follows the other. In vain they are paced.
func TestClaimer_goes_on_looking_while_it_finds_work(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := new(Claimer)
		look := func(found int) {
			began := c.beginLook()
			time.Sleep(100 * time.Millisecond)
			c.looked(began, found)
			c.advance(slices.Repeat([]Claimed{at(1, 0)}, found), 5, true)
		}
		look(5)
		c.LookAgain()
		if c.current() == nil {
			t.Error("under full load a slow look follows the other at once")
		}
		look(2)
		if !c.mayLook() {
			t.Error("after a look that found some, want another at once")
		}
		c.LookAgain()
		if c.current() != nil {
			t.Error("told of work, want a full look at once")
		}
		look(0)
		if c.LookAgain(); c.mayLook() {
			t.Error("a slow look in vain is followed by another at once")
		}
		time.Sleep(toldPace*100*time.Millisecond + 1)
		if !c.mayLook() {
			t.Error("want a look after ten times as long as one takes")
		}
	})
}
