// Package scan decides where a claimer looks for work in its lane: after the remembered scan positions, or by a full
// scan from the head. The package uses neither the database nor a clock: the caller passes the results of scans and the
// time.
package scan

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/flowfabric/flowfabric-go/id"
)

// A Position is the place of an execution in the order of a lane at one priority. After it come lower priorities and,
// at the same priority, executions created later; ids order executions of the same millisecond.
type Position struct {
	Priority    int32
	CreatedAtMs int64
	Execution   id.ExecutionUUID
}

// before reports whether p comes first, of two positions of one priority.
func (p Position) before(other Position) bool {
	return cmp.Or(cmp.Compare(p.CreatedAtMs, other.CreatedAtMs), bytes.Compare(p.Execution[:], other.Execution[:])) < 0
}

// A remembered position is the place after which the next scan of the priority starts.
type remembered struct {
	Position
	by int // the last scan that found work of the priority, by number
}

// positions are at most one for each priority, highest priority first.
type positions []remembered

func (ps positions) search(priority int32) (at int, found bool) {
	return slices.BinarySearchFunc(ps, priority, func(p remembered, priority int32) int { return cmp.Compare(priority, p.Priority) })
}

// hides reports whether a scan after the positions skips an execution at p.
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

// limited drops the lowest priorities if there are too many.
func (ps positions) limited() positions { return ps[:min(len(ps), MaxPositions)] }
