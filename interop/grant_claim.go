package interop

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// GrantedClaim describes the use of a claim grant. Only Grant, Worker, Instance and LeaseTTL are required.
type GrantedClaim struct {
	// Grant is the grant received by the worker. Without a Key, the newest claim grant issued to Worker and any instance is
	// used, without verification.
	Grant    ClaimGrant
	Worker   id.WorkerID
	Instance id.WorkerInstanceID
	LeaseTTL time.Duration // one millisecond to [engine.MaxLeaseTTL]

	ExpectedAttempt *int          // expected index of a new attempt; nil for any
	LeaseID         id.LeaseID    // zero for a new one
	AttemptID       id.AttemptID  // of a new attempt; zero for a new one
	AttemptTimeout  time.Duration // timeout of the attempt in whole milliseconds; 0 for the policy's
	Deadline        time.Time     // new deadline of the execution; zero keeps the old one
}

// terms are the parameters of a new lease.
type terms struct {
	worker     id.WorkerID
	instance   id.WorkerInstanceID
	ttl        time.Duration
	lease      id.LeaseID   // zero for a new one
	attempt    id.AttemptID // of a new attempt; zero for a new one
	timeoutMs  int64        // 0 for the policy's
	deadlineMs int64        // 0 keeps the old one
	reclaims   int32        // lost leases to count
	event      state.LeaseEventType
}

func (s GrantedClaim) terms() (terms, error) {
	t := terms{
		worker: s.Worker, instance: s.Instance, ttl: s.LeaseTTL, lease: s.LeaseID, attempt: s.AttemptID, event: state.LeaseEventAcquired,
	}
	if p := s.ExpectedAttempt; p != nil && (*p < 0 || *p > math.MaxInt32) {
		return t, core.Invalid("ExpectedAttempt", "must be between 0 and 2^31-1")
	}
	if s.AttemptTimeout != 0 && s.AttemptTimeout < time.Millisecond {
		return t, core.Invalid("AttemptTimeout", "must be 0, or at least 1ms")
	}
	t.timeoutMs = s.AttemptTimeout.Milliseconds()
	var err error
	if t.deadlineMs, err = core.Instant("Deadline", s.Deadline); err != nil {
		return t, err
	}
	return t, checkHolder(s.Worker, s.Instance, "lease TTL", s.LeaseTTL)
}

// ClaimExecution uses a claim grant: the grant's worker gets the execution's lease. An interrupted attempt continues;
// otherwise the next attempt starts.
//
// Errors: [fferr.ErrInvalidGrant] for a grant of another worker or instance, a forged or a used one; [fferr.ErrGrantExpired];
// [fferr.ErrNotFound]; [fferr.ErrNotLeaseable] if the execution has ended, is running, suspended or waiting, or its next
// attempt is not the expected one; [fferr.ErrHalted] while the lane is paused or the worker drained; [fferr.ErrUnsupported]
// if a budget or quota has not admitted the execution; [fferr.ErrInvalidInput]; [fferr.ErrContention].
//
// Transaction: locks the execution and its attempt, deletes its claim grants; emits a lease event. A repetition after an
// unknown outcome fails with [fferr.ErrNotLeaseable] if the first call was committed; the lease of the first call expires.
func ClaimExecution(ctx context.Context, eng *engine.Engine, spec GrantedClaim) (engine.Claimed, error) {
	c := core.Of(eng)
	const op = "claim execution"
	t, err := spec.terms()
	if err != nil {
		return engine.Claimed{}, core.Wrap(op, err)
	}
	return leaseOne(ctx, c, op, spec.Grant.Execution, spec.Instance, func(tx *core.Txn, x *grantable) (*leaseDecision, error) {
		next, err := x.nextAttempt()
		if err != nil {
			return nil, err
		}
		if p := spec.ExpectedAttempt; p != nil && int32(*p) != next.Index && !x.Interrupted() {
			return nil, x.cannot(fferr.ErrNotLeaseable, fmt.Sprintf("its next attempt is %d, not %d", next.Index, *p))
		}
		if err := cmp.Or(x.checkLane(spec.Grant.Lane), x.notAdmitted()); err != nil {
			return nil, err
		}
		shown := presented{wire.ClaimGrant, spec.Grant.Key, x.ID}
		if err := checkShown(ctx, c, tx, x, shown, spec.Worker, spec.Instance); err != nil {
			return nil, err
		}
		return &leaseDecision{next: next, terms: t}, nil
	})
}

