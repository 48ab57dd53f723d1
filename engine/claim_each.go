package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/scan"
	"github.com/flowfabric/flowfabric-go/state"
)

// LaneClaim is a claim of up to Limit executions, 1 to [MaxBatch].
type LaneClaim struct {
	Claimer *Claimer
	Limit   int
}

// maxLaneClaims limits the claims of one transaction.
const maxLaneClaims = 100

// ClaimEach is [Claimer.Claim] for up to 100 claimers of this engine, in one transaction or, if a lane needs a slower path,
// one for each lane. The limits add up to at most [MaxBatch]. Outcomes are in input order; an outcome's error, such as
// [fferr.ErrBusy] for an attempt locked by another program for 50 ms, concerns only one lane.
//
// Errors: [fferr.ErrInvalidInput] naming the field, or the transaction's error; nothing was claimed then. Locks, events and
// repetition: see [Engine.Claim].
func (e *Engine) ClaimEach(ctx context.Context, claims []LaneClaim) ([]fferr.Outcome[[]Claimed], error) {
	if err := e.checkLaneClaims(claims); err != nil {
		return nil, err
	}
	if e.c.Observer == nil {
		return e.claimEach(ctx, claims)
	}
	began := time.Now()
	outcomes, err := e.claimEach(ctx, claims)
	for i, c := range claims {
		if err != nil {
			e.observeClaim(ctx, c.Claimer.spec.Lane, began, nil, err)
		} else {
			e.observeClaim(ctx, c.Claimer.spec.Lane, began, outcomes[i].Value, outcomes[i].Err)
		}
	}
	return outcomes, err
}

// claimEach is ClaimEach for valid claims.
func (e *Engine) claimEach(ctx context.Context, claims []LaneClaim) ([]fferr.Outcome[[]Claimed], error) {
	scans := make([]*laneScan, len(claims))
	for i, c := range claims {
		scans[i] = newLaneScan(ctx, c.Claimer, c.Claimer.next(), c.Limit)
	}
	if err := e.scanLanes(ctx, scans); err != nil {
		return nil, err
	}
	outcomes := make([]fferr.Outcome[[]Claimed], len(scans))
	var fills []*laneScan
	var filled []int
	for i, s := range scans {
		outcomes[i] = fferr.Outcome[[]Claimed]{Value: s.claimed, Err: s.err}
		if left := s.Wanted - len(s.claimed); s.err == nil && s.claimer.mayFill(s.After, left) {
			fills, filled = append(fills, newLaneScan(ctx, s.claimer, nil, left)), append(filled, i)
		}
	}
	if e.scanLanes(ctx, fills) != nil {
		return outcomes, nil // the claimed executions are leased; the next call repeats the failed full scans
	}
	for n, i := range filled {
		outcomes[i].Value = append(outcomes[i].Value, fills[n].claimed...)
	}
	return outcomes, nil
}

func (e *Engine) checkLaneClaims(claims []LaneClaim) error {
	if len(claims) > maxLaneClaims {
		return core.Invalid("claims", fmt.Sprintf("%d, limit %d", len(claims), maxLaneClaims))
	}
	sum := 0
	for i, c := range claims {
		field := fmt.Sprintf("claims[%d]", i)
		switch {
		case c.Claimer == nil:
			return core.Invalid(field+".Claimer", "is nil")
		case c.Claimer.e != e:
			return core.Invalid(field+".Claimer", "belongs to another engine")
		}
		if err := checkClaimLimit(field+".Limit", c.Limit); err != nil {
			return err
		}
		if sum += c.Limit; sum > MaxBatch {
			return core.Invalid("claims", fmt.Sprintf("ask for more than %d executions", MaxBatch))
		}
	}
	return nil
}

// A laneScan is a scan of one of several lanes, with the result.
type laneScan struct {
	*scan.Scan
	claimer *Claimer
	claimed []Claimed
	err     error // of the lane only
}

func newLaneScan(ctx context.Context, c *Claimer, after []scan.Position, n int) *laneScan {
	return &laneScan{Scan: c.begin(ctx, after, n), claimer: c}
}

// scanLanes runs all scans in one transaction if possible, otherwise each in a transaction of its own. After an error
// nothing was claimed.
func (e *Engine) scanLanes(ctx context.Context, scans []*laneScan) error {
	if len(scans) == 0 {
		return nil
	}
	shortWait := e.shortWait()
	// Not in a caller's transaction, which would keep the locks after a failed fast path.
	if e.c.Tx == nil && len(scans) > 1 {
		err := shortWait.scanTogether(ctx, scans)
		if !errors.Is(err, core.ErrFellThrough) && !errors.Is(err, fferr.ErrBusy) {
			return err
		}
	}
	answered := false
	for _, s := range scans {
		s.Beside, s.Began = 0, time.Now()
		var halt state.Halt
		if s.claimed, halt, s.err = shortWait.claim(ctx, s.claimer.spec, s.After, s.Wanted); s.err == nil {
			s.claimed = s.claimer.end(s.Scan, s.claimed, halt)
			answered = true
		}
	}
	if !answered {
		return scans[0].err
	}
	return nil
}

// scanTogether runs all scans in one transaction. Either all succeed or none.
func (e *Engine) scanTogether(ctx context.Context, scans []*laneScan) error {
	claims := make([]*claiming, len(scans))
	began := time.Now()
	err := core.InStatements(ctx, e.c, "claim", func(due *core.Notifications) []core.Step {
		steps := make([]core.Step, len(scans))
		for i, s := range scans {
			claim := e.newClaiming(s.claimer.spec, s.After, s.Wanted)
			claims[i] = claim
			steps[i] = func(conn db.DBTX) error { return claim.run(ctx, conn, due) }
		}
		return steps
	})
	if err != nil {
		return err
	}
	for i, s := range scans {
		s.Beside, s.Began = len(scans)-1, began
		s.claimed = s.claimer.end(s.Scan, claims[i].claimed(), claims[i].halt)
	}
	return nil
}
