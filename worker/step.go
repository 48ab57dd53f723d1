package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Step runs fn once and stores its result. If the handler runs again, after a crash, a failure or a wait, Step returns the
// stored result without running fn.
//
//	charge, err := worker.Step(ctx, job, "charge", func(ctx context.Context) (Charge, error) {
//		return psp.Charge(ctx, job.Args.Card, worker.IdempotencyKey(ctx))
//	})
//	if err != nil {
//		return Receipt{}, err
//	}
//
// The name identifies the step within its execution; use [Key] in loops. Names that begin with "signal " belong to waits. The
// code between steps is ordinary Go and runs again each time. Steps may run in parallel and inside other steps. The result is
// encoded by the codec of the kind.
//
// fn runs again if the worker dies before its result is stored, so its effects happen at least once: pass
// [IdempotencyKey] to other systems, or use [StepTx] for writes in the same database. If fn fails, Step retries it as
// [Retry] says, by default not at all, and then returns fn's error. The handler should return this error.
//
// Errors: fn's errors; [fferr.ErrInvalidInput] for a name that is too long, is no valid text, has the prefix of waits,
// was used before in this run, or has another form stored, such as a [Sleep]; also for more than [engine.MaxSteps]
// steps, and for a result that is too large or can't be encoded; [*fferr.DecodeError] with the step if its stored
// result no longer decodes; [ErrLeaseLost] if another worker has the execution: nothing was stored.
func Step[In, Out any](
	ctx context.Context, job Job[In], name string, fn func(ctx context.Context) (Out, error), options ...StepOption,
) (Out, error) {
	return runStep(ctx, job, name, options, func(ctx context.Context, p *place) (Out, []byte, error) {
		var out Out
		var record engine.StepRecord
		err := p.try(ctx, func(ctx context.Context, _ *stepTry) (err error) {
			out, err = fn(ctx)
			return err
		})
		if err == nil {
			record, err = finished(p, job, out)
		}
		if err != nil {
			return out, nil, err
		}
		recorded, err := job.recordStep(ctx, record)
		if recorded.Repeated {
			return out, recorded.Result, err
		}
		return out, nil, err
	})
}

// StepTx is [Step] for writes in the same database: fn's writes by tx and its result are committed together, exactly
// once.
//
//	_, err = worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
//		return struct{}{}, books.Insert(ctx, tx, charge)
//	})
//
// fn may run again, in a new transaction, if the server aborts the transaction in favour of another, in an outage of
// the database, or if the answer to a commit is lost. If the first commit took effect, the repeated writes are rolled
// back. fn must not commit or roll back: a COMMIT among its statements fails the execution for good. The engine's
// operations join the transaction by [engine.Engine.WithTx].
func StepTx[In, Out any](
	ctx context.Context, job Job[In], name string, fn func(ctx context.Context, tx pgx.Tx) (Out, error), options ...StepOption,
) (Out, error) {
	return runStep(ctx, job, name, options, func(ctx context.Context, p *place) (Out, []byte, error) {
		var out Out
		var recorded engine.Recorded
		if job.isForTest() {
			return out, nil, errNoTx
		}
		err := p.try(ctx, func(ctx context.Context, held *stepTry) (err error) {
			recorded, err = job.eng.turnIn(ctx, func(tx pgx.Tx, _ *engine.Engine) (engine.StepRecord, error) {
				held.giveBack(ctx) // of a transaction that the server has aborted
				var err error
				if out, err = fn(ctx, tx); err != nil {
					held.rolledBack()
					return engine.StepRecord{}, err
				}
				return finished(p, job, out)
			}, nil, nil)
			return err
		})
		if recorded.Repeated {
			return out, recorded.Result, err
		}
		return out, nil, err
	})
}

// Sleep pauses the execution for d without holding a worker. The first call returns an error for the handler to return.
// After d, by the database's clock, the handler runs again and Sleep returns nil. Like a step, Sleep has a name, and
// its end is stored: a later attempt does not sleep again, and another d in new code does not move the end.
func Sleep[In any](ctx context.Context, job Job[In], name string, d time.Duration) error {
	p, stored, err := job.beginStep(ctx, name, engine.FormSleep, nil)
	if err != nil {
		return err
	}
	now := job.databaseNow()
	if stored != nil {
		return job.pauseUntil(p, stored.Result, now)
	}
	until := now.Add(max(d, 0)).Truncate(time.Millisecond)
	_, err = inPart(ctx, job.parts(), Part{PartSleep, name}, func(ctx context.Context) (struct{}, error) {
		recorded, err := job.recordStep(ctx, engine.StepRecord{
			Lease: job.Lease, Name: p.name, Seq: p.seq, Form: p.form, Outcome: engine.StepSlept, Result: pauseEnd(until),
		})
		if err != nil {
			return struct{}{}, p.wrap(err)
		}
		return struct{}{}, job.pauseUntil(p, recorded.Result, now)
	})
	return err
}

// Key joins the parts of a step's name, for steps in loops: Key("page", 3) is "page/3". A slash or a percent sign in the name
// is escaped, as all special characters of the other parts are, so other parts make another key.
func Key(name string, parts ...any) string {
	var key strings.Builder
	_, _ = escapeName.WriteString(&key, name) // a builder has no errors
	for _, part := range parts {
		key.WriteByte('/')
		key.WriteString(url.PathEscape(fmt.Sprint(part)))
	}
	return key.String()
}

