// Package scan decides where a claimer looks for work in its lane: after the scan positions that it remembers, or by
// a full scan from the head. It knows neither the database nor the clock: what a scan found and what time it is, its
// caller says.
package scan

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/flowfabric/flowfabric-go/id"
)

// A Position is a place in the order of a lane at one priority: that of an execution. Lower priorities come after it,
// and of its own what was created later; ids decide between those of one millisecond.
type Position struct {
	Priority    int32
	CreatedAtMs int64
	Execution   id.ExecutionUUID
}

// before says whether p comes first, of two positions of one priority.
func (p Position) before(other Position) bool {
	return cmp.Or(cmp.Compare(p.CreatedAtMs, other.CreatedAtMs), bytes.Compare(p.Execution[:], other.Execution[:])) < 0
}

// A remembered position is the one that the next scan of its priority goes on after.
type remembered struct {
	Position
	by int // the last scan that found work of the priority, by number
}

// positions are at most one for each priority, highest priority first.
type positions []remembered

func (ps positions) search(priority int32) (at int, found bool) {
	return slices.BinarySearchFunc(ps, priority, func(p remembered, priority int32) int { return cmp.Compare(priority, p.Priority) })
}

// hides says whether a scan after the positions passes over an execution that stands at p.
func (ps positions) hides(p Position) bool {
	at, found := ps.search(p.Priority)
	return !found || !ps[at].before(p)
}

// move moves the position of p's priority to p, forwards only or also back.
func (ps positions) move(p Position, by int, back bool) positions {
	at, found := ps.search(p.Priority)
	switch {
	case !found:
		return slices.Insert(ps, at, remembered{p, by})
	case back, ps[at].before(p):
		ps[at].Position = p
	}
	ps[at].by = by
	return ps
}

// limited leaves out the lowest of too many priorities.
func (ps positions) limited() positions { return ps[:min(len(ps), MaxPositions)] }
