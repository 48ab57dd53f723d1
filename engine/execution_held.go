package engine

import (
	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// heldExecution is an execution whose row and current attempt a transaction has locked, and what a statement begun after
// that has read. The current attempt is the newest up to the pointer of the execution.
//
// Its predicates take what other programs store too, and tell nothing of a literal that nobody knows: [heldExecution.check].
type heldExecution struct {
	id   id.ExecutionID
	busy bool // somebody else holds one of the rows: what was read decides nothing
	*db.ReadHeldExecutionsRow
}

func (x *heldExecution) forecast() forecast {
	return forecast{x.FlowID, x.LifecyclePhase, x.LostTooOften}
}

// check refuses an execution one of whose states nobody knows.
func (x *heldExecution) check() error {
	_, err := x.vector()
	return err
}

// vector is the states of the execution.
func (x *heldExecution) vector() (v state.Vector, err error) {
	if v.Phase, err = normalise.LifecyclePhase(x.LifecyclePhase); err != nil {
		return v, corrupt("ff_exec_core.lifecycle_phase", err)
	}
	if v.Ownership, err = normalise.OwnershipState(x.OwnershipState); err != nil {
		return v, corrupt("ff_exec_core.ownership_state", err)
	}
	if v.Eligibility, err = normalise.EligibilityState(x.EligibilityState); err != nil {
		return v, corrupt("ff_exec_core.eligibility_state", err)
	}
	if v.Public, err = normalise.PublicState(x.PublicState); err != nil {
		return v, corrupt("ff_exec_core.public_state", err)
	}
	if v.Attempt, err = normalise.AttemptState(x.AttemptState); err != nil {
		return v, corrupt("ff_exec_core.attempt_state", err)
	}
	if v.Blocking, err = normalise.BlockingReason(x.BlockingReason); err != nil {
		return v, corrupt("ff_exec_core.blocking_reason", err)
	}
	v.Outcome = x.outcome()
	return v, nil
}

// outcome is how the execution ended, none while it has not.
func (x *heldExecution) outcome() state.TerminalOutcome {
	phase, err := normalise.LifecyclePhase(x.LifecyclePhase)
	if err != nil {
		return state.OutcomeNone
	}
	return normalise.TerminalOutcome(normalise.TerminalFacts{
		Phase:              phase,
		StoredPhase:        x.LifecyclePhase,
		PointerOutcome:     x.PointerOutcome,
		StoredPublicState:  x.PublicState,
		CurrentOutcome:     x.CurrentOutcome,
		RawTerminalOutcome: x.RawTerminalOutcome,
		CancellationReason: x.CancellationReason,
		LastFailureMessage: x.LastFailureMessage,
		FailureReason:      x.FailureReason,
	})
}

// ended is what a call is told that an execution has ended.
func (x *heldExecution) ended() error {
	failure := x.CancellationReason
	if failure == "" {
		failure = x.FailureReason
	}
	return &EndedError{Execution: x.id, Outcome: x.outcome(), Failure: failure}
}

func (x *heldExecution) phase() (state.LifecyclePhase, error) {
	phase, err := normalise.LifecyclePhase(x.LifecyclePhase)
	if err != nil {
		err = corrupt("ff_exec_core.lifecycle_phase", err)
	}
	return phase, err
}

func (x *heldExecution) terminal() bool { return isTerminalPhase(x.LifecyclePhase) }

func (x *heldExecution) active() bool { return x.LifecyclePhase == "active" }

// resumable: its suspension was satisfied, and nobody has claimed it since.
func (x *heldExecution) resumable() bool { return x.PublicState == "resumable" }

func (x *heldExecution) runnable() bool {
	switch x.LifecyclePhase {
	case "runnable", "submitted", "pending", "eligible", "blocked":
		return true
	}
	return false
}

// free: nobody owns it.
func (x *heldExecution) free() bool {
	return x.OwnershipState == "unowned" || x.OwnershipState == "released"
}

// eligible: a worker may claim it, by a grant or without.
func (x *heldExecution) eligible() bool {
	return x.EligibilityState == "eligible_now" || x.EligibilityState == "pending_claim"
}

// granted: a worker was granted to claim it, and has not yet.
func (x *heldExecution) granted() bool {
	return x.runnable() && x.free() && x.EligibilityState == "pending_claim"
}

func (x *heldExecution) interrupted() bool { return x.AttemptState == "attempt_interrupted" }

// started: it has a current attempt.
func (x *heldExecution) started() bool { return x.CurrentIndex >= 0 }

// leased: the lease of its current attempt is recorded, live or not.
func (x *heldExecution) leased() bool {
	switch x.OwnershipState {
	case "leased", "lease_expired_reclaimable", "lease_revoked":
		return x.started() && x.LeaseExpiresAtMs != nil
	}
	return false
}

// live: the lease of its current attempt has not run out, whoever is thought to own it.
func (x *heldExecution) live() bool {
	return x.started() && x.LeaseExpiresAtMs != nil && *x.LeaseExpiresAtMs > x.NowMs
}

// finished: its current attempt neither runs nor goes on later.
func (x *heldExecution) finished() bool {
	outcome, err := normalise.AttemptOutcome(x.CurrentOutcome)
	return x.started() && err == nil && outcome.Finished(x.CurrentTerminalAtMs != nil)
}

// reclaimable: its worker lost the lease, and another may begin an attempt of its own.
func (x *heldExecution) reclaimable() bool {
	if x.active() {
		return x.OwnershipState == "lease_expired_reclaimable" || x.OwnershipState == "lease_revoked" || !x.live()
	}
	return x.runnable() && x.free() && x.EligibilityState == "eligible_now" && x.interrupted() &&
		(x.CurrentOutcome == "lease_expired_reclaimable" || x.CurrentOutcome == "interrupted" && x.CurrentDelayUntilMs == nil)
}

// raisedEpoch is the fencing token that refuses every holder of the current attempt.
func (x *heldExecution) raisedEpoch() int64 { return max(x.HighestEpoch, x.CurrentEpoch) + 1 }
