package engine

import (
	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// heldExecution is an execution whose row and current attempt are locked by a transaction, with the values that a later
// statement read. The current attempt is the newest up to the execution's pointer.
//
// Its predicates accept the literals of other programs too. They don't report unknown ones; [heldExecution.check] does.
type heldExecution struct {
	lockedExecution
	*db.ReadHeldExecutionsRow // nil for an execution that does not exist
}

func (x *heldExecution) missing() error {
	if x.ReadHeldExecutionsRow == nil {
		return &NotFoundError{Entity: "execution", ID: x.id.String()}
	}
	return nil
}

// check refuses an execution with an unknown state literal.
func (x *heldExecution) check() error {
	_, err := x.vector()
	return err
}

// vector returns the states of the execution.
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

// outcome returns how the execution ended, or none if it has not.
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

// ended returns the error for a call on an ended execution.
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

// resumable reports whether its suspension was satisfied and it was not claimed since.
func (x *heldExecution) resumable() bool { return x.PublicState == "resumable" }

func (x *heldExecution) runnable() bool {
	switch x.LifecyclePhase {
	case "runnable", "submitted", "pending", "eligible", "blocked":
		return true
	}
	return false
}

// free reports whether it has no owner.
func (x *heldExecution) free() bool {
	return x.OwnershipState == "unowned" || x.OwnershipState == "released"
}

// eligible reports whether a worker may claim it, with a grant or without.
func (x *heldExecution) eligible() bool {
	return x.EligibilityState == "eligible_now" || x.EligibilityState == "pending_claim"
}

// granted reports whether a worker has a grant for it and has not claimed it yet.
func (x *heldExecution) granted() bool {
	return x.runnable() && x.free() && x.EligibilityState == "pending_claim"
}

func (x *heldExecution) interrupted() bool { return x.AttemptState == "attempt_interrupted" }

// started reports whether it has a current attempt.
func (x *heldExecution) started() bool { return x.CurrentIndex >= 0 }

// leased reports whether a lease of its current attempt is recorded, live or not.
func (x *heldExecution) leased() bool {
	switch x.OwnershipState {
	case "leased", "lease_expired_reclaimable", "lease_revoked":
		return x.started() && x.LeaseExpiresAtMs != nil
	}
	return false
}

// live reports whether the lease of its current attempt has not expired, whatever its ownership state.
func (x *heldExecution) live() bool {
	return x.started() && x.LeaseExpiresAtMs != nil && *x.LeaseExpiresAtMs > x.NowMs
}

// finished reports whether its current attempt neither runs nor continues later.
func (x *heldExecution) finished() bool {
	outcome, err := normalise.AttemptOutcome(x.CurrentOutcome)
	return x.started() && err == nil && outcome.Finished(x.CurrentTerminalAtMs != nil)
}

// reclaimable reports whether its worker lost the lease and another one may start a new attempt.
func (x *heldExecution) reclaimable() bool {
	if x.active() {
		return x.OwnershipState == "lease_expired_reclaimable" || x.OwnershipState == "lease_revoked" || !x.live()
	}
	return x.runnable() && x.free() && x.EligibilityState == "eligible_now" && x.interrupted() &&
		(x.CurrentOutcome == "lease_expired_reclaimable" || x.CurrentOutcome == "interrupted" && x.CurrentDelayUntilMs == nil)
}

// raisedEpoch returns the fencing token that refuses every holder of the current attempt.
func (x *heldExecution) raisedEpoch() int64 { return max(x.HighestEpoch, x.CurrentEpoch) + 1 }

// not returns a refusal because of the execution's state.
func (x *heldExecution) not(reason error) error {
	vector, err := x.vector()
	if err != nil {
		return err
	}
	return &StateError{Execution: x.id, State: vector, Err: reason}
}
