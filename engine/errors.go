package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// The sentinels of this package: what a caller branches on, with [errors.Is]. Where values help, a
// struct around the sentinel carries them, with [errors.As].
var (
	// ErrInvalidInput: an argument is not one that may be given; nothing was written. Never worth repeating.
	// Carried by [InputError].
	ErrInvalidInput = errors.New("invalid input")

	// ErrCorruption: a stored value cannot be read. Nothing was written; an operator has to look.
	// Carried by [CorruptionError].
	ErrCorruption = errors.New("stored value cannot be read")

	// ErrNotFound: the thing named does not exist. Carried by [NotFoundError].
	ErrNotFound = errors.New("not found")

	// ErrNotEnded: the execution has not ended: it has left nothing yet, and there is nothing to replay. The caller asks
	// again later.
	ErrNotEnded = errors.New("execution has not ended")

	// ErrEnded: the execution has ended, in another way than was asked for. Nothing was written.
	// Carried by [EndedError].
	ErrEnded = errors.New("execution has ended")

	// ErrCompleted: the execution has completed, and a replay would repeat its effects. Nothing was written. [ReplayCompleted]
	// allows it. Carried by [StateError].
	ErrCompleted = errors.New("execution has completed")

	// ErrStaleLease: another lease has been given since, or this one was taken away. The holder stops work and discards its result.
	// Carried by [LeaseError], like the next three.
	ErrStaleLease = errors.New("stale lease")

	// ErrLeaseExpired: the lease has run out; nobody has taken it over yet. The holder stops work.
	ErrLeaseExpired = errors.New("lease has expired")

	// ErrLeaseRevoked: an operator of another program took the lease away. The holder stops work.
	ErrLeaseRevoked = errors.New("lease was revoked")

	// ErrNotActive: the execution is not being worked on: it ended, is delayed, or was suspended.
	// [LeaseError] says in which state it is and how it ended.
	ErrNotActive = errors.New("execution is not active")

	// ErrNotEligible: the execution is not in a state in which an operator may do this to it; nothing was written.
	// Carried by [StateError], which says in which state it is.
	ErrNotEligible = errors.New("execution is not eligible")

	// ErrMaxReplays: the execution has been replayed as often as its policy allows. Nothing was written. Whoever wants
	// the work done again creates a new execution.
	ErrMaxReplays = errors.New("execution may not be replayed again")

	// ErrExists: an execution of a new flow, or of one that grows, exists already. Nothing was written.
	ErrExists = errors.New("execution exists already")

	// ErrIdempotencyKeyTaken: a node of a new flow, or of one that grows, carries the key of an earlier execution. Nothing was written.
	ErrIdempotencyKeyTaken = errors.New("idempotency key is taken")

	// ErrKeyConflict: another execution has the idempotency key, and what was asked for is not what it does. Nothing was
	// written. Choose another key, or look at the execution. Carried by [KeyConflictError].
	ErrKeyConflict = errors.New("idempotency key names another execution")

	// ErrFlowTerminal: the flow takes no more members, and replays none. Nothing was written.
	ErrFlowTerminal = errors.New("flow has ended")

	// ErrCycle: the dependencies of a flow go round in a circle. Nothing was written.
	ErrCycle = errors.New("dependencies form a cycle")

	// ErrStaleRevision: the flow has grown since the revision that was expected. Nothing was written; the caller reads the
	// flow again. Carried by [RevisionError].
	ErrStaleRevision = errors.New("flow has another revision")

	// ErrOtherFlow: the execution is a member of another flow, and remains it. Nothing was written. Carried by
	// [MemberError], like the next one.
	ErrOtherFlow = errors.New("execution is a member of another flow")

	// ErrPruned: a member of the flow was deleted before the flow ([FlowSpec.PruneMembersAfter]), and its result with it.
	// Nothing was written.
	ErrPruned = errors.New("member was pruned")

	// ErrNotMember: the execution is no member of the flow; it has to be added first. Nothing was written.
	ErrNotMember = errors.New("execution is no member of the flow")

	// ErrEdgeExists: an edge of that id, or between the same two executions, is there and is another one. Nothing was
	// written. Carried by [EdgeExistsError].
	ErrEdgeExists = errors.New("edge exists already")

	// ErrStarted: the execution has started, and is given nothing more to wait for unless the edge allows it. Nothing was
	// written. Carried by [StateError].
	ErrStarted = errors.New("execution has started")

	// ErrBusy: another transaction holds what this item of a batch needs, a row or the lock of its flow. A batch
	// waits for nobody: the others are done, for this one nothing was written. The caller repeats it, alone if it
	// shall wait.
	ErrBusy = errors.New("held by another transaction")

	// ErrContention: the rows stayed locked, or the transaction was aborted in favour of others, three
	// times. Nothing was written; the call may be repeated.
	ErrContention = errors.New("too much contention")

	// ErrNotMigrated: the schema's tables are not there, or are older than this library.
	// `ff migrate up` or schema.Migrate makes them.
	ErrNotMigrated = errors.New("database is not migrated")

	// ErrTooNew: the database was migrated by a newer version of this library, beside which this one cannot work.
	// Upgrade the program.
	ErrTooNew = errors.New("database is newer than this library")

	// ErrDistributed: Citus manages tables of this library, on which it does not work, and may bring the server
	// down. Make them local again, or use a schema of local tables.
	ErrDistributed = errors.New("tables are managed by Citus")

	// ErrEncoding: the database stores text in another encoding than UTF8, and cannot hold all text that callers give.
	// Create one with ENCODING 'UTF8'.
	ErrEncoding = errors.New("database encoding is not UTF8")

	// ErrReadOnly: the server takes no writes; it is a standby, or set to read only.
	ErrReadOnly = errors.New("database is read only")

	// ErrDenied: the server refused the user, its password or its rights; its own text, which the error
	// holds, says which. Nothing was done. Repeating the call helps only after somebody has corrected the
	// pool's configuration or the server's: the user and password, the server's pg_hba.conf, or, where
	// "permission denied" is for a table or another object, the user's rights, by GRANT. A user that runs
	// `ff migrate up` owns the tables and needs no grants; others need what `ff migrate grants` prints. [Engine.Prepare]
	// says all that is missing, in a [DeniedError].
	ErrDenied = errors.New("database denies access: correct the user, its password or its rights")

	// ErrGrantExists: the execution is granted to somebody already. The caller waits until that grant was used or has
	// expired. Carried by [GrantError], like the next two.
	ErrGrantExists = errors.New("execution is granted already")

	// ErrInvalidGrant: the grant is not one that was issued, to this worker, for this execution; or it was used. The
	// worker drops it.
	ErrInvalidGrant = errors.New("invalid grant")

	// ErrGrantExpired: the grant can no longer be used. The worker drops it.
	ErrGrantExpired = errors.New("grant has expired")

	// ErrNotLeaseable: nobody can be given a lease of the execution in the state that it is in. Carried by [StateError].
	ErrNotLeaseable = errors.New("execution cannot be leased")

	// ErrNotReclaimable: the execution has not lost its worker. Carried by [StateError].
	ErrNotReclaimable = errors.New("execution cannot be reclaimed")

	// ErrReclaimCapExceeded: the execution has lost more leases than its policy allows. Carried by [ReclaimCapError].
	ErrReclaimCapExceeded = errors.New("leases were lost too often")

	// ErrHalted: the lane is paused, or the worker instance drained. The caller waits for an operator. Carried by
	// [HaltedError].
	ErrHalted = errors.New("halted by an operator")

	// ErrUnavailable: no connection could be had, or the database lacks what the operation needs: [UnavailableError]
	// then says what. Nothing was written; the call may be repeated.
	ErrUnavailable = errors.New("database is unavailable")

	// ErrTransport: the server or the connection failed while the operation ran. Whether it took effect
	// is unknown when the commit was under way; every operation may be repeated safely, as its
	// documentation says.
	ErrTransport = errors.New("database failed")
)

