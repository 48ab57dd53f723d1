package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/schedules"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Job is one attempt at an execution, passed to its handler: the arguments and the claim. [Job.Complete] completes the
// execution in the handler's own transaction.
type Job[In any] struct {
	Args In
	engine.Claimed

	eng      operations
	encode   func(out any) ([]byte, error)
	codec    engine.Codec
	waits    *waits
	steps    *steps
	recorder *recorder
	appender *appender
}

// Handle registers fn as the handler for a kind of execution. It decodes the payload into In and encodes the returned Out
// as the result, as [engine.Kind] describes. The lane is the kind's unless [Config.Lanes] is set.
//
// The return value of fn decides how the attempt ends:
//
//   - nil: the execution completes with the result.
//   - an error: the attempt fails, and the retry policy decides about another. [Permanent] and [Fail] classify the
//     failure. A panic is a failure of the category "panic", with the stack as its detail.
//   - the error of [Sleep], [engine.Signal.Await], [engine.AwaitAny], [Job.Delay] or [Job.WaitForChildren], wrapped or not:
//     the same attempt continues later, from the beginning of fn, on any worker. No retry is used. Steps, pauses and waits
//     that are over return at once.
//   - anything, after the lease was lost: discarded. The context's cause is [ErrLeaseLost], with [ErrCancelled] if the
//     execution was cancelled.
//   - an error, after the attempt's timeout: discarded; background work ends the attempt.
//   - another error, after the drain timeout: the execution returns to its lane at no cost.
//
// fn must be safe to repeat: the worker may die before the result is committed, and then another one handles the
// execution. Some failures are permanent: of the category "payload" or "signal" if the input cannot be decoded,
// "result" if the result cannot be encoded or is too large, and "wait" if a wait is invalid or the handler drops its
// error. Executions of other kinds stay in the lane for other workers. The log and [engine.Engine.WaitingKinds] report
// kinds that no worker takes for a minute.
//
// [Worker.Run] returns an error for a bad registration: an invalid kind, a second handler for a kind, a nil fn. A
// handler registered while the worker runs takes effect in the next run. The options [Concurrency] and [Timeout] apply
// to the kind in this worker only.
func Handle[In, Out any](
	w *Worker, kind engine.Kind[In, Out], fn func(ctx context.Context, job Job[In]) (Out, error), options ...HandleOption,
) {
	var run handler
	if fn != nil {
		run = func(ctx context.Context, work *engine.Claimed, askedAt time.Time) ([]byte, error) {
			return handle(ctx, w, work, askedAt, kind, fn)
		}
	}
	given, err := optionsOf(options)
	if err = cmp.Or(kind.Validate(), err); err == nil && run != nil && given.timeout {
		run = timed(run, given.after)
	}
	w.register(kind.Name, kind.Lane, err, run, given)
}

// HandleFunc is [Handle] for a kind without a result.
//
//	worker.HandleFunc(w, Welcome, func(ctx context.Context, job worker.Job[WelcomeArgs]) error { … })
func HandleFunc[In any](
	w *Worker, kind engine.Kind[In, struct{}], fn func(ctx context.Context, job Job[In]) error, options ...HandleOption,
) {
	if fn == nil {
		Handle(w, kind, nil, options...)
		return
	}
	Handle(w, kind, func(ctx context.Context, job Job[In]) (struct{}, error) { return struct{}{}, fn(ctx, job) }, options...)
}

// handle runs one execution, whose claim was called at askedAt: it decodes the payload, calls fn and encodes the result.
func handle[In, Out any](
	ctx context.Context, w *Worker, work *engine.Claimed, askedAt time.Time,
	kind engine.Kind[In, Out], fn func(ctx context.Context, job Job[In]) (Out, error),
) ([]byte, error) {
	args, err := kind.DecodeArgs(work.Payload)
	if err != nil {
		return nil, &Fail{Class: policy.Permanent, Category: "payload", Err: err}
	}
	job := newJob(w, work, askedAt, kind, args)
	defer job.steps.end()
	out, err := fn(withStepKey(ctx, work.ID, ""), job)
	err = job.steps.returned(err)
	job.giveBack(ctx, err)
	if err != nil {
		return nil, err
	}
	result, err := kind.EncodeResult(out)
	if err != nil {
		return nil, &Fail{Class: policy.Permanent, Category: "result", Err: fmt.Errorf("encode the result: %w", err)}
	}
	return result, nil
}

