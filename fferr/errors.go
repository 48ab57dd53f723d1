// Package fferr has the errors that operations on the database return: sentinels for [errors.Is], and structs that carry values
// for [errors.As]. docs/errors.md lists all of them by symptom.
//
// Errors that only one other package returns are declared there, such as events.ErrGap and worker.ErrLeaseLost.
package fferr

import "errors"

// The sentinels.
var (
	// ErrInvalidInput means that an argument is not allowed. Nothing was written, and a retry can't succeed. Carried by
	// [InputError].
	ErrInvalidInput = sentinel("invalid input")

	// ErrCorruption means that a stored value can't be read. Nothing was written; an operator must inspect it. Carried
	// by [CorruptionError].
	ErrCorruption = sentinel("stored value cannot be read")

	// ErrNotFound means that the named object does not exist. Carried by [NotFoundError].
	ErrNotFound = sentinel("not found")

	// ErrNotEnded means that the execution has not ended, so it has no result and can't be replayed. Ask again later.
	ErrNotEnded = sentinel("execution has not ended")

	// ErrEnded means that the execution has already ended with another outcome. Nothing was written. Carried by
	// [EndedError].
	ErrEnded = sentinel("execution has ended")

	// ErrCompleted means that the execution has completed, and a replay would repeat its effects. Nothing was written.
	// engine.ReplayCompleted allows it. Carried by [StateError].
	ErrCompleted = sentinel("execution has completed")

	// ErrStaleLease means that a newer lease was given, or this one was taken away. The holder must stop work and
	// discard its result. Carried by [LeaseError], like the next three.
	ErrStaleLease = sentinel("stale lease")

	// ErrLeaseExpired means that the lease has expired and has no new holder yet. The holder must stop work.
	ErrLeaseExpired = sentinel("lease has expired")

	// ErrLeaseRevoked means that an operator of another program took the lease away. The holder must stop work.
	ErrLeaseRevoked = sentinel("lease was revoked")

	// ErrNotActive means that the execution is not running: it ended, is delayed or was suspended. [LeaseError] has its
	// phase and outcome.
	ErrNotActive = sentinel("execution is not active")

	// ErrNotEligible means that the execution's state does not allow the operation. Nothing was written. Carried by
	// [StateError], which has the state.
	ErrNotEligible = sentinel("execution is not eligible")

	// ErrMaxReplays means that the execution was replayed as often as its policy allows. Nothing was written. To repeat
	// the work, create a new execution.
	ErrMaxReplays = sentinel("execution may not be replayed again")

	// ErrExists means that an execution of a new or growing flow already exists. Nothing was written.
	ErrExists = sentinel("execution already exists")

	// ErrIdempotencyKeyTaken means that a node of a new or growing flow has the idempotency key of an earlier
	// execution. Nothing was written.
	ErrIdempotencyKeyTaken = sentinel("idempotency key is taken")

	// ErrKeyConflict means that another execution has the idempotency key, with different content, or that another execution
	// or flow has the business key. Nothing was written. Choose another key, or use the execution or flow that
	// the error names. Carried by [KeyConflictError].
	ErrKeyConflict = sentinel("key is taken")

	// ErrFlowTerminal means that the flow has ended: it accepts no members and no replays. Nothing was written.
	ErrFlowTerminal = sentinel("flow has ended")

	// ErrCycle means that the dependencies of a flow form a cycle. Nothing was written.
	ErrCycle = sentinel("dependencies form a cycle")

	// ErrStaleRevision means that the flow has grown since the expected revision. Nothing was written; read the flow
	// again. Carried by [RevisionError].
	ErrStaleRevision = sentinel("flow has another revision")

	// ErrOtherFlow means that the execution is a member of another flow. Nothing was written. Carried by [MemberError].
	ErrOtherFlow = sentinel("execution is a member of another flow")

	// ErrPruned means that a member of the flow, and its result, was deleted before the flow (PruneMembersAfter of its
	// specification), or a called execution before its caller had the result (policy of its kept result). Nothing was written.
	ErrPruned = sentinel("member was pruned")

	// ErrNotMember means that the execution is not a member of the flow; add it first. Nothing was written. Carried by
	// [MemberError].
	ErrNotMember = sentinel("execution is not a member of the flow")

	// ErrEdgeExists means that a different edge has that id or connects the same two executions. Nothing was written.
	// Carried by [EdgeExistsError].
	ErrEdgeExists = sentinel("edge already exists")

	// ErrStarted means that the execution has started and can't get another dependency unless the edge allows it.
	// Nothing was written. Carried by [StateError].
	ErrStarted = sentinel("execution has started")

	// ErrBusy means that another transaction holds a row, or the lock of a flow, that this item of a batch needs. A
	// batch never waits for locks: the other items are done, and nothing was written for this one. Repeat it, alone if
	// it should wait.
	ErrBusy = sentinel("held by another transaction")

	// ErrContention means that the rows stayed locked, or the transaction was aborted in favour of others, three times.
	// Nothing was written. The call may be repeated. In a caller's transaction it means that for the only try, with the
	// server's error beside it: roll back and begin the transaction again.
	ErrContention = sentinel("too much contention")

	// ErrNotMigrated means that the schema's tables are missing, or, for an engine, older than this library. Run
	// `ff migrate up` or schema.Migrate.
	ErrNotMigrated = sentinel("the database is not migrated")

	// ErrTooNew means that a newer, incompatible version of this library, or of FlowFabric, migrated the database. Upgrade the
	// program.
	ErrTooNew = sentinel("the database is too new")

	// ErrDistributed means that Citus manages tables of this library, which is unsupported and may crash the server.
	// Make them local with Citus's undistribute_table, or use another schema.
	ErrDistributed = sentinel("tables are managed by Citus")

	// ErrEncoding means that the database's encoding is not UTF8, so it can't store all text. Create a database with
	// ENCODING 'UTF8' TEMPLATE template0.
	ErrEncoding = sentinel("the database's encoding is not UTF8")

	// ErrUnsupportedServer means that the server speaks PostgreSQL's protocol and lacks parts on which this library relies, as
	// CockroachDB and YugabyteDB do. The error has the server and the reason.
	ErrUnsupportedServer = sentinel("the server is not supported")

	// ErrReadOnly means that the server accepts no writes: it is a standby, or set to read only.
	ErrReadOnly = sentinel("the database is read-only")

	// ErrDenied means that the server refused the user, its password or its rights. The error has the server's text.
	// Nothing was written. Before repeating the call, correct the user and password in the pool's configuration, the
	// server's pg_hba.conf, or, after "permission denied", the user's rights by GRANT. The user that migrates the
	// database owns the tables and needs no grants; others need those that "ff migrate grants" prints. Prepare lists
	// everything that is missing in a [DeniedError].
	ErrDenied = sentinel("the database denies access")

	// ErrGrantExists means that the execution already has a grant. Wait until it is used or expires. Carried by
	// [GrantError], like the next two.
	ErrGrantExists = sentinel("execution already has a grant")

	// ErrInvalidGrant means that the grant was not issued to this worker for this execution, or was already used. The
	// worker drops it.
	ErrInvalidGrant = sentinel("invalid grant")

	// ErrGrantExpired means that the grant has expired. The worker drops it.
	ErrGrantExpired = sentinel("grant has expired")

	// ErrKeyIDTaken means that the keystore has another key of this id, or a retired one. A retired key never signs again:
	// rotate the new key in under a new id.
	ErrKeyIDTaken = sentinel("key id is taken")

	// ErrInvalidToken means that a token is not that of the waitpoint, or that its key is retired. It says nothing about
	// whether the waitpoint exists.
	ErrInvalidToken = sentinel("invalid token")

	// ErrWaitpointClosed means that a waitpoint has expired, or that its wait has timed out. Its sender is too late.
	ErrWaitpointClosed = sentinel("waitpoint is closed")

	// ErrTooManySignals means that an execution holds as many signals, or as many bytes of them, as it may.
	ErrTooManySignals = sentinel("too many signals")

	// ErrAwaiting means that a wait of a handler is not over. The handler returns it, and the execution suspends.
	ErrAwaiting = sentinel("the execution waits for signals")

	// ErrWaitTimeout means that the wait of a handler timed out.
	ErrWaitTimeout = sentinel("wait timed out")

	// ErrNotSuspended means that the execution does not wait for signals. Carried by [StateError].
	ErrNotSuspended = sentinel("execution is not suspended")

	// ErrNotLeaseable means that the execution can't be leased in its state. Carried by [StateError].
	ErrNotLeaseable = sentinel("execution cannot be leased")

	// ErrNotReclaimable means that the execution has not lost its worker. Carried by [StateError].
	ErrNotReclaimable = sentinel("execution cannot be reclaimed")

	// ErrReclaimCapExceeded means that the execution has lost more leases than its policy allows. Carried by
	// [ReclaimCapError].
	ErrReclaimCapExceeded = sentinel("too many leases were lost")

	// ErrHalted means that the lane is paused or the worker instance is drained. Wait for an operator. Carried by
	// [HaltedError].
	ErrHalted = sentinel("halted by an operator")

	// ErrInstanceTaken means that a live worker of another pool is registered with this instance id. Nothing was written.
	// Give each process an instance id of its own. The error is an [InputError] too.
	ErrInstanceTaken = sentinel("instance id belongs to another worker")

	// ErrUnavailable means that the database is out of reach: no connection was available. Nothing was written. The call
	// may be repeated.
	ErrUnavailable = sentinel("database is unavailable")

	// ErrUnsupported means that the database, as it is set up, can't serve the operation, for example because its keystore
	// has no key. Nothing was written. Repeating the call does not help. Carried by [UnsupportedError], which names the
	// missing part.
	ErrUnsupported = sentinel("not possible in this database")

	// ErrTransport means that the server or the connection failed during the operation. If it failed during the commit,
	// the outcome is unknown. Every operation may be repeated safely, as its documentation says.
	ErrTransport = sentinel("database failed")

	// ErrStreamMoved means that a stream has another number of frames than its writer took it to have. Carried by
	// [StreamMovedError].
	ErrStreamMoved = sentinel("stream has another number of frames")

	// ErrStreamGap means that durable frames of a stream are no longer kept. Carried by [StreamGapError].
	ErrStreamGap = sentinel("frames of the stream are no longer kept")
)

// sentinelError is the type of all sentinels of this package, by which [Known] recognises them.
type sentinelError struct{ text string }

func sentinel(text string) error { return &sentinelError{text} }

func (e *sentinelError) Error() string { return e.text }

// Known reports whether err is or wraps a sentinel of this package. An error that is not known comes from the driver, a
// context, or code of the caller.
func Known(err error) bool {
	_, ok := errors.AsType[*sentinelError](err)
	return ok
}
