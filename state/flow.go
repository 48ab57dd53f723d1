package state

// FlowState is a flow's own state, or the combined state of its members.
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

// Terminal reports whether a flow accepts no more members or edges or, for a members' state, whether all have ended.
func (s FlowState) Terminal() bool {
	return s == FlowCompleted || s == FlowFailed || s == FlowCancelled
}

// FlowStatus is a flow's state as shown to callers.
type FlowStatus string

// The flow statuses.
const (
	FlowStatusActive    FlowStatus = "active"
	FlowStatusCompleted FlowStatus = "completed"
	FlowStatusFailed    FlowStatus = "failed"
	FlowStatusCancelled FlowStatus = "cancelled"
	FlowStatusUnknown   FlowStatus = "unknown"
)

// FlowCancelPolicy is the effect of cancelling a flow on members.
type FlowCancelPolicy string

// The flow cancel policies.
const (
	CancelFlowOnly   FlowCancelPolicy = "cancel_flow_only"
	CancelAll        FlowCancelPolicy = "cancel_all"
	CancelPending    FlowCancelPolicy = "cancel_pending"
	CancelEverything FlowCancelPolicy = "cancel_everything" // also clean-ups
)

// Valid reports whether p is one of the policies.
func (p FlowCancelPolicy) Valid() bool {
	return p == CancelFlowOnly || p == CancelAll || p == CancelPending || p == CancelEverything
}

// CancelSource is the cause of a cancellation. Other texts are stored unchanged.
type CancelSource string

// The cancel sources with a meaning of their own.
const (
	CancelByOperator    CancelSource = "operator_override" // the default
	CancelByLeaseHolder CancelSource = "lease_holder"
	CancelByFlow        CancelSource = "flow_cascade"
	CancelByTimeout     CancelSource = "system_timeout"
)

// Cancellation reasons for a member no edge group needs any more.
const (
	SiblingQuorumSatisfied  = "sibling_quorum_satisfied"
	SiblingQuorumImpossible = "sibling_quorum_impossible"
)

// EdgeGroupState is the combined state of an execution's dependencies.
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

// EligibilityStatus says whether the dependencies of an execution allow a run.
type EligibilityStatus string

// The eligibility statuses.
const (
	StatusEligible    EligibilityStatus = "eligible"
	StatusBlocked     EligibilityStatus = "blocked_by_dependencies"
	StatusImpossible  EligibilityStatus = "impossible"   // will be skipped
	StatusNotRunnable EligibilityStatus = "not_runnable" // active, suspended or ended
	StatusOwned       EligibilityStatus = "owned"        // held, though not active
	StatusTerminal    EligibilityStatus = "terminal"     // another program recorded the end, but not in the row
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
	BucketNone    Bucket = "none" // not a completion; not counted
	BucketSuccess Bucket = "success"
	BucketFail    Bucket = "fail"
	BucketSkip    Bucket = "skip"
)

// CompletionOutcome is the outcome in a completion event. Outcomes unknown to the library are kept unchanged; see
// [CompletionOutcome.Known].
type CompletionOutcome string

// The completion outcomes.
const (
	CompletionSuccess   CompletionOutcome = "success"
	CompletionFailure   CompletionOutcome = "failed"
	CompletionCancelled CompletionOutcome = "cancelled"
	CompletionExpired   CompletionOutcome = "expired"
	CompletionSkipped   CompletionOutcome = "skipped"
)

// CompletionResumable is the outcome of a suspended execution that may resume, and has not ended.
const CompletionResumable CompletionOutcome = "resumable"

// Terminal reports whether the execution has ended. Unknown outcomes are terminal.
func (o CompletionOutcome) Terminal() bool { return o != CompletionResumable }

// Known reports whether o is a terminal outcome this library knows.
func (o CompletionOutcome) Known() bool {
	switch o {
	case CompletionSuccess, CompletionFailure, CompletionCancelled, CompletionExpired, CompletionSkipped:
		return true
	}
	return false
}

// Bucket returns the counter a completion with this outcome raises in dependent edge groups.
func (o CompletionOutcome) Bucket() Bucket { return TerminalOutcome(o).Bucket() }

// Completion returns the outcome of the completion event for o. An unrecorded outcome becomes a failure.
func (o TerminalOutcome) Completion() CompletionOutcome {
	if c := CompletionOutcome(o); c.Known() {
		return c
	}
	return CompletionFailure
}

// LaneState says whether a lane's executions can be claimed.
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
