package worker

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// The causes with which a handler's context is cancelled: [context.Cause].
var (
	// ErrLeaseLost: the execution belongs to another worker now, or to nobody: it was cancelled, its deadline passed,
	// or the database was out of reach for as long as the lease lasts. The engine's error is wrapped beside it.
	// Whatever the handler returns is discarded.
	ErrLeaseLost = errors.New("lease lost")

	// ErrCancelled: the execution was cancelled, and [ErrLeaseLost] with it, which is told from the cause too. The
	// handler undoes what it must and returns; what it returns is discarded.
	ErrCancelled = errors.New("execution was cancelled")

	// ErrShutdown: the worker was told to stop, and the drain timeout has passed.
	ErrShutdown = errors.New("worker is shutting down")

	// ErrAttemptTimeout: the attempt has taken longer than the execution's policy allows.
	ErrAttemptTimeout = errors.New("attempt timed out")
)

// Fail is an error that a handler returns to say how its attempt failed. Class decides whether the failure may be
// retried at all (default [policy.Transient]); Category is matched against the retry policy's categories (default: the
// class). Err is what happened.
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

// Unwrap gives Err.
func (f *Fail) Unwrap() error { return f.Err }

func (f *Fail) class() policy.Class {
	switch f.Class {
	case policy.Permanent, policy.InfraCrash, policy.TimedOut, policy.Cancelled:
		return f.Class
	}
	return policy.Transient
}

// Permanent makes err a failure that is never retried. It is nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &Fail{Class: policy.Permanent, Err: err}
}

// panicError is what a handler panicked with.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// errGoexit: the handler ended its goroutine instead of returning, as testing.T.FailNow does.
var errGoexit = errors.New("handler called runtime.Goexit")

// The longest texts of a failure that are stored, in bytes.
const (
	maxMessage  = 16 << 10
	maxCategory = 256
)

// failureOf is how a handler's error is stored.
func failureOf(err error) engine.Failure {
	failure := engine.Failure{Class: policy.Transient, Message: storable(err.Error(), maxMessage)}
	if fail, ok := errors.AsType[*Fail](err); ok {
		failure.Class = fail.class()
		failure.Category = storable(fail.Category, maxCategory)
	} else if panicked, ok := errors.AsType[*panicError](err); ok {
		failure.Category = "panic"
		failure.Detail = storable(string(panicked.stack), maxMessage)
	}
	if undecoded, ok := errors.AsType[*engine.DecodeError](err); ok {
		// What may quote a payload is stored beside it, and not logged.
		failure.Message = storable(err.Error()+": "+undecoded.Err.Error(), maxMessage)
	}
	return failure
}

// storable makes text what a text column can hold, of at most max bytes.
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

// lossOf is why a lease is gone, from an engine's refusal.
func lossOf(reason error) error {
	if refusal, ok := errors.AsType[*engine.LeaseError](reason); ok && refusal.Outcome == state.OutcomeCancelled {
		return fmt.Errorf("%w; %w: %w", ErrCancelled, ErrLeaseLost, reason)
	}
	return fmt.Errorf("%w: %w", ErrLeaseLost, reason)
}

// isLost says whether an engine's refusal means that the lease is gone for good.
func isLost(err error) bool {
	for _, sentinel := range []error{
		engine.ErrStaleLease, engine.ErrLeaseExpired, engine.ErrLeaseRevoked, engine.ErrNotActive, engine.ErrNotFound,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
