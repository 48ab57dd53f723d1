// Package engine runs durable executions on Postgres. Each method is one transaction, or a part of the caller's.
//
// An execution is a unit of work in a lane. A worker claims it and holds a lease: ownership for a limited time, fenced
// by an epoch that every claim raises. A call with an older epoch is refused, so a worker that was presumed dead can't
// overwrite its successor's work. A flow connects executions: some wait for others, and the transaction that ends an
// execution releases or skips those that waited for it.
//
//	var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
//
//	eng, err := engine.New(pool, engine.Config{})
//	created, err := Resize.Create(ctx, eng, ResizeArgs{Image: "cat.png", Width: 640})
//	result, err := Resize.Await(ctx, eng, created.ID) // once a worker has handled it
//
// # Tasks
//
// Create work: [Kind.Create], [Engine.CreateExecution], [Engine.CreateExecutions]; flows: [Engine.CreateFlow],
// [Engine.GrowFlow].
//
// Run it: package worker claims, renews leases, calls typed handlers and settles. It also runs package reconcile, the
// background operations. A handler needs this package only to create more work in its transaction.
//
// Wait for it: [Kind.Await], [Kind.Result], [Engine.AwaitExecution], [Engine.AwaitFlow]. Package events reads the
// events that operations emit.
//
// Inspect it: [Engine.DescribeExecution], [Engine.Attempts], [Engine.Executions]; [Engine.DescribeFlow],
// [Engine.FlowProgress], [Engine.FlowMembers], [Engine.Flows]; [Engine.Lanes].
//
// Stop it: [Engine.CancelExecution], [Engine.CancelFlow], [Engine.RequestFlowCancel].
//
// Operate: package operator pauses lanes, changes priorities, replays, blocks and revokes.
//
// Write another worker: [Engine.Claim] or [Engine.NewClaimer], [Engine.RenewLeases], [Engine.ReportProgress],
// [Engine.CompleteExecutions], [Engine.FailExecutions], [Engine.DelayExecutions], [Engine.ReleaseLeases],
// [Engine.WaitForChildren]. Another scheduler: package interop. Background work: package
// reconcile.
//
// Pass leases to other programs: [Lease.Handle], [LeaseFromHandle]; package id/wire has their bytes.
//
// # Rules
//
// A method's changes and the events that report them commit together. The methods on a value from [Engine.WithTx] run
// in the caller's transaction, with the same code. All time is the database's. Every operation may be repeated after an
// unknown outcome; its documentation says how the repetition behaves.
package engine
