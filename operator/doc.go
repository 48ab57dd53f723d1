// Package operator has the operations for a person at a console, and for programs acting for one. The library itself never
// pauses a lane, replays an execution or revokes a lease. Each function takes the engine and is one transaction, or part of
// the caller's:
//
//	err := operator.PauseLane(ctx, eng, "images", operator.LanePause{Reason: "the bucket is being moved"})
//
// Each comment describes the effect on running work. Operations wait a limited time for locked rows, then fail with
// [fferr.ErrContention]. A refusal writes nothing.
//
// Stop work from starting: [PauseLane] and [ResumeLane] for a lane, also for a time, [DrainWorker], [DrainWorkers], [ResumeWorker] and
// [ResumeWorkers] for workers. [PausedLanes] and [DrainedWorkers] list lanes and workers.
//
// One execution: [Replay] runs an ended execution again, and [Fork] continues the finished steps in a new execution.
// [Prioritize] and [Delay] change when a waiting execution starts,
// [Block] and [Unblock] whether. [Revoke] takes away a worker's lease. [engine.Engine.CancelExecution] ends an execution.
//
// Many executions that match a filter: [CancelWhere], [ReplayWhere], [DeleteWhere], [MoveWhere] and [PrioritizeWhere], in
// batches, with a dry run ([Bulk]).
//
// Find blocked work: [BlockedExecutions], [ExpiredLeases]. [ContinueSequence] continues a stopped sequence.
//
// Keys and tokens of waits: [SeedKey], [RotateKey] and [Keys]; [WaitpointToken] and [ReissueToken].
//
// The log: [RecordAction] records an action of a person, and [ListLog] lists actions and the calls that write events themselves.
//
// Retention: [SetLaneRetention] sets a time, and [Retention] returns the progress.
package operator
