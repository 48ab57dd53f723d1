package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Call creates an execution of a kind, once, and waits for its result without holding a worker:
//
//	thumb, err := worker.Call(ctx, job, "thumbnail", Resize, ResizeArgs{Image: image})
//	if err != nil {
//		return Page{}, err
//	}
//
// Call is a step with a name: if its result is stored, Call returns the result. Otherwise Call creates the called
// execution on the kind's lane, with the kind's policy and in the caller's namespace, and returns an error. The handler
// must return the error, wrapped or not, and the worker suspends the caller. When the called execution has ended, in
// any way, the handler runs again from its beginning. A crash at any point creates no second execution.
//
// If the called execution ends without success, Call stores the failure and returns an [*fferr.EndedError] with the
// execution's id. Its own policy has already retried it, so the failure is final: if the handler returns the error, the
// caller fails without a retry. The handler may also handle the error. Later runs get the same failure, even if the
// called execution is replayed. To call another execution, replay the caller from this step. If the caller failed with
// the call, and finished no later step, replay the called execution, then the caller: Call returns the new result.
//
// The called execution continues if the caller is cancelled or fails. Its tag [engine.CallerTag] names the caller. Its
// deadline and timeout come from its own policy. The caller's policy may limit waits, including this one. Retention
// keeps called executions until the caller has stored their results, or has ended.
//
// Errors: [fferr.ErrAwaiting] suspends; [*fferr.EndedError]; [fferr.ErrPruned] if the execution was deleted before its
// result was stored; [fferr.ErrInvalidInput] and [ErrLeaseLost] as [Step]; [*fferr.DecodeError] for a result
// that does not decode.
func Call[T, In, Out any](ctx context.Context, job Job[T], name string, kind engine.Kind[In, Out], args In) (Out, error) {
	var none Out
	result, err := job.call(ctx, name, engine.FormCall, []engine.ExecutionSpec{calledSpec(kind, args)}, func(results [][]byte) ([]byte, error) { return results[0], nil })
	if err != nil {
		return none, err
	}
	return resultOfCall(name, kind, result)
}

