package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/scan"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/observe"
	"github.com/flowfabric/flowfabric-go/state"
)

func (s ClaimSpec) validate() error {
	return core.CheckClaim(s.Lane, s.Capabilities, s.Kinds, s.Worker, s.Instance, s.LeaseTTL)
}

// Claim takes leases on up to limit claimable executions of a lane: highest priority first, then oldest, then by id.
// limit is 1 to [MaxBatch]. Locked executions are skipped. The result is empty if nothing was claimable, the lane is
// paused or the worker instance is drained ([operator.PauseLane], [operator.DrainWorker]).
//
// Each claim continues an interrupted attempt or opens the next one, with a higher epoch than any earlier claim of the
// execution. To claim repeatedly, use a [Claimer].
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention] if another program keeps an attempt locked for long.
// Transaction: locks the claimed executions, then their attempts. Emits lease events. A repetition claims other
// executions; the leases of a lost answer expire.
func (e *Engine) Claim(ctx context.Context, spec ClaimSpec, limit int) (claimed []Claimed, err error) {
	if err := checkClaim(spec, limit); err != nil {
		return nil, err
	}
	if e.c.Observer != nil {
		defer func(began time.Time) { e.observeClaim(ctx, spec.Lane, began, claimed, err) }(time.Now())
	}
	claimed, _, err = e.claim(ctx, spec, nil, limit)
	return claimed, err
}

// observeClaim reports a claim to the observer.
func (e *Engine) observeClaim(ctx context.Context, lane id.LaneID, began time.Time, claimed []Claimed, err error) {
	e.c.Observe(ctx, observe.Claimed{Lane: lane, Executions: len(claimed), Took: time.Since(began), Err: err})
}

func checkClaim(spec ClaimSpec, limit int) error {
	if err := checkClaimLimit("limit", limit); err != nil {
		return err
	}
	return spec.validate()
}

func checkClaimLimit(field string, limit int) error {
	if limit < 1 || limit > MaxBatch {
		return core.Invalid(field, fmt.Sprintf("must be between 1 and %d", MaxBatch))
	}
	return nil
}

// claim claims after the scan positions, or from the head of the lane if there are none. The Halt is set if the claim was
// halted.
func (e *Engine) claim(ctx context.Context, spec ClaimSpec, after []scan.Position, n int) ([]Claimed, state.Halt, error) {
	claim, err := core.InStatement(ctx, e.c, "claim", func(conn db.DBTX, due *core.Notifications) (*claiming, error) {
		c := e.newClaiming(spec, after, n)
		return c, c.run(ctx, conn, due)
	})
	if errors.Is(err, core.ErrFellThrough) {
		claimed, err := e.claimSlowly(ctx, spec, n)
		return claimed, state.NotHalted, err
	}
	if err != nil {
		return nil, state.NotHalted, err
	}
	return claim.claimed(), claim.halt, nil
}

// A claiming is one try of the fast path of a claim, with parameters and answer.
type claiming struct {
	e      *Engine
	spec   ClaimSpec
	after  []scan.Position
	params db.ClaimFromHeadParams
	timer  id.LeaseID // names the claim's row of lease timers
	rows   []db.ClaimFromHeadRow
	halt   state.Halt
}

func (e *Engine) newClaiming(spec ClaimSpec, after []scan.Position, n int) *claiming {
	leaseIDs := id.NewLeaseIDs(n)
	return &claiming{
		e: e, spec: spec, after: after, timer: leaseIDs[0],
		params: db.ClaimFromHeadParams{
			AttemptIDs:       core.PgUUIDs(id.NewAttemptIDs(n)),
			LeaseIDs:         core.PgUUIDs(leaseIDs),
			LeaseTTLMs:       spec.LeaseTTL.Milliseconds(),
			NowMs:            e.c.NowMs(),
			LaneID:           string(spec.Lane),
			Capabilities:     spec.capabilities(),
			Kinds:            spec.kinds(),
			WorkerID:         string(spec.Worker),
			WorkerInstanceID: string(spec.Instance),
			MaxItems:         int32(n),
		},
	}
}

func (c *claiming) run(ctx context.Context, conn db.DBTX, due *core.Notifications) (err error) {
	switch {
	case len(c.after) == 1 && c.params.MaxItems == 1:
		c.rows, err = c.runOne(ctx, conn)
	case len(c.after) > 0:
		c.rows, err = c.runAfter(ctx, conn)
	default:
		c.rows, err = c.e.c.Q.ClaimFromHead(ctx, conn, c.params)
	}
	if len(c.rows) > 0 && c.rows[0].Halt != "" {
		c.rows, c.halt = nil, state.Halt(c.rows[0].Halt)
	}
	if len(c.rows) > 0 {
		due.Leases()
	}
	return err
}

