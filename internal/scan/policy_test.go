package scan

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// A bench scans a lane by a policy, in a time of its own. tests/claims has the tests of real claims.
type bench struct {
	Policy
	now time.Time
}

func newBench() *bench { return &bench{now: time.UnixMilli(1_000_000)} }

// at is an execution of a priority and an age.
func at(priority int32, created time.Duration) Found {
	return Found{Position: Position{Priority: priority, CreatedAtMs: created.Milliseconds(), Execution: id.NewExecutionUUID()}}
}

// full is a full scan that asks for wanted executions and takes so long.
func (b *bench) full(wanted int, took time.Duration, found ...Found) {
	b.scan(&Scan{Wanted: wanted, Found: found}, took)
}

// after is a scan after the current positions.
func (b *bench) after(wanted int, found ...Found) {
	b.scan(&Scan{After: b.at(), Wanted: wanted, Found: found}, 0)
}

func (b *bench) scan(s *Scan, took time.Duration) {
	b.Begin(s)
	s.Began = b.now
	b.now = b.now.Add(took)
	s.Ended = b.now
	b.End(s)
}

func (b *bench) at() []Position {
	at := make([]Position, len(b.positions))
	for i := range b.positions {
		at[i] = b.positions[i].Position
	}
	return at
}

func (b *bench) pass(d time.Duration) { b.now = b.now.Add(d) }

func (b *bench) fullIsDue() bool { return len(b.Next(b.now)) == 0 }

// wantPositions expects the next scan to start after exactly these executions.
func (b *bench) wantPositions(t *testing.T, want ...Found) {
	t.Helper()
	if !slices.EqualFunc(b.at(), want, func(p Position, f Found) bool { return p == f.Position }) {
		t.Errorf("positions %+v, want those of %+v", b.at(), want)
	}
}

func TestPolicyStartsWithAFullScan(t *testing.T) {
	t.Parallel()
	b := newBench()
	if !b.fullIsDue() {
		t.Error("want a full scan")
	}
	b.full(1, time.Millisecond, at(1, 0))
	if b.fullIsDue() {
		t.Error("another full scan is due at once")
	}
	b.pass(fullInterval + 1)
	if !b.fullIsDue() {
		t.Error("no full scan is due after a second")
	}
}

// A full scan that finds work of a high priority says nothing about the others: if it forgot their positions, the
// next claim there would need another full scan.
func TestPolicyKeepsOtherPositionsAcrossFullScans(t *testing.T) {
	t.Parallel()
	b := newBench()
	high, low := at(5, time.Second), at(1, time.Second)
	b.full(2, 0, high, low)
	higher := at(5, time.Minute)
	b.full(1, 0, higher)
	b.wantPositions(t, higher, low)
	b.full(1, 0, higher)
	b.wantPositions(t, higher)
}

// A halted scan says nothing: the positions stay, full scans do not become rarer, and the next one is full.
func TestPolicyIgnoresHaltedScans(t *testing.T) {
	t.Parallel()
	b := newBench()
	last := at(1, time.Second)
	b.full(1, time.Millisecond, last)
	before := b.fruitless
	for range 10 {
		for _, after := range [][]Position{nil, b.at()} {
			b.Begin(&Scan{After: after, Wanted: 1})
			b.Halted()
		}
		b.pass(time.Millisecond)
	}
	b.wantPositions(t, last)
	if b.fruitless != before || !b.fullIsDue() {
		t.Errorf("%d fruitless scans, a full one due: %t; want %d, true", b.fruitless, b.fullIsDue(), before)
	}
}

// A full scan that found work before the position may have left more of it.
func TestPolicyPositionReturnsToTheFullScansEnd(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(1, 0, at(1, time.Hour))
	older := at(1, time.Second)
	b.full(1, 0, older)
	b.wantPositions(t, older)
}

// Two concurrent claims after the positions answer out of order; the position is the later one.
func TestPolicyPositionNeverFallsAfterClaims(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(1, 0, at(1, time.Second))
	later := at(1, time.Hour)
	b.after(1, later)
	b.after(1, at(1, time.Minute))
	b.wantPositions(t, later)
}

