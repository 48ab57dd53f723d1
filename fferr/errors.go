// Package fferr has the errors of operations on the database: sentinels for [errors.Is], and structs with values for
// [errors.As]. docs/errors.md lists all by symptom.
//
// Errors that only one other package returns are declared there, such as events.ErrGap and worker.ErrLeaseLost.
package fferr

import "errors"

// The sentinels.
var (
	// ErrInvalidInput means an argument is not allowed. Nothing was written, and a retry can't succeed. Carried by
	// [InputError].
	ErrInvalidInput = sentinel("invalid input")

	// ErrCorruption means a stored value can't be read. Nothing was written; an operator must inspect the value. Carried by
	// [CorruptionError].
	ErrCorruption = sentinel("stored value cannot be read")

	// ErrNotFound means the named object does not exist. Carried by [NotFoundError].
	ErrNotFound = sentinel("not found")

	// ErrNotEnded means the execution has not ended: there is no result, and no replay is possible. Ask again later.
	ErrNotEnded = sentinel("execution has not ended")

	// ErrEnded means the execution has already ended with another outcome. Nothing was written. Carried by
	// [EndedError].
	ErrEnded = sentinel("execution has ended")

	// ErrCompleted means the execution has completed, and a replay would repeat the effects. Nothing was written.
	// operator.ReplayCompleted allows it. Carried by [StateError].
	ErrCompleted = sentinel("execution has completed")

	// ErrStaleLease means a newer lease was given, or the lease was taken away. The holder must stop work and discard the
	// result. Carried by [LeaseError], like the next three.
	ErrStaleLease = sentinel("stale lease")

	// ErrLeaseExpired means the lease has expired and has no new holder yet. The holder must stop work.
	ErrLeaseExpired = sentinel("lease has expired")

	// ErrLeaseRevoked means an operator of another program took the lease away. The holder must stop work.
	ErrLeaseRevoked = sentinel("lease was revoked")

	// ErrNotActive means the execution is not running: ended, delayed or suspended. [LeaseError] has the phase and
	// outcome.
	ErrNotActive = sentinel("execution is not active")

	// ErrNotEligible means the execution's state does not allow the operation. Nothing was written. Carried by
	// [StateError], which has the state.
	ErrNotEligible = sentinel("execution is not eligible")

	// ErrMaxReplays means the execution was replayed as often as the policy allows. Nothing was written. To repeat the
	// work, create a new execution.
	ErrMaxReplays = sentinel("execution may not be replayed again")

	// ErrExists means an execution of a new or growing flow already exists. Nothing was written.
	ErrExists = sentinel("execution already exists")

	// ErrIdempotencyKeyTaken means a node of a new or growing flow has the idempotency key of an earlier execution.
	// Nothing was written.
	ErrIdempotencyKeyTaken = sentinel("idempotency key is taken")

	// ErrKeyConflict means another execution has the idempotency key, with different content, or that another execution or
	// flow has the business key. Nothing was written. Choose another key, or use the execution or flow that the error
	// names. Carried by [KeyConflictError].
	ErrKeyConflict = sentinel("key is taken")

	// ErrFlowTerminal means the flow has ended, and accepts no members and no replays. Nothing was written.
	ErrFlowTerminal = sentinel("flow has ended")

	// ErrCycle means the dependencies of a flow form a cycle. Nothing was written.
	ErrCycle = sentinel("dependencies form a cycle")

	// ErrStaleRevision means the flow has grown since the expected revision. Nothing was written; read the flow again.
	// Carried by [RevisionError].
	ErrStaleRevision = sentinel("flow has another revision")

	// ErrOtherFlow means the execution is a member of another flow. Nothing was written. Carried by [MemberError].
	ErrOtherFlow = sentinel("execution is a member of another flow")

	// ErrPruned means a member of the flow was deleted with its result before the flow (PruneMembersAfter of the flow's
	// specification), or a called execution before the caller had the result (policy of the kept result). Nothing was
	// written.
	ErrPruned = sentinel("member was pruned")

	// ErrNotMember means the execution is not a member of the flow; add the execution first. Nothing was written. Carried by
	// [MemberError].
	ErrNotMember = sentinel("execution is not a member of the flow")

	// ErrEdgeExists means a different edge has that id or connects the same two executions. Nothing was written. Carried
	// by [EdgeExistsError].
	ErrEdgeExists = sentinel("edge already exists")

	// ErrStarted means the execution has started and can't get another dependency unless the edge allows it. Nothing was
	// written. Carried by [StateError].
	ErrStarted = sentinel("execution has started")

	// ErrBusy means another transaction holds a row, or the lock of a flow, needed by the item of a batch. A batch never
	// waits for locks: the other items are done, and nothing was written for the refused item. Repeat the item, alone if
	// it should wait.
	ErrBusy = sentinel("held by another transaction")

	// ErrContention means the rows stayed locked, or the transaction was aborted in favour of others, three times. Nothing
	// was written. The call may be repeated. In a caller's transaction there is only one try, and the error includes the
	// server's: roll back and begin the transaction again.
	ErrContention = sentinel("too much contention")

	// ErrNotMigrated means the schema's tables are missing, or, for an engine, older than the library. Run `ff migrate up`
	// or schema.Migrate.
	ErrNotMigrated = sentinel("the database is not migrated")

	// ErrTooNew means a newer, incompatible version of the library, or of FlowFabric, migrated the database. Upgrade the
	// program.
	ErrTooNew = sentinel("the database is too new")

	// ErrDistributed means Citus manages tables of the library, which is unsupported and may crash the server. Make the
	// tables local with Citus's undistribute_table, or use another schema.
	ErrDistributed = sentinel("tables are managed by Citus")

	// ErrEncoding means the database's encoding is not UTF8 and can't store all text. Create a database with ENCODING
	// 'UTF8' TEMPLATE template0.
	ErrEncoding = sentinel("the database's encoding is not UTF8")

	// ErrUnsupportedServer means the server speaks PostgreSQL's protocol and lacks parts the library relies on, as
	// CockroachDB and YugabyteDB do. The error has the server and the reason.
	ErrUnsupportedServer = sentinel("the server is not supported")

	// ErrReadOnly means the server accepts no writes: a standby, or one set to read only.
	ErrReadOnly = sentinel("the database is read-only")

	// ErrDenied means the server refused the user, the password or the rights. The error has the server's text. Nothing
	// was written. Before repeating the call, correct the user and password in the pool's configuration, the server's
	// pg_hba.conf, or, after "permission denied", the user's rights by GRANT. The user that migrates the database owns the
	// tables and needs no grants; other users need the grants printed by "ff migrate grants". Prepare lists everything
	// missing in a [DeniedError].
	ErrDenied = sentinel("the database denies access")

	// ErrGrantExists means the execution already has a grant. Wait until the grant is used or expires. Carried by
	// [GrantError], like the next two.
	ErrGrantExists = sentinel("execution already has a grant")

	// ErrInvalidGrant means the grant was not issued to the worker for the execution, or was already used. The worker
	// drops the grant.
	ErrInvalidGrant = sentinel("invalid grant")

	// ErrGrantExpired means the grant has expired. The worker drops the grant.
	ErrGrantExpired = sentinel("grant has expired")

	// ErrKeyIDTaken means the keystore has another key of the id, or a retired one. A retired key never signs again:
	// rotate the new key in under a new id.
	ErrKeyIDTaken = sentinel("key id is taken")

	// ErrInvalidToken means a token is not the waitpoint's, or the token's key is retired. The error says nothing about
	// the existence of the waitpoint.
	ErrInvalidToken = sentinel("invalid token")

	// ErrWaitpointClosed means a waitpoint has expired, or the wait has timed out. The sender is too late.
	ErrWaitpointClosed = sentinel("waitpoint is closed")

	// ErrTooManySignals means an execution holds the largest number or size of signals.
	ErrTooManySignals = sentinel("too many signals")

	// ErrAwaiting means a wait of a handler is not over. The handler returns the error, and the execution suspends.
	ErrAwaiting = sentinel("the execution waits for signals")

	// ErrWaitTimeout means the wait of a handler timed out.
	ErrWaitTimeout = sentinel("wait timed out")

	// ErrNotSuspended means the execution does not wait for signals. Carried by [StateError].
	ErrNotSuspended = sentinel("execution is not suspended")

	// ErrNotLeaseable means the execution can't be leased in the present state. Carried by [StateError].
	ErrNotLeaseable = sentinel("execution cannot be leased")

	// ErrNotReclaimable means the execution has not lost the worker. Carried by [StateError].
	ErrNotReclaimable = sentinel("execution cannot be reclaimed")

	// ErrReclaimCapExceeded means the execution has lost more leases than the policy allows. Carried by
	// [ReclaimCapError].
	ErrReclaimCapExceeded = sentinel("too many leases were lost")

	// ErrHalted means the lane is paused or the worker instance is drained. Wait for an operator. Carried by
	// [HaltedError].
	ErrHalted = sentinel("halted by an operator")

	// ErrInstanceTaken means a live worker of another pool is registered with the instance id. Nothing was written. Give
	// each process an instance id of its own. The error is an [InputError] too.
	ErrInstanceTaken = sentinel("instance id belongs to another worker")

	// ErrUnavailable means the database is out of reach: no connection was available. Nothing was written. The call may be
	// repeated.
	ErrUnavailable = sentinel("database is unavailable")

	// ErrUnsupported means the database, as it is set up, can't serve the operation, for example because the keystore has
	// no key. Nothing was written. Repeating the call does not help. Carried by [UnsupportedError], which names the
	// missing part.
	ErrUnsupported = sentinel("not possible in this database")

	// ErrTransport means the server or the connection failed during the operation. After a failure during the commit, the
	// outcome is unknown. Every operation may be repeated safely, as documented.
	ErrTransport = sentinel("database failed")

	// ErrStreamMoved means a stream has another number of frames than the writer expected. Carried by
	// [StreamMovedError].
	ErrStreamMoved = sentinel("stream has another number of frames")

	// ErrStreamGap means durable frames of a stream are no longer kept. Carried by [StreamGapError].
	ErrStreamGap = sentinel("frames of the stream are no longer kept")
)

// sentinelError is the type of all sentinels of the package, for [Known].
type sentinelError struct{ text string }

func sentinel(text string) error { return &sentinelError{text} }

func (e *sentinelError) Error() string { return e.text }

// Known reports whether err is or wraps a sentinel of the package. An unknown error comes from the driver, a context,
// or code of the caller.
func Known(err error) bool {
	_, ok := errors.AsType[*sentinelError](err)
	return ok
}
