package normalise

import "github.com/flowfabric/flowfabric-go/state"

// AttemptOutcome maps ff_attempt.outcome. Pass "" for NULL. Another program stores "failure" for each failed attempt,
// whether or not a retry follows.
func AttemptOutcome(raw string) (state.AttemptOutcome, error) {
	switch outcome := state.AttemptOutcome(raw); outcome {
	case state.AttemptOutcomeNone, state.AttemptOutcomeSuccess, state.AttemptOutcomeFailed, state.AttemptOutcomeRetry,
		state.AttemptOutcomeInterrupted, state.AttemptOutcomeWaitingChildren, state.AttemptOutcomeSuspended,
		state.AttemptOutcomeLeaseExpired, state.AttemptOutcomeReclaimed, state.AttemptOutcomeCancelled,
		state.AttemptOutcomeExpired, state.AttemptOutcomeSkipped:
		return outcome, nil
	case "failure":
		return state.AttemptOutcomeFailed, nil
	}
	return "", &UnknownLiteralError{Column: "outcome", Literal: raw}
}

// AttemptType maps the stored type of an attempt.
func AttemptType(raw string) (state.AttemptType, error) {
	switch t := state.AttemptType(raw); t {
	case state.InitialAttempt, state.RetryAttempt, state.ReclaimAttempt, state.ReplayAttempt, state.FallbackAttempt:
		return t, nil
	}
	return "", &UnknownLiteralError{Column: "attempt_type", Literal: raw}
}

// TerminalFacts has the values from which the outcome of an execution is derived. A value the row lacks is "".
type TerminalFacts struct {
	Phase              state.LifecyclePhase // normalised
	StoredPhase        string
	PointerOutcome     string // of the attempt with exactly the execution's index
	StoredPublicState  string
	CurrentOutcome     string // of the newest attempt up to the execution's index
	RawTerminalOutcome string // raw_fields.terminal_outcome
	CancellationReason string
	LastFailureMessage string // raw_fields.last_failure_message
	FailureReason      string // raw_fields.failure_reason
}

// TerminalOutcome returns how an execution ended. Programs record it in different, partly stale places; the first place
// with an answer wins. It is OutcomeNone for an execution that has not ended, or ended without a recorded outcome.
func TerminalOutcome(f TerminalFacts) state.TerminalOutcome {
	if !f.Phase.Terminal() {
		return state.OutcomeNone
	}
	if f.StoredPhase == PhaseCancelled {
		return state.OutcomeCancelled
	}
	if outcome, ok := terminalOutcome(f.PointerOutcome); ok {
		return outcome
	}
	if outcome := state.PublicState(f.StoredPublicState).Outcome(); outcome != state.OutcomeNone {
		return outcome
	}
	if outcome, ok := terminalOutcome(f.CurrentOutcome); ok {
		return outcome
	}
	if f.CurrentOutcome == "failure" {
		return state.OutcomeFailed
	}
	// A replay by another program leaves this key behind, so it comes late.
	if outcome, ok := terminalOutcome(f.RawTerminalOutcome); ok {
		return outcome
	}
	return f.fromReasons()
}

func (f TerminalFacts) fromReasons() state.TerminalOutcome {
	if f.CancellationReason == "suspension_timeout_cancel" {
		return state.OutcomeCancelled
	}
	switch f.LastFailureMessage {
	case "attempt_timeout", "execution_deadline", "suspension_timeout":
		return state.OutcomeExpired
	}
	if f.LastFailureMessage != "" || f.FailureReason != "" {
		return state.OutcomeFailed
	}
	return state.OutcomeNone
}

func terminalOutcome(raw string) (state.TerminalOutcome, bool) {
	switch outcome := state.TerminalOutcome(raw); outcome {
	case state.OutcomeSuccess, state.OutcomeFailed, state.OutcomeCancelled, state.OutcomeExpired, state.OutcomeSkipped:
		return outcome, true
	}
	return "", false
}

// CompletionOutcome maps ff_completion_event.outcome. It returns false for "resumable", which reports a satisfied
// suspension and is not a completion. Any other literal is kept.
func CompletionOutcome(raw string) (state.CompletionOutcome, bool) {
	switch raw {
	case "resumable":
		return "", false
	case "failure":
		return state.CompletionFailure, true
	}
	return state.CompletionOutcome(raw), true
}
