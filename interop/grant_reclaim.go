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
	// Grant is the grant that the worker received. Without a Key, the newest reclaim grant of the execution that was
	// issued to Worker and any instance is used, without verification.
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

// ReclaimExecution takes over an execution whose lease was lost, whether or not the job expire_leases has handled
// that. Its attempt ends, and the worker gets the lease of a new one. If the execution has now lost too many leases, it
// ends as failed, with all consequences, and the call returns [fferr.ErrReclaimCapExceeded]; in this case something was
// written, even in a caller's transaction.
//
// Errors: [fferr.ErrInvalidGrant], [fferr.ErrGrantExpired]; [fferr.ErrNotFound]; [fferr.ErrNotReclaimable] if its lease has not
// expired, or it was claimed, ended, suspended or delayed in the meantime; [fferr.ErrReclaimCapExceeded]; [fferr.ErrHalted]
// while the lane is paused or the worker drained; [fferr.ErrUnsupported]; [fferr.ErrInvalidInput]; [fferr.ErrContention].
//
// Transaction: locks the execution and its attempt, and before them the flow of a member that may end, exclusively;
// deletes its grants; emits a lease event, and a completion event if it ends. A repetition after an unknown outcome
// fails with [fferr.ErrInvalidGrant] if the first call was committed; that call's lease expires.
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
			// After attempts that another program left above the pointer.
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

// loss returns how many lost leases this one adds, 0 if it was counted when it expired, and whether it exceeds limit
// or, if that is nil, the policy's limit.
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

// endLost ends an execution that has lost too many leases.
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
