package scan

import (
	"slices"
	"sync"
	"time"
)

// A full scan is due after fullInterval, when a scan came back short, or when the claimer is notified: then at once, or
// after wokenInterval while each scan gets everything anyway, or hiddenInterval if hidden work was announced. A full
// scan waits until full scans take no more than their share of the time, however many dead entries are at the head. The
// exceptions: there is nothing else to do, and the last full scan found work the positions hide; or hidden work was
// announced, and full scans are quick. A scan delayed by the network or a busy server looks the same from here. So no
// scan counts as longer than longScan, and no work waits longer than ten seconds before a position. The pause grows
// with each fruitless full scan in a row, up to the pause under full load.
const (
	fullInterval   = time.Second
	wokenInterval  = 100 * time.Millisecond
	hiddenInterval = 10 * time.Millisecond
	longScan       = 200 * time.Millisecond
	loadedPace     = 50 // times the duration of a full scan, while all scans get everything
	wokenPace      = 10 // the same after a fruitless scan, if notified or to fill a short answer

	// A full scan for work known to be hidden waits only if the last two took longer than cheapScan: one may have been
	// delayed.
	cheapScan  = 5 * time.Millisecond
	hiddenPace = 2 // times the duration beyond the pause

	lateInterval = time.Second // between a creation and its commit, to be found without a full scan
)

// A scan that came back short and took this long, plus so much for each execution it leased, met thousands of entries
// it may not claim, or was merely delayed. Reading the ends of the lane decides which, at little cost.
const (
	longPass       = 5 * time.Millisecond
	longPassEach   = 100 * time.Microsecond
	longPassBeside = time.Millisecond // for each scan of another lane in the same transaction
)

const (
	// MaxPositions limits how many priorities have a position. More are rare, and full scans serve them.
	MaxPositions = 32
	// Crowd is the number of entries above which a priority is crowded.
	Crowd = 5000
)

// A Policy is a claimer's knowledge of its lane: the scan positions, and the facts for the time of the next full scan.
// A position only hides entries for a while, and never loses one. The zero value has no positions, and asks for a full
// scan. A Policy is safe for concurrent use.
type Policy struct {
	mu        sync.Mutex
	positions positions
	woken     bool
	hidden    bool // notified of work the positions hide
	filled    bool // the last scan got everything
	scans     int  // so far

	// Of the full scans:
	endedAt   time.Time
	took      time.Duration // no more than longScan
	tookLast  time.Duration // the one before
	fruitless int           // in a row: without finding anything the positions hide
	before    int           // scans before the last one

	// Whether the last short scan, after the positions and from the head, may have skipped many entries.
	crowdedAfter, crowdedHead bool
	endsTook                  time.Duration // to read the ends of the lane, the last time
	roomyAt                   time.Time     // when there was no crowd
}

// A Scan is one claim as the policy sees it.
type Scan struct {
	After  []Position // the positions to continue after, highest priority first; none: a full scan, from the head
	Ends   []Position // the ends of the crowded priorities of the lane before the scan, if read
	Wanted int
	Beside int // scans of other lanes in the same transaction: Began and Ended cover all
	Began  time.Time
	Ended  time.Time
	Found  []Found // at most Wanted, in the order of the lane
}

func (s *Scan) full() bool { return len(s.After) == 0 }

// Found is an execution a scan leased.
type Found struct {
	Position
	Resumed bool // an interrupted attempt, found only by full scans at any position
}

// Wake makes a full scan due, since there is new work, possibly before a position. Until the full scan, scans start a
// little before the positions.
func (p *Policy) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken = true
}

// WakeHidden is Wake for work the positions are known to hide. While full scans are quick, the next scan is one.
func (p *Policy) WakeHidden() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken, p.hidden = true, true
}

