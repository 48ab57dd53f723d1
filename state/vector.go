package state

// Vector is the complete state of an execution.
type Vector struct {
	Phase       LifecyclePhase
	Ownership   OwnershipState
	Eligibility EligibilityState
	Attempt     AttemptState
	Blocking    BlockingReason
	Outcome     TerminalOutcome
	Public      PublicState // as stored, in the canonical spelling
}

// Consistent reports whether the public state agrees with the rest of the vector. If not, a writer has left it behind;
// readers correct it with [Effective].
func (v Vector) Consistent() bool {
	return v.Public == Effective(v.Public, v.Phase, v.Eligibility, v.Outcome)
}

// Effective returns the public state to report for a row: the stored one if it can be right, otherwise the derived one.
func Effective(stored PublicState, phase LifecyclePhase, eligibility EligibilityState, outcome TerminalOutcome) PublicState {
	if stored == PublicResumable && phase == Runnable && eligibility == EligibleNow {
		return PublicResumable
	}
	return Derive(phase, eligibility, outcome)
}

// Derive returns the public state that follows from the rest of an execution's state. It never returns [PublicResumable],
// which exists only as a stored value.
func Derive(phase LifecyclePhase, eligibility EligibilityState, outcome TerminalOutcome) PublicState {
	switch phase {
	case Terminal:
		return outcome.public()
	case Suspended:
		return PublicSuspended
	case Active:
		return PublicActive
	case Runnable:
		switch eligibility {
		case NotEligibleUntilTime:
			return PublicDelayed
		case BlockedByDependencies:
			return PublicWaitingChildren
		case BlockedByBudget, BlockedByQuota:
			return PublicRateLimited
		}
	}
	return PublicWaiting
}

// public returns the public state for an outcome. An unrecorded outcome is a failure.
func (o TerminalOutcome) public() PublicState {
	switch o {
	case OutcomeSuccess:
		return PublicCompleted
	case OutcomeCancelled:
		return PublicCancelled
	case OutcomeExpired:
		return PublicExpired
	case OutcomeSkipped:
		return PublicSkipped
	}
	return PublicFailed
}
