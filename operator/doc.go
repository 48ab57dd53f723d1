// Package operator has the operations for a person at a console, and for programs that act for one. They change work in ways that
// the library itself never does: a pause, a replay, a revoked lease. Each function takes the engine and is one transaction, or
// part of the caller's:
//
//	err := operator.PauseLane(ctx, eng, "images", "the bucket is being moved")
//
// Its comment says how it affects running work. It waits a limited time for locked rows and then fails with
// [fferr.ErrContention]. A refusal writes nothing.
//
// Stop work from starting: [PauseLane] and [ResumeLane] for a lane, [DrainWorker], [DrainWorkers], [ResumeWorker] and
// [ResumeWorkers] for workers. [PausedLanes] and [DrainedWorkers] list them.
//
// One execution: [Replay] runs an ended one again. [Prioritize] and [Delay] change when a waiting one starts, [Block] and
// [Unblock] whether it does. [Revoke] takes it away from its worker. [engine.Engine.CancelExecution] ends it.
//
// Many executions that match a filter: [CancelWhere], [ReplayWhere], [DeleteWhere], [MoveWhere] and [PrioritizeWhere], in batches,
// with a dry run ([Bulk]).
//
// Find work that stands still: [BlockedExecutions], [ExpiredLeases]. [ContinueSequence] lets a stopped sequence go on.
//
// Keys and tokens of waits: [SeedKey], [RotateKey] and [Keys]; [WaitpointToken] and [ReissueToken].
//
// Retention: [SetLaneRetention], and how far it is, [Retention].
package operator
