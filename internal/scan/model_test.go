package scan

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The model of a lane: its queue, and the entries that a scan leases. queries/engine/claim.sql has the real scans.

type entry struct {
	Found
	locked  bool // by another claimer
	foreign bool // of a kind that the claimer does not serve
	last    bool // it was the last of its priority when it came, and has been free since
}

type lane struct {
	bench
	entries []*entry
	created uint64
	newest  map[int32]Position // by priority
	running []*running
	fullAt  time.Time // the end of the last full scan
	chance  *rand.Rand
}

// A running scan has begun, and its claimer does not have its answer yet.
type running struct {
	Scan
	left []*entry // the entries it left although it was short
}

// longestHide is how long a claimer that keeps claiming may go without a full scan.
const longestHide = loadedPace * longScan

func (l *lane) add(e *entry) {
	l.created++
	binary.BigEndian.PutUint64(e.Execution[:], l.created)
	newest, some := l.newest[e.Priority]
	if e.last = !some || inOrder(newest, e.Position) < 0; e.last {
		l.newest[e.Priority] = e.Position
	}
	l.entries = append(l.entries, e)
	slices.SortFunc(l.entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), inOrder(a.Position, b.Position))
	})
}

// inOrder compares two places of one priority as the queue does.
func inOrder(a, b Position) int {
	return cmp.Or(cmp.Compare(a.CreatedAtMs, b.CreatedAtMs), cmp.Compare(binary.BigEndian.Uint64(a.Execution[:]), binary.BigEndian.Uint64(b.Execution[:])))
}

// begin sends a scan as the claimer would, and leases the entries it finds.
func (l *lane) begin(wanted int, forced bool) *running {
	r := &running{Scan: Scan{Wanted: wanted}}
	if !forced {
		r.After = l.Next(l.now)
	}
	if l.WantsEnds(&r.Scan, l.now) {
		ends := map[int32]Position{}
		for _, e := range l.entries {
			ends[e.Priority] = e.Position
		}
		for _, end := range ends {
			r.Ends = append(r.Ends, end)
		}
		l.Ends(len(ends) > 0, l.now, l.now)
	}
	l.Begin(&r.Scan)
	r.Began = l.now
	for _, e := range slices.Clone(l.entries) {
		switch {
		case e.locked || e.foreign || !r.sees(e):
		case len(r.Found) == wanted:
			return r
		default:
			r.Found = append(r.Found, e.Found)
			l.entries = slices.DeleteFunc(l.entries, func(other *entry) bool { return other == e })
		}
	}
	if len(r.Found) == wanted {
		return r
	}
	for _, e := range l.entries {
		if !e.locked && !e.foreign {
			r.left = append(r.left, e)
		}
	}
	return r
}

func (r *running) sees(e *entry) bool {
	return r.full() || !e.Resumed && slices.ContainsFunc(r.After, func(p Position) bool {
		return p.Priority == e.Priority && inOrder(p, e.Position) < 0
	})
}

// end gives the claimer the answer, after as long as the scan has taken.
func (l *lane) end(r *running) {
	r.Ended = l.now
	if r.full() {
		l.fullAt = l.now
	}
	l.End(&r.Scan)
}

// check compares the entries that a scan with room left behind with those that a position may hide.
func (l *lane) check(t *testing.T, r *running) {
	t.Helper()
	if since := l.now.Sub(l.fullAt); !r.full() && since > longestHide {
		t.Fatalf("goes on after %+v, %v after the last full scan", r.After, since)
	}
	for _, e := range r.left {
		if r.full() {
			t.Fatalf("a full scan with room left %+v", e)
		}
		if e.last && !e.Resumed && slices.ContainsFunc(r.After, func(p Position) bool { return p.Priority == e.Priority }) {
			t.Fatalf("after %+v, a scan with room left %+v, which came as the last of its priority", r.After, e)
		}
	}
}

