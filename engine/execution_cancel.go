package engine

import (
	"cmp"
	"context"

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
				ends.add(item.heldExecution, &specs[item.n])
			}
			return e.endCancelled(ctx, tx, ends)
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

func (s *CancelSpec) source() string {
	if s.Fence == nil {
		return cmp.Or(s.Source, CancelledByOperator)
	}
	return cmp.Or(s.Source, CancelledByWorker)
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

// cancelling is a set of executions that end as cancelled.
type cancelling struct {
	params db.EndCancelledParams
	lost   []string // worker instances whose leases end
}

func newCancelling(nowMs int64) *cancelling {
	return &cancelling{params: db.EndCancelledParams{NowMs: nowMs}}
}

func (s *cancelling) add(x *heldExecution, spec *CancelSpec) {
	p := &s.params
	attempt, pointer, epoch, outcome := x.CurrentIndex, x.Pointer, int64(0), ""
	switch {
	case !x.started():
	case !x.finished() || x.leased():
		// Another program's pointer may stand beside its attempt.
		pointer, epoch = attempt, x.raisedEpoch()
		if x.active() || x.leased() || x.suspended() || x.resumable() {
			outcome = string(state.AttemptOutcomeCancelled)
		}
	case attempt < x.Pointer:
		attempt = -1 // the one that failed before the next
	}
	revokedBy := ""
	if x.leased() {
		revokedBy = "operator"
		if spec.Fence != nil {
			revokedBy = "backend"
		}
		s.lost = append(s.lost, x.WorkerInstanceID)
	}
	p.PartitionKeys = append(p.PartitionKeys, x.id.Partition())
	p.ExecutionIds = append(p.ExecutionIds, pgUUID(x.id.UUID()))
	p.Pointers = append(p.Pointers, pointer)
	p.AttemptIndexes = append(p.AttemptIndexes, attempt)
	p.AttemptOutcomes = append(p.AttemptOutcomes, outcome)
	p.RaisedEpochs = append(p.RaisedEpochs, epoch)
	p.LeaseIds = append(p.LeaseIds, x.LeaseID)
	p.WorkerInstanceIds = append(p.WorkerInstanceIds, x.WorkerInstanceID)
	p.RevokedBys = append(p.RevokedBys, revokedBy)
	p.Reasons = append(p.Reasons, spec.Reason)
	p.Sources = append(p.Sources, spec.source())
}

// endCancelled writes cancellations and all that follows from them.
func (e *Engine) endCancelled(ctx context.Context, tx *txn, s *cancelling) error {
	rows, err := e.q.EndCancelled(ctx, tx, s.params)
	if err != nil {
		return err
	}
	ended := make([]endedExecution, len(rows))
	for i, row := range rows {
		ended[i] = endedExecution{
			id:       id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			flow:     flowOf(row.FlowID),
			outcome:  state.CompletionCancelled,
			hasQuota: row.HasQuota,
		}
	}
	if len(s.lost) > 0 {
		tx.due.leases()
	}
	for _, instance := range s.lost {
		tx.due.lost(instance)
	}
	return e.discardAndResolve(ctx, tx, ended, s.params.NowMs)
}