// InputError is an argument that no operation may be given. Field names it, Reason says what it may be.
type InputError struct {
	Field  string
	Reason string
	err    error
}

func (e *InputError) Error() string { return "invalid input: " + e.Field + ": " + e.Reason }

// Unwrap gives [ErrInvalidInput] and, where a parser refused the value, its error.
func (e *InputError) Unwrap() []error { return withCause(ErrInvalidInput, e.err) }

// CorruptionError is a stored value that cannot be read. Column names where it stands.
type CorruptionError struct {
	Column string
	err    error
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("stored value cannot be read: %s: %v", e.Column, e.err)
}

// Unwrap gives [ErrCorruption] and what was wrong with the value.
func (e *CorruptionError) Unwrap() []error { return withCause(ErrCorruption, e.err) }

// NotFoundError names what does not exist: Entity is "execution", "attempt", "flow" or "edge".
type NotFoundError struct {
	Entity string
	ID     string
}

func (e *NotFoundError) Error() string { return e.Entity + " " + e.ID + " not found" }

// Unwrap gives [ErrNotFound].
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// KeyConflictError names the execution that has an idempotency key. Differs says in which way it is not what was asked for.
type KeyConflictError struct {
	Key      id.IdempotencyKey
	Existing id.ExecutionID
	Differs  string
}

func (e *KeyConflictError) Error() string {
	return fmt.Sprintf("%v: execution %s %s", ErrKeyConflict, e.Existing, e.Differs)
}

