package worker

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// Hooks is what telemetry hangs on.
type Hooks interface {
	// Begin is called before each handler, on its goroutine. The handler runs with the context that it returns, which
	// must derive from ctx. The function that it returns, unless nil, is called once, after what became of the attempt
	// has been committed, on a goroutine that must not be held up. If it panics, the worker logs that and goes on:
	// [Worker.HookPanics] counts them. A panic of Begin itself fails the attempt, like one of the handler.
	Begin(ctx context.Context, work *engine.Claimed) (context.Context, func(Report))
}

// Report is what became of an execution that a worker had claimed.
type Report struct {
	Settlement Settlement
	Err        error         // what the handler returned, or why its outcome could not be settled; nil for what goes on later
	Ran        time.Duration // of the handler
}

// Settlement says how an attempt ended in the worker that ran it.
type Settlement string

// The settlements.
const (
	Completed Settlement = "completed" // the execution ended with success
	Retrying  Settlement = "retrying"  // the attempt failed; another follows
	Failed    Settlement = "failed"    // the execution ended as failed
	Delayed   Settlement = "delayed"   // the attempt goes on later, as the handler asked
	Released  Settlement = "released"  // given back unfinished, at a shutdown
	Abandoned Settlement = "abandoned" // the lease was lost or the attempt timed out: others decide

	WaitingForChildren Settlement = "waiting_for_children" // the attempt goes on when its upstreams have ended
	Skipped            Settlement = "skipped"              // they could not satisfy it any more: the execution ended
)

// HookPanics returns how many functions returned by [Hooks].Begin have panicked so far.
func (w *Worker) HookPanics() int64 { return w.hookPanics.Load() }

// report tells the hooks and the log how a task was settled.
func (r *run) report(t *task) {
	r.reportToHooks(t)
	switch t.settlement {
	case Completed, Delayed, WaitingForChildren:
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
		message = "attempt failed; it is retried"
	case Failed:
		message = "attempt failed; its execution has failed for good: once the cause is mended, replay it"
	case Released:
		message, level = "work given back", slog.LevelInfo
	case Skipped:
		message, level = "execution skipped", slog.LevelInfo
	case Abandoned:
		message = "attempt abandoned; another follows unless its execution has ended"
		if errors.Is(t.err, ErrCancelled) {
			message, level = "attempt abandoned; its execution was cancelled", slog.LevelInfo
		}
	}
	if panicked, ok := errors.AsType[*panicError](t.err); ok {
		message, level = strings.Replace(message, "attempt failed", "handler panicked", 1), slog.LevelError
		attrs = append(attrs, slog.String("stack", string(panicked.stack)))
	}
	r.cfg.Log.LogAttrs(context.Background(), level, message, attrs...)
}

// reportToHooks calls the function that [Hooks].Begin returned. The task is settled by then, so its panic changes nothing.
func (r *run) reportToHooks(t *task) {
	if t.told == nil {
		return
	}
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		attrs := append(t.attrs(), slog.Any("error", &panicError{value: value}), slog.Int64("panics", r.hookPanics.Add(1)),
			slog.String("stack", string(debug.Stack())))
		r.cfg.Log.LogAttrs(context.Background(), slog.LevelError, "hook panicked", attrs...)
	}()
	t.told(Report{Settlement: t.settlement, Err: t.err, Ran: t.ran})
}

// attrs name a task in the log.
func (t *task) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("execution", t.work.ID.String()),
		slog.String("kind", t.work.Kind),
		slog.Int("attempt", int(t.work.Lease.Attempt)),
	}
}