// Ids order executions of the same millisecond.
func TestPolicyPositionRisesWithIDs(t *testing.T) {
	t.Parallel()
	b := newBench()
	one, two := at(1, 0), at(1, 0)
	one.Execution, two.Execution = id.ExecutionUUID{1}, id.ExecutionUUID{2}
	b.full(1, 0, at(1, -time.Second))
	b.after(1, two)
	b.after(1, one)
	b.wantPositions(t, two)
}

func TestPolicyRemembersTheHighestPriorities(t *testing.T) {
	t.Parallel()
	b := newBench()
	var found []Found
	for priority := range int32(MaxPositions + 8) {
		found = append(found, at(MaxPositions+8-priority, 0))
	}
	b.full(len(found), 0, found...)
	b.wantPositions(t, found[:MaxPositions]...)
}

// A full scan that was delayed for a minute, as by a stopped server, does not keep work waiting for ten.
func TestPolicyScansSoonAfterADelayedScan(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(1, 0, at(1, 0))
	b.full(1, time.Minute)
	if b.MayFill(b.now) {
		t.Error("a slow, fruitless full scan is followed by another at once")
	}
	b.pass(2*time.Second + time.Millisecond)
	if !b.MayFill(b.now) {
		t.Error("after a short answer, want a full scan within two seconds")
	}
	if b.fullIsDue() {
		t.Error("under full load a slow full scan is due after two seconds")
	}
	b.pass(8 * time.Second)
	if !b.fullIsDue() {
		t.Error("under full load, want a full scan within ten seconds")
	}
}

// While slow full scans find work that the positions hide, and other scans find none, one follows the other.
// Fruitless ones are paced, even if new work arrived that a claim after the positions would have found.
func TestPolicyRepeatsFruitfulFullScans(t *testing.T) {
	t.Parallel()
	resumed := at(1, 2*time.Hour)
	resumed.Resumed = true
	for _, c := range []struct {
		name  string
		found []Found
		again bool
	}{
		{"nothing", nil, false},
		{"what has just come", []Found{at(1, 2*time.Hour), at(1, 3*time.Hour)}, false},
		{"older work", []Found{at(1, 2*time.Hour), at(1, time.Second)}, true},
		{"an interrupted attempt", []Found{resumed}, true},
		{"another priority", []Found{at(2, 2*time.Hour)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench()
			b.full(1, 100*time.Millisecond, at(1, time.Hour))
			b.Wake()
			if b.fullIsDue() {
				t.Error("under full load a slow full scan follows the other at once")
			}
			b.full(5, 100*time.Millisecond, c.found...)
			b.Wake()
			if b.MayFill(b.now) != c.again || b.fullIsDue() != c.again {
				t.Errorf("another full scan at once: %v, want %v", !c.again, c.again)
			}
			b.pass(wokenPace*100*time.Millisecond + 1)
			if !b.MayFill(b.now) || !b.fullIsDue() {
				t.Error("want a full scan after ten times as long as one takes")
			}
		})
	}
}

// While fruitless full scans are paced, a woken claimer starts a little before the positions, where late commits are.
// Older work has to wait for the next full scan, which stays due.
func TestPolicyWakeGoesBackForLateCommits(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(5, 100*time.Millisecond, at(3, time.Hour), at(1, time.Hour))
	b.full(5, 100*time.Millisecond)
	if got := b.Next(b.now); !slices.Equal(got, b.at()) {
		t.Errorf("not woken it goes on after %+v, want %+v", got, b.at())
	}
	b.Wake()
	for range 2 {
		got := b.Next(b.now)
		if len(got) != 2 || got[0].CreatedAtMs != (time.Hour-time.Second).Milliseconds() || got[1].CreatedAtMs != got[0].CreatedAtMs {
			t.Fatalf("woken it goes on after %+v, want a second before %+v", got, b.at())
		}
		b.scan(&Scan{After: got, Wanted: 5}, 0)
	}
	b.pass(wokenPace*100*time.Millisecond + 1)
	if !b.fullIsDue() {
		t.Error("want a full scan after ten times as long as one takes")
	}
	b.after(1, at(1, 2*time.Hour))
	b.endedAt = b.now
	if got := b.Next(b.now); !slices.Equal(got, b.at()) {
		t.Errorf("under full load it goes back, to %+v", got)
	}
}

