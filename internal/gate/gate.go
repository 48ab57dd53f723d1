// Package gate decides which waiting executions budgets and limits admit. The package has no database: the caller reads
// the limits and the waiting executions under locks, and writes the decisions.
package gate

// None is a missing limit.
const None int64 = -1

// ID identifies a limit's key, a quota policy, or a budget.
type ID = [16]byte

// Limit is a key of a limit, or a quota policy, with the use. Held and Started are bounds: at least the use, and
// exactly the use if Counted.
type Limit struct {
	Concurrent int64 // units in use at once; None: no limit
	Starts     int64 // units started within the window; None: no limit

	Held    int64 // units in use
	Started int64 // units started within the window, or admitted and not started
	Counted bool

	OnHold   bool  // admits nothing for a while, and cancels nothing
	Replaces bool  // executions in use go for a newcomer without another obstacle
	Wanted   int64 // units for such newcomers, besides the ones in use

	closed bool // a waiting execution did not fit, so later ones wait too
}

// ByReplacing reports whether a newcomer can have the units of executions in use.
func (l *Limit) ByReplacing() bool { return l.Replaces && l.Concurrent > 0 && !l.OnHold }

// Surplus returns the units in use to release for newcomers.
func (l *Limit) Surplus() int64 {
	if l.Wanted == 0 || !l.Counted {
		return 0
	}
	return l.Held + l.Wanted - l.Concurrent
}

// Room returns the number of units to admit at most, at least 0. unlimited: any number.
func (l *Limit) Room() (units int64, unlimited bool) {
	if l.OnHold {
		return 0, false
	}
	units, unlimited = 0, true
	for _, of := range [...]struct{ limit, used int64 }{{l.Concurrent, l.Held}, {l.Starts, l.Started}} {
		if of.limit == None {
			continue
		}
		room := max(of.limit-of.used, 0)
		if unlimited || room < units {
			units, unlimited = room, false
		}
	}
	return units, unlimited
}

// NeedsCount reports whether units don't fit the bounds, which may be too high. After a count, and during a hold, it
// returns false.
func (l *Limit) NeedsCount(units int64) bool { return !l.Counted && !l.OnHold && !l.fits(units) }

// fits reports whether units can be admitted. An execution larger than the whole limit needs the whole limit.
func (l *Limit) fits(units int64) bool {
	if l.OnHold {
		return false
	}
	for _, of := range [...]struct{ limit, used int64 }{{l.Concurrent, l.Held}, {l.Starts, l.Started}} {
		if of.limit != None && (of.limit == 0 || of.limit-of.used < min(units, of.limit)) {
			return false
		}
	}
	return true
}

// Full reports whether an execution behind the admitted ones has to continue waiting for a place. A limit on hold is
// not full.
func (l *Limit) Full() bool { return !l.OnHold && (l.closed || l.Counted && !l.fits(1)) }

// take admits units.
func (l *Limit) take(units int64) { l.Held, l.Started = l.Held+units, l.Started+units }

// Use is how much an execution takes of a limit.
type Use struct {
	Limit ID
	Units int64
}

// Waiting is an execution waiting at a limit or a budget.
type Waiting struct {
	At      ID
	Budgets []ID
	Uses    []Use
}

// Verb is the kind of a decision.
type Verb int8

// The verbs.
const (
	Leave Verb = iota // it stays where it is
	Admit
	Move    // wait at another limit or budget
	Replace // stay until executions in use have gone: see Limit.Wanted
)

// Decision is the decision on a waiting execution.
type Decision struct {
	Verb   Verb
	To     ID   // for Move
	Budget bool // To is a budget
	Busy   bool // for Leave: a limit could not be locked, so try again soon
}

// State has the limits the caller has locked and the budgets the caller has read.
type State struct {
	Limits    map[ID]*Limit // a missing one is locked by another transaction
	Exhausted map[ID]bool   // budgets
}

// Decide decides on an execution, and takes the units of an admitted one. Call Decide in the order of the waiting
// executions. All budgets and limits must admit an execution; otherwise it takes nothing.
func (s *State) Decide(w Waiting) Decision {
	for _, b := range w.Budgets {
		switch {
		case !s.Exhausted[b]:
		case b == w.At:
			return Decision{}
		default:
			return Decision{Verb: Move, To: b, Budget: true}
		}
	}
	busy, replaces := false, false
	for _, u := range w.Uses {
		limit := s.Limits[u.Limit]
		switch at := u.Limit == w.At; {
		case limit == nil:
			busy = true
		case limit.has(u.Units, at):
		case limit.ByReplacing():
			replaces = true
		case at:
			limit.closed = true
			return Decision{}
		default:
			return Decision{Verb: Move, To: u.Limit}
		}
	}
	switch {
	case busy:
		return Decision{Busy: true}
	case replaces:
		s.replace(w)
		return Decision{Verb: Replace}
	}
	for _, u := range w.Uses {
		s.Limits[u.Limit].take(u.Units)
	}
	return Decision{Verb: Admit}
}

// has reports whether the limit can admit units of an execution that waits here or at another limit.
func (l *Limit) has(units int64, at bool) bool { return l.fits(units) && !(at && l.closed) }

// replace notes the units an execution wants, and reserves free units of the execution's other limits.
func (s *State) replace(w Waiting) {
	for _, u := range w.Uses {
		switch limit, at := s.Limits[u.Limit], u.Limit == w.At; {
		case limit.has(u.Units, at):
			limit.take(u.Units)
		default:
			limit.Wanted += min(u.Units, limit.Concurrent)
			limit.closed = limit.closed || at
		}
	}
}

// Shares divides at most total executions among limits with so many free units each. No limit gets more than is free;
// limits with few free units get all before others get more than an equal share.
func Shares(rooms []int64, total int) []int32 {
	shares := make([]int32, len(rooms))
	left := int64(total)
	for left > 0 {
		open := int64(0)
		for i, room := range rooms {
			if int64(shares[i]) < room {
				open++
			}
		}
		if open == 0 {
			break
		}
		each := max(left/open, 1)
		for i, room := range rooms {
			more := min(each, room-int64(shares[i]), left)
			shares[i] += int32(max(more, 0))
			left -= max(more, 0)
		}
	}
	return shares
}
