package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/scan"
	"github.com/flowfabric/flowfabric-go/state"
)

// Claimer claims from one lane repeatedly. A claim continues after the scan positions of the last one, which spares
// reading the entries of finished work again. Full scans from the head of the lane find work before the positions: after a
// short answer, [Claimer.Wake] or a resumption noticed by [Engine.Listen], and otherwise every second, or at least every
// ten seconds if full scans are slow or fruitless. So a scan position may delay an execution, but never lose one. See
// docs/claiming.md.
//
// A Claimer is safe for concurrent use.
type Claimer struct {
	e      *Engine
	spec   ClaimSpec
	policy scan.Policy
	halt   atomic.Value // [state.Halt]

	resumptions *atomic.Int64 // on the lane
	seen        atomic.Int64  // resumptions seen by the policy
}

// NewClaimer returns a claimer for one lane and one worker instance.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) NewClaimer(spec ClaimSpec) (*Claimer, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	return &Claimer{e: e, spec: spec, resumptions: e.c.Resumed.Of(string(spec.Lane))}, nil
}

// Wake makes the next claim start with a full scan. Call Wake after a notification: new work may sort before a scan
// position.
func (c *Claimer) Wake() { c.policy.Wake() }

// Halted returns [state.HaltedLane] if the last claim found the lane paused, [state.HaltedWorker] if the worker instance
// was drained, and [state.NotHalted] otherwise. A halted claim takes nothing; the next one starts with a full scan.
func (c *Claimer) Halted() state.Halt {
	halt, _ := c.halt.Load().(state.Halt)
	return halt
}

// Claim is [Engine.Claim], continued from where the last call stopped. After fewer than limit executions, call Claim again
// after a notification or at the next poll.
func (c *Claimer) Claim(ctx context.Context, limit int) ([]Claimed, error) {
	if err := checkClaim(c.spec, limit); err != nil {
		return nil, err
	}
	return c.claim(ctx, limit, func(after []scan.Position, n int) ([]Claimed, state.Halt, error) {
		return c.e.claim(ctx, c.spec, after, n)
	})
}

