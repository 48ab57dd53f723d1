package interop

import (
	"context"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Reclaim describes the use of a reclaim grant. Only Grant, Worker, Instance and LeaseTTL are required.
type Reclaim struct {
	// Grant is the grant received by the worker. Without a Key, the execution's newest reclaim grant issued to Worker and any
	// instance is used, without verification.
	Grant    ReclaimGrant
	Worker   id.WorkerID
	Instance id.WorkerInstanceID
	LeaseTTL time.Duration // one millisecond to [engine.MaxLeaseTTL]

	MaxReclaims *int         // lost leases that end the execution; nil for the policy's
	LeaseID     id.LeaseID   // zero for a new one
	AttemptID   id.AttemptID // zero for a new one
}

func (s Reclaim) validate() error {
	if p := s.MaxReclaims; p != nil && (*p < 0 || *p > math.MaxInt32) {
		return core.Invalid("MaxReclaims", "must be between 0 and 2^31-1")
	}
	return checkHolder(s.Worker, s.Instance, "lease TTL", s.LeaseTTL)
}

// ReclaimExecution takes over an execution whose lease was lost, before or after the job expire_leases ran. The attempt ends,
// and the worker gets the lease of a new one. An execution with too many lost leases ends as failed, with all consequences,
// and the call returns [fferr.ErrReclaimCapExceeded]: the only error after which something was written, even in a caller's
// transaction.
//
// Errors: [fferr.ErrInvalidGrant], [fferr.ErrGrantExpired]; [fferr.ErrNotFound]; [fferr.ErrNotReclaimable] if the lease has
// not expired, or the execution was claimed, ended, suspended or delayed in the meantime; [fferr.ErrReclaimCapExceeded];
// [fferr.ErrHalted] while the lane is paused or the worker drained; [fferr.ErrUnsupported]; [fferr.ErrInvalidInput];
// [fferr.ErrContention].
//
// Transaction: locks the execution and its attempt, and before them the flow of a member that may end, exclusively; deletes
// the execution's grants; emits a lease event, and a completion event if the execution ends. A repetition after an unknown
// outcome fails with [fferr.ErrInvalidGrant] if the first call was committed; the lease of the first call expires.
func ReclaimExecution(ctx context.Context, eng *engine.Engine, spec Reclaim) (engine.Claimed, error) {
	c := core.Of(eng)
	const op = "reclaim execution"
	if err := spec.validate(); err != nil {
		return engine.Claimed{}, core.Wrap(op, err)
	}
	mayEnd := func(x *core.HeldExecution) bool { return x.LostTooOften || spec.MaxReclaims != nil }
	claimed, err := onGrantable(ctx, c, op, spec.Grant.Execution, spec.Instance, mayEnd, func(tx *core.Txn, x *grantable) (none fferr.Outcome[engine.Claimed], err error) {
		if err := x.checkLane(spec.Grant.Lane); err != nil {
			return none, err
		}
		shown := presented{wire.ReclaimGrant, spec.Grant.Key, x.ID}
		if err := checkShown(ctx, c, tx, x, shown, spec.Worker, spec.Instance); err != nil {
			return none, err
		}
		if !x.Reclaimable() {
			return none, x.cannot(fferr.ErrNotReclaimable, "its worker has not lost it")
		}
		lost, tooMany := x.loss(spec.MaxReclaims)
		if tooMany {
			return fferr.Outcome[engine.Claimed]{Err: core.Wrap(op, &fferr.ReclaimCapError{Execution: x.ID, Reclaims: int(x.reclaims() + lost)})},
				endLost(ctx, c, tx, x, lost)
		}
		if err := x.notAdmitted(); err != nil {
			return none, err
		}
		if err := deleteGrants(ctx, c, tx, x.ID, wire.ClaimGrant, wire.ReclaimGrant); err != nil {
			return none, err
		}
		next := core.NextAttempt{Index: x.Pointer, Kind: state.ReclaimAttempt, Epoch: x.RaisedEpoch(), Inserted: true}
		if x.Started() {
			if err := c.Q.EndReclaimedAttempt(ctx, tx, db.EndReclaimedAttemptParams{
				PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), AttemptIndex: x.CurrentIndex, NowMs: x.NowMs,
			}); err != nil {
				return none, err
			}
			// After attempts of another program above the pointer.
			next.Index = max(x.CurrentIndex, x.NewestIndex) + 1
		}
		claim, err := giveLease(ctx, c, tx, x, next, terms{
			worker: spec.Worker, instance: spec.Instance, ttl: spec.LeaseTTL, lease: spec.LeaseID, attempt: spec.AttemptID,
			reclaims: lost, event: state.LeaseEventReclaimed,
		})
		return fferr.Outcome[engine.Claimed]{Value: claim}, err
	})
	if err == nil {
		c.Leases.Learn([]core.Leased{leasedOf(&claimed)}, nil)
	}
	return claimed, err
}

// loss returns how many lost leases to add, 0 if the loss was counted at the expiry, and whether the sum exceeds limit, or
// without one the policy's limit.
func (x *grantable) loss(limit *int) (lost int32, tooMany bool) {
	counted := x.Runnable() && x.CurrentOutcome == "lease_expired_reclaimable" && x.LeaseReclaimCount > 0
	if !counted {
		lost = 1
	}
	switch {
	case limit != nil:
		return lost, int(x.reclaims()+lost) > *limit
	case counted:
		return lost, x.facts.HadLostTooOften
	}
	return lost, x.LostTooOften
}

// endLost ends an execution with too many lost leases.
func endLost(ctx context.Context, c *core.Core, tx *core.Txn, x *grantable, lost int32) error {
	ending := core.NewEnding(x.NowMs, state.OutcomeFailed)
	ending.Params.LostLeases = lost
	ending.Params.CancellationReason = new("reclaim_cap_exceeded")
	ending.Params.RevokedBy = new("reconciler")
	attempt := core.EndingAttempt{
		Execution: x.ID, Index: x.CurrentIndex, Epoch: x.RaisedEpoch(), Reason: core.ReasonLostTooOften, Category: string(policy.InfraCrash), Class: policy.InfraCrash,
	}
	if x.Leased() {
		attempt.LeaseEvent, attempt.LeaseID, attempt.Instance = "revoked", x.LeaseID, x.WorkerInstanceID
	}
	ending.Add(attempt)
	return c.EndByJob(ctx, tx, ending)
}