// checkShown refuses an invalid grant of a worker. Without a key, the worker must have been issued a grant.
func checkShown(
	ctx context.Context, c *core.Core, tx *core.Txn, x *grantable, p presented, worker id.WorkerID, instance id.WorkerInstanceID,
) error {
	if p.key != "" {
		return p.verifyFor(ctx, c, tx, x.NowMs, worker, instance)
	}
	grants, err := grantsOf(ctx, c, tx, x, p.kind)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(grants, func(g db.ListGrantsRow) bool { return g.WorkerID == string(worker) })
	switch {
	case i < 0:
		return &fferr.GrantError{Execution: x.ID, Reason: id.ReasonUnknownGrant, Err: fferr.ErrInvalidGrant}
	case grants[i].ExpiresAtMs <= x.NowMs:
		return &fferr.GrantError{Execution: x.ID, Err: fferr.ErrGrantExpired}
	}
	return nil
}

// IssueGrantAndClaim takes the lease of a claimable or granted execution for an operator, without a grant. Worker and
// instance are [id.OperatorWorker]. A worker's grant for the execution is deleted. lane is the expected lane, "" for any.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrNotLeaseable], [fferr.ErrHalted], [fferr.ErrUnsupported], [fferr.ErrInvalidInput]
// and [fferr.ErrContention] as in [ClaimExecution].
//
// Transaction: locks the execution and its attempt, deletes its claim grants; emits a lease event. A repetition after an
// unknown outcome fails with [fferr.ErrNotLeaseable] if the first call was committed.
func IssueGrantAndClaim(ctx context.Context, eng *engine.Engine, x id.ExecutionID, lane id.LaneID, leaseTTL time.Duration) (engine.Claimed, error) {
	c := core.Of(eng)
	const op = "issue grant and claim"
	if lane != "" {
		if err := lane.Validate(); err != nil {
			return engine.Claimed{}, core.Wrap(op, core.InvalidBecause("lane", err))
		}
	}
	if err := core.CheckTTL("lease TTL", leaseTTL); err != nil {
		return engine.Claimed{}, core.Wrap(op, err)
	}
	return leaseOne(ctx, c, op, x, id.OperatorWorker, func(_ *core.Txn, x *grantable) (*leaseDecision, error) {
		next, err := x.nextAttempt()
		if err != nil {
			return nil, err
		}
		if err := cmp.Or(x.checkLane(lane), x.notAdmitted()); err != nil {
			return nil, err
		}
		return &leaseDecision{next: next, terms: terms{
			worker: id.OperatorWorker, instance: id.OperatorWorker, ttl: leaseTTL, event: state.LeaseEventAcquired,
		}}, nil
	})
}

// ResumedClaim describes the use of a resume grant.
type ResumedClaim struct {
	Grant    ResumeGrant
	Worker   id.WorkerID
	Instance id.WorkerInstanceID
	LeaseTTL time.Duration // one millisecond to [engine.MaxLeaseTTL]
}

