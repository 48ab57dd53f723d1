package outbox

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
)

const (
	batch = 256

	// patience is how long a hole is read again before it is asked who may own it: most are filled by a commit that
	// is under way.
	patience = 20 * time.Millisecond

	firstLook, lastLook = 10 * time.Millisecond, 100 * time.Millisecond // at who has not ended yet
)

var rereads = [...]time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 3 * time.Millisecond}

// database is what a follower asks of one; each call is a statement of its own.
type database interface {
	page(ctx context.Context, from, to int64, limit int) (page, error)
	state(ctx context.Context) (db.GetOutboxStateRow, error)
	writers(ctx context.Context) ([]db.ListOutboxWritersRow, error)
	runs(ctx context.Context, w witness) (bool, error)
}

// witness names processes of the server that end when it crashes. Any connection can ask for them, so that a reader needs
// none of its own: one from a pool that keeps none will do, or one of a pooler that gives each statement another.
type witness []string

// follower reads an outbox in order, stops at holes, and settles them. It does nothing by itself: who has it calls pass.
type follower struct {
	db     database
	outbox Name
	now    func() time.Time

	low     int64 // every event up to it has been handed on, and none is to come
	last    *Row  // the event that low is the id of; nil where it is another's word or the floor
	settled int64 // in the next page, what is missing up to it is not there to come, if witness still runs
	witness witness
	known   int64 // what is missing up to it was not there to come, before the last crash of the server

	hole   hole
	grace  *grace
	graces int
}

// hole is where reading stands, for lack of the event after low.
type hole struct {
	behind int64
	since  time.Time // zero: there is none
	reread int
}

// grace is the wait for all who may own what is missing up to an id.
type grace struct {
	upTo    int64
	witness witness // of the server that told upTo
	writers map[string]bool
	holders []int32 // process ids of those who have not ended; 0: prepared
	next    time.Time
	pause   time.Duration
}

// whenWoken says that there is nothing to be read now.
const whenWoken time.Duration = -1

// pass reads on and returns the events that may be handed on, and after how long to call it again: 0, at once;
// [whenWoken], when there may be more. With an error there are no events, and nothing has changed but that what was learnt
// of who writes is forgotten.
//
// Errors: [*GapError], [*AheadError], the driver's.
func (f *follower) pass(ctx context.Context) (rows []*Row, again time.Duration, err error) {
	low, last := f.low, f.last
	defer func() {
		if err != nil {
			f.back(low, last)
			rows = nil
		}
	}()
	from := f.low + 1
	if f.last != nil {
		from = f.low // which must still be what it was
	}
	p, err := f.db.page(ctx, from, math.MaxInt64, batch)
	if err != nil {
		return nil, 0, err
	}
	full := len(p.rows) == batch
	rows, err = f.behindLow(ctx, p)
	if err != nil {
		return nil, 0, err
	}
	settled, over, err := f.finality(ctx)
	if err != nil {
		return nil, 0, err
	}
	if p.floor > f.low {
		if over {
			return nil, 0, &GapError{Outbox: f.outbox, Position: f.low, Floor: p.floor}
		}
		// Who is told of a gap looks at the executions themselves. That is complete only when nobody may commit an
		// event up to the floor any more.
		again, err = f.hold(ctx, true)
		return nil, again, err
	}
	n := 0
	for n < len(rows) && (rows[n].ID == f.low+1 || rows[n].ID <= settled) {
		f.low, f.last = rows[n].ID, rows[n]
		n++
	}
	switch {
	case n < len(rows):
		again, err = f.hold(ctx, rows[n].ID <= f.known)
	case full:
		f.hole = hole{}
	default:
		f.hole, f.grace, again = hole{}, nil, whenWoken
	}
	return rows[:n], again, err
}

// finality returns up to where nothing is to come that is missing in the page that was read last, and whether a grace
// period is over. A crash gives ids out again that nothing committed had. So what a grace period has settled holds for the
// one page that was read after it, if there was no crash before that: the witness was seen before the first look of the
// grace period and runs after the page was read, so it ran at each statement in between, whichever session that was in.
func (f *follower) finality(ctx context.Context) (upTo int64, over bool, err error) {
	upTo, witness := f.settled, f.witness
	f.settled, f.witness = 0, nil
	if witness == nil {
		return 0, false, nil
	}
	runs, err := f.db.runs(ctx, witness)
	if err != nil || !runs {
		return 0, false, err
	}
	return upTo, true, nil
}

