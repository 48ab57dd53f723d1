package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Kind declares a kind of execution once, for those who create, handle and read it: In is what goes in, Out what comes
// out. It is a value without state, usually a package's variable, and safe for concurrent use.
//
//	var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
//
//	created, err := Resize.Create(ctx, eng, ResizeArgs{Image: "cat.png", Width: 640})
//	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) { … })
//	result, err := Resize.Result(ctx, eng, created.ID)
//
// A []byte or [json.RawMessage] is stored as it is; a struct{} is no payload, and no result. Everything else goes
// through Codec. Where nothing is stored, it reads as the zero value.
//
// The database knows a kind by its name alone. Two declarations of one name with different types agree as far as their
// codecs do: with [JSON] a field that only one of them has is ignored by the other or reads as zero, and a value of
// another shape is a [DecodeError]: for a handler a permanent failure of the category "payload".
type Kind[In, Out any] struct {
	// Name is what executions of this kind are stored under. Required; at most 255 bytes.
	Name string

	// Lane is where executions are created, and where workers that handle the kind look for them. Default [DefaultLane].
	Lane id.LaneID

	// Policy is that of each execution. Default nil: that of [ExecutionSpec].
	Policy *policy.Execution

	// Codec turns In and Out into stored bytes and back. Default [JSON].
	Codec Codec
}

// Codec turns values into stored bytes and back.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, into any) error
}

// JSON is the [Codec] of encoding/json.
type JSON struct{}

// Marshal is [json.Marshal].
func (JSON) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal is [json.Unmarshal].
func (JSON) Unmarshal(data []byte, into any) error { return json.Unmarshal(data, into) }

// DecodeError is a stored payload or result that does not decode into the type of a [Kind]. Its text never holds what is
// stored; that of Err may quote it.
type DecodeError struct {
	Kind string // its name
	What string // "payload" or "result"
	Type string // the Go type
	Err  error  // the codec's
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("%s of kind %q does not decode into %s", e.What, e.Kind, e.Type)
}

// Unwrap gives the codec's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// Validate refuses a declaration of which no execution can be created.
//
// Errors: [ErrInvalidInput] naming the field, as "Kind.Name" or "Kind.Policy.Retry.MaxRetries".
func (k Kind[In, Out]) Validate() error {
	if err := k.checkName(); err != nil {
		return err
	}
	if k.Lane != "" {
		if err := k.Lane.Validate(); err != nil {
			return invalidBecause("Kind.Lane", err)
		}
	}
	if k.Policy != nil {
		if err := k.Policy.Validate(); err != nil {
			return invalidPolicy("Kind.Policy", err)
		}
	}
	return nil
}

func (k Kind[In, Out]) checkName() error {
	if k.Name == "" {
		return invalid("Kind.Name", "is empty")
	}
	return checkText("Kind.Name", k.Name, maxKind)
}

// Spec describes an execution of this kind, for a flow's node, for a batch, or to be given a key, a priority or tags
// before it is created. Arguments that cannot be encoded are an error of the creation, [ErrInvalidInput].
func (k Kind[In, Out]) Spec(args In) ExecutionSpec {
	spec := ExecutionSpec{Kind: k.Name, Lane: k.Lane, Policy: k.Policy}
	var err error
	if spec.Payload, err = encode(k.Codec, args); err != nil {
		spec.mistake = invalidBecause("payload", fmt.Errorf("cannot be encoded: %w", err))
	}
	return spec
}

// Create creates an execution of this kind: [Engine.CreateExecution] of [Kind.Spec] with the options, in one transaction, or,
// on [Engine.WithTx], as a part of the caller's. Each call creates another one, unless [WithKey] says otherwise.
//
// Errors: those of [Engine.CreateExecution]; [ErrInvalidInput] for arguments that cannot be encoded.
func (k Kind[In, Out]) Create(ctx context.Context, eng *Engine, args In, options ...CreateOption) (Created, error) {
	const op = "create execution"
	create := kindCreation{ExecutionSpec: k.Spec(args)}
	for _, option := range options {
		if option == nil {
			return Created{}, wrap(op, invalid("options", "has a nil option"))
		}
		option(&create)
	}
	switch {
	case create.after < 0:
		return Created{}, wrap(op, invalid("After", "is negative"))
	case create.after > 0 && create.mistake == nil:
		now, err := eng.Now(ctx)
		if err != nil {
			return Created{}, wrap(op, err)
		}
		create.DelayUntil = now.Add(create.after)
	}
	return eng.CreateExecution(ctx, create.ExecutionSpec)
}

// CreateOption says something about an execution that [Kind.Create] creates. All else stands in an [ExecutionSpec].
type CreateOption func(*kindCreation)

// kindCreation is a spec with what cannot be filled in before the database's time is known.
type kindCreation struct {
	ExecutionSpec
	after time.Duration
}

// WithKey makes repeated creations one: see [ExecutionSpec.IdempotencyKey].
func WithKey(key id.IdempotencyKey) CreateOption {
	return func(c *kindCreation) { c.IdempotencyKey = key }
}

