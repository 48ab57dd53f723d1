package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Kind declares a kind of execution once, for programs to create, handle and read. In is the input type, Out the result
// type. A Kind is usually a package variable, and safe for concurrent use.
//
//	var Resize = engine.Kind[ResizeArgs, ResizeResult]{Name: "resize", Lane: "images"}
//
//	created, err := Resize.Create(ctx, eng, ResizeArgs{Image: "cat.png", Width: 640})
//	worker.Handle(w, Resize, func(ctx context.Context, job worker.Job[ResizeArgs]) (ResizeResult, error) { … })
//	result, err := Resize.Result(ctx, eng, created.ID)
//
// A []byte or [json.RawMessage] is stored unchanged, and a struct{} means no payload or result. All other types use
// Codec. A missing payload or result reads as the zero value.
//
// The database stores only the name. If two declarations of it have different types, [JSON] ignores unknown fields and
// leaves missing ones zero. An undecodable value is a [fferr.DecodeError]; in a handler, a permanent failure of the
// category "payload".
type Kind[In, Out any] struct {
	// Name is the stored name of the kind. Required; at most 255 bytes.
	Name string

	// Lane is where executions are created and workers claim. Default [DefaultLane].
	Lane id.LaneID

	// Policy applies to each execution. Default nil: as in [ExecutionSpec].
	Policy *policy.Execution

	// Unique makes the executions of [Kind.Create] and [Kind.Spec] unique. Default nil: as in [ExecutionSpec]. A
	// schedule skips a tick while an execution has the key. Calls ignore Unique.
	Unique *Unique

	// Sequence returns an execution's sequence from the arguments: see [ExecutionSpec.Sequence]. Default nil: none.
	Sequence func(In) Sequence

	// Fair makes the lane's tenants take turns: see [RoundRobin] and [FairShare]. Default: executions start by age.
	Fair Fair[In]

	// Limits limit how many executions run at once, or start within a window, by keys from the arguments. An execution
	// must pass all; put the narrowest first. At most [MaxLimits]. Default nil: none.
	Limits []Limit[In]

	// Options returns options for every execution from the arguments, such as a priority or tags. A caller's options of
	// [Kind.Create] apply afterwards. Default nil: none.
	Options func(In) []CreateOption

	// Codec encodes and decodes In and Out. Default [JSON].
	Codec Codec
}

// Codec encodes values to stored bytes and decodes them.
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

// Validate checks that executions of this kind can be created.
//
// Errors: [fferr.ErrInvalidInput] naming the field, as "Kind.Name" or "Kind.Policy.Retry.MaxRetries".
func (k Kind[In, Out]) Validate() error {
	if err := k.checkName(); err != nil {
		return err
	}
	if k.Lane != "" {
		if err := k.Lane.Validate(); err != nil {
			return core.InvalidBecause("Kind.Lane", err)
		}
	}
	if k.Policy != nil {
		if err := k.Policy.Validate(); err != nil {
			return invalidPolicy("Kind.Policy", err)
		}
	}
	if err := checkLimits(k.Limits); err != nil {
		return err
	}
	if k.Unique != nil {
		return k.Unique.check()
	}
	return nil
}

func (k Kind[In, Out]) checkName() error {
	if k.Name == "" {
		return core.Invalid("Kind.Name", "is empty")
	}
	return core.CheckText("Kind.Name", k.Name, core.MaxKind)
}

// Spec returns the spec of an execution, for a flow's node, a batch or fields without an option. If args can't be
// encoded, creating the execution fails with [fferr.ErrInvalidInput].
func (k Kind[In, Out]) Spec(args In) ExecutionSpec {
	spec := ExecutionSpec{Kind: k.Name, Lane: k.Lane, Policy: k.Policy, Unique: k.Unique}
	if k.Sequence != nil {
		spec.Sequence = k.Sequence(args)
	}
	if len(k.Limits) > 0 {
		spec.mistake = checkLimits(k.Limits)
		spec.Limits = make([]LimitKey, len(k.Limits))
		for i := range k.Limits {
			spec.Limits[i] = k.Limits[i].of(k.Name, args)
		}
	}
	var err error
	if spec.Fair, err = k.Fair.share(args); err != nil {
		spec.mistake = err
	}
	if spec.Payload, err = core.Encode(k.Codec, args); err != nil {
		spec.mistake = core.InvalidBecause("payload", fmt.Errorf("cannot be encoded: %w", err))
	}
	if k.Options != nil {
		spec.apply(k.Options(args))
	}
	return spec
}

// Create creates an execution: [Engine.CreateExecution] with [Kind.Spec] and the options. Each call creates another
// execution unless [WithKey] is given.
//
// Errors: as [Engine.CreateExecution]; [fferr.ErrInvalidInput] if args can't be encoded.
func (k Kind[In, Out]) Create(ctx context.Context, eng *Engine, args In, options ...CreateOption) (Created, error) {
	spec := k.Spec(args)
	spec.apply(options)
	return eng.CreateExecution(ctx, spec)
}

// CreateOption changes the spec in [Kind.Create] and [Kind.Options].
type CreateOption func(*ExecutionSpec)

// apply applies options in order.
func (s *ExecutionSpec) apply(options []CreateOption) {
	for _, option := range options {
		if option == nil {
			s.refuse(core.Invalid("options", "has a nil option"))
			return
		}
		option(s)
	}
}

