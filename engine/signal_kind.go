package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// Signal declares a signal once, for senders and handlers. T is the type of the payload, encoded like the arguments of
// a [Kind]. A Signal is usually a package variable, and safe for concurrent use.
//
//	var Approved = engine.Signal[Approval]{Name: "approved"}
//
//	err := Approved.Send(ctx, eng, execution, Approval{By: "ada"})
//	err = Approved.SendTo(ctx, eng, "order", "4711", Approval{By: "ada"}) // by a business key
type Signal[T any] struct {
	Name  string // required; at most 256 bytes
	Codec Codec  // default [JSON]
}

// Wait has the options of [Signal.Await], [AwaitAny] and [AwaitAll].
type Wait struct {
	// Timeout limits the wait, from the handler's return on. Default: the policy's, or none.
	Timeout time.Duration

	// OnTimeout is the effect of the timeout. By default the handler runs again, and the wait is
	// [fferr.ErrWaitTimeout].
	OnTimeout OnTimeout

	// Where is a condition on the payload, as a SQL/JSON path: see [Condition.Where].
	Where string

	// Key is the key of the waitpoint, if a token was created by Job.Waitpoint. Default: the name of the signal.
	Key id.WaitpointKey

	// ResumeDelay is the time between the signal and the next run of the handler.
	ResumeDelay time.Duration

	// Asked is the question shown to people by [Engine.Waits]. Reason is the blocking reason.
	Asked  string
	Reason state.BlockingReason
}

// Awaiter is a worker's job: worker.Job.
type Awaiter interface {
	// AwaitSignals returns the signals that satisfied a wait of the job. Before, the error is [fferr.ErrAwaiting]: the
	// handler returns the error, and the worker suspends the execution. The job fills in the lease.
	AwaitSignals(ctx context.Context, spec SuspendSpec) ([]ReceivedSignal, error)
}

// Await waits for a signal:
//
//	approval, err := Approved.Await(ctx, job, engine.Wait{Timeout: 72 * time.Hour})
//	if err != nil {
//		return out, err
//	}
//
// Until the signal arrives, Await returns an error for the handler to return, as it is or wrapped. The worker then
// suspends the execution, which uses no worker, connection or retry meanwhile. After the signal the handler runs again
// from the beginning, and Await returns the signal, also in later attempts. A second Await for the same signal waits
// for the next one. To ask for the signal once, for example by mail, use a worker.Step before Await.
//
// Errors: [fferr.ErrAwaiting] suspends; [fferr.ErrWaitTimeout] after the timeout; [fferr.DecodeError];
// [fferr.ErrInvalidInput] for an impossible wait; as [Engine.StepResults] and [Step.Signals].
func (s Signal[T]) Await(ctx context.Context, job Awaiter, wait Wait) (value T, err error) {
	signals, err := job.AwaitSignals(ctx, wait.spec(s.condition(wait)))
	if err != nil {
		return value, err
	}
	return s.Decode(signals[0])
}

// AwaitEach waits for n distinct signals, such as the approvals by two of three reviewers with [DistinctSources]. It
// returns all signals received by then, in order of arrival, including signals that did not count, such as a
// reviewer's second one.
//
// Pass the keys of the waitpoints if each reviewer has a link, by Job.Waitpoint. Each link is a source:
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

// Received waits for this signal, as a member of [AwaitAny] or [AwaitAll].
func (s Signal[T]) Received() Condition { return Received(s.Name) }

// Match returns the payload of the first signal with this name. ok is false if there is none.
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

// Decode returns the payload of a received signal with any name.
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

// AwaitAny waits for one of several signals and returns the first: compare its Name, and decode the payload with
// [Signal.Match]. The same transaction closes the other waitpoints; the other signals, if sent, are kept for a later
// wait. Wait.Key and Wait.Where are refused: the [Received] conditions have their own.
//
// Errors: as [Signal.Await].
func AwaitAny(ctx context.Context, job Awaiter, wait Wait, members ...Condition) (ReceivedSignal, error) {
	signals, err := awaitMembers(ctx, job, wait, AnyOf(members...))
	if err != nil {
		return ReceivedSignal{}, err
	}
	return signals[0], nil
}

// AwaitAll is [AwaitAny] for all of several conditions. It returns the signals that satisfied them, in order of
// arrival.
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
	// TakeSignal is [Engine.TakeSignal] in the turn's transaction.
	TakeSignal(ctx context.Context, name string) (signal ReceivedSignal, ok bool, err error)
}

// Take takes the oldest signal kept for a later wait, in the transaction of a turn:
//
//	err := worker.Turn(ctx, job, "decide", func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
//		approval, ok, err := Approved.Take(ctx, t)
//		if err != nil || !ok {
//			return err
//		}
//		return drafts.Approve(ctx, tx, job.Args, approval.By)
//	})
//
// ok is false if no signal is kept: Take does not wait. The signal is taken if the turn commits. When the handler runs
// again, the turn's function is not called: store values needed later by tx. [Step.Signals] of the turn's step has the
// signal.
//
// Errors: [fferr.DecodeError]; as [Engine.TakeSignal].
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

// From names the sender of a signal, such as "user" and "ada": see [SignalSpec.Source].
func From(sourceType, source string) SendOption {
	return func(s *SignalSpec) { s.SourceType, s.Source = sourceType, source }
}

// Once makes repeated sends with the same key one signal: see [SignalSpec.IdempotencyKey].
func Once(key string) SendOption { return func(s *SignalSpec) { s.IdempotencyKey = key } }

// Send sends the signal to an execution: see [Engine.Signal]. Each call sends another signal unless [Once] is given.
//
// Errors: as [Engine.Signal]; [fferr.ErrInvalidInput] for a value that can't be encoded.
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

// SendTo is [Signal.Send] to the execution that has a business key, such as "order" and "4711".
//
// Errors: as [Signal.Send]; [fferr.ErrNotFound] if no execution has the key, for example because a flow has it.
func (s Signal[T]) SendTo(ctx context.Context, eng *Engine, name, value string, payload T, options ...SendOption) error {
	key := id.BusinessKey{Name: name, Value: value}
	spec, err := s.Spec(id.ExecutionID{}, payload)
	if err == nil {
		err = checkBusinessKey(key) // an empty key would mean none
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

// Spec returns a signal with the given payload, for [Engine.Signal] and [Engine.SignalWaitpoint].
//
// Errors: [fferr.ErrInvalidInput] for a value that can't be encoded.
func (s Signal[T]) Spec(x id.ExecutionID, value T) (SignalSpec, error) {
	payload, err := core.Encode(s.Codec, value)
	if err != nil {
		return SignalSpec{}, core.InvalidBecause("payload", fmt.Errorf("cannot be encoded: %w", err))
	}
	return SignalSpec{Execution: x, Name: s.Name, Payload: payload}, nil
}
