package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/scan"
)

// Claimer claims from one lane again and again. It remembers where it stopped at each priority, its scan positions,
// and goes on after them, so that index entries of finished work at the head of the lane, which an old snapshot can
// keep alive for long, are not read again with every claim. What becomes claimable before a position, and interrupted
// attempts wherever they stand, are found by a full scan, from the head: after a short answer, after [Claimer.Wake],
// and every second; less often, down to every ten seconds, where full scans take long or are fruitless. A position
// only hides executions for a while; it never loses one.
//
// What it may not claim, of other kinds or for other capabilities, it passes over: 10,000 of them cost some
// milliseconds. Where it meets as many it moves its positions to the ends of the lane, so that the claims between
// two full scans do not meet them again.
//
// docs/claiming.md has the whole of it. A Claimer is safe for concurrent use.
type Claimer struct {
	e      *Engine
	spec   ClaimSpec
	policy scan.Policy
	halt   atomic.Value // [Halt]
}

// NewClaimer returns a claimer for one lane and one worker instance.
//
// Errors: [ErrInvalidInput].
func (e *Engine) NewClaimer(spec ClaimSpec) (*Claimer, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	return &Claimer{e: e, spec: spec}, nil
}

// Wake makes a full scan due. A worker calls it when it is woken: the work that has come may stand before a scan
// position.
func (c *Claimer) Wake() { c.policy.Wake() }

// Halted tells what the last claim met: [LanePaused], [WorkerDrained], or neither. A claim that is halted takes
// nothing, whatever waits, and says nothing of the lane: the next one goes on as if the claimer had been woken.
func (c *Claimer) Halted() Halt {
	halt, _ := c.halt.Load().(Halt)
	return halt
}

// Claim is [Engine.Claim] from where the last one stopped. Fewer than limit: no more was found where it
// looked; the caller asks again when it is woken or at its next poll.
func (c *Claimer) Claim(ctx context.Context, limit int) ([]Claimed, error) {
	if err := checkClaim(c.spec, limit); err != nil {
		return nil, err
	}
	return c.claim(ctx, limit, func(after []scan.Position, n int) ([]Claimed, Halt, error) {
		return c.e.claim(ctx, c.spec, after, n)
	})
}

// CompleteAndClaim is [Engine.CompleteExecutions] and then [Claimer.Claim], in one transaction and one round
// trip where nothing depends on the completed executions: at one execution a time half of the commits. The
// outcomes of the completions stand in input order. The error means that neither is known to have happened;
// repeating both is safe, and the leases of a lost answer run out. A claim that fails after the completions
// leaves nothing claimed and is no error: the caller claims again, and then learns of it.
//
// Of more than [MaxBatch] completions, and of members of flows, it makes transactions of their own.
func (c *Claimer) CompleteAndClaim(ctx context.Context, completions []Completion, limit int) ([]error, []Claimed, error) {
	if err := checkClaim(c.spec, limit); err != nil {
		return nil, nil, err
	}
	var outcomes []error
	claimed, err := c.claim(ctx, limit, func(after []scan.Position, n int) (claimed []Claimed, halt Halt, err error) {
		if outcomes != nil {
			return c.e.claim(ctx, c.spec, after, n)
		}
		outcomes, claimed, halt, err = c.e.completeAndClaim(ctx, completions, c.spec, after, n)
		return claimed, halt, err
	})
	if err != nil && outcomes == nil {
		return nil, nil, err
	}
	return outcomes, claimed, nil
}

// takeAfter leases up to n executions after the positions, or from the head of the lane when there are none, or says
// what halts the claim.
type takeAfter func(after []scan.Position, n int) ([]Claimed, Halt, error)

// claim scans after the positions, and from the head where that is due.
func (c *Claimer) claim(ctx context.Context, n int, take takeAfter) ([]Claimed, error) {
	after := c.policy.Next(time.Now())
	claimed, err := c.scan(ctx, after, n, take)
	if err != nil || !c.mayFill(after, n-len(claimed)) {
		return claimed, err
	}
	more, err := c.scan(ctx, nil, n-len(claimed), take)
	if len(claimed) > 0 {
		err = nil // what was claimed is held; the full scan that failed is repeated by the next call
	}
	return append(claimed, more...), err
}

// mayFill says whether a full scan may fill at once what a scan after the positions has left.
func (c *Claimer) mayFill(after []scan.Position, left int) bool {
	return len(after) > 0 && left > 0 && c.Halted() == NotHalted && c.policy.MayFill(time.Now())
}

// scan is one claim, of which the policy learns.
func (c *Claimer) scan(ctx context.Context, after []scan.Position, n int, take takeAfter) ([]Claimed, error) {
	s := c.begin(ctx, after, n)
	claimed, halt, err := take(after, n)
	if err != nil {
		return nil, err
	}
	return c.end(s, claimed, halt), nil
}

// begin begins a scan.
func (c *Claimer) begin(ctx context.Context, after []scan.Position, n int) *scan.Scan {
	s := &scan.Scan{After: after, Wanted: n}
	if c.Halted() == NotHalted && c.policy.WantsEnds(s, time.Now()) {
		s.Ends = c.laneEnds(ctx)
	}
	c.policy.Begin(s)
	s.Began = time.Now()
	return s
}

// end takes note of what a scan has found, and returns what it leased.
func (c *Claimer) end(s *scan.Scan, claimed []Claimed, halt Halt) []Claimed {
	c.halt.Store(halt)
	if halt != NotHalted {
		c.policy.Halted()
		return nil
	}
	s.Ended = time.Now()
	s.Found = make([]scan.Found, len(claimed))
	for i := range claimed {
		s.Found[i] = foundAt(&claimed[i])
	}
	c.policy.End(s)
	return claimed
}

// laneEnds returns the last entry at each priority that is crowded. A scan that begins now and comes back short has
// seen them all.
func (c *Claimer) laneEnds(ctx context.Context) []scan.Position {
	began := time.Now()
	rows, err := c.e.q.ListLaneEnds(ctx, c.e.reader(), db.ListLaneEndsParams{
		LaneID: string(c.spec.Lane), MaxItems: scan.MaxPositions, Crowd: scan.Crowd,
	})
	if err != nil {
		return nil // the claim itself tells
	}
	c.policy.Ends(len(rows) > 0, began, time.Now())
	ends := make([]scan.Position, len(rows))
	for i, row := range rows {
		ends[i] = scan.Position{Priority: int32(-row.Rank), CreatedAtMs: row.CreatedAtMs, Execution: id.ExecutionUUID(row.ExecutionID.Bytes)}
	}
	return ends
}

// foundAt is where a claimed execution stood.
func foundAt(c *Claimed) scan.Found {
	return scan.Found{
		Position: scan.Position{Priority: int32(c.Priority), CreatedAtMs: c.CreatedAt.UnixMilli(), Execution: c.ID.UUID()},
		Resumed:  c.Resumed,
	}
}
