// Package engine runs durable executions on Postgres: each method is one transaction, or a part of the
// caller's.
//
// An execution is a unit of work in a lane. A worker claims it and holds a lease, a time-limited
// ownership fenced by an epoch that every claim raises: it renews the lease, reports progress, and ends
// the attempt with [Engine.CompleteExecution] or [Engine.FailExecution]. A call with an older epoch is
// refused, so a worker that was thought dead cannot overwrite what its successor does. A flow ties
// executions together: some wait for others, and are released, or skipped, by the transaction that ends
// what they wait for.
//
// What a method changes, it changes in one transaction, together with the events that tell of it. The
// methods on a value from [Engine.WithTx] do so inside the caller's, with the same code.
//
//	var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
//
//	eng, err := engine.New(pool, engine.Config{})
//	created, err := Resize.Create(ctx, eng, ResizeArgs{Image: "cat.png", Width: 640})
//	result, err := Resize.Await(ctx, eng, created.ID) // once a worker has handled it
//
// A [Kind] gives executions types. Below it an execution has a kind's name, a payload and a result, both bytes:
// [Engine.CreateExecution], [Engine.Claim], [Engine.CompleteExecution].
//
// Package worker does the claiming, renewing and settling for typed handlers; package reconcile runs the
// background operations, [Maintenance.ExpireLeases] and its like, at their intervals; package events reads
// the events that the operations leave.
//
// All time is the database's. Every operation may be repeated after an unknown outcome; its documentation
// says what the repetition answers.
package engine