// Unwrap gives [ErrKeyConflict].
func (e *KeyConflictError) Unwrap() error { return ErrKeyConflict }

// RevisionError says which revision a flow has, instead of the one that was expected.
type RevisionError struct {
	Flow               id.FlowID
	Expected, Revision int64
}

func (e *RevisionError) Error() string {
	return fmt.Sprintf("flow %s: %v: %d, not %d", e.Flow, ErrStaleRevision, e.Revision, e.Expected)
}

// Unwrap gives [ErrStaleRevision].
func (e *RevisionError) Unwrap() error { return ErrStaleRevision }

// MemberError is a refusal because of the flow that an execution belongs to. Err is [ErrOtherFlow] or [ErrNotMember].
type MemberError struct {
	Execution id.ExecutionID
	Flow      *id.FlowID // the one that it is a member of; nil: none
	Err       error
}

func (e *MemberError) Error() string {
	if e.Flow == nil {
		return fmt.Sprintf("execution %s: %v", e.Execution, e.Err)
	}
	return fmt.Sprintf("execution %s: %v: it is one of flow %s", e.Execution, e.Err, e.Flow)
}

// Unwrap gives the sentinel in Err.
func (e *MemberError) Unwrap() error { return e.Err }

// EdgeExistsError describes the edge that is there instead of the one asked for.
type EdgeExistsError struct {
	Edge                 id.EdgeID
	Upstream, Downstream id.ExecutionID
}

func (e *EdgeExistsError) Error() string {
	return fmt.Sprintf("%v: %s, from execution %s to %s", ErrEdgeExists, e.Edge, e.Upstream, e.Downstream)
}

// Unwrap gives [ErrEdgeExists].
func (e *EdgeExistsError) Unwrap() error { return ErrEdgeExists }

// EndedError says how an execution ended: one that has no result, since it did not succeed, or one that cannot be
// acted on any more.
type EndedError struct {
	Execution id.ExecutionID
	Outcome   state.TerminalOutcome
	Failure   string // why it failed or was cancelled; "" where nobody said
}

func (e *EndedError) Error() string {
	if e.Outcome == state.OutcomeSuccess {
		return fmt.Sprintf("execution %s ended with success", e.Execution)
	}
	text := fmt.Sprintf("execution %s ended without success: %s", e.Execution, cmp.Or(e.Outcome, "no outcome is recorded"))
	if e.Failure != "" {
		text += ": " + e.Failure
	}
	return text
}

// Unwrap gives [ErrEnded].
func (e *EndedError) Unwrap() error { return ErrEnded }

// LeaseError is a refusal of a lease-holder's call. Err is [ErrStaleLease], [ErrLeaseExpired],
// [ErrLeaseRevoked] or [ErrNotActive]; with the last, Phase and Outcome say what became of the
// execution. Epoch is the current one.
type LeaseError struct {
	Execution id.ExecutionID
	Attempt   int
	Epoch     int64
	Phase     state.LifecyclePhase
	Outcome   state.TerminalOutcome
	Err       error
}

func (e *LeaseError) Error() string {
	if e.Err == ErrNotActive && e.Outcome != state.OutcomeNone {
		return fmt.Sprintf("execution %s attempt %d: %v (%s, outcome %s)", e.Execution, e.Attempt, e.Err, e.Phase, e.Outcome)
	}
	if e.Err == ErrNotActive {
		return fmt.Sprintf("execution %s attempt %d: %v (%s)", e.Execution, e.Attempt, e.Err, e.Phase)
	}
	return fmt.Sprintf("execution %s attempt %d: %v", e.Execution, e.Attempt, e.Err)
}

// Unwrap gives the sentinel in Err.
func (e *LeaseError) Unwrap() error { return e.Err }

// StateError is a refusal because of the state that an execution is in. Err is [ErrNotEligible], [ErrNotEnded] or
// [ErrCompleted], of an operator's call; [ErrStarted], of an edge; [ErrNotLeaseable] or [ErrNotReclaimable], of a grant or a claim by one, and Reason says why in words.
type StateError struct {
	Execution id.ExecutionID
	State     state.Vector
	Reason    string // "" where Err says it all
	Err       error
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("execution %s: %v: ", e.Execution, e.Err)
	if e.Reason != "" {
		text += e.Reason + ": "
	}
	text += "it is " + string(e.State.Phase)
	if e.State.Eligibility != state.NotApplicable {
		text += ", " + string(e.State.Eligibility)
	}
	return text
}

// Unwrap gives the sentinel in Err.
func (e *StateError) Unwrap() error { return e.Err }

