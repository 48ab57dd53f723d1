package explain

// Code names a kind of [Cause]. Codes are stable.
type Code string

// The codes of unknown, ended and running executions.
const (
	NotFound       Code = "not_found"
	EndedSuccess   Code = "ended_success"
	EndedFailed    Code = "ended_failed"
	EndedCancelled Code = "ended_cancelled"
	EndedExpired   Code = "ended_expired"
	EndedSkipped   Code = "ended_skipped"
	Running        Code = "running"
	HolderSilent   Code = "holder_silent" // no heartbeat of its worker
)

// The codes of missing background work.
const (
	LeaseRanOut  Code = "lease_ran_out"
	DelayOverdue Code = "delay_overdue"
	WaitOverdue  Code = "wait_overdue"
	GateAsleep   Code = "gate_asleep" // none of its limits is full
	NoQueueEntry Code = "no_queue_entry"
)

// The codes of executions waiting for a time, for others or for people.
const (
	RetryBackoff    Code = "retry_backoff"
	Delayed         Code = "delayed"
	Sleeping        Code = "sleeping"
	Signal          Code = "signal"
	Call            Code = "call"
	Upstreams       Code = "upstreams"
	Sequence        Code = "sequence"
	SequenceStopped Code = "sequence_stopped"
	LimitFull       Code = "limit_full"
	RateFull        Code = "rate_full"
	LimitHeld       Code = "limit_held" // by an operator or a handler, for a while
	Budget          Code = "budget"
	BlockedOperator Code = "blocked_operator"
	BlockedRoute    Code = "blocked_route" // its scheduler found no worker with its capabilities
	BlockedLane     Code = "blocked_lane"
	LanePaused      Code = "lane_paused"
	Granted         Code = "granted" // to a worker of FlowFabric's protocol
	Locked          Code = "locked"  // by a transaction of another session
)

// The codes of claimable executions.
const (
	NoWorker       Code = "no_worker"
	NoHandler      Code = "no_handler"
	NoCapability   Code = "no_capability"
	WorkersDrained Code = "workers_drained"
	InLine         Code = "in_line"
	BehindPriority Code = "behind_priority"
	AboutToStart   Code = "about_to_start"
)

// Codes returns all codes.
func Codes() []Code {
	return []Code{
		NotFound, EndedSuccess, EndedFailed, EndedCancelled, EndedExpired, EndedSkipped, Running, HolderSilent,
		LeaseRanOut, DelayOverdue, WaitOverdue, GateAsleep, NoQueueEntry,
		RetryBackoff, Delayed, Sleeping, Signal, Call, Upstreams, Sequence, SequenceStopped, LimitFull, RateFull, LimitHeld, Budget,
		BlockedOperator, BlockedRoute, BlockedLane, LanePaused, Granted, Locked,
		NoWorker, NoHandler, NoCapability, WorkersDrained, InLine, BehindPriority, AboutToStart,
	}
}
