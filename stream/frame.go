package stream

import (
	"context"
	"iter"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Frame declares a type of frames once, for handlers that write and programs that read. T is the type of the payload, encoded
// like the payload of an [engine.Kind]. A Frame is stateless, usually a package variable, and safe for concurrent use.
type Frame[T any] struct {
	Type  string       // required; at most 256 bytes
	Mode  Mode         // default [Durable]
	Codec engine.Codec // default [engine.JSON]
}

// FrameWriter takes frames. The stream of a worker's job and its Turn are FrameWriters.
type FrameWriter interface {
	WriteFrame(ctx context.Context, f FrameSpec) error
}

// Write writes a frame.
//
// Errors: [fferr.ErrInvalidInput] if the value can't be encoded; the errors of the writer.
func (f Frame[T]) Write(ctx context.Context, w FrameWriter, value T) error {
	const op = "write frame"
	if f.Type == "" {
		return core.Wrap(op, core.Invalid("type", "is empty"))
	}
	payload, err := core.Encode(f.Codec, value)
	if err != nil {
		return core.Wrap(op, core.InvalidBecause("payload", err))
	}
	return w.WriteFrame(ctx, FrameSpec{Payload: payload, Type: f.Type, Mode: f.Mode})
}

// Decode returns the value of a frame of this type. ok is false for other frames, and for the end of an attempt.
//
// Errors: [fferr.DecodeError].
func (f Frame[T]) Decode(frame Entry) (value T, ok bool, err error) {
	if frame.Closed != nil || frame.Type != f.Type {
		return value, false, nil
	}
	value, err = core.Decode[T](f.Codec, f.Type, "frame", frame.Payload)
	return value, true, err
}

// Typed is an [Entry] with the value of its frame. At the end of an attempt Value is the zero value.
type Typed[T any] struct {
	Entry
	Value T
}

// Tail is the function [Tail] for the frames of this type, and the ends of attempts. [Entry.Trimmed] also counts the missing
// frames before frames of other types.
//
// Errors: as [Tail]; [fferr.ErrInvalidInput] if Type is empty; [fferr.DecodeError], after which the loop may continue.
func (f Frame[T]) Tail(ctx context.Context, eng *engine.Engine, x id.ExecutionID, o TailOptions) iter.Seq2[Typed[T], error] {
	return func(yield func(Typed[T], error) bool) {
		if f.Type == "" {
			yield(Typed[T]{}, core.Wrap("tail stream", core.Invalid("type", "is empty")))
			return
		}
		trimmed := int64(0) // before frames of other types
		for frame, err := range Tail(ctx, eng, x, o) {
			typed := Typed[T]{Entry: frame}
			if err == nil {
				trimmed += frame.Trimmed
				if frame.Closed == nil && frame.Type != f.Type {
					continue
				}
				typed.Trimmed, trimmed = trimmed, 0
				typed.Value, _, err = f.Decode(frame)
			}
			if !yield(typed, err) {
				return
			}
		}
	}
}
