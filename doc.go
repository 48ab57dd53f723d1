// Package flowfabric is the root of a library for durable execution on Postgres. It has no code; this page is an overview.
//
// # The mental model
//
// An execution is a piece of work with a kind, a payload and, in the end, an outcome. It is a row in your database,
// created in your transaction if you like, and it survives every process that works on it.
//
// A worker claims executions from a lane. A claim is a lease: ownership for a short time, with an epoch, a number that
// every further claim raises. The worker renews its leases while it works, and settles each with a result or a failure. If
// it stops renewing, the lease expires, the execution returns to its lane, and another worker claims it with a higher
// epoch. All later calls of the first worker are refused. So a handler may run more than once, and exactly one result is
// accepted.
//
// A flow is a graph of executions. An edge makes one execution wait for another. The policy of the waiting execution says
// how many of its upstreams must succeed: all, any or a quorum. The transaction that ends an execution also releases or
// skips the executions that wait for it. No scheduler in between can be late or forget one.
//
// A handler can have steps. A step is a named part of it whose result is stored, so that it doesn't run again when the
// handler does: after a crash, a failure or a pause.
//
// A handler can wait for signals from people and other systems, for months if need be. While it waits, its execution is a
// row and nothing else. When the signal has arrived, the handler runs again from its beginning, and its wait returns the
// signal.
//
// Time is the database's. A worker's clock never decides about a lease.
//
// # The packages
//
//   - [github.com/flowfabric/flowfabric-go/schema] creates and checks the tables, and converts those of FlowFabric.
//   - [github.com/flowfabric/flowfabric-go/engine] has the operations: create, claim, renew, complete, fail, flows, and
//     reads. Each is one transaction, or part of yours.
//   - [github.com/flowfabric/flowfabric-go/fferr] has the errors of operations.
//   - [github.com/flowfabric/flowfabric-go/worker] claims executions, runs typed handlers, renews leases and settles the
//     outcomes.
//   - [github.com/flowfabric/flowfabric-go/waitpoint] turns signed links into signals.
//   - [github.com/flowfabric/flowfabric-go/stream] serves the output of executions to web pages.
//   - [github.com/flowfabric/flowfabric-go/limit] operates the limits of executions that run at once or start within a window.
//   - [github.com/flowfabric/flowfabric-go/events] reads events from a cursor and loses none.
//   - [github.com/flowfabric/flowfabric-go/reconcile] returns work with expired leases and starts delayed work. Every
//     worker runs it by default.
//   - [github.com/flowfabric/flowfabric-go/id] has the typed identifiers, its folder wire their byte formats,
//     [github.com/flowfabric/flowfabric-go/state] the states, and [github.com/flowfabric/flowfabric-go/policy] retries,
//     timeouts and dependency policies.
//   - [github.com/flowfabric/flowfabric-go/normalise] and [github.com/flowfabric/flowfabric-go/db] are below engine:
//     stored literals, and the statements that sqlc generates.
//
// The command ff (cmd/ff) shows all of it at work. It is a separate module, as are the examples, the tests and the
// benchmarks, so this module requires only pgx with its dependencies, google/uuid and netresearch/go-cron. Each page in docs/
// explains one concept.
package flowfabric
