package outbox

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/state"
)

const (
	batch = 256

	// patience is how long to read a hole again before a grace period begins: most holes are filled by a commit under
	// way.
	patience = 20 * time.Millisecond

	firstLook, lastLook = 10 * time.Millisecond, 100 * time.Millisecond // between looks at open writers
)

var rereads = [...]time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 3 * time.Millisecond}

// database has the queries of a follower; each call is a separate statement.
type database interface {
	page(ctx context.Context, from, to int64, limit int) (page, error)
	state(ctx context.Context) (db.GetOutboxStateRow, error)
	writers(ctx context.Context) ([]db.ListOutboxWritersRow, error)
	runs(ctx context.Context, w witness) (bool, error)
}

// witness names processes of the server that end when the server crashes. Any connection can check these processes, so
// a reader needs no connection of its own. A connection from a pool without idle connections will do, or from a pooler
// with another connection for each statement.
type witness []string

// follower reads an outbox in order, stops at holes, and settles them. It has no goroutine: its owner calls pass. See
// docs/internals/decisions.md#events-without-gaps.
type follower struct {
	db     database
	outbox Name
	now    func() time.Time

	low     int64 // all events up to low have been delivered; no others will appear
	last    *Row  // the event with id low; nil if low is a given position or the floor
	settled int64 // in the next page, ids missing up to settled will not appear, if witness still runs
	witness witness
	kept    state.Kept
	known   int64 // ids missing up to known were settled before the last crash of the server

	hole   hole
	grace  *grace
	graces int
}

// hole is a stop of the reading, for lack of the event after low.
type hole struct {
	behind int64
	since  time.Time // zero: there is no hole
	reread int
}

// grace is a grace period: the wait for all writers whose ids may be missing up to upTo.
type grace struct {
	upTo    int64
	witness witness // of the server of upTo
	writers map[string]bool
	holders []int32 // process ids of open writers; 0: prepared
	next    time.Time
	pause   time.Duration
}

// whenWoken means that there is nothing to read now.
const whenWoken time.Duration = -1

// pass reads on and returns the events to deliver, and when to call again: after a time, at once (0), or when there may
// be more ([whenWoken]). With an error there are no events, and the follower only forgets the writers.
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
		from = f.low // which must not have changed
	}
	p, err := f.db.page(ctx, from, math.MaxInt64, batch)
	if err != nil {
		return nil, 0, err
	}
	f.kept = p.kept
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
		// After a gap the reader looks at the executions themselves. The look is complete only once no transaction can
		// commit an event up to the floor.
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

// finality returns the id up to which no missing id will appear in the last page, and whether a grace period has ended.
// After a crash the server assigns uncommitted ids again. So a grace period settles ids only for the one page read
// afterwards, and only without a crash before. The witness proves that there was none: read before the first look of
// the grace period, and still running after the page was read, the processes ran at each statement in between, in any
// session.
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

// back returns to an event, and forgets the knowledge of writers.
func (f *follower) back(low int64, last *Row) {
	f.low, f.last, f.hole, f.grace, f.settled, f.witness = low, last, hole{}, nil, 0, nil
}

// behindLow removes the event at low from a page, if requested, and checks that the event has not changed.
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
		return p.rows, nil // the event was deleted
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

// hold waits at the hole after low: first for a commit that may be under way, unless the hole is an old one, then for
// all writers whose ids may be missing.
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

// begin starts a grace period: it reads the position of the sequence, then the writers, then waits.
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

// settle ends the grace period if all writers have ended, and returns when to look again.
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

// over reports whether none of the writers of g is among the present ones. A prepared transaction may have been a
// writer under another name.
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
