package wire

import (
	"cmp"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/hash"
)

// StreamChannel returns the notification channel of an attempt's output stream.
func StreamChannel(e id.ExecutionUUID, attemptIndex int32) string {
	return "ff_stream_" + e.String() + "_" + strconv.FormatInt(int64(attemptIndex), 10)
}

// StreamLockKey returns the key of the advisory lock every program holds while it appends to an attempt's output
// stream.
func StreamLockKey(e id.ExecutionUUID, attemptIndex int32) int64 {
	message := make([]byte, 0, 8+len(e)+4)
	message = binary.LittleEndian.AppendUint64(message, uint64(len(e)))
	message = append(message, e[:]...)
	message = binary.LittleEndian.AppendUint32(message, uint32(attemptIndex))
	return int64(hash.SipHash13(message))
}

// FramePosition is the position of a frame in an attempt's output stream. Frames are ordered by time, then by sequence
// within the millisecond.
type FramePosition struct {
	TsMs int64
	Seq  int32
}

// String returns the frame's id: "<ts_ms>-<seq>".
func (p FramePosition) String() string {
	return strconv.FormatInt(p.TsMs, 10) + "-" + strconv.FormatInt(int64(p.Seq), 10)
}

// Compare orders positions in the order in which frames are read.
func (p FramePosition) Compare(q FramePosition) int {
	return cmp.Or(cmp.Compare(p.TsMs, q.TsMs), cmp.Compare(p.Seq, q.Seq))
}

// FrameCursor is a position in an attempt's output stream at which a range begins or ends, or a tail continues:
// [FrameStart], [FrameEnd], "<ms>" or "<ms>-<seq>".
type FrameCursor string

// Cursors without a frame.
const (
	// FrameStart comes before every frame.
	FrameStart FrameCursor = "start"
	// FrameEnd comes after every frame.
	FrameEnd FrameCursor = "end"
	// FrameBeginning is the cursor of a tail from the first frame.
	FrameBeginning FrameCursor = "0-0"
)

const frameCursorType = "frame cursor"

// ParseFrameCursor checks the form of a cursor. Later uses check the numbers.
//
// Errors: [*id.ParseError] with ReasonEmpty, ReasonBareMarkerRejected ("-" and "+") or ReasonMalformed.
func ParseFrameCursor(s string) (FrameCursor, error) {
	switch s {
	case "":
		return "", &id.ParseError{Type: frameCursorType, Reason: id.ReasonEmpty}
	case "-", "+":
		return "", refuse(frameCursorType, id.ReasonBareMarkerRejected, s)
	case string(FrameStart), string(FrameEnd):
		return FrameCursor(s), nil
	}
	ms, seq, hasSeq := strings.Cut(s, "-")
	if !isDigits(ms) || hasSeq && !isDigits(seq) {
		return "", refuse(frameCursorType, id.ReasonMalformed, s)
	}
	return FrameCursor(s), nil
}

// UnmarshalText sets c to text if [ParseFrameCursor] accepts text.
func (c *FrameCursor) UnmarshalText(text []byte) error {
	parsed, err := ParseFrameCursor(string(text))
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}

// Lower returns the first position of a range beginning at c. A missing sequence is 0.
//
// Errors: [*id.ParseError], with ReasonOutOfRange if no frame can have these numbers.
func (c FrameCursor) Lower() (FramePosition, error) { return c.bound(0) }

// Upper returns the last position of a range ending at c. A missing sequence is the largest one.
//
// Errors: as for [FrameCursor.Lower].
func (c FrameCursor) Upper() (FramePosition, error) { return c.bound(math.MaxInt32) }

// After returns the position after which a tail reads. A missing sequence is 0.
//
// Errors: as for [FrameCursor.Lower]; also for FrameStart and FrameEnd, which a tail does not accept.
func (c FrameCursor) After() (FramePosition, error) {
	if c == FrameStart || c == FrameEnd {
		return FramePosition{}, refuse(frameCursorType, id.ReasonMalformed, string(c))
	}
	return c.bound(0)
}

func (c FrameCursor) bound(missingSeq int32) (FramePosition, error) {
	if _, err := ParseFrameCursor(string(c)); err != nil {
		return FramePosition{}, err
	}
	switch c {
	case FrameStart:
		return FramePosition{TsMs: math.MinInt64, Seq: math.MinInt32}, nil
	case FrameEnd:
		return FramePosition{TsMs: math.MaxInt64, Seq: math.MaxInt32}, nil
	}
	ms, seq, hasSeq := strings.Cut(string(c), "-")
	tsMs, tsErr := strconv.ParseInt(ms, 10, 64)
	number := int64(missingSeq)
	var seqErr error
	if hasSeq {
		number, seqErr = strconv.ParseInt(seq, 10, 32)
	}
	if tsErr != nil || seqErr != nil {
		return FramePosition{}, refuse(frameCursorType, id.ReasonOutOfRange, string(c))
	}
	return FramePosition{TsMs: tsMs, Seq: int32(number)}, nil
}

func isDigits(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}
