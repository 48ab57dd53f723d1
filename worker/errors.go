package worker

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Causes with which a handler's context is cancelled. See [context.Cause].
var (
	// ErrLeaseLost reports that the worker no longer holds the execution. Another worker has claimed the execution, it
	// was cancelled, the deadline passed, or the database was unreachable for a whole lease. ErrLeaseLost wraps the
	// engine's error. The handler's outcome is discarded.
	ErrLeaseLost = errors.New("lease lost")

	// ErrCancelled reports a cancelled execution. The cause also matches [ErrLeaseLost]. The handler should clean up
	// and return; its outcome is discarded.
	ErrCancelled = errors.New("execution was cancelled")

	// ErrShutdown reports that the worker is stopping and the drain timeout has passed. A step that outlives its
	// handler returns ErrShutdown once the worker has stopped.
	ErrShutdown = errors.New("worker is shutting down")

	// ErrHandlerTimeout reports a handler running longer than the [Timeout] of its kind in this worker.
	ErrHandlerTimeout = errors.New("handler timed out")

	// ErrAttemptTimeout reports that the attempt has taken longer than the execution's policy allows.
	ErrAttemptTimeout = errors.New("attempt timed out")
)

// Fail is an error that a handler returns to classify a failed attempt. Class decides whether a retry is possible (default
// [policy.Transient]). The retry policy may select by Category (default: the class). Err is the cause.
type Fail struct {
	Class    policy.Class
	Category string
	Err      error
}

func (f *Fail) Error() string {
	if f.Err == nil {
		return cmp.Or(f.Category, string(f.class())) + " failure"
	}
	return f.Err.Error()
}

// Unwrap returns Err.
func (f *Fail) Unwrap() error { return f.Err }

func (f *Fail) class() policy.Class {
	switch f.Class {
	case policy.Permanent, policy.InfraCrash, policy.TimedOut, policy.Cancelled:
		return f.Class
	}
	return policy.Transient
}

// Permanent returns err as a failure that is never retried, or nil if err is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &Fail{Class: policy.Permanent, Err: err}
}

// PanicError is the error of a handler that panicked. A [Middleware] gets it like any other error. If the middleware
// returns it, wrapped or not, the failure has the category "panic" and the stack as its detail. PanicError does not
// wrap Value.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine, as runtime/debug.Stack returns it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// errGoexit reports a handler that ended its goroutine instead of returning, like testing.T.FailNow.
var errGoexit = errors.New("handler called runtime.Goexit")

// Limits for the stored texts of a failure, in bytes.
const (
	maxMessage  = 16 << 10
	maxCategory = 256
)

// failureOf converts a handler's error to the failure to store.
func failureOf(err error) engine.Failure {
	failure := engine.Failure{Class: policy.Transient, Message: storable(err.Error(), maxMessage)}
	if fail, ok := errors.AsType[*Fail](err); ok {
		failure.Class = fail.class()
		failure.Category = storable(fail.Category, maxCategory)
	} else if panicked, ok := errors.AsType[*PanicError](err); ok {
		failure.Category = "panic"
		failure.Detail = storable(string(panicked.Stack), maxMessage)
	}
	if undecoded, ok := errors.AsType[*fferr.DecodeError](err); ok {
		if !isFail(err) { // stored data stays as it is
			failure.Class, failure.Category = policy.Permanent, storable(undecoded.What, maxCategory)
		}
		// The decoder's error may quote the payload, so it is stored but not logged.
		failure.Message = storable(err.Error()+": "+undecoded.Err.Error(), maxMessage)
	}
	return failure
}

// storable returns text as valid UTF-8 without NUL bytes, cut to limit bytes.
func storable(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// lossOf returns the cause for a lost lease from the engine's refusal.
func lossOf(reason error) error {
	if refusal, ok := errors.AsType[*fferr.LeaseError](reason); ok && refusal.Outcome == state.OutcomeCancelled {
		return fmt.Errorf("%w; %w: %w", ErrCancelled, ErrLeaseLost, reason)
	}
	return fmt.Errorf("%w: %w", ErrLeaseLost, reason)
}

// isLost reports whether the engine's refusal means that the lease is lost for good.
func isLost(err error) bool {
	for _, sentinel := range []error{
		fferr.ErrStaleLease, fferr.ErrLeaseExpired, fferr.ErrLeaseRevoked, fferr.ErrNotActive, fferr.ErrNotFound,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
