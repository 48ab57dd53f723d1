package state

// FlowState is a flow's own state, or the state of its members summed up.
type FlowState string

// The flow states.
const (
	FlowOpen      FlowState = "open"
	FlowRunning   FlowState = "running"
	FlowBlocked   FlowState = "blocked"
	FlowCompleted FlowState = "completed"
	FlowFailed    FlowState = "failed"
	FlowCancelled FlowState = "cancelled"
)

// Terminal reports whether the flow takes no more members or edges, or, of the state of its members, that all have ended.
func (s FlowState) Terminal() bool {
	return s == FlowCompleted || s == FlowFailed || s == FlowCancelled
}

// FlowStatus is a flow's state as callers see it.
type FlowStatus string

// The flow statuses.
const (
	FlowStatusActive    FlowStatus = "active"
	FlowStatusCompleted FlowStatus = "completed"
	FlowStatusFailed    FlowStatus = "failed"
	FlowStatusCancelled FlowStatus = "cancelled"
	FlowStatusUnknown   FlowStatus = "unknown"
)

// FlowCancelPolicy says what cancelling a flow does to its members.
type FlowCancelPolicy string

// The flow cancel policies.
const (
	CancelFlowOnly   FlowCancelPolicy = "cancel_flow_only"
	CancelAll        FlowCancelPolicy = "cancel_all"
	CancelPending    FlowCancelPolicy = "cancel_pending"
	CancelEverything FlowCancelPolicy = "cancel_everything" // clean-ups too
)

// Valid reports whether p is one of the policies.
func (p FlowCancelPolicy) Valid() bool {
	return p == CancelFlowOnly || p == CancelAll || p == CancelPending || p == CancelEverything
}

// CancelSource says on whose behalf an execution is cancelled. Any other text is kept as it is.
type CancelSource string

// The cancel sources with a meaning of their own.
const (
	CancelByOperator    CancelSource = "operator_override" // the default
	CancelByLeaseHolder CancelSource = "lease_holder"
	CancelByFlow        CancelSource = "flow_cascade"
	CancelByTimeout     CancelSource = "system_timeout"
)

// The cancellation reasons of a member whose edge group no longer needs it.
const (
	SiblingQuorumSatisfied  = "sibling_quorum_satisfied"
	SiblingQuorumImpossible = "sibling_quorum_impossible"
)

// EdgeGroupState is the state of an execution's dependencies taken together.
type EdgeGroupState string

// The edge group states.
const (
	EdgeGroupPending    EdgeGroupState = "pending"
	EdgeGroupSatisfied  EdgeGroupState = "satisfied"
	EdgeGroupImpossible EdgeGroupState = "impossible"
	EdgeGroupCancelled  EdgeGroupState = "cancelled"
)

// EdgeGroupStates lists the edge group states in order.
func EdgeGroupStates() []EdgeGroupState {
	return []EdgeGroupState{EdgeGroupPending, EdgeGroupSatisfied, EdgeGroupImpossible, EdgeGroupCancelled}
}

// EligibilityStatus says whether the dependencies of an execution let it run.
type EligibilityStatus string

// The eligibility statuses.
const (
	StatusEligible    EligibilityStatus = "eligible"
	StatusBlocked     EligibilityStatus = "blocked_by_dependencies"
	StatusImpossible  EligibilityStatus = "impossible"   // it will be skipped
	StatusNotRunnable EligibilityStatus = "not_runnable" // it is active or suspended, or has ended
	StatusOwned       EligibilityStatus = "owned"        // somebody holds it, though it is not active
	StatusTerminal    EligibilityStatus = "terminal"     // another program noted its end, and did not write it
)

// EdgeState is the state of one dependency edge.
type EdgeState string

// The edge states.
const (
	EdgePending    EdgeState = "pending" // staged
	EdgeApplied    EdgeState = "applied"
	EdgeSatisfied  EdgeState = "satisfied"
	EdgeImpossible EdgeState = "impossible"
)

// Bucket is a counter of an edge group.
type Bucket string

// The buckets.
const (
	BucketNone    Bucket = "none" // not a completion; counted nowhere
	BucketSuccess Bucket = "success"
	BucketFail    Bucket = "fail"
	BucketSkip    Bucket = "skip"
)

// CompletionOutcome is the outcome in a completion event. An outcome that this library
// does not know is kept as it is; see [CompletionOutcome.Known].
type CompletionOutcome string

// The completion outcomes.
const (
	CompletionSuccess   CompletionOutcome = "success"
	CompletionFailure   CompletionOutcome = "failed"
	CompletionCancelled CompletionOutcome = "cancelled"
	CompletionExpired   CompletionOutcome = "expired"
	CompletionSkipped   CompletionOutcome = "skipped"
)

// CompletionResumable is the outcome of an execution that was suspended and may go on: it has not ended.
const CompletionResumable CompletionOutcome = "resumable"

// Terminal reports whether the execution has ended. An outcome that this library does not know is one of an end.
func (o CompletionOutcome) Terminal() bool { return o != CompletionResumable }

// Known reports whether o is an outcome of an end that this library knows.
func (o CompletionOutcome) Known() bool {
	switch o {
	case CompletionSuccess, CompletionFailure, CompletionCancelled, CompletionExpired, CompletionSkipped:
		return true
	}
	return false
}

// Bucket is the counter that a completion with this outcome raises in the edge groups that
// depend on it.
func (o CompletionOutcome) Bucket() Bucket { return TerminalOutcome(o).Bucket() }

// Completion is the outcome of the completion event that announces o. An outcome that
// nobody recorded is announced as a failure.
func (o TerminalOutcome) Completion() CompletionOutcome {
	if c := CompletionOutcome(o); c.Known() {
		return c
	}
	return CompletionFailure
}

// LaneState says whether a lane's executions are handed out.
type LaneState string

// The lane states.
const (
	LaneActive   LaneState = "active"
	LanePaused   LaneState = "paused"
	LaneDraining LaneState = "draining"
	LaneDisabled LaneState = "disabled"
)

// LaneStates lists the lane states in order.
func LaneStates() []LaneState {
	return []LaneState{LaneActive, LanePaused, LaneDraining, LaneDisabled}
}

// WaitpointState is the state of a waitpoint.
type WaitpointState string

// The waitpoint states.
const (
	WaitpointPending WaitpointState = "pending"
	WaitpointActive  WaitpointState = "active"
	WaitpointClosed  WaitpointState = "closed"
)
