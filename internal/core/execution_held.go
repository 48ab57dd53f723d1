package core

import (
	"encoding/json"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// HeldExecution is an execution whose row and current attempt are locked by a transaction, with values read by a later
// statement. The current attempt is the newest up to the execution's pointer.
//
// Predicates accept the literals of other programs too, and ignore unknown ones; [HeldExecution.check] refuses unknown
// ones.
type HeldExecution struct {
	LockedExecution
	*db.ReadHeldExecutionsRow // nil for a missing execution

	Awaited bool // a caller still needs the result; read by engine.Engine.readAwaited only
}

func (x *HeldExecution) notFound() error {
	if x.ReadHeldExecutionsRow == nil {
		return &fferr.NotFoundError{Entity: "execution", ID: x.ID.String()}
	}
	return nil
}

// check refuses an execution with an unknown state literal.
func (x *HeldExecution) check() error {
	_, err := x.Vector()
	return err
}

// Vector returns the states of the execution.
func (x *HeldExecution) Vector() (v state.Vector, err error) {
	if v.Phase, err = normalise.LifecyclePhase(x.LifecyclePhase); err != nil {
		return v, Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	if v.Ownership, err = normalise.OwnershipState(x.OwnershipState); err != nil {
		return v, Corrupt("ff_exec_core.ownership_state", err)
	}
	if v.Eligibility, err = normalise.EligibilityState(x.EligibilityState); err != nil {
		return v, Corrupt("ff_exec_core.eligibility_state", err)
	}
	if v.Public, err = normalise.PublicState(x.PublicState); err != nil {
		return v, Corrupt("ff_exec_core.public_state", err)
	}
	if v.Attempt, err = normalise.AttemptState(x.AttemptState); err != nil {
		return v, Corrupt("ff_exec_core.attempt_state", err)
	}
	if v.Blocking, err = normalise.BlockingReason(x.BlockingReason); err != nil {
		return v, Corrupt("ff_exec_core.blocking_reason", err)
	}
	v.Outcome = x.Outcome()
	return v, nil
}

// Outcome returns how the execution ended, or none for a live one.
func (x *HeldExecution) Outcome() state.TerminalOutcome {
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

// Ended returns the error for a call on an ended execution.
func (x *HeldExecution) Ended() error {
	failure := x.CancellationReason
	if failure == "" {
		failure = x.FailureReason
	}
	return &fferr.EndedError{Execution: x.ID, Outcome: x.Outcome(), Failure: failure}
}

func (x *HeldExecution) Phase() (state.LifecyclePhase, error) {
	phase, err := normalise.LifecyclePhase(x.LifecyclePhase)
	if err != nil {
		err = Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	return phase, err
}

func (x *HeldExecution) Terminal() bool { return IsTerminalPhase(x.LifecyclePhase) }

func (x *HeldExecution) Active() bool { return x.LifecyclePhase == "active" }

// Resumable reports whether the suspension was satisfied and no worker has claimed the execution since.
func (x *HeldExecution) Resumable() bool { return x.PublicState == "resumable" }

func (x *HeldExecution) Runnable() bool {
	switch x.LifecyclePhase {
	case "runnable", "submitted", "pending", "eligible", "blocked":
		return true
	}
	return false
}

// Free reports whether the execution has no owner.
func (x *HeldExecution) Free() bool {
	return x.OwnershipState == "unowned" || x.OwnershipState == "released"
}

// Eligible reports whether a worker may claim the execution, with a grant or without.
func (x *HeldExecution) Eligible() bool {
	return x.EligibilityState == "eligible_now" || x.EligibilityState == "pending_claim"
}

// Granted reports whether a worker has an unused grant for the execution.
func (x *HeldExecution) Granted() bool {
	return x.Runnable() && x.Free() && x.EligibilityState == "pending_claim"
}

func (x *HeldExecution) Interrupted() bool { return x.AttemptState == "attempt_interrupted" }

// Started reports whether there is a current attempt.
func (x *HeldExecution) Started() bool { return x.CurrentIndex >= 0 }

// Leased reports whether a lease of the current attempt is recorded, live or not.
func (x *HeldExecution) Leased() bool {
	switch x.OwnershipState {
	case "leased", "lease_expired_reclaimable", "lease_revoked":
		return x.Started() && x.LeaseExpiresAtMs != nil
	}
	return false
}

// Live reports whether the lease of the current attempt has not expired, whatever the ownership state.
func (x *HeldExecution) Live() bool {
	return x.Started() && x.LeaseExpiresAtMs != nil && *x.LeaseExpiresAtMs > x.NowMs
}

// finished reports whether the current attempt neither runs nor continues later.
func (x *HeldExecution) finished() bool {
	outcome, err := normalise.AttemptOutcome(x.CurrentOutcome)
	return x.Started() && err == nil && outcome.Finished(x.CurrentTerminalAtMs != nil)
}

// Reclaimable reports whether the worker lost the lease and another one may start a new attempt.
func (x *HeldExecution) Reclaimable() bool {
	if x.Active() {
		return x.OwnershipState == "lease_expired_reclaimable" || x.OwnershipState == "lease_revoked" || !x.Live()
	}
	return x.Runnable() && x.Free() && x.EligibilityState == "eligible_now" && x.Interrupted() &&
		(x.CurrentOutcome == "lease_expired_reclaimable" || x.CurrentOutcome == "interrupted" && x.CurrentDelayUntilMs == nil)
}

// RaisedEpoch returns the fencing token that refuses every holder so far.
func (x *HeldExecution) RaisedEpoch() int64 { return max(x.HighestEpoch, x.CurrentEpoch) + 1 }

// Not returns a refusal because of the execution's state.
func (x *HeldExecution) Not(reason error) error {
	vector, err := x.Vector()
	if err != nil {
		return err
	}
	return &fferr.StateError{Execution: x.ID, State: vector, Err: reason}
}

// Unstarted reports whether the execution was never claimed.
func (x *HeldExecution) Unstarted() bool {
	return x.Runnable() && x.StartedAtMs == nil && !x.Resumable()
}

// Lease returns the storage key of the current attempt's lease.
func (x *HeldExecution) Lease() wire.LeaseTriple {
	return wire.LeaseTriple{Execution: x.ID.UUID(), AttemptIndex: x.CurrentIndex, LeaseEpoch: x.CurrentEpoch}
}

// ReplayedAttempt returns the index of the attempt for the claim after a replay, and whether an existing attempt
// restarts. The current attempt restarts, unless a later one was scheduled and never claimed.
func (x *HeldExecution) ReplayedAttempt() (index int32, beginsAgain bool) {
	switch {
	case !x.Started():
		return x.Pointer, false
	case x.CurrentIndex < x.Pointer && x.finished() && (x.CurrentOutcome == "retry" || x.CurrentOutcome == "interrupted"):
		return x.Pointer, false
	}
	return x.CurrentIndex, true
}

// Replays returns how often the execution was replayed; an unreadable number counts as 0.
func (x *HeldExecution) Replays() int {
	return int(max(Number(json.RawMessage(x.RawReplayCount)), 0))
}