var escapeName = strings.NewReplacer("%", "%25", "/", "%2F")

// IdempotencyKey returns a key for other systems, a UUID. In the function of a step the key depends only on the
// execution and the step's name, so all runs of the step get the same key. In a handler, outside steps, the key depends
// only on the execution. With any other context, and so in a test by [JobForTest], IdempotencyKey returns "".
func IdempotencyKey(ctx context.Context) string {
	of, ok := ctx.Value(stepKey{}).(stepOf)
	if !ok {
		return ""
	}
	return uuid.NewSHA1(uuid.UUID(of.execution.UUID()), []byte(of.step)).String()
}

type stepKey struct{}

// stepOf is a step of an execution, or "" for the handler outside steps.
type stepOf struct {
	execution id.ExecutionID
	step      string
}

// withStepKey adds a step to the context of its function, or the execution to the context of its handler.
func withStepKey(ctx context.Context, x id.ExecutionID, name string) context.Context {
	return context.WithValue(ctx, stepKey{}, stepOf{x, name})
}

// StepOption is an option of [Step], [StepTx] and [Turn].
type StepOption func(*stepOptions)

type stepOptions struct{ retry *policy.Retry }

// Retry retries a failing step within the attempt. The handler waits for the pauses, so give the policy few retries and a short
// Backoff: the execution's own policy retries the whole handler, which skips the finished steps. [Permanent] failures and
// categories that the policy doesn't list are not retried.
func Retry(retry policy.Retry) StepOption {
	return func(o *stepOptions) { o.retry = &retry }
}

// runStep returns the stored result of a step. If there is none, it calls run, which stores and returns a result. If
// run finds a stored result, runStep returns the stored one.
func runStep[In, Out any](
	ctx context.Context, job Job[In], name string, options []StepOption,
	run func(ctx context.Context, p *place) (Out, []byte, error),
) (Out, error) {
	var none Out
	p, stored, err := job.beginStep(ctx, name, engine.FormStep, options)
	if err != nil {
		return none, err
	}
	var result []byte
	if stored != nil {
		result = stored.Result
	} else {
		var found []byte
		out, err := inPart(ctx, job.parts(), Part{PartStep, name}, func(ctx context.Context) (out Out, err error) {
			if out, found, err = run(withStepKey(ctx, job.ID, name), p); err != nil {
				err = p.wrap(err)
			}
			return out, err
		})
		if err != nil {
			return none, err
		}
		if found == nil {
			return out, nil
		}
		result = found
	}
	out, err := engine.Kind[Out, struct{}]{Name: job.Kind, Codec: job.codec}.DecodeArgs(result)
	if undecoded, ok := errors.AsType[*fferr.DecodeError](err); ok {
		undecoded.What = "result of step " + strconv.Quote(name)
		return none, &Fail{Class: policy.Permanent, Category: "step", Err: undecoded}
	}
	return out, err
}

// finished returns the record of a step that has a result.
func finished[In, Out any](p *place, job Job[In], out Out) (engine.StepRecord, error) {
	record := engine.StepRecord{
		Lease: job.Lease, Name: p.name, Seq: p.seq, Form: p.form, Tries: p.tries, Took: time.Since(p.began),
	}
	if p.failure != nil {
		record.Error = storable(p.failure.Error(), maxMessage)
	}
	var err error
	if record.Result, err = (engine.Kind[struct{}, Out]{Codec: job.codec}).EncodeResult(out); err != nil {
		return record, p.refuse(fmt.Errorf("encode the result: %w", err))
	}
	return record, nil
}

// place is a step of this run.
type place struct {
	name    string
	form    engine.StepForm
	seq     int
	retry   *document.Retry
	began   time.Time
	tries   int
	failure error // of the last failed try
}

// try calls fn until it succeeds or the policy ends the retries. A failed try gives back its reservations.
func (p *place) try(ctx context.Context, fn func(ctx context.Context, held *stepTry) error) error {
	p.began = time.Now()
	for {
		tryCtx, held := withTry(ctx)
		err := fn(tryCtx, held)
		p.tries++
		if err == nil {
			return nil
		}
		p.failure = err
		if _, goesOn := isLater(err); goesOn || errors.Is(err, ErrLeaseLost) || errors.Is(context.Cause(ctx), ErrLeaseLost) {
			return err // the handler ends, or the lease
		}
		held.giveBack(ctx)
		if p.retry == nil || ctx.Err() != nil {
			return err
		}
		failure := failureOf(err)
		if !p.retry.Retries(failure.Class, document.Category(failure.Class, []byte(failure.Category)), p.tries-1) {
			return err
		}
		pause := time.Duration(p.retry.PauseMs(p.tries-1, rand.Float64())) * time.Millisecond
		if !backoff.Wait(ctx, pause) {
			return err
		}
	}
}

// wrap adds the step's name to an error.
func (p *place) wrap(err error) error { return fmt.Errorf("step %q: %w", p.name, err) }

// refuse returns a permanent failure of a step.
func (p *place) refuse(err error) error {
	return &Fail{Class: policy.Permanent, Category: "step", Err: err}
}
