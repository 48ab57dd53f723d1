package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// Signal declares a signal once, for programs that send it and handlers that wait for it. T is the type of its payload,
// encoded as those of a [Kind]. A Signal is stateless, usually a package variable, and safe for concurrent use.
//
//	var Approved = engine.Signal[Approval]{Name: "approved"}
//
//	err := Approved.Send(ctx, eng, execution, Approval{By: "ada"})
//	err = Approved.SendTo(ctx, eng, "order", "4711", Approval{By: "ada"}) // by a business key
//	approval, err := Approved.Await(ctx, job, engine.Wait{Timeout: 72 * time.Hour}) // in a handler
type Signal[T any] struct {
	Name  string // required; at most 256 bytes
	Codec Codec  // default [JSON]
}

// Wait has the options of [Signal.Await], [AwaitAny] and [AwaitAll]. The zero value waits without a timeout.
type Wait struct {
	// Timeout limits the wait, from the handler's return on. Default: the policy's, or none.
	Timeout time.Duration

	// OnTimeout is the effect of the timeout. By default the handler runs again and gets [fferr.ErrWaitTimeout].
	OnTimeout OnTimeout

	// Where requires that a SQL/JSON path holds for the payload: see [Condition.Where].
	Where string

	// Key is the key of the waitpoint: that of the Waitpoint method of a worker's job, if its token was handed out. Default:
	// the name of the signal.
	Key id.WaitpointKey

	// ResumeDelay is how long after the signal the handler runs again. Default: at once.
	ResumeDelay time.Duration

	// Asked is shown to people by [Engine.Waits], and Reason as the reason why the execution is blocked.
	Asked  string
	Reason state.BlockingReason
}

// Awaiter is a job of a worker that can wait: worker.Job.
type Awaiter interface {
	// AwaitSignals returns the signals that satisfied a wait of this execution. If the wait is not over, the error is
	// [fferr.ErrAwaiting]. The handler returns it, and the worker suspends the execution. The lease of spec is the job's.
	AwaitSignals(ctx context.Context, spec SuspendSpec) ([]ReceivedSignal, error)
}

// Await waits for a signal:
//
//	approval, err := Approved.Await(ctx, job, engine.Wait{Timeout: 72 * time.Hour})
//	if err != nil {
//		return out, err
//	}
//
// At first it returns an error for the handler to return, as it is or wrapped. The worker then suspends the execution,
// which uses no worker, connection or retry while it waits. When the signal has arrived, the handler runs again from its
// beginning, and Await returns the signal; so do later attempts. A second Await for the same signal waits for the next one.
// To ask for the signal once, by a mail or a request to another service, do it in a worker.Step before the wait.
//
// Errors: [fferr.ErrAwaiting] suspends; [fferr.ErrWaitTimeout] after the timeout; [fferr.DecodeError]; [fferr.ErrInvalidInput]
// for a wait that is not possible; those of [Engine.StepResults] and [Step.Signals].
func (s Signal[T]) Await(ctx context.Context, job Awaiter, wait Wait) (value T, err error) {
	signals, err := job.AwaitSignals(ctx, wait.spec(s.condition(wait)))
	if err != nil {
		return value, err
	}
	return s.Decode(signals[0])
}