// back goes back to an event, and forgets what was learnt of who writes.
func (f *follower) back(low int64, last *Row) {
	f.low, f.last, f.hole, f.grace, f.settled, f.witness = low, last, hole{}, nil, 0, nil
}

// behindLow takes the event at low off a page, where it is asked for, and compares it with what it was.
func (f *follower) behindLow(ctx context.Context, p page) ([]*Row, error) {
	if f.last == nil {
		if len(p.rows) > 0 || p.floor >= f.low {
			return p.rows, nil
		}
	} else if len(p.rows) > 0 && p.rows[0].ID == f.low {
		if p.rows[0].same(f.last) {
			return p.rows[1:], nil
		}
	} else if p.floor >= f.low {
		return p.rows, nil // it was deleted
	}
	state, err := f.db.state(ctx)
	if err != nil {
		return nil, err
	}
	if f.last == nil && state.LastEventID >= f.low {
		return p.rows, nil
	}
	return nil, &AheadError{Outbox: f.outbox, Position: f.low, Database: state.LastEventID}
}

// hold waits at the hole behind low: first for a commit that may be under way, unless the hole is an old one, then for
// everybody who may own what is missing.
func (f *follower) hold(ctx context.Context, old bool) (time.Duration, error) {
	now := f.now()
	if f.hole.since.IsZero() || f.hole.behind != f.low {
		f.hole = hole{behind: f.low, since: now}
	}
	if f.grace == nil {
		if !old && now.Sub(f.hole.since) < patience {
			pause := rereads[min(f.hole.reread, len(rereads)-1)]
			f.hole.reread++
			return pause, nil
		}
		return f.begin(ctx)
	}
	if wait := f.grace.next.Sub(now); wait > 0 {
		return wait, nil
	}
	writers, err := f.db.writers(ctx)
	if err != nil {
		return 0, err
	}
	return f.settle(writers), nil
}

// begin begins a grace period: the position of the sequence, then who may write, then the wait.
func (f *follower) begin(ctx context.Context) (time.Duration, error) {
	state, err := f.db.state(ctx)
	if err != nil {
		return 0, err
	}
	switch {
	case state.Standby:
		return 0, &StandbyError{}
	case state.LastEventID < f.low:
		return 0, &AheadError{Outbox: f.outbox, Position: f.low, Database: state.LastEventID}
	}
	writers, err := f.db.writers(ctx)
	if err != nil {
		return 0, err
	}
	f.grace = newGrace(state, writers)
	f.graces++
	return f.settle(writers), nil
}

// settle ends the grace period when all of its writers have ended, and says when to look again.
func (f *follower) settle(writers []db.ListOutboxWritersRow) time.Duration {
	if f.grace.over(writers) {
		f.settled, f.witness, f.known, f.grace = f.grace.upTo, f.grace.witness, f.grace.upTo, nil
		return 0
	}
	f.grace.pause = min(max(2*f.grace.pause, firstLook), lastLook)
	f.grace.next = f.now().Add(f.grace.pause)
	return f.grace.pause
}

func newGrace(state db.GetOutboxStateRow, writers []db.ListOutboxWritersRow) *grace {
	g := &grace{upTo: state.LastEventID, witness: state.Witness, writers: make(map[string]bool, len(writers))}
	for _, w := range writers {
		g.writers[w.VirtualTransaction] = true
	}
	return g
}

// over says whether none of the writers of g is among those of now. A prepared transaction may have been one of them under
// another name.
func (g *grace) over(writers []db.ListOutboxWritersRow) bool {
	g.holders = g.holders[:0]
	for _, w := range writers {
		if w.ProcessID == 0 || g.writers[w.VirtualTransaction] {
			g.holders = append(g.holders, w.ProcessID)
		}
	}
	slices.Sort(g.holders)
	return len(g.holders) == 0
}
