package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Sentinel errors, for [errors.Is]. If a caller may need values too, a struct around the sentinel carries them, for
// [errors.As].
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
	// [ReplayCompleted] allows it. Carried by [StateError].
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
	// or flow has the business key. Nothing was written. Choose another key, or use what has it. Carried by
	// [KeyConflictError].
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

	// ErrPruned means that a member of the flow, and its result, was deleted before the flow
	// ([FlowSpec.PruneMembersAfter]), or a called execution before its caller had the result ([CalledResult]). Nothing
	// was written.
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

	// ErrNotMigrated means that the schema's tables are missing or older than this library. Run `ff migrate up` or
	// schema.Migrate.
	ErrNotMigrated = sentinel("database is not migrated")

	// ErrTooNew means that a newer, incompatible version of this library migrated the database. Upgrade the program.
	ErrTooNew = sentinel("database is newer than this library")

	// ErrDistributed means that Citus manages tables of this library, which is unsupported and may crash the server.
	// Make them local again, or use a schema of local tables.
	ErrDistributed = sentinel("tables are managed by Citus")

	// ErrEncoding means that the database's encoding is not UTF8, so it can't store all text. Create a database with
	// ENCODING 'UTF8'.
	ErrEncoding = sentinel("database encoding is not UTF8")

	// ErrUnsupportedServer means that the server speaks PostgreSQL's protocol and lacks parts on which this library relies, as
	// CockroachDB and YugabyteDB do. The error has the server and the reason.
	ErrUnsupportedServer = sentinel("server is not supported")

	// ErrReadOnly means that the server accepts no writes: it is a standby, or set to read only.
	ErrReadOnly = sentinel("database is read only")

	// ErrDenied means that the server refused the user, its password or its rights. The error has the server's text.
	// Nothing was written. Before repeating the call, correct the user and password in the pool's configuration, the
	// server's pg_hba.conf, or, after "permission denied", the user's rights by GRANT. The user that migrates the
	// database owns the tables and needs no grants; others need those that "ff migrate grants" prints. [Engine.Prepare]
	// lists everything that is missing in a [DeniedError].
	ErrDenied = sentinel("database denies access: correct the user, its password or its rights")

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
)

func invalid(field, reason string) error { return &InputError{Field: field, Reason: reason} }

func invalidBecause(field string, err error) error {
	return &InputError{Field: field, Reason: err.Error(), err: err}
}

func corrupt(column string, err error) error { return &CorruptionError{Column: column, err: err} }

func withCause(sentinel, cause error) []error {
	if cause == nil {
		return []error{sentinel}
	}
	return []error{sentinel, cause}
}

// SQLSTATEs that operations distinguish.
const (
	sqlUniqueViolation  = "23505"
	sqlDivisionByZero   = "22012"
	sqlLockNotAvailable = "55P03"
	sqlDeadlock         = "40P01"
	sqlNotSerializable  = "40001"
	sqlUntranslatable   = "22P05"
	sqlNoSuchCharacter  = "22021"
	sqlNoRights         = "42501"
	sqlClassNoLogin     = "28" // prefix of every SQLSTATE of a refused login
)

// wrap adds the operation's name and classifies driver errors. It keeps errors of this package and the server's text,
// but never the values of parameters.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if isOurs(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", op, err)
	}
	for _, signal := range signals {
		if _, told := errors.AsType[*fallenThrough](err); !told && errors.Is(err, signal) {
			return &signalError{op, signal}
		}
	}
	sentinel := ErrTransport
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch code := pgErr.Code; {
		case code == "42P01", code == "42703", code == "42883", code == "3F000":
			sentinel = ErrNotMigrated
		case code == "25006":
			sentinel = ErrReadOnly
		case code == "3D000", code == "53300", code == "57P03":
			sentinel = ErrUnavailable
		case code == sqlLockNotAvailable, code == sqlDeadlock, code == sqlNotSerializable:
			sentinel = ErrContention // in a caller's transaction, where nothing is retried
		case code == sqlNoRights, strings.HasPrefix(code, sqlClassNoLogin):
			sentinel = ErrDenied
		}
	} else if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || pgtx.Unsent(err) {
		sentinel = ErrUnavailable
	}
	return fmt.Errorf("%s: %w: %w", op, sentinel, err)
}