// refuse makes the creation fail with err, unless it fails already.
func (s *ExecutionSpec) refuse(err error) {
	if s.mistake == nil {
		s.mistake = err
	}
}

// WithKey makes repeated creations one: see [ExecutionSpec.IdempotencyKey].
func WithKey(key id.IdempotencyKey) CreateOption {
	return func(s *ExecutionSpec) { s.IdempotencyKey = key }
}

// Key gives the execution a business key, such as Key("order", "4711"), for lookups and signals. Unlike [WithKey] it
// refuses a second creation: see [id.BusinessKey].
func Key(name, value string) CreateOption {
	return func(s *ExecutionSpec) {
		s.BusinessKey = id.BusinessKey{Name: name, Value: value}
		if err := checkBusinessKey(s.BusinessKey); err != nil { // an empty one would mean none
			s.refuse(err)
		}
	}
}

// WithUnique makes the execution unique, replacing the kind's setting: see [Unique].
func WithUnique(u Unique) CreateOption {
	return func(s *ExecutionSpec) { s.Unique = &u }
}

// WithSequence makes the execution wait for earlier ones of the sequence: see [ExecutionSpec.Sequence].
func WithSequence(s Sequence) CreateOption {
	return func(spec *ExecutionSpec) { spec.Sequence = s }
}

// After delays the execution by d from the database's present time, read by one more query. It replaces
// [ExecutionSpec.DelayUntil].
func After(d time.Duration) CreateOption {
	return func(s *ExecutionSpec) {
		s.DelayUntil, s.after = time.Time{}, d
		if d < 0 {
			s.refuse(core.Invalid("After", "is negative"))
		}
	}
}

// WithTag sets a tag: see [ExecutionSpec.Tags].
func WithTag(key, value string) CreateOption {
	return func(s *ExecutionSpec) {
		if s.Tags == nil {
			s.Tags = make(map[string]string, 1)
		}
		s.Tags[key] = value
	}
}

// WithPriority sets the priority: see [ExecutionSpec.Priority].
func WithPriority(priority int) CreateOption {
	return func(s *ExecutionSpec) { s.Priority = priority }
}

// Result returns the result of an execution, without checking the execution's kind.
//
// Errors: [fferr.ErrNotEnded]; [*fferr.EndedError] after an end without success; [fferr.ErrNotFound];
// [*fferr.DecodeError]; [fferr.ErrInvalidInput] for a kind without a name.
func (k Kind[In, Out]) Result(ctx context.Context, eng *Engine, x id.ExecutionID) (Out, error) {
	return k.read(func() ([]byte, error) { return eng.ExecutionResult(ctx, x) })
}

// Await waits until an execution has ended, and returns the result, as [Engine.AwaitExecution] does.
//
// Errors: as [Kind.Result] except [fferr.ErrNotEnded]; ctx's error.
func (k Kind[In, Out]) Await(ctx context.Context, eng *Engine, x id.ExecutionID) (Out, error) {
	return k.read(func() ([]byte, error) { return eng.AwaitExecution(ctx, x) })
}

// read decodes the result that read returns.
func (k Kind[In, Out]) read(read func() ([]byte, error)) (Out, error) {
	const op = "read result"
	var none Out
	if err := k.checkName(); err != nil {
		return none, core.Wrap(op, err)
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

// ResultOf returns the result of an upstream of this kind from [Engine.UpstreamResults].
//
// Errors: [fferr.ErrNotEnded] and [*fferr.EndedError] without a result, as a quorum allows; [fferr.ErrPruned] if the
// upstream is Gone; [*fferr.DecodeError]; [fferr.ErrInvalidInput] for another kind.
func (k Kind[In, Out]) ResultOf(upstream UpstreamResult) (Out, error) {
	const op = "read upstream result"
	var none Out
	if err := k.checkName(); err != nil {
		return none, core.Wrap(op, err)
	}
	if upstream.Gone {
		return none, core.Wrap(op, fmt.Errorf("execution %s: %w", upstream.Execution, fferr.ErrPruned))
	}
	if upstream.Kind != k.Name {
		return none, core.Wrap(op, core.Invalid("upstream", fmt.Sprintf("is of the kind %q, not %q", upstream.Kind, k.Name)))
	}
	if err := upstream.ended(); err != nil {
		return none, core.Wrap(op, err)
	}
	out, err := k.decodeResult(upstream.Result)
	if err != nil {
		return none, fmt.Errorf("%s: %w", op, err)
	}
	return out, nil
}

// ended returns an error if an upstream has no result.
func (u UpstreamResult) ended() error {
	switch {
	case u.Outcome == state.OutcomeSuccess:
		return nil
	case !u.State.Terminal():
		return fferr.ErrNotEnded
	}
	return &fferr.EndedError{Execution: u.Execution, Outcome: u.Outcome, Failure: u.Failure}
}

// DecodeArgs decodes a stored payload, for callers of [Engine.Claim].
//
// Errors: [*fferr.DecodeError].
func (k Kind[In, Out]) DecodeArgs(payload []byte) (In, error) {
	return core.Decode[In](k.Codec, k.Name, "payload", payload)
}

// EncodeResult encodes a result for [Engine.CompleteExecutions].
//
// Errors: the codec's.
func (k Kind[In, Out]) EncodeResult(result Out) ([]byte, error) { return core.Encode(k.Codec, result) }

func (k Kind[In, Out]) decodeResult(result []byte) (Out, error) {
	return core.Decode[Out](k.Codec, k.Name, "result", result)
}
