package state

// AttemptState is the progress of an execution through attempts.
type AttemptState string

// The attempt states.
const (
	NoAttempt            AttemptState = "none"
	PendingFirstAttempt  AttemptState = "pending_first_attempt"
	RunningAttempt       AttemptState = "running_attempt"
	AttemptInterrupted   AttemptState = "attempt_interrupted" // the same attempt continues later
	PendingRetryAttempt  AttemptState = "pending_retry_attempt"
	PendingReplayAttempt AttemptState = "pending_replay_attempt"
	AttemptTerminal      AttemptState = "attempt_terminal"
)

// AttemptStates lists the attempt states in order.
func AttemptStates() []AttemptState {
	return []AttemptState{
		NoAttempt, PendingFirstAttempt, RunningAttempt, AttemptInterrupted,
		PendingRetryAttempt, PendingReplayAttempt, AttemptTerminal,
	}
}

// AttemptType is why an attempt was made.
type AttemptType string

// The attempt types.
const (
	InitialAttempt  AttemptType = "initial"
	RetryAttempt    AttemptType = "retry"
	ReclaimAttempt  AttemptType = "reclaim"
	ReplayAttempt   AttemptType = "replay"
	FallbackAttempt AttemptType = "fallback"
)

// AttemptTypes lists the attempt types in order.
func AttemptTypes() []AttemptType {
	return []AttemptType{InitialAttempt, RetryAttempt, ReclaimAttempt, ReplayAttempt, FallbackAttempt}
}

// AttemptLifecycle is the state of one attempt as shown to callers.
type AttemptLifecycle string

// The attempt lifecycles.
const (
	AttemptCreated              AttemptLifecycle = "created"
	AttemptStarted              AttemptLifecycle = "started"
	AttemptSuspended            AttemptLifecycle = "suspended"
	AttemptEndedSuccess         AttemptLifecycle = "ended_success"
	AttemptEndedFailure         AttemptLifecycle = "ended_failure"
	AttemptEndedCancelled       AttemptLifecycle = "ended_cancelled"
	AttemptInterruptedReclaimed AttemptLifecycle = "interrupted_reclaimed"
)

// AttemptLifecycles lists the attempt lifecycles in order.
func AttemptLifecycles() []AttemptLifecycle {
	return []AttemptLifecycle{
		AttemptCreated, AttemptStarted, AttemptSuspended, AttemptEndedSuccess,
		AttemptEndedFailure, AttemptEndedCancelled, AttemptInterruptedReclaimed,
	}
}

// AttemptOutcome is how an attempt's last lease ended.
type AttemptOutcome string

// The attempt outcomes.
const (
	AttemptOutcomeNone            AttemptOutcome = "" // leased, or never leased
	AttemptOutcomeSuccess         AttemptOutcome = "success"
	AttemptOutcomeFailed          AttemptOutcome = "failed"
	AttemptOutcomeRetry           AttemptOutcome = "retry"                     // failed, another attempt follows
	AttemptOutcomeInterrupted     AttemptOutcome = "interrupted"               // interrupted; timed out with a terminal time, otherwise delayed
	AttemptOutcomeWaitingChildren AttemptOutcome = "waiting_children"          // waiting for upstreams
	AttemptOutcomeSuspended       AttemptOutcome = "attempt_interrupted"       // suspended
	AttemptOutcomeLeaseExpired    AttemptOutcome = "lease_expired_reclaimable" // the worker stopped renewing
	AttemptOutcomeReclaimed       AttemptOutcome = "interrupted_reclaimed"     // a reclaim started another
	AttemptOutcomeCancelled       AttemptOutcome = "cancelled"
	AttemptOutcomeExpired         AttemptOutcome = "expired"
	AttemptOutcomeSkipped         AttemptOutcome = "skipped"
)

// AttemptOutcomes lists the attempt outcomes.
func AttemptOutcomes() []AttemptOutcome {
	return []AttemptOutcome{
		AttemptOutcomeNone, AttemptOutcomeSuccess, AttemptOutcomeFailed, AttemptOutcomeRetry, AttemptOutcomeInterrupted,
		AttemptOutcomeWaitingChildren, AttemptOutcomeSuspended, AttemptOutcomeLeaseExpired, AttemptOutcomeReclaimed,
		AttemptOutcomeCancelled, AttemptOutcomeExpired, AttemptOutcomeSkipped,
	}
}

// Parked reports whether the same attempt continues later. hasTerminalTime is whether the attempt's row has a terminal
// time, which only matters for [AttemptOutcomeInterrupted].
func (o AttemptOutcome) Parked(hasTerminalTime bool) bool {
	switch o {
	case AttemptOutcomeInterrupted:
		return !hasTerminalTime
	case AttemptOutcomeWaitingChildren, AttemptOutcomeSuspended, AttemptOutcomeLeaseExpired:
		return true
	}
	return false
}

// Finished reports whether the attempt neither runs nor continues later.
func (o AttemptOutcome) Finished(hasTerminalTime bool) bool {
	return o != AttemptOutcomeNone && !o.Parked(hasTerminalTime)
}
