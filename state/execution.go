// Package state has the canonical states of executions, attempts and flows, and the rules between them. The package
// does not deal with storage.
//
// [PublicState] is the single state of an execution for programs and people. [Vector] has the detailed states, and
// [TerminalOutcome] says how an execution ended.
package state

// LifecyclePhase is the phase of an execution's life.
type LifecyclePhase string

// The lifecycle phases.
const (
	Submitted LifecyclePhase = "submitted"
	Runnable  LifecyclePhase = "runnable"
	Active    LifecyclePhase = "active"
	Suspended LifecyclePhase = "suspended"
	Terminal  LifecyclePhase = "terminal"
)

// LifecyclePhases lists the phases in order.
func LifecyclePhases() []LifecyclePhase {
	return []LifecyclePhase{Submitted, Runnable, Active, Suspended, Terminal}
}

// Terminal reports whether only a replay can leave the phase.
func (p LifecyclePhase) Terminal() bool { return p == Terminal }

// OwnershipState says whether a worker holds the execution.
type OwnershipState string

// The ownership states.
const (
	Unowned                 OwnershipState = "unowned"
	Leased                  OwnershipState = "leased"
	LeaseExpiredReclaimable OwnershipState = "lease_expired_reclaimable"
	LeaseRevoked            OwnershipState = "lease_revoked"
)

// OwnershipStates lists the ownership states in order.
func OwnershipStates() []OwnershipState {
	return []OwnershipState{Unowned, Leased, LeaseExpiredReclaimable, LeaseRevoked}
}

// EligibilityState says whether a runnable execution may be claimed and, if not, the reason to wait.
type EligibilityState string

// The eligibility states.
const (
	EligibleNow           EligibilityState = "eligible_now"
	NotEligibleUntilTime  EligibilityState = "not_eligible_until_time"
	BlockedByDependencies EligibilityState = "blocked_by_dependencies"
	BlockedByBudget       EligibilityState = "blocked_by_budget"
	BlockedByQuota        EligibilityState = "blocked_by_quota"
	BlockedByRoute        EligibilityState = "blocked_by_route"
	BlockedByLaneState    EligibilityState = "blocked_by_lane_state"
	BlockedByOperator     EligibilityState = "blocked_by_operator"
	NotApplicable         EligibilityState = "not_applicable"
)

// EligibilityStates lists the eligibility states in order.
func EligibilityStates() []EligibilityState {
	return []EligibilityState{
		EligibleNow, NotEligibleUntilTime, BlockedByDependencies, BlockedByBudget,
		BlockedByQuota, BlockedByRoute, BlockedByLaneState, BlockedByOperator, NotApplicable,
	}
}

// PublicState is the single state of an execution for callers.
type PublicState string

// The public states.
const (
	PublicWaiting         PublicState = "waiting"
	PublicDelayed         PublicState = "delayed"
	PublicRateLimited     PublicState = "rate_limited"
	PublicWaitingChildren PublicState = "waiting_children"
	PublicActive          PublicState = "active"
	PublicSuspended       PublicState = "suspended"
	PublicResumable       PublicState = "resumable" // a satisfied suspension, not yet claimed again
	PublicCompleted       PublicState = "completed"
	PublicFailed          PublicState = "failed"
	PublicCancelled       PublicState = "cancelled"
	PublicExpired         PublicState = "expired"
	PublicSkipped         PublicState = "skipped"
)

// PublicStates lists the public states in order.
func PublicStates() []PublicState {
	return []PublicState{
		PublicWaiting, PublicDelayed, PublicRateLimited, PublicWaitingChildren, PublicActive,
		PublicSuspended, PublicResumable, PublicCompleted, PublicFailed, PublicCancelled, PublicExpired, PublicSkipped,
	}
}

// Terminal reports whether the execution has ended.
func (s PublicState) Terminal() bool { return s.Outcome() != OutcomeNone }

// Outcome returns how an execution in this state ended, or [OutcomeNone].
func (s PublicState) Outcome() TerminalOutcome {
	switch s {
	case PublicCompleted:
		return OutcomeSuccess
	case PublicFailed:
		return OutcomeFailed
	case PublicCancelled:
		return OutcomeCancelled
	case PublicExpired:
		return OutcomeExpired
	case PublicSkipped:
		return OutcomeSkipped
	}
	return OutcomeNone
}

// TerminalOutcome is how an execution ended.
type TerminalOutcome string

// The terminal outcomes.
const (
	OutcomeNone      TerminalOutcome = "" // not ended, or ended without a recorded outcome
	OutcomeSuccess   TerminalOutcome = "success"
	OutcomeFailed    TerminalOutcome = "failed"
	OutcomeCancelled TerminalOutcome = "cancelled"
	OutcomeExpired   TerminalOutcome = "expired"
	OutcomeSkipped   TerminalOutcome = "skipped"
)

// TerminalOutcomes lists the terminal outcomes in order.
func TerminalOutcomes() []TerminalOutcome {
	return []TerminalOutcome{OutcomeNone, OutcomeSuccess, OutcomeFailed, OutcomeCancelled, OutcomeExpired, OutcomeSkipped}
}

// Bucket returns the counter a terminal upstream with this outcome raises in edge groups. An unrecorded outcome counts
// as a failure.
func (o TerminalOutcome) Bucket() Bucket {
	switch o {
	case OutcomeSuccess:
		return BucketSuccess
	case OutcomeSkipped:
		return BucketSkip
	}
	return BucketFail
}

// BlockingReason says why an execution is not running.
type BlockingReason string

// The blocking reasons.
const (
	NotBlocked              BlockingReason = "none"
	WaitingForWorker        BlockingReason = "waiting_for_worker"
	WaitingForRetryBackoff  BlockingReason = "waiting_for_retry_backoff"
	WaitingForResumeDelay   BlockingReason = "waiting_for_resume_delay"
	WaitingForDelay         BlockingReason = "waiting_for_delay"
	WaitingForSignal        BlockingReason = "waiting_for_signal"
	WaitingForApproval      BlockingReason = "waiting_for_approval"
	WaitingForCallback      BlockingReason = "waiting_for_callback"
	WaitingForToolResult    BlockingReason = "waiting_for_tool_result"
	WaitingForChildren      BlockingReason = "waiting_for_children"
	WaitingForBudget        BlockingReason = "waiting_for_budget"
	WaitingForQuota         BlockingReason = "waiting_for_quota"
	WaitingForCapableWorker BlockingReason = "waiting_for_capable_worker"
	WaitingForLocalityMatch BlockingReason = "waiting_for_locality_match"
	PausedByOperator        BlockingReason = "paused_by_operator"
	PausedByPolicy          BlockingReason = "paused_by_policy"
	PausedByFlowCancel      BlockingReason = "paused_by_flow_cancel"
)

// BlockingReasons lists the blocking reasons in order.
func BlockingReasons() []BlockingReason {
	return []BlockingReason{
		NotBlocked, WaitingForWorker, WaitingForRetryBackoff, WaitingForResumeDelay, WaitingForDelay,
		WaitingForSignal, WaitingForApproval, WaitingForCallback, WaitingForToolResult, WaitingForChildren,
		WaitingForBudget, WaitingForQuota, WaitingForCapableWorker, WaitingForLocalityMatch,
		PausedByOperator, PausedByPolicy, PausedByFlowCancel,
	}
}
