package worker

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
)

// HandlerFunc runs one attempt: it gets the claim with the stored payload, and returns the encoded result or the handler's
// error, as [Handle] describes.
type HandlerFunc func(ctx context.Context, work *engine.Claimed) (result []byte, err error)

// Middleware wraps the handlers of a worker. It is called once for each kind when the worker starts, and the returned
// function once for each attempt:
//
//	func logged(next worker.HandlerFunc) worker.HandlerFunc {
//		return func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
//			ctx = context.WithValue(ctx, loggerKey{}, slog.With("execution", work.ID))
//			return next(ctx, work)
//		}
//	}
//
// A middleware may give the handler a derived context or another payload, and return another result or error, such as a
// [Fail]. work is a copy; only the handler sees changes to it. If [ContinuesLater] reports true for an error, the error
// is no failure: return it, wrapped or not. A panic of the handler is a [PanicError] here; a panic of the middleware is
// a failure of the same kind.
type Middleware func(next HandlerFunc) HandlerFunc

// Use adds middleware around all handlers of a worker, whether they are registered before or after. The first one is the
// outermost; all run within [Observer].BeginRun. Like [Handle], Use takes effect in the next run.
//
// [Worker.Run] returns [fferr.ErrInvalidInput] for a middleware that is nil or returns nil.
func Use(w *Worker, middleware ...Middleware) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.middleware = append(w.middleware, middleware...)
}

// ContinuesLater reports whether the attempt continues after a handler's error: an error of [Sleep], [Call],
// [Job.Delay], [Job.WaitForChildren], a wait for signals, or a settled [Turn].
func ContinuesLater(err error) bool {
	on, goesOn := isLater(err)
	return goesOn && (on.settled != "" || !isFail(err))
}

// askedAtKey is the key of the instant at which a claim was called, in the contexts within middleware.
type askedAtKey struct{}

// wrapped returns a kind's handler within the middleware.
func wrapped(kind string, inner handler, middleware []Middleware) (handler, error) {
	outer := HandlerFunc(func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
		askedAt, ok := ctx.Value(askedAtKey{}).(time.Time)
		if !ok { // the middleware has replaced the context
			askedAt = time.Now()
		}
		return caught(ctx, work, askedAt, inner)
	})
	for _, m := range slices.Backward(middleware) {
		if m == nil {
			return nil, &fferr.InputError{Field: "middleware", Reason: "is nil"}
		}
		if outer = m(outer); outer == nil {
			return nil, &fferr.InputError{Field: "middleware", Reason: fmt.Sprintf("returned nil for the kind %q", kind)}
		}
	}
	return func(ctx context.Context, work *engine.Claimed, askedAt time.Time) ([]byte, error) {
		claimed := *work
		return outer(context.WithValue(ctx, askedAtKey{}, askedAt), &claimed)
	}, nil
}

// caught calls a handler, and returns its panic as an error.
func caught(ctx context.Context, work *engine.Claimed, askedAt time.Time, inner handler) (result []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			result, err = nil, &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return inner(ctx, work, askedAt)
}
