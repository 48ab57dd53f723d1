package engine

import (
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

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

// fallenThrough is [errFellThrough] with the server's error, which is returned by operations without a slow path.
type fallenThrough struct{ cause error }

// fellThrough recognises the SQLSTATEs with which a fast path reports a row that it can't handle.
func fellThrough(err error) error {
	switch pgtx.SQLState(err) {
	case sqlDivisionByZero, sqlUniqueViolation:
		return &fallenThrough{err}
	}
	return err
}

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