// A wake-up during a full scan is about work that the scan may not have seen.
func TestPolicyKeepsAWakeupDuringAFullScan(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(1, time.Millisecond, at(1, 0))
	s := &Scan{Wanted: 5, Began: b.now}
	b.Wake()
	b.Begin(s)
	b.pass(time.Millisecond)
	s.Ended = b.now
	b.End(s)
	b.pass(wokenPace*time.Millisecond + 1)
	if b.fullIsDue() {
		t.Error("the wake-up is not answered by the full scan that began after it")
	}
	b.Begin(s)
	b.Wake()
	b.End(s)
	b.pass(2*wokenPace*time.Millisecond + 1)
	if !b.fullIsDue() {
		t.Error("the wake-up during the full scan is lost")
	}
}

// While each scan gets all it asks for, a wake-up is answered after a tenth of a second.
func TestPolicyAnswersWakeupsUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(1, time.Millisecond, at(1, 0))
	b.Wake()
	b.pass(wokenInterval)
	if b.fullIsDue() {
		t.Error("a full scan is due although each scan gets all it asks for")
	}
	b.pass(1)
	if !b.fullIsDue() {
		t.Error("no full scan is due after a tenth of a second")
	}
}

// A full scan that failed has answered nothing: the next one stays due.
func TestPolicyFailedFullScanStaysDue(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(1, time.Millisecond, at(1, 0))
	b.pass(fullInterval + 1)
	b.Begin(&Scan{Wanted: 1})
	if !b.fullIsDue() {
		t.Error("want a full scan again")
	}
}

// Fruitless full scans become rarer, down to the pace under full load; one that finds work that the positions hide
// ends that.
func TestFruitlessFullScansBecomeRarer(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.full(5, 20*time.Millisecond, at(1, time.Hour))
	for _, pace := range []time.Duration{10, 20, 30, 40, 50, 50} {
		b.full(5, 20*time.Millisecond)
		b.Wake()
		b.pass(pace * 20 * time.Millisecond)
		if b.MayFill(b.now) {
			t.Errorf("another full scan is due before %d times as long as one takes", pace)
		}
		b.pass(time.Millisecond)
		if !b.MayFill(b.now) || !b.fullIsDue() {
			t.Errorf("no full scan is due after %d times as long as one takes", pace)
		}
	}
	b.full(5, 20*time.Millisecond, at(1, time.Second))
	if !b.MayFill(b.now) {
		t.Error("after a full scan that found something another one may follow at once")
	}
}

// A claim that comes back short moves the positions to the known ends of the lane: from the head at every priority,
// after positions only at theirs, and never back.
func TestPositionsMoveToTheEndsOfACrowdedLane(t *testing.T) {
	t.Parallel()
	b := newBench()
	high, low := at(5, time.Hour), at(1, time.Minute)
	ends := []Position{at(5, time.Minute).Position, at(3, time.Hour).Position, at(1, time.Hour).Position}
	head := &Scan{Wanted: 500}
	b.full(5, longPass, high, low)
	b.wantPositions(t, high, low)
	if b.WantsEnds(head, b.now) {
		t.Error("crowded after a quick claim")
	}
	b.scan(&Scan{After: b.at(), Wanted: 500, Ends: ends}, longPass+1)
	b.wantPositions(t, high, Found{Position: ends[2]})
	if b.WantsEnds(head, b.now) || !b.WantsEnds(&Scan{After: b.at()}, b.now) {
		t.Error("not crowded after a slow claim that took nothing")
	}
	b.scan(&Scan{Wanted: 500, Ends: ends}, longPass+1)
	b.wantPositions(t, high, Found{Position: ends[1]}, Found{Position: ends[2]})
	if !b.WantsEnds(head, b.now) {
		t.Error("not crowded after a slow full scan that took nothing")
	}
	found := make([]Found, 100)
	for i := range found {
		found[i] = at(5, 2*time.Hour+time.Duration(i)*time.Second)
	}
	b.scan(&Scan{Wanted: 500, Ends: ends, Found: found}, 2*longPass)
	if b.WantsEnds(head, b.now) {
		t.Error("crowded after a claim that took as long as its executions do")
	}
	// A full answer does not move a position past entries it did not see.
	b.scan(&Scan{Wanted: 1, Ends: []Position{at(1, 3*time.Hour).Position}, Found: []Found{at(5, 3*time.Hour)}}, time.Second)
	if last := b.at()[2]; last != ends[2] {
		t.Errorf("a claim that got all it asked for moved a position to the end of the lane, %+v", last)
	}
}