// CompleteAndClaim runs [Engine.CompleteExecutions] and then [Claimer.Claim], in one transaction unless there are more than
// [MaxBatch] completions, members of flows, or executions that depend on a completed one.
//
// The outcomes of the completions are in input order. After an error both outcomes are unknown, and repeating is safe. If
// only the claim fails, there are no claims and no error; the next claim reports the problem.
func (c *Claimer) CompleteAndClaim(ctx context.Context, completions []Completion, limit int) ([]error, []Claimed, error) {
	if err := checkClaim(c.spec, limit); err != nil {
		return nil, nil, err
	}
	var outcomes []error
	claimed, err := c.claim(ctx, limit, func(after []scan.Position, n int) (claimed []Claimed, halt state.Halt, err error) {
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

// takeAfter leases up to n executions after the positions, or from the head of the lane if there are none. The Halt is set
// if the claim was halted.
type takeAfter func(after []scan.Position, n int) ([]Claimed, state.Halt, error)

// claim scans after the positions, and from the head if a full scan is due.
func (c *Claimer) claim(ctx context.Context, n int, take takeAfter) (claimed []Claimed, err error) {
	if c.e.c.Observer != nil {
		defer func(began time.Time) { c.e.observeClaim(ctx, c.spec.Lane, began, claimed, err) }(time.Now())
	}
	after := c.next()
	claimed, err = c.scan(ctx, after, n, take)
	if err != nil || !c.mayFill(after, n-len(claimed)) {
		return claimed, err
	}
	more, err := c.scan(ctx, nil, n-len(claimed), take)
	if len(claimed) > 0 {
		err = nil // the claimed executions are leased; the next call repeats the failed full scan
	}
	return append(claimed, more...), err
}

// next returns the positions to claim after, or none if a full scan is due.
func (c *Claimer) next() []scan.Position {
	if n := c.resumptions.Load(); c.seen.Swap(n) != n {
		c.policy.WakeHidden()
	}
	return c.policy.Next(time.Now())
}

// mayFill reports whether a full scan may fill the gap left by a scan after the positions.
func (c *Claimer) mayFill(after []scan.Position, left int) bool {
	return len(after) > 0 && left > 0 && c.Halted() == state.NotHalted && c.policy.MayFill(time.Now())
}

// scan runs one claim and updates the policy with its result.
func (c *Claimer) scan(ctx context.Context, after []scan.Position, n int, take takeAfter) ([]Claimed, error) {
	s := c.begin(ctx, after, n)
	claimed, halt, err := take(after, n)
	if err != nil {
		return nil, err
	}
	return c.end(s, claimed, halt), nil
}

// begin starts a scan.
func (c *Claimer) begin(ctx context.Context, after []scan.Position, n int) *scan.Scan {
	s := &scan.Scan{After: after, Wanted: n}
	if c.Halted() == state.NotHalted && c.policy.WantsEnds(s, time.Now()) {
		s.Ends = c.laneEnds(ctx)
	}
	c.policy.Begin(s)
	s.Began = time.Now()
	return s
}

// end records the result of a scan and returns the leased executions.
func (c *Claimer) end(s *scan.Scan, claimed []Claimed, halt state.Halt) []Claimed {
	c.halt.Store(halt)
	if halt != state.NotHalted {
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

// laneEnds returns the last entry at each crowded priority. A scan that starts now and returns too few has passed all
// ends.
func (c *Claimer) laneEnds(ctx context.Context) []scan.Position {
	began := time.Now()
	rows, err := c.e.c.Q.ListLaneEnds(ctx, c.e.c.Reader(), db.ListLaneEndsParams{
		LaneID: string(c.spec.Lane), MaxItems: scan.MaxPositions, Crowd: scan.Crowd,
	})
	if err != nil {
		return nil // the claim itself reports the error
	}
	c.policy.Ends(len(rows) > 0, began, time.Now())
	ends := make([]scan.Position, len(rows))
	for i, row := range rows {
		ends[i] = scan.Position{Priority: int32(-row.Rank), CreatedAtMs: row.CreatedAtMs, Execution: id.ExecutionUUID(row.ExecutionID.Bytes)}
	}
	return ends
}

// foundAt returns the position of a claimed execution.
func foundAt(c *Claimed) scan.Found {
	return scan.Found{
		Position: scan.Position{Priority: int32(c.Priority), CreatedAtMs: c.CreatedAt.UnixMilli(), Execution: c.ID.UUID()},
		Resumed:  c.Resumed,
	}
}

// completeAndClaim completes, then claims, in one transaction if both fast paths apply; otherwise one after the other.
// After an error without outcomes, neither happened. After an error with outcomes, nothing was claimed.
func (e *Engine) completeAndClaim(
	ctx context.Context, completions []Completion, spec ClaimSpec, after []scan.Position, n int,
) ([]error, []Claimed, state.Halt, error) {
	const op = "complete and claim"
	shortWait := e.shortWait()
	outcomes := make([]fferr.Outcome[struct{}], len(completions))
	chunks := shortWait.completionChunks(completions, outcomes)
	together := e.c.Tx == nil && len(chunks) == 1 &&
		!slices.ContainsFunc(chunks[0], func(item completionItem) bool { return item.flow != nil })
	if together {
		var completion *completing
		var claim *claiming
		err := core.InStatements(ctx, shortWait.c, op, func(due *core.Notifications) []core.Step {
			completion, claim = shortWait.newCompleting(chunks[0]), e.newClaiming(spec, after, n)
			steps := []core.Step{func(conn db.DBTX) error { return completion.run(ctx, conn, due) }}
			if completion.places != nil {
				steps = append(steps, completion.places.Steps(ctx, func() {})...)
			}
			return append(steps, func(conn db.DBTX) error {
				err := claim.run(ctx, conn, due)
				if completion.places != nil {
					completion.places.Announce(due, claim.rows)
				}
				return err
			})
		})
		switch {
		case err == nil:
			claimed := claim.claimed()
			if err := completion.finish(ctx, op, completions, outcomes); err != nil {
				for _, item := range chunks[0] {
					outcomes[item.n].Err = err
				}
			}
			return core.ErrorsOf(outcomes), claimed, claim.halt, nil
		case !errors.Is(err, core.ErrFellThrough) && !errors.Is(err, fferr.ErrBusy):
			return nil, nil, state.NotHalted, err
		}
	}
	errs, err := e.CompleteExecutions(ctx, completions)
	if err != nil {
		return nil, nil, state.NotHalted, err
	}
	claimed, halt, err := e.claim(ctx, spec, after, n)
	return errs, claimed, halt, err
}
