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
		ID:        id.NewExecutionID("lane", id.Partitions{}),
		Priority:  priority,
		CreatedAt: time.UnixMilli(created.Milliseconds()),
	}
}

// wantBounds expects a claimer to go on behind exactly these executions.
func wantBounds(t *testing.T, c *Claimer, want ...Claimed) {
	t.Helper()
	same := func(b bound, x Claimed) bool {
		return b.priority == int32(x.Priority) && b.createdAtMs == x.CreatedAt.UnixMilli() && b.execution == x.ID.UUID()
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
		<-time.After(time.Minute)
		c.looked(began)
		c.advance(nil, 1, true)
		c.bounds = []bound{{priority: 1}}
		if c.mayLook() {
			t.Error("a slow look in vain is followed by another at once")
		}
		<-time.After(2*time.Second + time.Millisecond)
		if !c.mayLook() {
			t.Error("after a short answer, want a full look within two seconds")
		}
		if c.current() == nil {
			t.Error("under full load a slow look is due after two seconds")
		}
		<-time.After(8 * time.Second)
		if c.current() != nil {
			t.Error("under full load, want a full look within ten seconds")
		}
	})
}

// As long as slow looks find what the bounds hide, and nothing is found elsewhere, one follows the other. In vain
// they are paced, also when work came at that moment that a claim behind the bounds would have found.
func TestClaimer_goes_on_looking_while_that_finds_work(t *testing.T) {
	t.Parallel()
	first := at(1, time.Hour)
	resumed := at(1, 2*time.Hour)
	resumed.Resumed = true
	for _, c := range []struct {
		name  string
		found []Claimed
		again bool
	}{
		{"nothing", nil, false},
		{"what has just come", []Claimed{at(1, 2*time.Hour), at(1, 3*time.Hour)}, false},
		{"older work", []Claimed{at(1, 2*time.Hour), at(1, time.Second)}, true},
		{"an interrupted attempt", []Claimed{resumed}, true},
		{"another priority", []Claimed{at(2, 2*time.Hour)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claimer := new(Claimer)
				look := func(found []Claimed, n int) {
					began := claimer.beginLook()
					<-time.After(100 * time.Millisecond)
					claimer.looked(began)
					claimer.advance(found, n, true)
				}
				look([]Claimed{first}, 1)
				claimer.LookAgain()
				if claimer.current() == nil {
					t.Error("under full load a slow look follows the other at once")
				}
				look(c.found, 5)
				claimer.LookAgain()
				if claimer.mayLook() != c.again || len(c.found) > 0 && (claimer.current() == nil) != c.again {
					t.Errorf("another look at once: %v, want %v", !c.again, c.again)
				}
				<-time.After(toldPace*100*time.Millisecond + 1)
				if !claimer.mayLook() || claimer.current() != nil {
					t.Error("want a look after ten times as long as one takes")
				}
			})
		})
	}
}

// While looks in vain are paced, a claimer that is told of work goes back a little: what was committed late stands
// there. Of what is older it learns by the next look, which stays due.
func TestClaimer_told_goes_back_to_what_was_committed_late(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := new(Claimer)
		for range 2 { // the first one found something, the second one nothing
			began := c.beginLook()
			<-time.After(100 * time.Millisecond)
			c.looked(began)
			var found []Claimed
			if len(c.bounds) == 0 {
				found = []Claimed{at(3, time.Hour), at(1, time.Hour)}
			}
			c.advance(found, 5, true)
		}
		if got := c.current(); !slices.Equal(got, c.bounds) {
			t.Errorf("told of nothing it goes on behind %+v, want %+v", got, c.bounds)
		}
		c.LookAgain()
		for range 2 {
			got := c.current()
			if len(got) != 2 || got[0].createdAtMs != (time.Hour-time.Second).Milliseconds() || got[1].createdAtMs != got[0].createdAtMs {
				t.Fatalf("told of work it goes on behind %+v, want a second before %+v", got, c.bounds)
			}
			c.advance(nil, 5, false)
		}
		<-time.After(toldPace*100*time.Millisecond + 1)
		if c.current() != nil {
			t.Error("want a full look after ten times as long as one takes")
		}
		c.advance([]Claimed{at(1, 2*time.Hour)}, 1, false)
		c.lookedAt = time.Now()
		if got := c.current(); !slices.Equal(got, c.bounds) {
			t.Errorf("under full load it goes back, behind %+v", got)
		}
	})
}

// Full scans that are fruitless again and again become rarer, down to what is right under full load; one that finds what
// the scan positions hide ends that.
func TestN1_fruitless_full_scans_become_rarer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := new(Claimer)
		scan := func(found ...Claimed) {
			began := c.beginLook()
			<-time.After(20 * time.Millisecond)
			c.looked(began)
			c.advance(found, 5, true)
		}
		scan(at(1, time.Hour))
		for _, pace := range []time.Duration{10, 20, 30, 40, 50, 50} {
			scan()
			c.LookAgain()
			<-time.After(pace * 20 * time.Millisecond)
			if c.mayLook() {
				t.Errorf("another full scan is due before %d times as long as one takes", pace)
			}
			<-time.After(time.Millisecond)
			if !c.mayLook() || c.current() != nil {
				t.Errorf("no full scan is due after %d times as long as one takes", pace)
			}
		}
		scan(at(1, time.Second))
		if !c.mayLook() {
			t.Error("after a full scan that found something another one may follow at once")
		}
	})
}

// A claim that comes back short takes the positions to the ends of the lane, where they are known: from the head at
// every priority, from positions only at theirs, and never back.
func TestN1_positions_move_to_the_ends_of_a_crowded_lane(t *testing.T) {
	t.Parallel()
	c := new(Claimer)
	high, low := at(5, time.Hour), at(1, time.Minute)
	ends := []Claimed{at(5, time.Minute), at(3, time.Hour), at(1, time.Hour)}
	pass := func(took time.Duration, claimed int, at ...Claimed) {
		var ends []bound
		for i := range at {
			ends = append(ends, boundAt(&at[i]))
		}
		c.passed(&c.crowded, took, claimed, ends)
	}
	c.advance([]Claimed{high, low}, 5, true)
	pass(longPass, 0)
	wantBounds(t, c, high, low)
	if c.crowded {
		t.Error("crowded after a quick claim")
	}
	pass(longPass+1, 0, ends[0], ends[2])
	wantBounds(t, c, high, ends[2])
	if !c.crowded {
		t.Error("not crowded after a slow claim that took nothing")
	}
	pass(2*longPass, 100, ends...)
	wantBounds(t, c, high, ends[1], ends[2])
	if c.crowded {
		t.Error("crowded after a claim that took as long as its executions do")
	}
}