// GrantError is a refusal of a grant. Err is [ErrGrantExists], [ErrInvalidGrant] or [ErrGrantExpired]. Reason says what
// an invalid one is refused for: [id.ReasonMalformed], [id.ReasonUnknownKid], [id.ReasonUnknownGrant] or
// [id.ReasonSignatureMismatch].
type GrantError struct {
	Execution id.ExecutionID
	Reason    id.Reason
	Err       error
}

func (e *GrantError) Error() string {
	text := fmt.Sprintf("execution %s: %v", e.Execution, e.Err)
	if e.Reason != "" {
		text += ": " + string(e.Reason)
	}
	return text
}

// Unwrap gives the sentinel in Err.
func (e *GrantError) Unwrap() error { return e.Err }

// ReclaimCapError says how many leases an execution has lost.
type ReclaimCapError struct {
	Execution id.ExecutionID
	Reclaims  int
}

func (e *ReclaimCapError) Error() string {
	return fmt.Sprintf("execution %s: %v: %d", e.Execution, ErrReclaimCapExceeded, e.Reclaims)
}

// Unwrap gives [ErrReclaimCapExceeded].
func (e *ReclaimCapError) Unwrap() error { return ErrReclaimCapExceeded }

// HaltedError says what an operator has halted: a lane, [LanePaused], or a worker instance, [WorkerDrained].
type HaltedError struct {
	Halt Halt
	Name string
}

func (e *HaltedError) Error() string { return fmt.Sprintf("%s %s: %v", e.Halt, e.Name, ErrHalted) }

// Unwrap gives [ErrHalted].
func (e *HaltedError) Unwrap() error { return ErrHalted }

// UnavailableError says what an operation needs and the database lacks.
type UnavailableError struct{ Reason string }

func (e *UnavailableError) Error() string { return "unavailable: " + e.Reason }

// Unwrap gives [ErrUnavailable].
func (e *UnavailableError) Unwrap() error { return ErrUnavailable }

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

// SQLSTATEs that operations tell apart.
const (
	sqlUniqueViolation  = "23505"
	sqlDivisionByZero   = "22012"
	sqlLockNotAvailable = "55P03"
	sqlUntranslatable   = "22P05"
	sqlNoSuchCharacter  = "22021"
	sqlNoRights         = "42501"
	sqlClassNoLogin     = "28" // begins every SQLSTATE of a refused login
)

// wrap names the operation and classifies a driver's error. Errors of this package pass unchanged but
// for the name; texts of the server are kept, values of parameters never are.
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
		case code == sqlNoRights, strings.HasPrefix(code, sqlClassNoLogin):
			sentinel = ErrDenied
		}
	} else if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || pgtx.Unsent(err) {
		sentinel = ErrUnavailable
	}
	return fmt.Errorf("%s: %w: %w", op, sentinel, err)
}

// signals are what the parts of an operation tell each other. Nothing was written, and the operation goes on in another
// way.
var signals = []error{errFellThrough, errFlowLock, errManyFlows, errRefused, errRepeated, errFlowBusy}

// signalError is a signal on its way through an operation. Should it get out of that, it is [ErrContention] of the
// operation, and the text of the signal is not to be had.
type signalError struct {
	op     string
	signal error
}

func (e *signalError) Error() string { return e.op + ": " + ErrContention.Error() }

// Is tells the operation which signal it is.
func (e *signalError) Is(target error) bool { return target == e.signal }

// Unwrap gives [ErrContention].
func (e *signalError) Unwrap() error { return ErrContention }

func isOurs(err error) bool {
	for _, sentinel := range []error{
		ErrInvalidInput, ErrCorruption, ErrNotFound, ErrNotEnded, ErrEnded, ErrCompleted, ErrStaleLease, ErrLeaseExpired, ErrLeaseRevoked, ErrNotActive,
		ErrNotEligible, ErrMaxReplays, ErrExists, ErrIdempotencyKeyTaken, ErrKeyConflict, ErrFlowTerminal, ErrCycle, ErrStaleRevision, ErrOtherFlow, ErrNotMember, ErrEdgeExists,
		ErrStarted, ErrBusy, ErrContention, ErrNotMigrated, ErrTooNew,
		ErrDistributed, ErrEncoding, ErrReadOnly, ErrDenied, ErrUnavailable, ErrTransport,
		ErrGrantExists, ErrInvalidGrant, ErrGrantExpired, ErrNotLeaseable, ErrNotReclaimable, ErrReclaimCapExceeded, ErrHalted,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// isDataError says whether the server refused what was written, not the connection or the transaction as such.
func isDataError(err error) bool {
	switch state := pgtx.SQLState(err); {
	case len(state) != 5:
		return errors.Is(err, ErrCorruption)
	default:
		return slices.Contains([]string{"22", "23", "P0"}, state[:2])
	}
}

func isNoRow(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
