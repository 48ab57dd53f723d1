package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Invalid returns the error for an argument.
func Invalid(field, reason string) error { return &fferr.InputError{Field: field, Reason: reason} }

// InvalidBecause returns the error for an argument refused by a parser or check.
func InvalidBecause(field string, err error) error {
	return &fferr.InputError{Field: field, Reason: err.Error(), Cause: err}
}

// Corrupt returns the error for a column's value.
func Corrupt(column string, err error) error {
	return &fferr.CorruptionError{Column: column, Cause: err}
}

// SQLSTATEs distinguished by operations.
const (
	SQLUniqueViolation  = "23505"
	sqlDivisionByZero   = "22012"
	SQLLockNotAvailable = "55P03"
	sqlDeadlock         = "40P01"
	sqlNotSerializable  = "40001"
	SQLUntranslatable   = "22P05"
	SQLNoSuchCharacter  = "22021"
	sqlNoRights         = "42501"
	sqlClassNoLogin     = "28" // prefix of every SQLSTATE of a refused login
)

// Wrap adds the operation's name and classifies driver errors. Errors of package fferr and the server's text are kept,
// but never the values of parameters.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if fferr.Known(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", op, err)
	}
	for _, signal := range Signals {
		if _, fell := errors.AsType[*fallenThrough](err); !fell && errors.Is(err, signal) {
			return &signalError{op, signal}
		}
	}
	sentinel := fferr.ErrTransport
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch code := pgErr.Code; {
		case code == "42P01", code == "42703", code == "42883", code == "3F000":
			sentinel = fferr.ErrNotMigrated
		case code == "25006":
			sentinel = fferr.ErrReadOnly
		case code == "3D000", code == "53300", code == "57P03":
			sentinel = fferr.ErrUnavailable
		case code == SQLLockNotAvailable, code == sqlDeadlock, code == sqlNotSerializable:
			sentinel = fferr.ErrContention // in a caller's transaction, where nothing is retried
		case code == sqlNoRights, strings.HasPrefix(code, sqlClassNoLogin):
			sentinel = fferr.ErrDenied
		}
	} else if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || pgtx.Unsent(err) {
		sentinel = fferr.ErrUnavailable
	}
	return fmt.Errorf("%s: %w: %w", op, sentinel, err)
}

// OutcomeOf returns the reason why one of the engine's own transactions was not committed. Callers use [errors.Is] to
// recognise errors requiring another form of the operation.
func OutcomeOf(op string, err error) error {
	if errors.Is(err, pgtx.ErrBusy) {
		return Wrap(op, fferr.ErrBusy)
	}
	if contention, ok := errors.AsType[*pgtx.ContentionError](err); ok {
		return fmt.Errorf("%s: %w %w", op, fferr.ErrContention, contention)
	}
	return Wrap(op, err)
}

// fallenThrough is [ErrFellThrough] with the server's error, which is returned by operations without a slow path.
type fallenThrough struct{ cause error }

func (e *fallenThrough) Error() string { return e.cause.Error() }

func (e *fallenThrough) Unwrap() error { return e.cause }

func (e *fallenThrough) Is(target error) bool { return target == ErrFellThrough }

// FellThrough recognises the SQLSTATEs with which a fast path reports an unsupported row.
func FellThrough(err error) error {
	switch pgtx.SQLState(err) {
	case sqlDivisionByZero, SQLUniqueViolation:
		return &fallenThrough{err}
	}
	return err
}

// IsDataError reports whether the server refused the written data, not the connection or the transaction.
func IsDataError(err error) bool {
	switch state := pgtx.SQLState(err); {
	case len(state) != 5:
		return errors.Is(err, fferr.ErrCorruption)
	default:
		return slices.Contains([]string{"22", "23", "P0"}, state[:2])
	}
}

// IsNoRow reports whether a statement for one row had none.
func IsNoRow(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// OrNotFound returns err, replacing pgx.ErrNoRows by a NotFoundError for x.
func OrNotFound(err error, x id.ExecutionID) error {
	if IsNoRow(err) {
		return &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	}
	return err
}

// ErrManyFlows means that the items are members of more flows than one transaction locks.
var ErrManyFlows = errors.New("too many flows for a transaction")

var (
	ErrFlowBusy  = errors.New("the flow is held by another transaction")
	ErrUndecided = errors.New("a group's row or policy, or the state of a dependent, can't be decided")
)

// ErrRepeated means that the call repeats a successful one, so nothing is written.
var ErrRepeated = errors.New("repetition of a call that succeeded")

var (
	ErrBusyRow  = fmt.Errorf("the row is %w", fferr.ErrBusy)
	ErrBusyFlow = fmt.Errorf("the lock of the flow is %w", fferr.ErrBusy)
)

var (
	// ErrFlowLock means that an operation found, under its locks, that it needs more flow locks. It rolls back and
	// starts again with all of its flow locks, because a lock is never upgraded.
	ErrFlowLock = errors.New("needs the lock of a flow")

	// ErrRefused means that items of a batch in a caller's transaction were refused. The savepoint is rolled back, so
	// nothing stays locked for refused items, and the others start again.
	ErrRefused = errors.New("items were refused")
)

// ErrFellThrough means that a fast path met an unsupported row; nothing was written.
var ErrFellThrough = errors.New("the fast path does not serve a row")

// Signals are errors between the parts of an operation. Nothing was written, and the operation continues in another
// way.
var Signals = []error{ErrFellThrough, ErrFlowLock, ErrManyFlows, ErrRefused, ErrRepeated, ErrFlowBusy}

// signalError is a signal on its way through an operation. If a signal escapes, the operation reports
// [fferr.ErrContention] without the signal's text.
type signalError struct {
	op     string
	signal error
}

func (e *signalError) Error() string { return e.op + ": " + fferr.ErrContention.Error() }

// Is reports whether target is the signal.
func (e *signalError) Is(target error) bool { return target == e.signal }

// Unwrap returns [fferr.ErrContention].
func (e *signalError) Unwrap() error { return fferr.ErrContention }