// ClaimFromResumeGrant continues the interrupted attempt of an execution. Either the lease was lost, before or after the job
// expire_leases ran, or the execution was released, delayed or suspended and may continue. A key made by this library must be
// valid and this worker's, as in [ClaimExecution]. Any other text is refused unless [engine.Config.UnsignedResumeGrants] is
// set.
//
// Errors: [fferr.ErrInvalidGrant]; [fferr.ErrGrantExpired]; [fferr.ErrNotFound], also if there is no attempt;
// [fferr.ErrNotLeaseable] if the execution is leased, ended, suspended, waiting or granted to another worker, or the next
// attempt is a new one; [fferr.ErrReclaimCapExceeded] if the execution has lost too many leases, and the job expire_leases
// ends it; [fferr.ErrHalted], [fferr.ErrUnsupported] and [fferr.ErrInvalidInput] as in [ClaimExecution];
// [fferr.ErrContention].
//
// Transaction: locks the execution and its attempt, deletes its claim grants; emits a lease event. A repetition after an
// unknown outcome fails with [fferr.ErrNotLeaseable] if the first call was committed.
func ClaimFromResumeGrant(ctx context.Context, eng *engine.Engine, spec ResumedClaim) (engine.Claimed, error) {
	c := core.Of(eng)
	const op = "claim from resume grant"
	if err := checkHolder(spec.Worker, spec.Instance, "lease TTL", spec.LeaseTTL); err != nil {
		return engine.Claimed{}, core.Wrap(op, err)
	}
	shown := presented{wire.ClaimGrant, spec.Grant.Key, spec.Grant.Execution}
	signed := shown.key.IsSigned()
	if shown.key == "" || !signed && !c.UnsignedResumeGrants {
		return engine.Claimed{}, core.Wrap(op, &fferr.GrantError{Execution: shown.execution, Reason: id.ReasonMalformed, Err: fferr.ErrInvalidGrant})
	}
	return leaseOne(ctx, c, op, shown.execution, spec.Instance, func(tx *core.Txn, x *grantable) (*leaseDecision, error) {
		if signed {
			if err := shown.verifyFor(ctx, c, tx, x.NowMs, spec.Worker, spec.Instance); err != nil {
				return nil, err
			}
		} else if spec.Grant.ExpiresAt.UnixMilli() <= x.NowMs {
			return nil, &fferr.GrantError{Execution: x.ID, Err: fferr.ErrGrantExpired}
		}
		if err := x.checkLane(spec.Grant.Lane); err != nil {
			return nil, err
		}
		t := terms{worker: spec.Worker, instance: spec.Instance, ttl: spec.LeaseTTL, event: state.LeaseEventReclaimed}
		switch {
		case !x.Started():
			return nil, &fferr.NotFoundError{Entity: "attempt", ID: x.ID.String()}
		case x.Live():
			return nil, x.cannot(fferr.ErrNotLeaseable, "its lease has not run out")
		case x.Active():
			if x.OwnershipState != "lease_revoked" { // a revocation is no loss
				if x.LostTooOften {
					return nil, &fferr.ReclaimCapError{Execution: x.ID, Reclaims: int(x.reclaims())}
				}
				t.reclaims = 1
			}
		case !x.Runnable(), !x.Free(), !x.Eligible():
			return nil, x.cannot(fferr.ErrNotLeaseable, "it is neither claimable nor granted")
		case !x.Interrupted() && !x.Resumable():
			return nil, x.cannot(fferr.ErrNotLeaseable, "its next attempt is a new one")
		case x.Granted() && !signed:
			own := presented{kind: wire.ClaimGrant, execution: x.ID}
			if err := checkShown(ctx, c, tx, x, own, spec.Worker, spec.Instance); err != nil {
				return nil, err
			}
		}
		if err := x.notAdmitted(); err != nil {
			return nil, err
		}
		next := core.NextAttempt{Index: x.CurrentIndex, Epoch: x.RaisedEpoch(), Resumed: true}
		next.Kind, next.ID = x.currentAttempt()
		return &leaseDecision{next: next, terms: t}, nil
	})
}

// leaseDecision is a lease to give.
type leaseDecision struct {
	next  core.NextAttempt
	terms terms
}

// leaseOne gives the lease of one execution if decide, called under the execution's locks, returns one.
func leaseOne(
	ctx context.Context, c *core.Core, op string, x id.ExecutionID, instance id.WorkerInstanceID,
	decide func(tx *core.Txn, x *grantable) (*leaseDecision, error),
) (engine.Claimed, error) {
	claimed, err := onGrantable(ctx, c, op, x, instance, nil, func(tx *core.Txn, x *grantable) (fferr.Outcome[engine.Claimed], error) {
		d, err := decide(tx, x)
		if err != nil {
			return fferr.Outcome[engine.Claimed]{}, err
		}
		if err := deleteGrants(ctx, c, tx, x.ID, wire.ClaimGrant); err != nil {
			return fferr.Outcome[engine.Claimed]{}, err
		}
		claim, err := giveLease(ctx, c, tx, x, d.next, d.terms)
		return fferr.Outcome[engine.Claimed]{Value: claim}, err
	})
	if err == nil {
		c.Leases.Learn([]core.Leased{leasedOf(&claimed)}, nil)
	}
	return claimed, err
}

// nextAttempt returns the attempt to continue or open by a claim, with a grant or without, or an error if the execution can't
// be claimed.
func (x *grantable) nextAttempt() (core.NextAttempt, error) {
	switch {
	case x.Terminal():
		return core.NextAttempt{}, x.cannot(fferr.ErrNotLeaseable, "it has ended")
	case !x.Runnable():
		return core.NextAttempt{}, x.cannot(fferr.ErrNotLeaseable, "it is not waiting")
	case !x.Free():
		return core.NextAttempt{}, x.cannot(fferr.ErrNotLeaseable, "it has an owner")
	case !x.Eligible():
		return core.NextAttempt{}, x.cannot(fferr.ErrNotLeaseable, "it is neither claimable nor granted")
	}
	var attempts []db.TakeAttemptsOfRow
	if x.Started() {
		attempts = append(attempts, db.TakeAttemptsOfRow{
			AttemptIndex: x.CurrentIndex, LeaseEpoch: x.CurrentEpoch, LeaseExpiresAtMs: x.LeaseExpiresAtMs, TerminalAtMs: x.CurrentTerminalAtMs,
			FfxAttemptType: x.facts.FfxAttemptType, FfxAttemptID: x.facts.FfxAttemptID,
		})
		if x.CurrentOutcome != "" {
			attempts[0].Outcome = &x.CurrentOutcome
		}
	}
	if x.NewestIndex > x.CurrentIndex {
		attempts = append(attempts, db.TakeAttemptsOfRow{AttemptIndex: x.NewestIndex})
	}
	next, ok := core.ChooseAttempt(&db.TakeClaimableRow{
		AttemptIndex: x.Pointer, AttemptState: x.AttemptState, HighestEpoch: x.HighestEpoch,
	}, attempts, x.NowMs)
	if !ok {
		return next, x.cannot(fferr.ErrNotLeaseable, "a lease of its attempt has not run out")
	}
	return next, nil
}

