package scan

import (
	"slices"
	"sync"
	"time"
)

// A full scan is due after fullInterval, as soon as a scan came back short, or when the claimer is woken: at once, or
// after wokenInterval while each scan gets all it asks for anyway. It waits until full scans take no more than their
// share of the time, many dead entries at the head or few, unless there is nothing else to do and the last one found
// what the positions hide. One that was merely held up, by the network or a busy server, looks the same from here: so
// none counts as longer than longScan, and no work waits longer than ten seconds before a position. The more of them
// in a row were fruitless, the longer waits the next one, up to what it waits for under full load.
const (
	fullInterval  = time.Second
	wokenInterval = 100 * time.Millisecond
	longScan      = 200 * time.Millisecond
	loadedPace    = 50 // times what a full scan takes, while all scans get what they ask for
	wokenPace     = 10 // the same for one that is woken for, or that would fill a short answer, after a fruitless one

	lateInterval = time.Second // between a creation and its commit, for it to be found without a full scan
)

// A scan that came back short and took this long, and so much for each execution it leased, met thousands of entries
// that it may not claim, or was merely held up: the lane itself tells, at little cost.
const (
	longPass       = 5 * time.Millisecond
	longPassEach   = 100 * time.Microsecond
	longPassBeside = time.Millisecond // for each scan of another lane in the same transaction
)

const (
	// MaxPositions is of how many priorities a position is remembered. More are rare, and full scans serve them.
	MaxPositions = 32
	// Crowd is how many entries make a priority crowded.
	Crowd = 5000
)

// A Policy is what a claimer remembers of its lane: the scan positions, and what decides when the next full scan is
// due. A position only hides entries for a while; it never loses one. The zero value has no positions, and asks for a
// full scan. It is safe for concurrent use.
type Policy struct {
	mu        sync.Mutex
	positions positions
	woken     bool
	filled    bool // the last scan got all it asked for
	scans     int  // so far

	// Of the full scans:
	endedAt   time.Time
	took      time.Duration // no more than longScan
	fruitless int           // in a row: they found nothing that the positions hide
	before    int           // scans before the last one

	// The last scan that came back short, after the positions and from the head, may have passed many entries over.
	crowdedAfter, crowdedHead bool
	endsTook                  time.Duration // to read the ends of the lane, the last time
	roomyAt                   time.Time     // when there was no crowd
}

// A Scan is one claim as the policy sees it.
type Scan struct {
	After  []Position // the positions it goes on after, highest priority first; none: a full scan, from the head
	Ends   []Position // where the crowded priorities of the lane ended before it began, if that was asked for
	Wanted int
	Beside int // scans of other lanes in the same transaction: Began and Ended are those of all of them
	Began  time.Time
	Ended  time.Time
	Found  []Found // at most Wanted, in the order of the lane
}

func (s *Scan) full() bool { return len(s.After) == 0 }

// Found is an execution that a scan leased.
type Found struct {
	Position
	Resumed bool // an interrupted attempt: only full scans find them, wherever they stand
}

// Wake makes a full scan due, since there is work, which may stand before a position. Until it comes, scans go on a
// little before the positions.
func (p *Policy) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken = true
}

// Next returns the positions to claim after; none when a full scan is due.
func (p *Policy) Next(now time.Time) []Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := now.Sub(p.endedAt)
	switch {
	case since > max(fullInterval, loadedPace*p.took),
		p.woken && !p.filled && p.worthwhile(now),
		p.woken && since > wokenInterval && p.paced(now):
		return nil
	}
	next := make([]Position, len(p.positions))
	for i := range p.positions {
		next[i] = p.positions[i].Position
		if p.woken && !p.filled {
			// What was created then may have been committed since.
			next[i].CreatedAtMs -= lateInterval.Milliseconds()
		}
	}
	return next
}

// MayFill says whether a scan that came back short may be filled by a full scan at once: while these find what the
// positions hide they are worth what they take, since nothing else is to be done. Work that has only just come says
// nothing: the next scan after the positions finds more of it.
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

// WantsEnds says whether the ends of the lane are to be read before a scan begins, since the last one of its sort may
// have met a crowd. [Policy.Ends] takes how that went.
func (p *Policy) WantsEnds(s *Scan, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.crowded(s) && now.Sub(p.roomyAt) > fullInterval
}

// Ends notes that the ends of the lane were read, and whether it has a crowd.
func (p *Policy) Ends(crowd bool, began, ended time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endsTook = ended.Sub(began)
	if !crowd {
		p.roomyAt = ended
	}
}

// Begin notes that a scan begins. A full one answers all wake-ups so far; one that comes while it lasts is not lost.
func (p *Policy) Begin(s *Scan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.full() {
		p.woken = false
	}
}

// Halted notes that a scan was not to claim, whatever the lane has. Nothing is learnt of it but that what comes meanwhile
// may stand before a position, and that nothing else is to be done.
func (p *Policy) Halted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.woken, p.filled = true, false
}

// End learns from a scan that succeeded.
//
// The positions move to the last execution found at each priority. Those of other priorities stay, until two full
// scans have passed without work there. After the last one that a full scan found more may come before the old
// position: the members of a flow are as old as the flow. So a full scan also moves them back.
//
// A scan that came back short has seen all up to the ends of the lane, as they were before it: the next one goes on
// after them.
func (p *Policy) End(s *Scan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := s.Ended.Sub(s.Began)
	p.filled = len(s.Found) == s.Wanted
	p.scans++
	if s.full() {
		p.endedAt, p.took = s.Ended, min(took/time.Duration(1+s.Beside), longScan)
		p.fruitless++
		if slices.ContainsFunc(s.Found, func(f Found) bool { return f.Resumed || p.positions.hides(f.Position) }) {
			p.fruitless = 0
		}
	}
	for _, f := range s.Found {
		p.positions = p.positions.move(f.Position, p.scans, s.full())
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

// passed notes that a scan came back short. The time it took says whether there may be a crowd.
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
