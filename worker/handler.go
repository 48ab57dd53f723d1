package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Job is one attempt at an execution, as its handler sees it: the arguments, and all that the claim told. Its Lease
// completes the execution inside the handler's own transaction, with [engine.Engine.WithTx]; what the handler then
// returns is recognised as a repetition and discarded.
type Job[In any] struct {
	Args In
	engine.Claimed

	eng   operations
	codec Codec
}

// Upstream is what one of the executions that this one depends on has left.
type Upstream struct {
	engine.UpstreamResult

	codec Codec
}

// Handle makes fn the handler of a kind of execution. The payload is decoded into In and the Out that fn returns
// becomes the result, both by the worker's [Codec], JSON by default. A []byte or [json.RawMessage] passes as it is; a
// struct{} ignores the payload or leaves no result. Without a payload In is its zero value.
//
// What fn returns decides how the attempt ends:
//
//   - nil: the execution is completed with the result.
//   - an error: the attempt failed, and the execution's retry policy decides whether another follows. [Permanent] and
//     [Fail] say more about the failure. A panic is such a failure too, of the category "panic", with the stack.
//   - anything, after the lease was lost: nothing is written. The context has been cancelled with [ErrLeaseLost].
//   - an error, after the attempt's own timeout: nothing is written; the background work ends the attempt.
//   - an error other than a [Fail], after the drain timeout: the work is given back, at no cost.
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
// A mistake in the arguments is told by [Worker.Run]: an empty or repeated kind, a nil fn. A handler registered while
// the worker runs serves its next run.
func Handle[In, Out any](w *Worker, kind string, fn func(ctx context.Context, job Job[In]) (Out, error)) {
	if fn == nil {
		w.register(kind, nil)
		return
	}
	w.register(kind, func(ctx context.Context, work *engine.Claimed) ([]byte, error) {
		job := Job[In]{Claimed: *work, eng: w.eng, codec: w.cfg.Codec}
		if err := decode(job.codec, work.Payload, &job.Args); err != nil {
			return nil, &Fail{Class: policy.Permanent, Category: "payload", Err: &payloadError{err}}
		}
		out, err := fn(ctx, job)
		if err != nil {
			return nil, err
		}
		result, err := encode(job.codec, out)
		if err != nil {
			return nil, &Fail{Class: policy.Permanent, Category: "result", Err: fmt.Errorf("encode the result: %w", err)}
		}
		return result, nil
	})
}

// A handler runs one execution: payload in, result out.
type handler func(ctx context.Context, work *engine.Claimed) ([]byte, error)

var errNoWorker = errors.New("the job was not made by a worker")

// Upstreams reads what the executions have left that this one depends on, in the order of their ids.
//
// Errors: those of [engine.Engine.UpstreamResults].
func (j Job[In]) Upstreams(ctx context.Context) ([]Upstream, error) {
	if j.eng == nil {
		return nil, errNoWorker
	}
	results, err := j.eng.UpstreamResults(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	upstreams := make([]Upstream, len(results))
	for i, result := range results {
		upstreams[i] = Upstream{UpstreamResult: result, codec: j.codec}
	}
	return upstreams, nil
}

// Decode turns the result into a value, as [Handle] turns a payload into arguments: without a result, as of an
// upstream that failed or has not ended, into stays as it is.
func (u Upstream) Decode(into any) error {
	if u.codec == nil {
		return errNoWorker
	}
	return decode(u.codec, u.Result, into)
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

func decode(codec Codec, data []byte, into any) error {
	switch into := into.(type) {
	case *[]byte:
		*into = data
	case *json.RawMessage:
		*into = data
	case *struct{}:
	default:
		if len(data) > 0 {
			return codec.Unmarshal(data, into)
		}
	}
	return nil
}

func encode(codec Codec, value any) ([]byte, error) {
	switch value := value.(type) {
	case []byte:
		return value, nil
	case json.RawMessage:
		return value, nil
	case struct{}:
		return nil, nil
	}
	return codec.Marshal(value)
}