// CallAll is [Call] for each of several inputs: all executions are created, and the caller waits until all have ended.
// Results are in input order. The handler runs again once, after the last end.
//
//	pages, err := worker.CallAll(ctx, job, "pages", Render, inputs)
//
// If some end without success, the error joins theirs, in input order, and is stored. There may be up to
// [engine.MaxCalls] inputs; none is no call. All results together must fit into a step: three quarters of the engine's
// MaxPayload. If they don't, the caller fails. Once executions have been created, other inputs in new code have no effect.
//
// Errors: as [Call].
func CallAll[T, In, Out any](ctx context.Context, job Job[T], name string, kind engine.Kind[In, Out], inputs []In) ([]Out, error) {
	specs := make([]engine.ExecutionSpec, len(inputs))
	for i, args := range inputs {
		specs[i] = calledSpec(kind, args)
	}
	stored, err := job.call(ctx, name, engine.FormCallAll, specs, func(results [][]byte) ([]byte, error) { return json.Marshal(results) })
	if err != nil {
		return nil, err
	}
	var results [][]byte
	if err := json.Unmarshal(stored, &results); err != nil {
		return nil, failCall(&fferr.DecodeError{Kind: kind.Name, What: "results of the call " + strconv.Quote(name), Type: "[][]byte", Err: err})
	}
	outs := make([]Out, len(results))
	for i, result := range results {
		if outs[i], err = resultOfCall(name, kind, result); err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// resultOfCall decodes the result of a called execution.
func resultOfCall[In, Out any](name string, kind engine.Kind[In, Out], result []byte) (Out, error) {
	out, err := engine.Kind[Out, struct{}]{Name: kind.Name, Codec: kind.Codec}.DecodeArgs(result)
	if undecoded, ok := errors.AsType[*fferr.DecodeError](err); ok {
		undecoded.What = "result of the call " + strconv.Quote(name)
		err = failCall(undecoded)
	}
	return out, err
}

// call returns the stored result of a call. Without one, call creates the executions, suspends until all have ended,
// and stores their results together.
func (j Job[In]) call(
	ctx context.Context, name string, form engine.StepForm, specs []engine.ExecutionSpec, join func(results [][]byte) ([]byte, error),
) ([]byte, error) {
	p, stored, err := j.beginStep(ctx, name, form, nil)
	switch {
	case err != nil:
		return nil, err
	case j.isForTest():
		return nil, p.wrap(errNoTx)
	case stored == nil && len(specs) == 0:
		return join(nil)
	case stored != nil && stored.Outcome == engine.StepFailed:
		return nil, p.wrap(j.failureOfCall(name, stored.Result, len(stored.Called)))
	case stored != nil && stored.Outcome != engine.StepCalled:
		return stored.Result, nil
	}
	return inPart(ctx, j.parts(), Part{PartCall, name}, func(ctx context.Context) ([]byte, error) {
		if stored != nil {
			p.seq = stored.Seq
			return j.endCall(ctx, p, stored.Called, join)
		}
		if err := j.createCalled(ctx, p, specs); err != nil {
			return nil, p.wrap(err)
		}
		return nil, j.awaitCall(name)
	})
}

// endCall stores the results of a call together, and returns them. Until all executions have ended, it suspends.
func (j Job[In]) endCall(
	ctx context.Context, p *place, called []id.ExecutionID, join func(results [][]byte) ([]byte, error),
) ([]byte, error) {
	results, failures, err := j.resultsOfCall(ctx, called)
	if errors.Is(err, fferr.ErrNotEnded) {
		return nil, j.awaitCall(p.name)
	}
	record := engine.StepRecord{Lease: j.Lease, Name: p.name, Seq: p.seq, Form: p.form}
	switch {
	case err != nil:
		return nil, p.wrap(err)
	case len(failures) > 0:
		record.Outcome = engine.StepFailed
		record.Result, err = json.Marshal(failures)
	default:
		record.Result, err = join(results)
	}
	if err != nil {
		return nil, p.wrap(err)
	}
	var failed error
	if len(failures) > 0 {
		failed = j.failureOfCall(p.name, record.Result, len(called))
		record.Error = storable(failed.Error(), maxMessage)
	}
	recorded, err := j.recordStep(ctx, record)
	if err = cmp.Or(err, failed); err != nil {
		return nil, p.wrap(err)
	}
	return recorded.Result, nil
}

// createCalled creates the executions of a call. It repeats until the engine creates or refuses the executions, or ctx
// or the run ends.
func (j Job[In]) createCalled(ctx context.Context, p *place, specs []engine.ExecutionSpec) error {
	pause := backoff.Backoff{First: repeatFirst, Max: repeatMax}
	for {
		_, err := j.eng.Call(ctx, engine.CallSpec{Lease: j.Lease, Name: p.name, Seq: p.seq, Form: p.form, Executions: specs})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isLost(err):
			return lossOf(err)
		case j.recorder.hasStopped():
			return errStopped
		case errors.Is(err, fferr.ErrInvalidInput):
			return failCall(err)
		case !backoff.Wait(ctx, pause.Next()):
			return context.Cause(ctx)
		}
	}
}

// failedCall is the stored form of a called execution without success.
type failedCall struct {
	Execution id.ExecutionID        `json:"execution"`
	Outcome   state.TerminalOutcome `json:"outcome,omitempty"`
	Failure   string                `json:"failure,omitempty"`
	Gone      bool                  `json:"gone,omitempty"` // it was deleted
}

// err returns the error for the caller.
func (f *failedCall) err() error {
	if f.Gone {
		return fmt.Errorf("execution %s: %w", f.Execution, fferr.ErrPruned)
	}
	return &fferr.EndedError{Execution: f.Execution, Outcome: f.Outcome, Failure: f.Failure}
}

// resultsOfCall returns the results of called executions and the failed ones, or [fferr.ErrNotEnded] until all have
// ended.
func (j Job[In]) resultsOfCall(ctx context.Context, called []id.ExecutionID) ([][]byte, []failedCall, error) {
	ends, err := repeat(ctx, j.recorder, func() ([]engine.CalledResult, error) { return j.eng.CalledResults(ctx, called) })
	if err != nil {
		return nil, nil, err
	}
	results := make([][]byte, len(ends))
	var failures []failedCall
	for i, end := range ends {
		ended, _ := errors.AsType[*fferr.EndedError](end.Err)
		switch {
		case end.Err == nil:
			results[i] = end.Result
		case errors.Is(end.Err, fferr.ErrNotEnded):
			return nil, nil, end.Err
		case ended != nil:
			failures = append(failures, failedCall{Execution: end.Execution, Outcome: ended.Outcome, Failure: ended.Failure})
		default:
			failures = append(failures, failedCall{Execution: end.Execution, Gone: true})
		}
	}
	for i := range failures {
		failures[i].Failure = storable(failures[i].Failure, maxCallFailures/len(failures))
	}
	return results, failures, nil
}

// maxCallFailures is the size of the stored failures of a call together, in bytes. The failures may be longer in JSON.
const maxCallFailures = 64 << 10

// failureOfCall returns the error for the stored failures of a call of n executions.
func (j Job[In]) failureOfCall(name string, stored []byte, n int) error {
	var failures []failedCall
	if err := json.Unmarshal(stored, &failures); err != nil {
		return failCall(&fferr.DecodeError{Kind: j.Kind, What: "failures of the call " + strconv.Quote(name), Type: "[]failedCall", Err: err})
	}
	errs := make([]error, len(failures))
	for i := range failures {
		errs[i] = failures[i].err()
	}
	if len(errs) == 1 {
		return failCall(errs[0])
	}
	return failCall(fmt.Errorf("%d of %d called executions: %w", len(errs), n, errors.Join(errs...)))
}

// awaitCall returns an error that suspends the execution until the executions of a call have ended.
func (j Job[In]) awaitCall(name string) error {
	return j.steps.pauses(name, &later{verdict: suspend, wait: engine.SuspendSpec{Lease: j.Lease, ID: id.NewSuspensionID(), Call: name}})
}

// failCall returns a permanent failure of a call.
func failCall(err error) error { return &Fail{Class: policy.Permanent, Category: "call", Err: err} }

// calledSpec returns the spec of a called execution. A call always creates its own execution, even if the kind is
// unique or has a key.
func calledSpec[In, Out any](kind engine.Kind[In, Out], args In) engine.ExecutionSpec {
	spec := kind.Spec(args)
	spec.Unique, spec.IdempotencyKey, spec.BusinessKey = nil, "", id.BusinessKey{}
	return spec
}