// A scan in one transaction with scans of other lanes lasts as long as all of them. It may take its share of that
// time without having met a crowd, and its pace follows from its share.
func TestPolicyChargesItsShareOfAJointScan(t *testing.T) {
	t.Parallel()
	const beside = 9
	for _, c := range []struct {
		took    time.Duration
		crowded bool
	}{{longPass + beside*longPassBeside, false}, {longPass + beside*longPassBeside + 1, true}} {
		b := newBench()
		b.full(1, 0, at(1, 0))
		b.scan(&Scan{Wanted: 500, Beside: beside}, c.took)
		if got := b.WantsEnds(&Scan{}, b.now); got != c.crowded {
			t.Errorf("crowded: %v after %v of ten scans", got, c.took)
		}
		if b.MayFill(b.now) {
			t.Error("a fruitless full scan is followed by another at once")
		}
		b.pass(wokenPace*c.took/(1+beside) + 1)
		if !b.MayFill(b.now) {
			t.Error("is paced by the time of all ten")
		}
	}
}

// If the lane has no crowd, its ends are not read again for a second.
func TestLaneEndsAreReadOnceASecond(t *testing.T) {
	t.Parallel()
	b := newBench()
	slow := func() { b.full(5, 100*time.Millisecond) }
	slow()
	if !b.WantsEnds(&Scan{}, b.now) {
		t.Fatal("not crowded after a slow full scan that took nothing")
	}
	b.Ends(false, b.now, b.now)
	slow()
	if b.WantsEnds(&Scan{}, b.now) {
		t.Error("asks again at once")
	}
	b.pass(fullInterval)
	if !b.WantsEnds(&Scan{}, b.now) {
		t.Error("does not ask after a second")
	}
	b.Ends(true, b.now, b.now)
	slow()
	if !b.WantsEnds(&Scan{}, b.now) {
		t.Error("does not ask again of a crowd")
	}
}

// Work that is announced as hidden needs a full scan. It gets one however fruitless the last ones were, while they are
// quick. If they are slow, they keep their pace.
func TestPolicyScansForHiddenWorkAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		took   time.Duration
		wanted int // of the last scan, which finds one
		due    bool
	}{
		{"quick scans with room", cheapScan, 2, true},
		{"slow scans", 3 * cheapScan, 2, false},
		{"scans without room", time.Millisecond, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			b.full(1, c.took, at(1, 0))
			b.full(c.wanted, c.took) // fruitless
			b.after(c.wanted, at(1, time.Hour))
			b.Wake()
			if b.fullIsDue() {
				t.Fatal("a full scan is due for any work")
			}
			b.WakeHidden()
			if b.fullIsDue() != c.due {
				t.Errorf("a full scan is due: %t", !c.due)
			}
			b.pass(wokenPace * c.took * 3)
			b.pass(wokenInterval)
			if !b.fullIsDue() {
				t.Error("no full scan is due later")
			}
			b.full(c.wanted, c.took)
			if b.fullIsDue() {
				t.Error("the wake-up outlives its full scan")
			}
		})
	}
}

// A resumed execution may be months old. A full scan with room that finds it has also seen the rest of the lane.
func TestPolicyPositionIgnoresResumedExecutions(t *testing.T) {
	t.Parallel()
	resumed := at(1, time.Second)
	resumed.Resumed = true
	b := newBench()
	last := at(1, time.Hour)
	b.full(1, 0, last)
	b.full(2, 0, resumed)
	b.wantPositions(t, last)
	b.full(1, 0, resumed)
	b.wantPositions(t, resumed)
}

// While all claims get what they ask for, a full scan for hidden work takes at most a tenth of the time.
func TestPolicyScansForHiddenWorkUnderLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ took, due time.Duration }{{0, hiddenInterval}, {3 * time.Millisecond, 30 * time.Millisecond}} {
		b := newBench()
		b.full(1, c.took, at(1, 0))
		b.full(1, c.took, at(1, 0))
		b.after(1, at(1, time.Hour))
		b.WakeHidden()
		b.pass(c.due)
		if b.fullIsDue() {
			t.Errorf("a full scan that takes %v is due too soon", c.took)
		}
		b.pass(time.Millisecond)
		if !b.fullIsDue() {
			t.Errorf("no full scan that takes %v is due", c.took)
		}
	}
}
