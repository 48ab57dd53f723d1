// Package flowfabric is the root of a library for durable execution on Postgres. It holds no code: this
// page is the map.
//
// # The mental model
//
// An execution is a piece of work with a kind, a payload and, in the end, an outcome. It is a row of
// your database, created in your transaction if you like, and it survives every process that ever
// touches it.
//
// A worker claims executions from a lane. A claim is a lease: ownership for a short time, under a number,
// the epoch, that every further claim raises. The worker renews its leases while it works and settles
// each with a result or a failure. When it falls silent the lease runs out, the execution returns to its
// lane, and another worker takes it over under a higher epoch. From then on whatever the first one still
// sends is refused. So a handler may run more than once, and exactly one result is accepted.
//
// A flow is a graph of executions. An edge makes one wait for another; how many of its upstreams must
// succeed, all, any or a quorum, is the waiting execution's policy. The transaction that ends an
// execution also releases, or skips, what waited for it: there is no scheduler in between that could
// be late or forget.
//
// Time is the database's. No lease is judged by a worker's clock.
//
// # The packages
//
//   - [github.com/flowfabric/flowfabric-go/schema] makes and checks the tables, and converts those of FlowFabric.
//   - [github.com/flowfabric/flowfabric-go/engine] has the operations: create, claim, renew, complete,
//     fail, flows, and the reads. Each is one transaction, or a part of yours.
//   - [github.com/flowfabric/flowfabric-go/worker] claims, runs typed handlers, keeps their leases and
//     settles.
//   - [github.com/flowfabric/flowfabric-go/events] reads what happened, from a cursor, without losing any of it.
//   - [github.com/flowfabric/flowfabric-go/reconcile] gives back expired leases and starts what was
//     delayed. Every worker runs it by default.
//   - [github.com/flowfabric/flowfabric-go/id] has the typed identifiers, its folder wire their byte
//     formats, [github.com/flowfabric/flowfabric-go/state] the states,
//     [github.com/flowfabric/flowfabric-go/policy] retries, timeouts and dependency policies.
//   - [github.com/flowfabric/flowfabric-go/normalise] and [github.com/flowfabric/flowfabric-go/db] lie
//     below engine: stored literals, and the statements that sqlc generates.
//
// Command ff (cmd/ff) shows all of it at work; it is a module of its own, as are the examples, the tests
// and the benchmarks. So this one requires only pgx with what pgx needs, and google/uuid.
// The pages in docs/ take one concept each.
package flowfabric