func (c *claiming) runAfter(ctx context.Context, conn db.DBTX) ([]db.ClaimFromHeadRow, error) {
	p := &c.params
	params := db.ClaimAfterPositionsParams{
		AttemptIDs: p.AttemptIDs, LeaseIDs: p.LeaseIDs, LeaseTTLMs: p.LeaseTTLMs, NowMs: p.NowMs, LaneID: p.LaneID,
		Capabilities: p.Capabilities, Kinds: p.Kinds, WorkerID: p.WorkerID, WorkerInstanceID: p.WorkerInstanceID, MaxItems: p.MaxItems,
	}
	for _, position := range c.after {
		params.PositionRanks = append(params.PositionRanks, -int64(position.Priority))
		params.PositionCreatedAtMs = append(params.PositionCreatedAtMs, position.CreatedAtMs)
		params.PositionExecutionIDs = append(params.PositionExecutionIDs, core.PgUUID(position.Execution))
	}
	answer, err := c.e.c.Q.ClaimAfterPositions(ctx, conn, params)
	rows := make([]db.ClaimFromHeadRow, len(answer))
	for i := range answer {
		rows[i] = db.ClaimFromHeadRow(answer[i])
	}
	return rows, err
}

func (c *claiming) runOne(ctx context.Context, conn db.DBTX) ([]db.ClaimFromHeadRow, error) {
	p, position := &c.params, &c.after[0]
	answer, err := c.e.c.Q.ClaimOneAfterPosition(ctx, conn, db.ClaimOneAfterPositionParams{
		AttemptID: p.AttemptIDs[0], LeaseID: p.LeaseIDs[0], LeaseTTLMs: p.LeaseTTLMs, NowMs: p.NowMs, LaneID: p.LaneID,
		Capabilities: p.Capabilities, Kinds: p.Kinds, WorkerID: p.WorkerID, WorkerInstanceID: p.WorkerInstanceID,
		PositionRank: -int64(position.Priority), PositionCreatedAtMs: position.CreatedAtMs, PositionExecutionID: core.PgUUID(position.Execution),
	})
	rows := make([]db.ClaimFromHeadRow, len(answer))
	for i := range answer {
		rows[i] = db.ClaimFromHeadRow(answer[i])
	}
	return rows, err
}

// learn remembers the leases of a claim.
func (e *Engine) learn(claimed []Claimed, timer *core.LeaseTimer) {
	facts := make([]core.Leased, len(claimed))
	for i := range claimed {
		c := &claimed[i]
		facts[i] = core.Leased{Fence: c.Lease.Fence, Flow: c.Flow, Limits: c.limits, Limited: c.Limited, TTL: c.Lease.TTL}
	}
	e.c.Leases.Learn(facts, timer)
}

// claimed returns the leased executions, after the commit.
func (c *claiming) claimed() []Claimed {
	claimed := make([]Claimed, len(c.rows))
	for i := range c.rows {
		claimed[i] = c.spec.claimed(&c.rows[i])
	}
	var timer *core.LeaseTimer
	if c.e.c.Tx == nil && len(claimed) > 0 {
		timer = &core.LeaseTimer{DueMs: claimed[0].ExpiresAt.UnixMilli(), ID: c.timer}
	}
	c.e.learn(claimed, timer)
	return claimed
}

func (s ClaimSpec) capabilities() []string {
	if s.Capabilities == nil {
		return []string{}
	}
	return s.Capabilities
}

// kinds returns the kinds to claim, nil for any.
func (s ClaimSpec) kinds() []string {
	if len(s.Kinds) == 0 {
		return nil
	}
	return s.Kinds
}

func (s ClaimSpec) claimed(row *db.ClaimFromHeadRow) Claimed {
	x := id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
	c := Claimed{
		ID: x,
		Lease: s.lease(id.Fence{Execution: x, Attempt: int(row.AttemptIndex), Epoch: row.LeaseEpoch},
			id.LeaseID(row.LeaseID.Bytes), id.AttemptID(row.AttemptID.Bytes)),
		ExpiresAt: time.UnixMilli(row.LeaseExpiresAtMs),
		Kind:      row.ExecutionKind,
		Payload:   row.Payload,
		Tags:      core.DecodeTags(row.Tags),
		Priority:  int(row.Priority),
		CreatedAt: time.UnixMilli(row.CreatedAtMs),
		ReadyAt:   time.UnixMilli(row.ReadyAtMs),
		Type:      state.InitialAttempt,
		Resumed:   row.PriorAttemptState == string(state.AttemptInterrupted),
		Retries:   int(row.RetryCount),
	}
	switch {
	case row.AttemptType != "":
		if t, err := normalise.AttemptType(row.AttemptType); err == nil {
			c.Type = t
		}
	case row.PriorAttemptState == string(state.PendingRetryAttempt):
		c.Type = state.RetryAttempt
	case row.PriorAttemptState == string(state.PendingReplayAttempt):
		c.Type = state.ReplayAttempt
	}
	if row.TimeoutAtMs > 0 {
		c.TimeoutAt = time.UnixMilli(row.TimeoutAtMs)
	}
	c.Flow = core.FlowOf(row.FlowID)
	c.PreviousTrace = core.Deref(row.FfxTrace)
	c.Limited, c.limits = len(row.LimitIDs) > 0, row.LimitIDs
	return c
}

func (s ClaimSpec) lease(fence id.Fence, lease id.LeaseID, attempt id.AttemptID) Lease {
	return Lease{
		Fence: fence, ID: lease, AttemptID: attempt, Lane: s.Lane, Instance: s.Instance, TTL: s.LeaseTTL.Truncate(time.Millisecond),
	}
}
