package stream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Limits of output streams.
const (
	MaxFrames  = 1_000                // frames in one call of [Append]
	MaxBytes   = 4 << 20              // bytes of payloads in one call
	MaxPayload = core.MaxFramePayload // 64 KiB of one payload, unless [engine.StreamConfig.MaxPayload] is less
	MaxSummary = 1 << 20              // bytes of a summary's document

	// MaxSummaryFrames is how many frames in one call may be summary frames: each is merged into the document while the
	// attempt is locked.
	MaxSummaryFrames = 100
)

const (
	maxFrameType   = 256
	maxCorrelation = 1024
	maxPatchDepth  = 16

	maxPatchExponent = 308 // the range of a float64; jsonb would write such a number out
)

// Mode is how long a frame is kept.
type Mode string

// The modes.
const (
	Durable    Mode = "durable"     // kept as long as the execution; the default
	Summary    Mode = "summary"     // a JSON merge patch (RFC 7396) of the attempt's document: see [ReadSummary]
	BestEffort Mode = "best_effort" // trimmed after a while: see [engine.BestEffort]
)

// Types of frames that need no other name.
const (
	Event  = "event" // the default
	Stdout = "stdout"
	Stderr = "stderr"
	Blob   = "blob"
	Log    = "log" // a JSON object written by a logger
)

// FrameSpec is a frame to append to the output stream of an attempt.
type FrameSpec struct {
	// Payload has at most [MaxPayload] bytes of any kind. For a summary frame it is a JSON object merged into the document:
	// members replace members, objects are merged, and null removes a member. The text "__ff_null__" sets a member to null.
	Payload []byte

	Type        string // default [Event]; at most 256 bytes
	Correlation string // links frames of one request, for readers; at most 1024 bytes
	Mode        Mode   // default [Durable]
}

// Batch is frames for the stream of one lease.
type Batch struct {
	Lease  engine.Lease
	Frames []FrameSpec // 1 to [MaxFrames]

	// Behind is how many frames the attempt's stream must have before the batch: the [Appended.Frames] of the last append, or
	// [Count]. A repetition after an unknown outcome then appends nothing twice. Nil: any number.
	Behind *int64

	// Ends announces that the caller's transaction will also end the lease, so that [AppendBatch] locks in the order of an
	// end. Refused elsewhere.
	Ends bool
}

// behind returns the number of frames the stream must have; -1 for any.
func (b *Batch) behind() int64 {
	if b.Behind == nil {
		return -1
	}
	return *b.Behind
}

// Appended is the answer to appended frames. The ids are consecutive.
type Appended struct {
	First, Last    wire.FramePosition
	Frames         int64 // of the whole stream, trimmed frames included
	SummaryVersion int   // of the document after the last summary frame; 0 without summary frames
}

// storedFrames are frames as columns.
type storedFrames struct {
	types, payloads, encodings, correlations []string
}

func (s *storedFrames) add(f *FrameSpec) {
	payload, encoding := string(f.Payload), "utf8"
	if !utf8.ValidString(payload) || strings.ContainsRune(payload, 0) {
		payload, encoding = base64.StdEncoding.EncodeToString(f.Payload), "base64"
	}
	s.types = append(s.types, f.frameType())
	s.payloads = append(s.payloads, payload)
	s.encodings = append(s.encodings, encoding)
	s.correlations = append(s.correlations, f.Correlation)
}

func (f *FrameSpec) frameType() string {
	if f.Type == "" {
		return Event
	}
	return f.Type
}

func (f *FrameSpec) isDurable() bool { return f.Mode == "" || f.Mode == Durable }

// checkBatchOfFrames returns an error for frames that can't be appended together.
func checkBatchOfFrames(c *core.Core, b *Batch) error {
	frames := b.Frames
	if err := c.CheckLease(b.Lease.Fence); err != nil {
		return err
	}
	if b.Behind != nil && *b.Behind < 0 {
		return core.Invalid("behind", "is negative")
	}
	if len(frames) < 1 || len(frames) > MaxFrames {
		return core.Invalid("frames", fmt.Sprintf("%d frames: must be between 1 and %d", len(frames), MaxFrames))
	}
	size, patches := 0, 0
	for n := range frames {
		if frames[n].Mode == Summary {
			patches++
		}
		if err := checkFrame(&frames[n], c.Streams.MaxPayload); err != nil {
			return wrapFrame(n, err)
		}
		size += len(frames[n].Payload)
	}
	if patches > MaxSummaryFrames {
		return core.Invalid("frames", fmt.Sprintf("%d summary frames, limit %d", patches, MaxSummaryFrames))
	}
	if size > MaxBytes {
		return core.Invalid("frames", fmt.Sprintf("%d bytes of payloads, limit %d", size, MaxBytes))
	}
	return nil
}

// wrapFrame adds the frame's index to an error.
func wrapFrame(n int, err error) error {
	input, ok := errors.AsType[*fferr.InputError](err)
	if !ok {
		return err
	}
	return &fferr.InputError{Field: fmt.Sprintf("frames[%d].%s", n, input.Field), Reason: input.Reason, Cause: input.Cause}
}

// Check returns the error of an [Append] for an invalid frame, or nil, without the database. A nil engine has the default
// limits.
//
// Errors: [fferr.ErrInvalidInput].
func Check(eng *engine.Engine, f *FrameSpec) error {
	if f == nil {
		return core.Wrap(opAppendFrames, core.Invalid("frame", "is nil"))
	}
	most := MaxPayload
	if eng != nil {
		most = core.Of(eng).Streams.MaxPayload
	}
	return core.Wrap(opAppendFrames, checkFrame(f, most))
}

func checkFrame(f *FrameSpec, maxPayload int) error {
	if len(f.Payload) > maxPayload {
		return core.Invalid("payload", fmt.Sprintf("%d bytes, limit %d", len(f.Payload), maxPayload))
	}
	if err := core.CheckText("type", f.Type, maxFrameType); err != nil {
		return err
	}
	if err := core.CheckText("correlation", f.Correlation, maxCorrelation); err != nil {
		return err
	}
	switch f.Mode {
	case "", Durable, BestEffort:
		return nil
	case Summary:
		return checkPatch(f.Payload)
	}
	return core.Invalid("mode", fmt.Sprintf("is %q", f.Mode))
}

// checkPatch returns an error for a summary frame's payload if it is not a JSON object, is nested too deeply, or has a number
// the server would write out in very many digits.
func checkPatch(payload []byte) error {
	if !utf8.Valid(payload) || !json.Valid(payload) {
		return core.Invalid("payload", "is not a JSON object, which a summary frame needs")
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	depth := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil // the end of valid JSON
		}
		if depth == 0 && token != json.Delim('{') && token != json.Delim('}') {
			return core.Invalid("payload", "is JSON, but not an object, which a summary frame needs")
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				depth++
			} else {
				depth--
			}
		case json.Number:
			if _, exponent, ok := strings.Cut(strings.ToLower(token.String()), "e"); ok {
				if n, err := strconv.Atoi(exponent); err != nil || max(n, -n) > maxPatchExponent {
					return core.Invalid("payload", fmt.Sprintf("has a number with an exponent beyond %d", maxPatchExponent))
				}
			}
		}
		if depth > maxPatchDepth {
			return core.Invalid("payload", fmt.Sprintf("is nested deeper than %d: patch_depth_exceeded", maxPatchDepth))
		}
	}
}
