package engine

import (
	"cmp"
	"context"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxCancelReason limits [CancelSpec.Reason], in bytes.
const MaxCancelReason = 1024

// Values of [CancelSpec.Source]; any other text is allowed too.
const (
	CancelledByOperator = "operator_override" // the default without a fence
	CancelledByWorker   = "worker"            // the default with a fence
	CancelledByHolder   = "lease_holder"      // only with a fence
)

// CancelSpec describes the cancellation of one execution.
type CancelSpec struct {
	ID id.ExecutionID

	// Reason is a text for reads. Default none; at most [MaxCancelReason] bytes.
	Reason string

	// Fence is for a lease holder's call, which is refused unless the fence belongs to the live lease or, without a lease,
	// to the current attempt. Default nil: any holder loses the execution.
	Fence *id.Fence

	// Source is the initiator, for reads. Default [CancelledByOperator], with a Fence [CancelledByWorker]; at most 256
	// bytes.
	Source string

	anew bool // an already cancelled execution is an error too
}

const maxCancelSource = 256

// CancelExecution ends an execution as cancelled, in any state, leased or not, and skips dependents that can no longer run.
// The context of a running handler ends shortly after, with worker.ErrCancelled as the cause; its result is discarded.
// Safe to repeat: a cancelled execution keeps the first reason and source.
//
// Errors: [*fferr.EndedError] ([fferr.ErrEnded]) with the outcome after another end; [fferr.ErrNotFound];
// [fferr.ErrInvalidInput]. With a fence also [*fferr.LeaseError]: [fferr.ErrStaleLease] for a newer lease or attempt, or
// [fferr.ErrLeaseExpired]. [fferr.ErrContention] after waiting three times two seconds for a lock.
// Transaction: locks a member's flow exclusively, then the execution and the attempt. Emits a completion event, and a
// lease event if leased. In a caller's transaction the holder is not notified; the holder's next call is refused.
func (e *Engine) CancelExecution(ctx context.Context, spec CancelSpec) error {
	outcomes, err := e.cancel(ctx, []CancelSpec{spec})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// CancelExecutions is [Engine.CancelExecution] for many executions, with up to [MaxBatch] executions and 256 flows per
// transaction. Outcomes are in input order, nil for each cancelled execution; if an execution is given twice, the first
// spec decides. The error means that nothing happened.
//
// CancelExecutions waits for locks for 50 ms at most. If another transaction holds an execution, its attempt, its flow or a
// dependent, the outcome is [fferr.ErrBusy]: repeat the item.
func (e *Engine) CancelExecutions(ctx context.Context, specs []CancelSpec) ([]error, error) {
	return e.shortWait().cancel(ctx, specs)
}

func (e *Engine) cancel(ctx context.Context, specs []CancelSpec) ([]error, error) {
	const op = "cancel executions"
	cancels := make([]core.Cancel, len(specs))
	for n := range specs {
		cancels[n] = core.Cancel{ID: specs[n].ID, Cancellation: specs[n].cancellation(), Once: specs[n].anew}
		if specs[n].Fence != nil {
			cancels[n].Check = specs[n].fence
		}
	}
	outcomes := make([]fferr.Outcome[struct{}], len(specs))
	valid := core.ValidItems(outcomes, func(n int) error { return core.Wrap(op, cmp.Or(e.c.CheckExecution(specs[n].ID), specs[n].check())) })
	err := e.c.CancelEach(ctx, op, cancels, valid, outcomes)
	if err == nil && e.c.Tx == nil {
		var over []id.Fence
		for n, spec := range specs {
			if spec.Fence != nil && outcomes[n].Err == nil {
				over = append(over, *spec.Fence)
			}
		}
		e.c.Leases.Forget(over)
	}
	return core.ErrorsOf(outcomes), err
}

func (s *CancelSpec) check() error {
	if err := core.CheckText("reason", s.Reason, MaxCancelReason); err != nil {
		return err
	}
	if err := core.CheckText("source", s.Source, maxCancelSource); err != nil {
		return err
	}
	switch {
	case s.Fence == nil && s.Source == CancelledByHolder:
		return core.Invalid("fence", "is missing: it identifies the lease's holder")
	case s.Fence != nil && s.Fence.Execution != s.ID:
		return core.Invalid("fence", "belongs to another execution")
	}
	return nil
}

func (s *CancelSpec) cancellation() core.Cancellation {
	if s.Fence == nil {
		return core.Cancellation{Reason: s.Reason, Source: cmp.Or(s.Source, CancelledByOperator), RevokedBy: core.RevokedByOperator}
	}
	return core.Cancellation{Reason: s.Reason, Source: cmp.Or(s.Source, CancelledByWorker), RevokedBy: core.RevokedByHolder}
}

// fence refuses the call of a former holder. If x has no lease, the last holder may cancel a released or lost execution.
func (s *CancelSpec) fence(x *core.HeldExecution, phase state.LifecyclePhase) (holds bool, err error) {
	stale := int(x.CurrentIndex) != s.Fence.Attempt || x.Leased() && x.CurrentEpoch != s.Fence.Epoch
	if !stale && (!x.Leased() || x.Live()) {
		return true, nil
	}
	refusal := &fferr.LeaseError{
		Execution: x.ID, Attempt: s.Fence.Attempt, Epoch: max(x.CurrentEpoch, 0), Phase: phase, Outcome: state.OutcomeNone, Err: fferr.ErrLeaseExpired,
	}
	if stale {
		refusal.Err = fferr.ErrStaleLease
	}
	return false, refusal
}