// Next returns the positions to claim after, or none if a full scan is due.
func (p *Policy) Next(now time.Time) []Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := now.Sub(p.endedAt)
	switch {
	case since > max(fullInterval, loadedPace*p.took),
		p.hidden && !p.filled && since >= hiddenPace*(min(p.took, p.tookLast)-cheapScan),
		p.hidden && since > max(hiddenInterval, wokenPace*p.took),
		p.woken && !p.filled && p.worthwhile(now),
		p.woken && since > wokenInterval && p.paced(now):
		return nil
	}
	next := make([]Position, len(p.positions))
	for i := range p.positions {
		next[i] = p.positions[i].Position
		if p.woken && !p.filled {
			// Work created then may have been committed since.
			next[i].CreatedAtMs -= lateInterval.Milliseconds()
		}
	}
	return next
}

// MayFill reports whether a full scan may fill up a scan that came back short at once. While full scans find work the
// positions hide, the scans are worth the time, since there is nothing else to do. New work does not count: the next
// scan after the positions finds it.
func (p *Policy) MayFill(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worthwhile(now)
}

func (p *Policy) worthwhile(now time.Time) bool { return p.fruitless == 0 || p.paced(now) }

func (p *Policy) paced(now time.Time) bool {
	pace := min(wokenPace*max(p.fruitless, 1), loadedPace)
	return now.Sub(p.endedAt) > time.Duration(pace)*p.took
}

// WantsEnds reports whether the ends of the lane are to be read before a scan begins, since the last scan of the kind
// may have met a crowd. [Policy.Ends] takes the result.
func (p *Policy) WantsEnds(s *Scan, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.crowded(s) && now.Sub(p.roomyAt) > fullInterval
}

// Ends records a reading of the ends of the lane, and whether it has a crowd.
func (p *Policy) Ends(crowd bool, began, ended time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endsTook = ended.Sub(began)
	if !crowd {
		p.roomyAt = ended
	}
}

// Begin records the start of a scan. A full scan answers all notifications so far; one that arrives during the scan is
// kept.
func (p *Policy) Begin(s *Scan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.full() {
		p.woken, p.hidden = false, false
	}
}

// Halted records a scan without permission to claim. The policy learns only this: work arriving in the meantime may be
// before a position, and there is nothing else to do.
func (p *Policy) Halted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken, p.filled = true, false
}

// End learns from a successful scan.
//
// The positions move to the last execution found at each priority. The positions of other priorities stay until two
// full scans have passed without work there. After the last execution a full scan found there may be more before the
// old position, since the members of a flow are as old as the flow. So a full scan also moves positions back, unless
// the scan came back short and the execution had an interrupted attempt: such an attempt says nothing about the work
// around it, and moving back would have the next scans read all dead entries since.
//
// A short scan has seen everything up to the ends of the lane at its start: the next one starts after the ends.
func (p *Policy) End(s *Scan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := s.Ended.Sub(s.Began)
	p.filled = len(s.Found) == s.Wanted
	p.scans++
	if s.full() {
		p.tookLast = p.took
		p.endedAt, p.took = s.Ended, min(took/time.Duration(1+s.Beside), longScan)
		p.fruitless++
		if slices.ContainsFunc(s.Found, func(f Found) bool { return f.Resumed || p.positions.hides(f.Position) }) {
			p.fruitless = 0
		}
	}
	for _, f := range s.Found {
		p.positions = p.positions.move(f.Position, p.scans, s.full() && (p.filled || !f.Resumed))
	}
	if s.full() {
		p.positions = slices.DeleteFunc(p.positions, func(r remembered) bool { return r.by <= p.before })
		p.before = p.scans - 1
	}
	p.positions = p.positions.limited()
	if !p.filled {
		p.passed(s, took)
	}
}

// passed records a short scan. The duration says whether there may be a crowd.
func (p *Policy) passed(s *Scan, took time.Duration) {
	*p.crowded(s) = took > p.endsTook+longPass+time.Duration(len(s.Found))*longPassEach+time.Duration(s.Beside)*longPassBeside
	for _, end := range s.Ends {
		seen := s.full() || slices.ContainsFunc(s.After, func(after Position) bool { return after.Priority == end.Priority })
		if seen {
			p.positions = p.positions.move(end, p.scans, false)
		}
	}
	p.positions = p.positions.limited()
}

func (p *Policy) crowded(s *Scan) *bool {
	if s.full() {
		return &p.crowdedHead
	}
	return &p.crowdedAfter
}
