package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxCancelReason is the longest reason for a cancellation in bytes.
const MaxCancelReason = 1024

// On whose behalf an execution is cancelled: [CancelSpec.Source]. Any other text may be given.
const (
	CancelledByOperator = "operator_override" // the default without a fence
	CancelledByWorker   = "worker"            // the default with one
	CancelledByHolder   = "lease_holder"      // only with a fence
)

// CancelSpec asks for one execution to be cancelled.
type CancelSpec struct {
	ID id.ExecutionID

	// Reason is what reads show as the reason of the cancellation. Default none; at most [MaxCancelReason] bytes.
	Reason string

	// Fence makes it the call of a lease's holder: refused unless the lease is that of this fence, and live, or, while
	// nobody has one, the fence is of the current attempt. Default nil: whoever holds the execution loses it.
	Fence *Fence

	// Source is on whose behalf. Default [CancelledByOperator], with a Fence [CancelledByWorker]; at most 256 bytes.
	Source string
}

const maxCancelSource = 256

// CancelExecution ends an execution as cancelled, in whatever state it is and whoever holds it. Its lease, its
// suspension, waitpoints and grants are gone with it, what can no longer run because of it is skipped, and its holder is
// refused from now on: the context of its handler ends within a moment, with worker.ErrCancelled as the cause. What the
// handler does meanwhile is not undone, and what it returns is discarded. The first reason and source stand.
//
// An execution that is cancelled already is left as it is, which is success.
//
// Errors: an [*EndedError], of which [ErrEnded] is told, when it ended in another way, and how. [ErrNotFound];
// [ErrInvalidInput]. With a fence, in a [*LeaseError]: [ErrStaleLease], another lease was given, or attempt begun, since;
// [ErrLeaseExpired], the lease has run out.
//
// Transaction: a constant number of statements, plus one round for each level of executions skipped. Locks the flow of a
// member, exclusively, then the execution and its attempt, and waits for each up to two seconds, three times; then
// [ErrContention]. Emits a lease event where a lease was held, and a completion event. In a caller's transaction the
// holder is not told; it is refused with its next call. Safe to repeat.
func (e *Engine) CancelExecution(ctx context.Context, spec CancelSpec) error {
	outcomes, err := e.cancel(ctx, []CancelSpec{spec})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// CancelExecutions is [Engine.CancelExecution] for many executions, [MaxBatch] to a transaction, and members of at most
// 256 flows. Outcomes stand in input order, nil for what is cancelled now; a refusal affects only its own. The same
// execution twice: the first occurrence decides. The error means that nothing happened.
//
// It waits for nobody: what somebody else holds, the execution, its attempt, the lock of its flow or what depends on it,
// has the outcome [ErrBusy], and the caller repeats it.
func (e *Engine) CancelExecutions(ctx context.Context, specs []CancelSpec) ([]error, error) {
	return e.impatient().cancel(ctx, specs)
}

func (e *Engine) cancel(ctx context.Context, specs []CancelSpec) ([]error, error) {
	ids := make([]id.ExecutionID, len(specs))
	for i, spec := range specs {
		ids[i] = spec.ID
	}
	outcomes, err := intervene(ctx, e, ids, func(i int) error { return specs[i].check() }, intervention[error]{
		op:        "cancel executions",
		needsFlow: func(_ int, x forecast) bool { return !isTerminalPhase(x.phase) },
		judge: func(n int, x *heldExecution) (_ error, acts bool, err error) {
			phase, err := x.phase()
			switch {
			case err != nil:
				return nil, false, err
			case !phase.Terminal():
				return nil, true, specs[n].fence(x, phase)
			case x.outcome() == state.OutcomeCancelled:
				return nil, false, nil
			}
			return nil, false, x.ended()
		},
		write: func(tx *txn, items []heldItem, _ []error) error {
			ends := newCancelling(items[0].NowMs)
			for _, item := range items {
				ends.add(item.id, specs[item.n].cancellation())
			}
			_, err := e.endCancelled(ctx, tx, ends)
			return err
		},
		refused: func(err error) error { return err },
	})
	if err == nil && e.tx == nil {
		var over []Fence
		for i, spec := range specs {
			if spec.Fence != nil && outcomes[i] == nil {
				over = append(over, *spec.Fence)
			}
		}
		e.leases.forget(over)
	}
	return outcomes, err
}

func (s *CancelSpec) check() error {
	if err := checkText("reason", s.Reason, MaxCancelReason); err != nil {
		return err
	}
	if err := checkText("source", s.Source, maxCancelSource); err != nil {
		return err
	}
	switch {
	case s.Fence == nil && s.Source == CancelledByHolder:
		return invalid("fence", "is missing: the holder of a lease is told by it")
	case s.Fence != nil && s.Fence.Execution != s.ID:
		return invalid("fence", "is of another execution")
	}
	return nil
}

// cancellation is how executions are cancelled. Of an execution that was about to be cancelled the first reason and source
// stand.
type cancellation struct {
	reason    string
	source    string // on whose behalf
	revokedBy string // whoever loses a lease by it is told so
}

// Who revokes a lease, as lease events tell it.
const (
	revokedByHolder     = "backend" // its own call
	revokedByOperator   = "operator"
	revokedByReconciler = "reconciler" // a background job
)

func (s *CancelSpec) cancellation() cancellation {
	if s.Fence == nil {
		return cancellation{s.Reason, cmp.Or(s.Source, CancelledByOperator), revokedByOperator}
	}
	return cancellation{s.Reason, cmp.Or(s.Source, CancelledByWorker), revokedByHolder}
}

// fence refuses the call of a holder that is not x's. While nobody has a lease, the last holder may cancel what it gave
// back or lost.
func (s *CancelSpec) fence(x *heldExecution, phase state.LifecyclePhase) error {
	if s.Fence == nil {
		return nil
	}
	stale := int(x.CurrentIndex) != s.Fence.Attempt || x.leased() && x.CurrentEpoch != s.Fence.Epoch
	if !stale && (!x.leased() || x.live()) {
		return nil
	}
	refusal := &LeaseError{
		Execution: x.id, Attempt: s.Fence.Attempt, Epoch: max(x.CurrentEpoch, 0), Phase: phase, Outcome: state.OutcomeNone, Err: ErrLeaseExpired,
	}
	if stale {
		refusal.Err = ErrStaleLease
	}
	return refusal
}

// cancelling is a set of executions that end as cancelled, in lock order.
type cancelling struct{ params db.EndCancelledParams }

func newCancelling(nowMs int64) *cancelling {
	return &cancelling{params: db.EndCancelledParams{NowMs: nowMs}}
}

func (s *cancelling) add(x id.ExecutionID, how cancellation) {
	p := &s.params
	p.PartitionKeys = append(p.PartitionKeys, x.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, pgUUID(x.UUID()))
	p.Reasons = append(p.Reasons, how.reason)
	p.Sources = append(p.Sources, how.source)
	p.RevokedBys = append(p.RevokedBys, how.revokedBy)
}

// endCancelled writes cancellations and all that follows from them, and returns what it ended. The executions and their
// current attempts are locked, and the flows of members.
func (e *Engine) endCancelled(ctx context.Context, tx *txn, s *cancelling) ([]endedExecution, error) {
	rows, err := e.q.EndCancelled(ctx, tx, s.params)
	if err != nil {
		return nil, err
	}
	once := !slices.ContainsFunc(rows, func(row db.EndCancelledRow) bool { return row.Replayed })
	ended := make([]endedExecution, len(rows))
	for i, row := range rows {
		ended[i] = endedExecution{
			id:       id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			flow:     flowOf(row.FlowID),
			outcome:  state.CompletionCancelled,
			hasQuota: row.HasQuota,
			once:     once,
		}
		if row.Leased {
			tx.due.leases()
			tx.due.lost(row.WorkerInstanceID)
		}
	}
	return ended, e.discardAndResolve(ctx, tx, ended, s.params.NowMs)
}