// After keeps the execution from being claimed for that long, by the database's clock, which it asks first.
func After(d time.Duration) CreateOption {
	return func(c *kindCreation) { c.after = d }
}

// WithTag sets a tag: see [ExecutionSpec.Tags].
func WithTag(key, value string) CreateOption {
	return func(c *kindCreation) {
		if c.Tags == nil {
			c.Tags = make(map[string]string, 1)
		}
		c.Tags[key] = value
	}
}

// WithPriority sets the priority: see [ExecutionSpec.Priority].
func WithPriority(priority int) CreateOption {
	return func(c *kindCreation) { c.Priority = priority }
}

// Result returns what an execution of this kind has left. That it is of this kind is not checked. One query; locks
// nothing.
//
// Errors: [ErrNotEnded]: it has not ended yet; [*EndedError]: it has, without success; [ErrNotFound]; [*DecodeError];
// [ErrInvalidInput] for a kind without a name.
func (k Kind[In, Out]) Result(ctx context.Context, eng *Engine, x id.ExecutionID) (Out, error) {
	return k.read(func() ([]byte, error) { return eng.ExecutionResult(ctx, x) })
}

// Await is [Kind.Result] for who waits: it returns when the execution has ended, or with ctx. It is [Engine.AwaitExecution],
// which says what waiting costs.
//
// Errors: those of [Kind.Result] but [ErrNotEnded]; the error of ctx.
func (k Kind[In, Out]) Await(ctx context.Context, eng *Engine, x id.ExecutionID) (Out, error) {
	return k.read(func() ([]byte, error) { return eng.AwaitExecution(ctx, x) })
}

// read decodes a result that read returns.
func (k Kind[In, Out]) read(read func() ([]byte, error)) (Out, error) {
	const op = "read result"
	var none Out
	if err := k.checkName(); err != nil {
		return none, wrap(op, err)
	}
	stored, err := read()
	if err != nil {
		return none, err
	}
	out, err := k.decodeResult(stored)
	if err != nil {
		return none, fmt.Errorf("%s: %w", op, err)
	}
	return out, nil
}

// ResultOf returns what an upstream of this kind has left, out of [Engine.UpstreamResults].
//
// Errors: [ErrNotEnded] and [*EndedError] for an upstream that has left none, as a quorum may have; [ErrPruned] for one that is
// Gone; [*DecodeError]; [ErrInvalidInput] for an upstream of another kind.
func (k Kind[In, Out]) ResultOf(upstream UpstreamResult) (Out, error) {
	const op = "read upstream result"
	var none Out
	if err := k.checkName(); err != nil {
		return none, wrap(op, err)
	}
	if upstream.Gone {
		return none, wrap(op, fmt.Errorf("execution %s: %w", upstream.Execution, ErrPruned))
	}
	if upstream.Kind != k.Name {
		return none, wrap(op, invalid("upstream", fmt.Sprintf("is of the kind %q, not %q", upstream.Kind, k.Name)))
	}
	if err := upstream.ended(); err != nil {
		return none, wrap(op, err)
	}
	out, err := k.decodeResult(upstream.Result)
	if err != nil {
		return none, fmt.Errorf("%s: %w", op, err)
	}
	return out, nil
}

// ended returns why an upstream has left nothing to read.
func (u UpstreamResult) ended() error {
	switch {
	case u.Outcome == state.OutcomeSuccess:
		return nil
	case !u.State.Terminal():
		return ErrNotEnded
	}
	return &EndedError{Execution: u.Execution, Outcome: u.Outcome, Failure: u.Failure}
}

// DecodeArgs turns a stored payload into the kind's arguments. Package worker does it for its handlers; it is for those
// who claim by themselves.
//
// Errors: [*DecodeError].
func (k Kind[In, Out]) DecodeArgs(payload []byte) (In, error) {
	return decode[In](k.Codec, k.Name, "payload", payload)
}

// EncodeResult turns a value into what a completion stores. Package worker does it for its handlers; it is for those who
// complete by themselves.
//
// Errors: the codec's.
func (k Kind[In, Out]) EncodeResult(result Out) ([]byte, error) { return encode(k.Codec, result) }

func (k Kind[In, Out]) decodeResult(result []byte) (Out, error) {
	return decode[Out](k.Codec, k.Name, "result", result)
}

func encode[T any](codec Codec, value T) ([]byte, error) {
	switch value := any(&value).(type) {
	case *[]byte:
		return *value, nil
	case *json.RawMessage:
		return *value, nil
	case *struct{}:
		return nil, nil
	}
	return orJSON(codec).Marshal(value)
}

func decode[T any](codec Codec, kind, what string, data []byte) (T, error) {
	var value T
	switch into := any(&value).(type) {
	case *[]byte:
		*into = data
	case *json.RawMessage:
		*into = data
	case *struct{}:
	default:
		if len(data) == 0 {
			break
		}
		if err := orJSON(codec).Unmarshal(data, into); err != nil {
			var none T
			return none, &DecodeError{Kind: kind, What: what, Type: reflect.TypeFor[T]().String(), Err: err}
		}
	}
	return value, nil
}

func orJSON(codec Codec) Codec {
	if codec == nil {
		return JSON{}
	}
	return codec
}
