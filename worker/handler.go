package worker

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Job is one attempt at an execution, as its handler sees it: the arguments, and all that the claim returned. [Job.Complete]
// completes it inside the handler's own transaction.
type Job[In any] struct {
	Args In
	engine.Claimed

	eng    operations
	encode func(out any) ([]byte, error)
}

// Handle makes fn the handler of a kind of execution, in the lane of the kind unless [Config.Lanes] says otherwise. The
// payload is decoded into In and the Out that fn returns becomes the result, as [engine.Kind] says.
//
// What fn returns decides how the attempt ends:
//
//   - nil: the execution is completed with the result.
//   - an error: the attempt failed, and the execution's retry policy decides whether another follows. [Permanent] and
//     [Fail] say more about the failure. A panic is such a failure too, of the category "panic", with the stack as its detail.
//   - [Job.Delay], [Job.WaitForChildren]: nothing has failed, and the same attempt goes on later.
//   - anything, after the lease was lost: nothing is written. The context has been cancelled with [ErrLeaseLost], or, of
//     an execution that was cancelled, [ErrCancelled].
//   - an error, after the attempt's own timeout: nothing is written; the background work ends the attempt.
//   - another error than these, after the drain timeout: the work is given back, at no cost.
//
// A payload that cannot be decoded and a result that cannot be encoded or is too large are permanent failures, of
// the categories "payload" and "result".
//
// A worker leaves executions of other kinds where they are, for workers that have handlers for them: in a rolling
// deploy those of the old version and of the new one may share a lane. Of what nobody has taken for a minute the log
// tells, and [engine.Engine.WaitingKinds].
//
// An execution may be handled more than once: its worker may die before the result is committed. fn must bear that.
//
// A mistake in the arguments is an error of [Worker.Run]: a kind that [engine.Kind.Validate] refuses, one that has a handler
// already, a nil fn. A handler registered while the worker runs serves its next run.
func Handle[In, Out any](w *Worker, kind engine.Kind[In, Out], fn func(ctx context.Context, job Job[In]) (Out, error)) {
	var run handler
	if fn != nil {
		run = func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
			return handle(ctx, w.eng, work, kind, fn)
		}
	}
	w.register(kind.Name, kind.Lane, kind.Validate(), run)
}

// handle runs one execution: payload in, result out.
func handle[In, Out any](
	ctx context.Context, eng operations, work *engine.Claimed,
	kind engine.Kind[In, Out], fn func(ctx context.Context, job Job[In]) (Out, error),
) ([]byte, error) {
	args, err := kind.DecodeArgs(work.Payload)
	if err != nil {
		return nil, &Fail{Class: policy.Permanent, Category: "payload", Err: err}
	}
	out, err := fn(ctx, Job[In]{Args: args, Claimed: *work, eng: eng, encode: encoderOf(kind)})
	if err != nil {
		return nil, err
	}
	result, err := kind.EncodeResult(out)
	if err != nil {
		return nil, &Fail{Class: policy.Permanent, Category: "result", Err: fmt.Errorf("encode the result: %w", err)}
	}
	return result, nil
}

// A handler is [handle] for one kind.
type handler func(ctx context.Context, work *engine.Claimed) ([]byte, error)

var errNoWorker = errors.New("the job was not made by a worker")

// Upstreams reads what the executions have left that this one depends on, in the order of their ids. The kind of each
// decodes its result: [engine.Kind.ResultOf].
//
// Errors: those of [engine.Engine.UpstreamResults].
func (j Job[In]) Upstreams(ctx context.Context) ([]engine.UpstreamResult, error) {
	if j.eng == nil {
		return nil, errNoWorker
	}
	return j.eng.UpstreamResults(ctx, j.ID)
}

// Complete completes the execution with a result, of the kind's Out, in a transaction of the handler's: that and the
// handler's effects in the same database are kept together, and so happen once, whatever crashes. After the commit the
// handler returns the same result, or any other, and no error: what it returns is recognised as a repetition and dropped.
// In [engine.Engine.InTx] the commit wakes the workers of what the completion releases.
//
//	return out, eng.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error {
//		if _, err := tx.Exec(ctx, "UPDATE accounts …"); err != nil {
//			return err
//		}
//		return job.Complete(ctx, tx, out)
//	})
//
// Errors: those of [engine.Engine.CompleteExecution], which leave tx usable: roll it back. [engine.ErrInvalidInput] for an out
// of another type, or one that cannot be encoded.
func (j Job[In]) Complete(ctx context.Context, tx pgx.Tx, out any) error {
	const op = "complete execution"
	if j.eng == nil {
		return errNoWorker
	}
	result, err := j.encode(out)
	if err != nil {
		return engine.Classify(op, &engine.InputError{Field: "out", Reason: err.Error()})
	}
	return j.eng.completeIn(ctx, tx, j.Lease, result)
}

// encoderOf returns what encodes a result of a kind.
func encoderOf[In, Out any](kind engine.Kind[In, Out]) func(out any) ([]byte, error) {
	return func(out any) ([]byte, error) {
		value, ok := out.(Out)
		if !ok {
			return nil, fmt.Errorf("is a %T, and the results of %s are of type %s", out, kind.Name, reflect.TypeFor[Out]())
		}
		return kind.EncodeResult(value)
	}
}

// Progress records how far the attempt has come, in percent, and a message for people; an empty one keeps the last.
//
// Errors: those of [engine.Engine.ReportProgress]. A refusal of the lease means that the next renewal cancels ctx.
func (j Job[In]) Progress(ctx context.Context, percent int, message string) error {
	if j.eng == nil {
		return errNoWorker
	}
	p := engine.Progress{Percent: &percent}
	if message != "" {
		p.Message = &message
	}
	return j.eng.ReportProgress(ctx, j.Lease, p)
}
