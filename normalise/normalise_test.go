package normalise_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// checkColumn checks that canonical literals map to themselves, the others as listed, and that any other literal is
// unknown.
func checkColumn[S ~string](t *testing.T, column string, read func(string) (S, error), canonical []S, others map[string]S) {
	t.Run(column, func(t *testing.T) {
		for _, want := range canonical {
			if got, err := read(string(want)); got != want || err != nil {
				t.Errorf("%q: got %q, %v", want, got, err)
			}
		}
		for raw, want := range others {
			if got, err := read(raw); got != want || err != nil {
				t.Errorf("%q: got %q, %v, want %q", raw, got, err, want)
			}
			if slices.Contains(canonical, S(raw)) {
				t.Errorf("%q is canonical", raw)
			}
		}
		for _, raw := range []string{"unheard_of", "Active", " runnable", "completed "} {
			got, err := read(raw)
			var unknown *normalise.UnknownLiteralError
			if got != "" || !errors.As(err, &unknown) || unknown.Column != column || unknown.Literal != raw {
				t.Errorf("%q: got %q, %v", raw, got, err)
			}
		}
	})
}

// TestEveryStoredLiteralIsRead_I38: every literal that a program stores is read, wherever it is read.
func TestEveryStoredLiteralIsRead_I38(t *testing.T) {
	checkColumn(t, "lifecycle_phase", normalise.LifecyclePhase, state.LifecyclePhases(), map[string]state.LifecyclePhase{
		"cancelled": state.Terminal, "pending": state.Runnable, "eligible": state.Runnable, "blocked": state.Runnable,
	})
	checkColumn(t, "ownership_state", normalise.OwnershipState, state.OwnershipStates(), map[string]state.OwnershipState{
		"released": state.Unowned,
	})
	checkColumn(t, "eligibility_state", normalise.EligibilityState, state.EligibilityStates(), map[string]state.EligibilityState{
		"cancelled": state.NotApplicable, "pending_claim": state.EligibleNow,
	})
	checkColumn(t, "attempt_state", normalise.AttemptState, state.AttemptStates(), map[string]state.AttemptState{
		"pending": state.PendingFirstAttempt, "pending_claim": state.PendingFirstAttempt, "running": state.RunningAttempt,
		"cancelled": state.AttemptTerminal,
	})
	checkColumn(t, "public_state", normalise.PublicState, state.PublicStates(), map[string]state.PublicState{
		"running": state.PublicActive, "claimed": state.PublicActive,
	})
	checkColumn(t, "blocking_reason", normalise.BlockingReason, state.BlockingReasons(), map[string]state.BlockingReason{
		"": state.NotBlocked,
	})
	checkColumn(t, "outcome", normalise.AttemptOutcome, state.AttemptOutcomes(), map[string]state.AttemptOutcome{
		"failure": state.AttemptOutcomeFailed,
	})
	checkColumn(t, "attempt_type", normalise.AttemptType, state.AttemptTypes(), nil)
	checkColumn(t, "edge_state", normalise.EdgeState,
		[]state.EdgeState{state.EdgePending, state.EdgeApplied, state.EdgeSatisfied, state.EdgeImpossible},
		map[string]state.EdgeState{"": state.EdgePending})
}

// TestLiteralsOfOtherProgramsAreRead_I40: stored by one operation, corruption to the next.
func TestLiteralsOfOtherProgramsAreRead_I40(t *testing.T) {
	for raw, want := range map[string]state.AttemptState{
		"terminal_failed": state.AttemptTerminal, "initial": state.PendingFirstAttempt,
	} {
		if got, err := normalise.AttemptState(raw); got != want || err != nil {
			t.Errorf("%q: got %q, %v", raw, got, err)
		}
	}
}

// TestFailureReadsAsFailed_I39: two spellings of one outcome.
func TestFailureReadsAsFailed_I39(t *testing.T) {
	for _, raw := range []string{"failed", "failure"} {
		if got, err := normalise.AttemptOutcome(raw); got != state.AttemptOutcomeFailed || err != nil {
			t.Errorf("%q: got %q, %v", raw, got, err)
		}
		facts := normalise.TerminalFacts{Phase: state.Terminal, StoredPhase: "terminal", CurrentOutcome: raw}
		if got := normalise.TerminalOutcome(facts); got != state.OutcomeFailed {
			t.Errorf("%q: the execution ended %s", raw, got)
		}
	}
}

// TestBothSpellingsOfAFailedCompletionAreRead_I16: both spellings are a failure; resumable (I17) is no completion.
func TestBothSpellingsOfAFailedCompletionAreRead_I16(t *testing.T) {
	for _, raw := range []string{"failed", "failure"} {
		if got, ok := normalise.CompletionOutcome(raw); got != state.CompletionFailure || !ok || got.Bucket() != state.BucketFail {
			t.Errorf("%q: got %q, %v", raw, got, ok)
		}
	}
	if got, ok := normalise.CompletionOutcome("resumable"); ok {
		t.Errorf("resumable: got %q", got)
	}
	if got, ok := normalise.CompletionOutcome("timed_out"); got != "timed_out" || !ok || got.Known() {
		t.Errorf("an unknown outcome: got %q, %v", got, ok)
	}
}

