package state_test

import (
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/state"
)

func TestVectorIsConsistent(t *testing.T) {
	waiting := state.Vector{
		Phase: state.Runnable, Ownership: state.Unowned, Eligibility: state.EligibleNow,
		Attempt: state.PendingFirstAttempt, Blocking: state.NotBlocked, Outcome: state.OutcomeNone, Public: state.PublicWaiting,
	}
	tests := []struct {
		name       string
		change     func(*state.Vector)
		consistent bool
		effective  state.PublicState
	}{
		{"as_written", func(*state.Vector) {}, true, state.PublicWaiting},
		{"left_behind", func(v *state.Vector) { v.Public = state.PublicDelayed }, false, state.PublicWaiting},
		{"resumable", func(v *state.Vector) { v.Public = state.PublicResumable }, true, state.PublicResumable},
		{"resumable_but_blocked", func(v *state.Vector) {
			v.Public, v.Eligibility = state.PublicResumable, state.BlockedByBudget
		}, false, state.PublicRateLimited},
		{"resumable_but_claimed", func(v *state.Vector) {
			v.Public, v.Phase, v.Eligibility = state.PublicResumable, state.Active, state.NotApplicable
		}, false, state.PublicActive},
		{"ended_without_an_outcome", func(v *state.Vector) {
			v.Phase, v.Public = state.Terminal, state.PublicFailed
		}, true, state.PublicFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := waiting
			tt.change(&v)
			if got := v.Consistent(); got != tt.consistent {
				t.Errorf("consistent: got %v", got)
			}
			if got := state.Effective(v.Public, v.Phase, v.Eligibility, v.Outcome); got != tt.effective {
				t.Errorf("effective: got %s, want %s", got, tt.effective)
			}
		})
	}
}

// Every state of an execution maps to a public state, mapping it again changes nothing, and only the terminal phase maps
// to an ended one.
func TestDeriveIsTotal(t *testing.T) {
	for _, phase := range state.LifecyclePhases() {
		for _, eligibility := range state.EligibilityStates() {
			for _, outcome := range state.TerminalOutcomes() {
				derived := state.Derive(phase, eligibility, outcome)
				if !slices.Contains(state.PublicStates(), derived) {
					t.Errorf("%s, %s, %s: got %q", phase, eligibility, outcome, derived)
				}
				if derived.Terminal() != phase.Terminal() {
					t.Errorf("%s shows as %s", phase, derived)
				}
				for _, stored := range state.PublicStates() {
					effective := state.Effective(stored, phase, eligibility, outcome)
					if again := state.Effective(effective, phase, eligibility, outcome); again != effective {
						t.Errorf("%s becomes %s, then %s", stored, effective, again)
					}
				}
			}
		}
	}
}

func TestTerminalOutcomeSurvivesThePublicState(t *testing.T) {
	for _, outcome := range state.TerminalOutcomes()[1:] {
		if got := state.Derive(state.Terminal, state.NotApplicable, outcome).Outcome(); got != outcome {
			t.Errorf("%s shows as %s", outcome, got)
		}
		if got := state.TerminalOutcome(outcome.Completion()); got != outcome {
			t.Errorf("%s is announced as %s", outcome, got)
		}
	}
	if got := state.OutcomeNone.Completion(); got != state.CompletionFailure {
		t.Errorf("no outcome is announced as %s", got)
	}
	if got := state.OutcomeNone.Bucket(); got != state.BucketFail {
		t.Errorf("no outcome counts as %s", got)
	}
}

func TestAttemptOutcomeIsParkedOrFinished(t *testing.T) {
	parked := []state.AttemptOutcome{
		state.AttemptOutcomeInterrupted, state.AttemptOutcomeWaitingChildren,
		state.AttemptOutcomeSuspended, state.AttemptOutcomeLeaseExpired,
	}
	for _, outcome := range state.AttemptOutcomes() {
		for _, hasTime := range []bool{false, true} {
			wantParked := slices.Contains(parked, outcome) && (outcome != state.AttemptOutcomeInterrupted || !hasTime)
			wantFinished := outcome != state.AttemptOutcomeNone && !wantParked
			if outcome.Parked(hasTime) != wantParked || outcome.Finished(hasTime) != wantFinished {
				t.Errorf("%q, terminal time %v: parked %v, finished %v", outcome, hasTime, outcome.Parked(hasTime), outcome.Finished(hasTime))
			}
		}
	}
}

// TestUnknownCancelPolicyIsInvalid_I41: it is refused, not taken for another one.
func TestUnknownCancelPolicyIsInvalid_I41(t *testing.T) {
	for policy, want := range map[state.FlowCancelPolicy]bool{
		state.CancelAll: true, state.CancelFlowOnly: true, state.CancelPending: true, state.CancelEverything: true, "": false, "cancel_none": false,
	} {
		if got := policy.Valid(); got != want {
			t.Errorf("%q: got %v", policy, got)
		}
	}
}
