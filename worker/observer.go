package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Observer connects telemetry to a worker. Its methods and the functions they return must not block.
type Observer interface {
	// BeginRun is called before each run of a handler, on the handler's goroutine. BeginRun returns the handler's
	// context, derived from ctx, and a function or nil. The worker calls the function once, after the outcome is
	// committed. After a panic of the function, the worker logs and continues, and [Worker.ObserverPanics] counts the
	// panic. A panic in BeginRun fails the attempt, like a panic in the handler.
	BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(Report))

	// BeginPart is called in a run before a step, turn, call, sleep or wait for signals does its work, on the goroutine of
	// the part. A part with a stored result does no work. BeginPart returns a context for the part, derived from ctx, and
	// a function or nil. The functions of steps and turns get this context, and calls create with it. The worker calls
	// the returned function once, when the part ends, even by a panic. After a panic of either, the worker logs and
	// continues, and [Worker.ObserverPanics] counts the panic. Jobs for tests have no observer.
	BeginPart(ctx context.Context, part Part) (context.Context, func(PartReport))
}

// Report describes how an execution claimed by a worker ended.
type Report struct {
	Settlement Settlement
	Err        error         // the handler's error, or why the outcome could not be settled; nil if the attempt continues later
	Ran        time.Duration // running time of the handler

	// Of a failed attempt.
	Class    policy.Class
	Category string    // as the handler gave it; "" for the default
	RetryAt  time.Time // when the next attempt may begin; zero unless Retrying
}

// Settlement is how an attempt ended for its worker.
type Settlement string

// The settlements.
const (
	Completed Settlement = "completed" // the execution ended with success
	Retrying  Settlement = "retrying"  // the attempt failed; another follows
	Failed    Settlement = "failed"    // the execution ended as failed
	Delayed   Settlement = "delayed"   // the handler postponed the attempt
	Released  Settlement = "released"  // given back unfinished, at a shutdown
	Abandoned Settlement = "abandoned" // the lease was lost or the attempt timed out; the engine decides

	WaitingForChildren Settlement = "waiting_for_children" // the attempt continues when its upstreams have ended
	Suspended          Settlement = "suspended"            // the attempt continues when signals have arrived
	Skipped            Settlement = "skipped"              // the upstream group can no longer be satisfied: the execution ended
)

// ObserverPanics returns how many panics of its [Observer] the worker has logged so far.
func (w *Worker) ObserverPanics() int64 { return w.observerPanics.Load() }

// report passes a task's settlement to the observer and the log.
func (r *run) report(t *task) {
	r.reportToObserver(t)
	switch t.settlement {
	case Completed, Delayed, WaitingForChildren, Suspended:
		return
	}
	attrs := append(t.attrs(), slog.String("settlement", string(t.settlement)), slog.Duration("ran", t.ran))
	if !t.retryAt.IsZero() {
		attrs = append(attrs, slog.Time("retry_at", t.retryAt))
	}
	if t.verdict == fail {
		attrs = append(attrs, slog.String("class", string(t.failure.Class)), slog.String("category", t.failure.Category))
	}
	if t.err != nil {
		attrs = append(attrs, slog.Any("error", t.err))
	}
	var message string
	level := slog.LevelWarn
	switch t.settlement {
	case Retrying:
		message = "attempt failed; retrying"
	case Failed:
		message = "attempt failed, and its execution failed for good: fix the cause, then replay it"
	case Released:
		message, level = "execution returned to its lane", slog.LevelInfo
	case Skipped:
		message, level = "execution skipped", slog.LevelInfo
	case Abandoned:
		message = "attempt abandoned; another follows unless its execution has ended"
		if errors.Is(t.err, ErrCancelled) {
			message, level = "attempt abandoned; its execution was cancelled", slog.LevelInfo
		}
	}
	if panicked, ok := errors.AsType[*PanicError](t.err); ok {
		message, level = strings.Replace(message, "attempt failed", "handler panicked", 1), slog.LevelError
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	r.cfg.Log.LogAttrs(context.Background(), level, message, attrs...)
}

// reportToObserver calls the function that [Observer].BeginRun returned. The task is already settled, so a panic changes nothing.
func (r *run) reportToObserver(t *task) {
	if t.reportTo == nil {
		return
	}
	defer func() {
		if value := recover(); value != nil {
			r.observerPanicked(value, t.attrs()...)
		}
	}()
	report := Report{Settlement: t.settlement, Err: t.err, Ran: t.ran, RetryAt: t.retryAt}
	if t.verdict == fail {
		report.Class, report.Category = t.failure.Class, t.failure.Category
	}
	t.reportTo(report)
}

// observerPanicked logs and counts a panic of the observer. It must be called by the function that recovered.
func (w *Worker) observerPanicked(value any, attrs ...slog.Attr) {
	attrs = append(attrs, slog.Any("error", &PanicError{Value: value}), slog.Int64("panics", w.observerPanics.Add(1)),
		slog.String("stack", string(debug.Stack())))
	w.cfg.Log.LogAttrs(context.Background(), slog.LevelError, "observer panicked", attrs...)
}

// attrs returns the log attributes of a task.
func (t *task) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("execution", t.work.ID.String()),
		slog.String("kind", t.work.Kind),
		slog.Int("attempt", int(t.work.Lease.Attempt)),
	}
}
