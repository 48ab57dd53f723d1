// Package normalise maps stored literals to states. A state has several spellings, because more than one program writes
// these tables. An unknown literal is an error that names column and literal: the row is corrupt.
package normalise

import (
	"fmt"

	"github.com/flowfabric/flowfabric-go/state"
)

// UnknownLiteralError reports a stored literal no known program writes.
type UnknownLiteralError struct {
	Column  string
	Literal string
}

func (e *UnknownLiteralError) Error() string {
	const maxEcho = 64
	return fmt.Sprintf("%s: '%s' is not a known value", e.Column, e.Literal[:min(len(e.Literal), maxEcho)])
}

// PhaseCancelled is the stored phase of a cancelled execution. It is terminal, and the outcome is cancelled, whichever
// outcome the attempt has.
const PhaseCancelled = "cancelled"

// LifecyclePhase maps ff_exec_core.lifecycle_phase.
func LifecyclePhase(raw string) (state.LifecyclePhase, error) {
	switch raw {
	case "submitted":
		return state.Submitted, nil
	case "runnable", "pending", "eligible", "blocked": // all but the first are from old rows and fixtures
		return state.Runnable, nil
	case "active":
		return state.Active, nil
	case "suspended":
		return state.Suspended, nil
	case "terminal", PhaseCancelled:
		return state.Terminal, nil
	}
	return "", &UnknownLiteralError{Column: "lifecycle_phase", Literal: raw}
}

// OwnershipState maps ff_exec_core.ownership_state. A suspension stores "released", which means unowned.
func OwnershipState(raw string) (state.OwnershipState, error) {
	switch raw {
	case "unowned", "released":
		return state.Unowned, nil
	case "leased":
		return state.Leased, nil
	case "lease_expired_reclaimable":
		return state.LeaseExpiredReclaimable, nil
	case "lease_revoked":
		return state.LeaseRevoked, nil
	}
	return "", &UnknownLiteralError{Column: "ownership_state", Literal: raw}
}

// EligibilityState maps ff_exec_core.eligibility_state. "pending_claim" means that a claim grant is outstanding; other
// workers may still claim.
func EligibilityState(raw string) (state.EligibilityState, error) {
	switch raw {
	case "eligible_now", "pending_claim":
		return state.EligibleNow, nil
	case "not_eligible_until_time":
		return state.NotEligibleUntilTime, nil
	case "blocked_by_dependencies":
		return state.BlockedByDependencies, nil
	case "blocked_by_budget":
		return state.BlockedByBudget, nil
	case "blocked_by_quota":
		return state.BlockedByQuota, nil
	case "blocked_by_route":
		return state.BlockedByRoute, nil
	case "blocked_by_lane_state":
		return state.BlockedByLaneState, nil
	case "blocked_by_operator":
		return state.BlockedByOperator, nil
	case "not_applicable", "cancelled": // the second is from cancelling a flow
		return state.NotApplicable, nil
	}
	return "", &UnknownLiteralError{Column: "eligibility_state", Literal: raw}
}

// AttemptState maps ff_exec_core.attempt_state.
func AttemptState(raw string) (state.AttemptState, error) {
	switch raw {
	case "none":
		return state.NoAttempt, nil
	case "pending_first_attempt", "pending", "pending_claim", "initial":
		return state.PendingFirstAttempt, nil
	case "running_attempt", "running":
		return state.RunningAttempt, nil
	case "attempt_interrupted":
		return state.AttemptInterrupted, nil
	case "pending_retry_attempt":
		return state.PendingRetryAttempt, nil
	case "pending_replay_attempt":
		return state.PendingReplayAttempt, nil
	case "attempt_terminal", "cancelled", "terminal_failed": // the last is from a reclaim that reached its limit
		return state.AttemptTerminal, nil
	}
	return "", &UnknownLiteralError{Column: "attempt_state", Literal: raw}
}

// PublicState maps ff_exec_core.public_state. Claims store "running" more often than "active".
func PublicState(raw string) (state.PublicState, error) {
	switch raw {
	case "waiting":
		return state.PublicWaiting, nil
	case "delayed":
		return state.PublicDelayed, nil
	case "rate_limited":
		return state.PublicRateLimited, nil
	case "waiting_children":
		return state.PublicWaitingChildren, nil
	case "active", "running", "claimed":
		return state.PublicActive, nil
	case "suspended":
		return state.PublicSuspended, nil
	case "resumable":
		return state.PublicResumable, nil
	case "completed":
		return state.PublicCompleted, nil
	case "failed":
		return state.PublicFailed, nil
	case "cancelled":
		return state.PublicCancelled, nil
	case "expired":
		return state.PublicExpired, nil
	case "skipped":
		return state.PublicSkipped, nil
	}
	return "", &UnknownLiteralError{Column: "public_state", Literal: raw}
}

// BlockingReason maps ff_exec_core.blocking_reason. Pass "" for NULL.
func BlockingReason(raw string) (state.BlockingReason, error) {
	switch reason := state.BlockingReason(raw); reason {
	case "", state.NotBlocked:
		return state.NotBlocked, nil
	case state.WaitingForWorker, state.WaitingForRetryBackoff, state.WaitingForResumeDelay, state.WaitingForDelay,
		state.WaitingForSignal, state.WaitingForApproval, state.WaitingForCallback, state.WaitingForToolResult,
		state.WaitingForChildren, state.WaitingForBudget, state.WaitingForQuota, state.WaitingForCapableWorker,
		state.WaitingForLocalityMatch, state.PausedByOperator, state.PausedByPolicy, state.PausedByFlowCancel:
		return reason, nil
	}
	return "", &UnknownLiteralError{Column: "blocking_reason", Literal: raw}
}