// A position only hides entries for a while. Work comes to a lane in any order, and scans overlap, answer late, are
// slow or fail: a claimer that keeps asking still finds all of it. Until then no scan with room skips an entry that
// was the last of its priority when it came.
func TestScanPolicyLosesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		runSeed(t, seed)
	}
}

func runSeed(t *testing.T, seed uint64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("with seed %d", seed)
		}
	}()
	l := &lane{bench: *newBench(), newest: map[int32]Position{}, chance: rand.New(rand.NewPCG(seed, 0))}
	for range l.chance.IntN(80) {
		l.step(t)
	}
	l.drain(t)
}

func among[T any](l *lane, from ...T) T { return from[l.chance.IntN(len(from))] }

func (l *lane) oneIn(n int) bool { return l.chance.IntN(n) == 0 }

// step is one event in the life of a lane.
func (l *lane) step(t *testing.T) {
	t.Helper()
	priority := l.chance.Int32N(4)
	switch l.chance.IntN(10) {
	case 0, 1, 2: // work comes; work created earlier may be committed late
		l.pass(among(l, 0, time.Millisecond))
		age := among(l, 0, 0, 0, 10*time.Millisecond, 2*time.Second, time.Hour)
		l.add(&entry{
			Found:  Found{Position: Position{Priority: priority, CreatedAtMs: l.now.Add(-age).UnixMilli()}, Resumed: l.oneIn(10)},
			locked: l.oneIn(10), foreign: l.oneIn(10),
		})
	case 3: // work is given back
		l.add(&entry{Found: Found{Position: Position{Priority: priority, CreatedAtMs: l.now.Add(-time.Minute).UnixMilli()}, Resumed: l.oneIn(2)}})
	case 4: // a lock goes
		if at := slices.IndexFunc(l.entries, func(e *entry) bool { return e.locked }); at >= 0 {
			l.entries[at].locked, l.entries[at].last = false, false
		}
	case 5:
		among(l, l.Wake, l.WakeHidden)()
	case 6:
		l.pass(among(l, time.Millisecond, 20*time.Millisecond, 200*time.Millisecond, time.Second, 5*time.Second))
	case 7, 8: // a scan begins
		if len(l.running) < 3 {
			r := l.begin(1+l.chance.IntN(5), l.MayFill(l.now) && l.oneIn(4))
			l.check(t, r)
			l.running = append(l.running, r)
		}
	case 9: // a scan ends, or fails
		if len(l.running) > 0 {
			at := l.chance.IntN(len(l.running))
			r := l.running[at]
			l.running = slices.Delete(l.running, at, at+1)
			if l.oneIn(10) {
				l.giveBack(r)
			} else {
				l.end(r)
			}
		}
	}
}

// giveBack undoes a scan whose transaction failed.
func (l *lane) giveBack(r *running) {
	for _, f := range r.Found {
		e := &entry{Found: f}
		l.add(e)
		e.last = false
	}
}

// drain lets the claimer poll every second until it has everything, and checks how long that takes.
func (l *lane) drain(t *testing.T) {
	t.Helper()
	for _, r := range l.running {
		l.end(r)
	}
	for _, e := range l.entries {
		e.locked, e.last = false, false
	}
	took := among(l, time.Millisecond, 100*time.Millisecond, time.Second)
	scan := func(forced bool) *running {
		r := l.begin(len(l.entries)+1, forced)
		l.pass(took)
		l.end(r)
		return r
	}
	for began := l.now; slices.ContainsFunc(l.entries, func(e *entry) bool { return !e.foreign }); l.pass(time.Second) {
		if d := l.now.Sub(began); d > longestHide+2*(time.Second+2*took) {
			t.Fatalf("after %v still hidden, after positions %+v: %+v", d, l.at(), l.entries)
		}
		if r := scan(false); !r.full() && l.MayFill(l.now) {
			scan(true)
		}
	}
}