func TestTerminalOutcome(t *testing.T) {
	tests := []struct {
		name  string
		facts normalise.TerminalFacts
		want  state.TerminalOutcome
	}{
		{"not_terminal", normalise.TerminalFacts{Phase: state.Runnable, StoredPhase: "runnable", PointerOutcome: "failed"}, state.OutcomeNone},
		{"phase_cancelled_beats_the_attempt", normalise.TerminalFacts{StoredPhase: "cancelled", PointerOutcome: "success"}, state.OutcomeCancelled},
		{"attempt_at_the_pointer_beats_public_state", normalise.TerminalFacts{PointerOutcome: "success", StoredPublicState: "failed"}, state.OutcomeSuccess},
		{"failure_at_the_pointer_waits", normalise.TerminalFacts{PointerOutcome: "failure", StoredPublicState: "expired", CurrentOutcome: "failure"}, state.OutcomeExpired},
		{"public_state_beats_an_earlier_attempt", normalise.TerminalFacts{PointerOutcome: "interrupted", StoredPublicState: "skipped", CurrentOutcome: "failed"}, state.OutcomeSkipped},
		{"public_state_of_a_handle_cancel", normalise.TerminalFacts{StoredPublicState: "cancelled"}, state.OutcomeCancelled},
		{"stale_public_state", normalise.TerminalFacts{StoredPublicState: "running", CurrentOutcome: "success"}, state.OutcomeSuccess},
		{"failure_of_the_current_attempt", normalise.TerminalFacts{CurrentOutcome: "failure", RawTerminalOutcome: "success"}, state.OutcomeFailed},
		{"raw_outcome", normalise.TerminalFacts{CurrentOutcome: "retry", RawTerminalOutcome: "failed"}, state.OutcomeFailed},
		{"raw_outcome_unknown", normalise.TerminalFacts{RawTerminalOutcome: "none"}, state.OutcomeNone},
		{"suspension_timeout_cancel", normalise.TerminalFacts{CancellationReason: "suspension_timeout_cancel", LastFailureMessage: "suspension_timeout"}, state.OutcomeCancelled},
		{"attempt_timeout", normalise.TerminalFacts{LastFailureMessage: "attempt_timeout", FailureReason: "x"}, state.OutcomeExpired},
		{"execution_deadline", normalise.TerminalFacts{LastFailureMessage: "execution_deadline"}, state.OutcomeExpired},
		{"suspension_timeout", normalise.TerminalFacts{LastFailureMessage: "suspension_timeout", CancellationReason: "suspension_timeout_fail"}, state.OutcomeExpired},
		{"failure_message", normalise.TerminalFacts{LastFailureMessage: "boom"}, state.OutcomeFailed},
		{"failure_reason", normalise.TerminalFacts{FailureReason: "boom"}, state.OutcomeFailed},
		{"no_trace", normalise.TerminalFacts{PointerOutcome: "waiting_children"}, state.OutcomeNone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := tt.facts
			if facts.Phase == "" {
				facts.Phase = state.Terminal
			}
			if facts.StoredPhase == "" {
				facts.StoredPhase = "terminal"
			}
			if got := normalise.TerminalOutcome(facts); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestFlowLiterals(t *testing.T) {
	for raw, want := range map[string]state.FlowStatus{
		"open": state.FlowStatusActive, "running": state.FlowStatusActive, "blocked": state.FlowStatusActive,
		"completed": state.FlowStatusCompleted, "failed": state.FlowStatusFailed, "cancelled": state.FlowStatusCancelled,
		"": state.FlowStatusUnknown, "odd": state.FlowStatusUnknown,
	} {
		if got := normalise.FlowStatus(raw); got != want {
			t.Errorf("flow %q: got %s, want %s", raw, got, want)
		}
	}
	for _, want := range state.EdgeGroupStates() {
		if got := normalise.EdgeGroupState(string(want)); got != want {
			t.Errorf("group %q: got %s", want, got)
		}
	}
	if got := normalise.EdgeGroupState("odd"); got != state.EdgeGroupPending {
		t.Errorf("unknown group state: got %s", got)
	}
}

func TestUnknownLiteralErrorNamesColumnAndLiteral(t *testing.T) {
	_, err := normalise.PublicState("odd")
	if got, want := err.Error(), "public_state: 'odd' is not a known value"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err = normalise.PublicState(strings.Repeat("x", 5000))
	if len(err.Error()) > 128 {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

func FuzzReaders(f *testing.F) {
	f.Add("running")
	f.Fuzz(func(t *testing.T, raw string) {
		if s, err := normalise.PublicState(raw); (err == nil) != slices.Contains(state.PublicStates(), s) {
			t.Errorf("public state %q: %q, %v", raw, s, err)
		}
		facts := normalise.TerminalFacts{
			Phase: state.Terminal, StoredPhase: raw, PointerOutcome: raw, StoredPublicState: raw,
			CurrentOutcome: raw, RawTerminalOutcome: raw, LastFailureMessage: raw,
		}
		if got := normalise.TerminalOutcome(facts); !slices.Contains(state.TerminalOutcomes(), got) {
			t.Errorf("%q: ended %q", raw, got)
		}
	})
}