// outcomeOf returns the reason that one of the engine's own transactions was not committed. Callers use [errors.Is] to
// recognise errors that need another form of the operation.
func outcomeOf(op string, err error) error {
	if errors.Is(err, pgtx.ErrBusy) {
		return wrap(op, ErrBusy)
	}
	if contention, ok := errors.AsType[*pgtx.ContentionError](err); ok {
		return fmt.Errorf("%s: %w %w", op, ErrContention, contention)
	}
	return wrap(op, err)
}

// fallenThrough is [errFellThrough] with the server's error, which is returned by operations without a slow path.
type fallenThrough struct{ cause error }

func (e *fallenThrough) Error() string { return e.cause.Error() }

func (e *fallenThrough) Unwrap() error { return e.cause }

func (e *fallenThrough) Is(target error) bool { return target == errFellThrough }

// fellThrough recognises the SQLSTATEs with which a fast path reports a row that it can't handle.
func fellThrough(err error) error {
	switch pgtx.SQLState(err) {
	case sqlDivisionByZero, sqlUniqueViolation:
		return &fallenThrough{err}
	}
	return err
}

// sentinelError is a sentinel of this package. By the type, sentinels are recognised among a driver's errors, so no list repeats them.
type sentinelError struct{ text string }

func sentinel(text string) error { return &sentinelError{text} }

func (e *sentinelError) Error() string { return e.text }

func isOurs(err error) bool {
	_, ok := errors.AsType[*sentinelError](err)
	return ok
}

// isDataError reports whether the server refused the written data, not the connection or the transaction.
func isDataError(err error) bool {
	switch state := pgtx.SQLState(err); {
	case len(state) != 5:
		return errors.Is(err, ErrCorruption)
	default:
		return slices.Contains([]string{"22", "23", "P0"}, state[:2])
	}
}

func isNoRow(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// orNotFound returns err, replacing pgx.ErrNoRows by a NotFoundError for x.
func orNotFound(err error, x id.ExecutionID) error {
	if isNoRow(err) {
		return &NotFoundError{Entity: "execution", ID: x.String()}
	}
	return err
}

// errManyFlows means that the items are members of more flows than one transaction locks.
var errManyFlows = errors.New("too many flows for a transaction")

var (
	errFlowBusy  = errors.New("the flow is held by another transaction")
	errUndecided = errors.New("a group's row or policy, or the state of a dependent, can't be decided")
)

// errRepeated means that the call repeats one that succeeded, so nothing is written.
var errRepeated = errors.New("repetition of a call that succeeded")

var (
	errBusyRow  = fmt.Errorf("the row is %w", ErrBusy)
	errBusyFlow = fmt.Errorf("the lock of the flow is %w", ErrBusy)
)

var (
	// errFlowLock means that an operation found under its locks that it needs more flow locks than it holds. It rolls
	// back and starts again with them, because a lock is never upgraded.
	errFlowLock = errors.New("needs the lock of a flow")

	// errRefused means that items of a batch in a caller's transaction were refused. The savepoint is rolled back, so
	// that nothing stays locked for them, and the others start again.
	errRefused = errors.New("items were refused")
)

// errFellThrough means that a fast path met a row that it can't handle; nothing was written.
var errFellThrough = errors.New("the fast path does not serve a row")

// signals are errors between the parts of an operation. Nothing was written, and the operation continues in another
// way.
var signals = []error{errFellThrough, errFlowLock, errManyFlows, errRefused, errRepeated, errFlowBusy}

// signalError is a signal on its way through an operation. If it escapes, the operation reports [ErrContention] without
// the signal's text.
type signalError struct {
	op     string
	signal error
}

func (e *signalError) Error() string { return e.op + ": " + ErrContention.Error() }

// Is reports whether target is the signal.
func (e *signalError) Is(target error) bool { return target == e.signal }

// Unwrap returns [ErrContention].
func (e *signalError) Unwrap() error { return ErrContention }
