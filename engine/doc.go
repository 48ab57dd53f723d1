// Package engine runs durable executions on Postgres. Each method is one transaction, or a part of the caller's.
//
// An execution is a unit of work in a lane. A worker claims the execution and holds a lease: ownership for a limited time,
// fenced by an epoch, which every claim raises. A call with an older epoch is refused, so a worker presumed dead can't
// overwrite its successor's work. A flow connects executions: some wait for others, and the transaction at the end of an
// execution releases or skips the waiting ones.
//
//	var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
//
//	eng, err := engine.New(pool, engine.Config{})
//	created, err := Resize.Create(ctx, eng, ResizeArgs{Image: "cat.png", Width: 640})
//	result, err := Resize.Await(ctx, eng, created.ID) // once a worker has handled the execution
//
// # Tasks
//
//   - Create: [Kind.Create], [Engine.CreateExecutions]. Keys: [WithKey], [Key]. Declared on kinds: [Kind.Unique],
//     [Kind.Sequence], [Kind.Fair], [Kind.Limits].
//   - Build flows: [Engine.CreateFlow], [Engine.GrowFlow], [Engine.AddMembers], [Engine.WaitForChildren].
//   - Wait for results: [Kind.Await], [Kind.Result], [Engine.AwaitExecution], [Engine.AwaitFlow].
//   - Signal: [Signal.Send], [Signal.SendTo], [Engine.Resume]. Wait in a handler: [Signal.Await], [AwaitAll], [AwaitAny],
//     [Signal.Take]. Signed links: [Engine.CreateWaitpoint].
//   - Record steps: [Engine.RecordSteps], [Engine.InStep], [Engine.Steps]. Call executions from a step: [Engine.Call],
//     [Engine.CalledResults].
//   - Read: [Engine.DescribeExecution], [Engine.Attempts], [Engine.Executions], [Engine.FindExecutionByKey];
//     [Engine.DescribeFlow], [Engine.FlowProgress], [Engine.FlowMembers], [Engine.FlowGraph], [Engine.Flows];
//     [Engine.Waits], [Engine.Sequences], [Engine.Lanes], [Engine.WaitingKinds], [Engine.Workers].
//   - Cancel: [Engine.CancelExecution], [Engine.CancelExecutions], [Engine.CancelFlow], [Engine.RequestFlowCancel].
//   - Share a transaction: [Engine.InTx], or [Engine.WithTx] with [Engine.Wake] after the commit; [Engine.LockFlows].
//   - Write another worker: [Engine.NewClaimer], [Engine.Listen], [Engine.RenewLeases], [Engine.ReportProgress];
//     [Engine.CompleteExecutions], [Engine.FailExecutions], [Engine.DelayExecutions], [Engine.SuspendEach],
//     [Engine.ReleaseLeases]; [Engine.RegisterWorker], [Engine.ListenLost]. Pass leases to other programs: [Lease.Handle],
//     [LeaseFromHandle].
//   - Start a program: [New], [Engine.Prepare]. Report to telemetry: [Config.Observer].
//
// # Other packages
//
//   - [github.com/flowfabric/flowfabric-go/worker] claims executions and runs typed handlers.
//   - [github.com/flowfabric/flowfabric-go/reconcile] runs the background operations, by default in each worker.
//   - [github.com/flowfabric/flowfabric-go/events] reads the events of operations.
//   - [github.com/flowfabric/flowfabric-go/schedule] creates executions at times and intervals.
//   - [github.com/flowfabric/flowfabric-go/limit] and [github.com/flowfabric/flowfabric-go/budget] operate limits and budgets.
//   - [github.com/flowfabric/flowfabric-go/stream] has the output of running executions.
//   - [github.com/flowfabric/flowfabric-go/waitpoint] turns signed links into signals.
//   - [github.com/flowfabric/flowfabric-go/explain] says why an execution does not run.
//   - [github.com/flowfabric/flowfabric-go/operator] has the operations for a person at a console.
//   - [github.com/flowfabric/flowfabric-go/interop] has FlowFabric's own protocol: grants and quotas.
//   - [github.com/flowfabric/flowfabric-go/observe] has the events of [Config.Observer].
//   - [github.com/flowfabric/flowfabric-go/fferr] has the errors.
//
// # Rules
//
// A method's changes commit together with their events. All time is the database's. Every operation may be repeated after
// an unknown outcome, with the effect its documentation describes. Reads take no row locks.
package engine