// currentAttempt returns the type and id of the current attempt.
func (x *grantable) currentAttempt() (state.AttemptType, id.AttemptID) {
	kind, attempt := state.InitialAttempt, id.AttemptID{}
	if t := x.facts.FfxAttemptType; t != nil {
		if known, err := normalise.AttemptType(*t); err == nil {
			kind = known
		}
	}
	if a := x.facts.FfxAttemptID; a != nil {
		attempt = *a
	}
	return kind, attempt
}

// giveLease writes a lease for a locked execution.
func giveLease(ctx context.Context, c *core.Core, tx *core.Txn, x *grantable, next core.NextAttempt, t terms) (engine.Claimed, error) {
	lease := t.lease
	if lease.IsZero() {
		lease = id.NewLeaseID()
	}
	if next.ID.IsZero() {
		next.ID = t.attempt
	}
	if next.ID.IsZero() {
		next.ID = id.NewAttemptID()
	}
	ttlMs := t.ttl.Milliseconds()
	claim := engine.Claimed{
		ID: x.ID,
		Lease: engine.Lease{
			Fence: id.Fence{Execution: x.ID, Attempt: int(next.Index), Epoch: next.Epoch},
			ID:    lease, AttemptID: next.ID, Lane: id.LaneID(x.LaneID), Instance: t.instance, TTL: t.ttl.Truncate(time.Millisecond),
		},
		ExpiresAt: time.UnixMilli(core.AddTTL(x.NowMs, ttlMs)),
		Kind:      x.facts.ExecutionKind,
		Payload:   x.facts.Payload,
		Tags:      core.DecodeTags(x.facts.Tags),
		Flow:      x.FlowID,
		Priority:  int(x.Priority),
		CreatedAt: time.UnixMilli(x.CreatedAtMs),
		Type:      next.Kind,
		Resumed:   next.Resumed,
		Retries:   int(x.facts.RetryCount),
	}
	var timeoutAtMs int64
	if ms := cmp.Or(t.timeoutMs, x.facts.AttemptTimeoutMs); ms > 0 {
		timeoutAtMs = core.AddTTL(x.NowMs, ms)
		claim.TimeoutAt = time.UnixMilli(timeoutAtMs)
	}
	tx.Due.Leases()
	return claim, c.Q.LeaseTakenExecutions(ctx, tx, db.LeaseTakenExecutionsParams{
		NowMs:            x.NowMs,
		WorkerID:         string(t.worker),
		WorkerInstanceID: string(t.instance),
		LeaseTTLMs:       ttlMs,
		EventType:        string(t.event),
		PartitionKeys:    []int16{x.ID.Partition()},
		ExecutionIDs:     []pgtype.UUID{core.PgUUID(x.ID.UUID())},
		AttemptIndexes:   []int32{next.Index},
		AttemptTypes:     []string{string(next.Kind)},
		AttemptIDs:       []pgtype.UUID{core.PgUUID(next.ID)},
		LeaseIDs:         []pgtype.UUID{core.PgUUID(lease)},
		LeaseEpochs:      []int64{next.Epoch},
		TimeoutsAtMs:     []int64{timeoutAtMs},
		Inserted:         []bool{next.Inserted},
		Reclaims:         []int32{t.reclaims},
		DeadlinesAtMs:    []int64{t.deadlineMs},
	})
}

// leasedOf returns the facts of a claimed lease for [core.Core].Leases.
func leasedOf(claim *engine.Claimed) core.Leased {
	return core.Leased{Fence: claim.Lease.Fence, Flow: claim.Flow, Limited: claim.Limited, TTL: claim.Lease.TTL}
}