// AwaitEach waits until n distinct signals have arrived, such as those of two of three reviewers with
// [DistinctSources]. It returns all that have arrived by then, in the order of their arrival: also those that did not
// count, such as the second one of a reviewer.
//
// keys are those of the waitpoints if each reviewer has a link of their own, by the Waitpoint method of a worker's job. Each
// link is a source:
//
//	approvals, err := Approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{}, "ada", "grace", "linus")
//
// Errors: as [Signal.Await].
func (s Signal[T]) AwaitEach(
	ctx context.Context, job Awaiter, n int, distinct Distinct, wait Wait, keys ...id.WaitpointKey,
) ([]T, error) {
	c := AtLeast(n, distinct, s.Name).Where(wait.Where)
	switch {
	case wait.Key != "" && len(keys) > 0:
		return nil, core.Invalid("Wait.Key", "has no effect beside the keys of several waitpoints")
	case wait.Key != "":
		c = c.At(wait.Key)
	case len(keys) > 0:
		c = c.At(keys...)
	}
	signals, err := job.AwaitSignals(ctx, wait.spec(c))
	if err != nil {
		return nil, err
	}
	values := make([]T, len(signals))
	for i, signal := range signals {
		if values[i], err = s.Decode(signal); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Received waits for this signal, as a member of [AwaitAny] or [AwaitAll]. It is the function [Received] with its name.
func (s Signal[T]) Received() Condition { return Received(s.Name) }

// Match returns the payload of the first of the signals with this name. ok is false if none of them has it.
//
//	won, err := engine.AwaitAny(ctx, job, engine.Wait{}, Approved.Received(), Rejected.Received())
//	if err != nil {
//		return out, err
//	}
//	if approval, ok, err := Approved.Match(won); ok {
//
// Errors: [fferr.DecodeError].
func (s Signal[T]) Match(signals ...ReceivedSignal) (value T, ok bool, err error) {
	for _, signal := range signals {
		if signal.Name == s.Name {
			value, err = s.Decode(signal)
			return value, true, err
		}
	}
	return value, false, nil
}

// Decode returns the payload of a received signal, whatever its name.
//
// Errors: [fferr.DecodeError].
func (s Signal[T]) Decode(signal ReceivedSignal) (T, error) {
	return core.Decode[T](s.Codec, s.Name, "signal", signal.Payload)
}

func (s Signal[T]) condition(wait Wait) Condition {
	c := s.Received().Where(wait.Where)
	if wait.Key != "" {
		c = c.At(wait.Key)
	}
	return c
}

func (w Wait) spec(c Condition) SuspendSpec {
	return SuspendSpec{
		Condition: c, Timeout: w.Timeout, OnTimeout: w.OnTimeout, ResumeDelay: w.ResumeDelay, Asked: w.Asked, Reason: w.Reason,
	}
}

// AwaitAny waits for one of several signals and returns the first: its Name says which. Decode its payload with
// [Signal.Match]. In the transaction of the first the waitpoints of the others are closed; if they come, they are kept for
// a later wait. Wait.Key and Wait.Where are not used: give [Received] conditions their own.
//
// Errors: as [Signal.Await].
func AwaitAny(ctx context.Context, job Awaiter, wait Wait, members ...Condition) (ReceivedSignal, error) {
	signals, err := awaitMembers(ctx, job, wait, AnyOf(members...))
	if err != nil {
		return ReceivedSignal{}, err
	}
	return signals[0], nil
}

// AwaitAll waits for all of several conditions and returns the signals that satisfied them, in the order of their arrival.
// Otherwise it is [AwaitAny].
func AwaitAll(ctx context.Context, job Awaiter, wait Wait, members ...Condition) ([]ReceivedSignal, error) {
	return awaitMembers(ctx, job, wait, AllOf(members...))
}

func awaitMembers(ctx context.Context, job Awaiter, wait Wait, c Condition) ([]ReceivedSignal, error) {
	switch {
	case wait.Key != "":
		return nil, core.Invalid("Wait.Key", "is not used for several signals: give each condition its own by At")
	case wait.Where != "":
		return nil, core.Invalid("Wait.Where", "is not used for several signals: give each condition its own by Where")
	}
	return job.AwaitSignals(ctx, wait.spec(c))
}

// Taker is the transaction of a turn: *worker.TurnTx.
type Taker interface {
	// TakeSignal takes the oldest kept signal of a name with the turn: see [Engine.TakeSignal].
	TakeSignal(ctx context.Context, name string) (signal ReceivedSignal, ok bool, err error)
}

// Take takes the oldest signal that is kept for a later wait, in the transaction of a turn:
//
//	err := worker.Turn(ctx, job, "decide", func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
//		approval, ok, err := Approved.Take(ctx, t)
//		if err != nil || !ok {
//			return err
//		}
//		return drafts.Approve(ctx, tx, job.Args, approval.By)
//	})
//
// ok is false if no signal is kept: Take does not wait. The signal is taken if the turn is committed, and stays otherwise.
// When the handler runs again, the turn's function is not called: store what the code behind the turn needs by tx.
// [Engine.StepResults] shows the signal with the turn's step: see [Step.Signals].
//
// Errors: [fferr.DecodeError]; those of [Engine.TakeSignal].
func (s Signal[T]) Take(ctx context.Context, t Taker) (value T, ok bool, err error) {
	signal, ok, err := t.TakeSignal(ctx, s.Name)
	if err != nil || !ok {
		return value, false, err
	}
	value, err = s.Decode(signal)
	return value, true, err
}

// SendOption is an option of [Signal.Send].
type SendOption func(*SignalSpec)

// From names the sender of a signal: "user" and "ada". [DistinctSources] counts pairs of them.
func From(sourceType, source string) SendOption {
	return func(s *SignalSpec) { s.SourceType, s.Source = sourceType, source }
}

// Once makes repeated sends with one key one signal: see [SignalSpec.IdempotencyKey].
func Once(key string) SendOption { return func(s *SignalSpec) { s.IdempotencyKey = key } }

// Send sends the signal to an execution. It is [Engine.Signal] with [Signal.Spec] and the options, in one transaction, or
// in the caller's with [Engine.WithTx].
//
// Errors: as [Engine.Signal]; [fferr.ErrInvalidInput] for a value that can't be encoded. Each call sends another signal
// unless [Once] is given.
func (s Signal[T]) Send(ctx context.Context, eng *Engine, x id.ExecutionID, value T, options ...SendOption) error {
	spec, err := s.Spec(x, value)
	if err != nil {
		return core.Wrap("signal execution", err)
	}
	for _, option := range options {
		option(&spec)
	}
	_, err = eng.Signal(ctx, spec)
	return err
}

// SendTo sends the signal to the execution that has a business key, such as "order" and "4711". Otherwise it is
// [Signal.Send]. It takes no further statement.
//
// Errors: as [Signal.Send]; [fferr.ErrNotFound] if no execution has the key: none was created with it, or retention has deleted
// it, or a flow has the key.
func (s Signal[T]) SendTo(ctx context.Context, eng *Engine, name, value string, payload T, options ...SendOption) error {
	key := id.BusinessKey{Name: name, Value: value}
	spec, err := s.Spec(id.ExecutionID{}, payload)
	if err == nil {
		err = checkBusinessKey(key) // an empty one would be none
	}
	if err != nil {
		return core.Wrap("signal execution", err)
	}
	spec.BusinessKey = key
	for _, option := range options {
		option(&spec)
	}
	_, err = eng.Signal(ctx, spec)
	return err
}

// Spec returns the spec of a signal with the given payload, for [Engine.Signal] and [Engine.SignalWaitpoint].
//
// Errors: [fferr.ErrInvalidInput] for a value that can't be encoded.
func (s Signal[T]) Spec(x id.ExecutionID, value T) (SignalSpec, error) {
	payload, err := core.Encode(s.Codec, value)
	if err != nil {
		return SignalSpec{}, core.InvalidBecause("payload", fmt.Errorf("cannot be encoded: %w", err))
	}
	return SignalSpec{Execution: x, Name: s.Name, Payload: payload}, nil
}