// newJob returns the job for one run of a handler.
func newJob[In, Out any](w *Worker, work *engine.Claimed, askedAt time.Time, kind engine.Kind[In, Out], args In) Job[In] {
	return Job[In]{
		Args: args, Claimed: *work, eng: w.eng, encode: encoderOf(kind), codec: kind.Codec,
		steps: &steps{askedAt: askedAt, worker: w}, recorder: w.recorder, appender: w.appender,
	}
}

// handler is [handle] for one kind.
type handler func(ctx context.Context, work *engine.Claimed, askedAt time.Time) ([]byte, error)

var errNoWorker = errors.New("the job does not come from a worker")

// Upstreams returns the results of the execution's upstream executions, ordered by id. Decode each with the
// [engine.Kind.ResultOf] of its kind.
//
// Errors: as [engine.Engine.UpstreamResults].
func (j Job[In]) Upstreams(ctx context.Context) ([]engine.UpstreamResult, error) {
	if j.eng == nil {
		return nil, errNoWorker
	}
	return repeat(ctx, j.recorder, func() ([]engine.UpstreamResult, error) { return j.eng.UpstreamResults(ctx, j.ID) })
}

// Tick returns the time of the schedule's tick that created the execution, in UTC. It is zero if no schedule did. The tag
// "ffx.schedule" has the schedule's name.
func (j Job[In]) Tick() time.Time {
	at, err := time.Parse(time.RFC3339Nano, j.Tags[schedules.TimeTag])
	if err != nil {
		return time.Time{}
	}
	return at
}

// Complete completes the execution in a transaction of the handler, so other writes in this transaction happen exactly
// once. out has the kind's Out type. After the commit the handler returns any result and a nil error; the worker
// recognises the repeated completion and drops it. [engine.Engine.InTx] notifies the workers for released work after
// the commit. Complete also appends the buffered frames of the job's stream.
//
//	return out, eng.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error {
//		if _, err := tx.Exec(ctx, "UPDATE accounts …"); err != nil {
//			return err
//		}
//		return job.Complete(ctx, tx, out)
//	})
//
// Errors: as [engine.Engine.CompleteExecution]; tx stays usable, and the handler should roll it back.
// [fferr.ErrInvalidInput] if out has another type or cannot be encoded.
func (j Job[In]) Complete(ctx context.Context, tx pgx.Tx, out any) error {
	const op = "complete execution"
	if j.eng == nil {
		return errNoWorker
	}
	result, err := j.encode(out)
	if err != nil {
		return core.OutcomeOf(op, &fferr.InputError{Field: "out", Reason: err.Error()})
	}
	if stream := j.steps.written(); stream != nil {
		if err := stream.completeIn(ctx, j.eng.inTx(tx)); err != nil {
			return err
		}
	}
	return j.eng.completeIn(ctx, tx, j.Lease, result)
}

// encoderOf returns a function that encodes results of a kind.
func encoderOf[In, Out any](kind engine.Kind[In, Out]) func(out any) ([]byte, error) {
	return func(out any) ([]byte, error) {
		value, ok := out.(Out)
		if !ok {
			return nil, fmt.Errorf("is a %T, but results of %s have the type %s", out, kind.Name, reflect.TypeFor[Out]())
		}
		return kind.EncodeResult(value)
	}
}

// Progress records the attempt's progress in percent, with a message for people. An empty message keeps the previous one.
//
// Errors: as [engine.Engine.ReportProgress]. If the lease is refused, the next renewal will cancel ctx.
func (j Job[In]) Progress(ctx context.Context, percent int, message string) error {
	if j.isForTest() {
		return nil
	}
	if j.eng == nil {
		return errNoWorker
	}
	p := engine.Progress{Percent: &percent}
	if message != "" {
		p.Message = &message
	}
	_, err := repeat(ctx, j.recorder, func() (struct{}, error) { return struct{}{}, j.eng.ReportProgress(ctx, j.Lease, p) })
	return err
}

// ReportUsage counts amounts used by the handler on a budget. A report above a hard limit is a result and counts
// nothing: the handler decides whether to end. A job for a test counts nothing.
//
// Errors: as [budget.Report]. A job whose lease is lost counts all the same. In a handler's transaction call
// [budget.Report] on its engine.
func (j Job[In]) ReportUsage(ctx context.Context, usage budget.Usage) (budget.Result, error) {
	if j.isForTest() {
		return budget.Result{Outcome: budget.Ok}, nil
	}
	if j.eng == nil {
		return budget.Result{}, errNoWorker
	}
	usage.Key = cmp.Or(usage.Key, uuid.NewString()) // a repetition after an unknown outcome counts once
	return repeat(ctx, j.recorder, func() (budget.Result, error) { return j.eng.ReportUsage(ctx, usage) })
}
