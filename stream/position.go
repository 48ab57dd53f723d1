package stream

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Position is a place in the output of an execution, after a frame or after an attempt. A tail continues at a Position
// without repeating or losing a frame. The zero value is the beginning. Positions are comparable. Their text holds no secret
// and may be stored or sent to clients.
type Position struct {
	attempt         int
	id              wire.FramePosition
	number, durable int64 // number of all frames, and of durable frames, up to here
	closed          bool  // after the end of the attempt
}

// Position returns the position after the frame.
func (f *Entry) Position() Position {
	return Position{f.Attempt, f.ID, f.Number, f.durable, f.Closed != nil}
}

// Attempt returns the attempt of the position, and whether the position is after the end of the attempt.
func (p Position) Attempt() (index int, closed bool) { return p.attempt, p.closed }

// String returns the position's text: five numbers, and "end" after the end of an attempt.
func (p Position) String() string {
	text := fmt.Sprintf("%d.%d.%d.%d.%d", p.attempt, p.id.TsMs, p.id.Seq, p.number, p.durable)
	if p.closed {
		text += ".end"
	}
	return text
}

// MarshalText returns the form of [Position.String].
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the form of [Position.String].
//
// Errors: as [ParsePosition].
func (p *Position) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePosition(string(text))
	return err
}

// ParsePosition parses the form of [Position.String].
//
// Errors: [fferr.ErrInvalidInput].
func ParsePosition(s string) (Position, error) {
	const op = "parse stream position"
	body, closed := strings.CutSuffix(s, ".end")
	parts := strings.Split(body, ".")
	if len(parts) != 5 {
		return Position{}, core.Wrap(op, core.Invalid("position", "is not five numbers with dots between them"))
	}
	var n [5]int64
	for i, bits := range []int{31, 63, 31, 63, 63} {
		parsed, err := strconv.ParseUint(parts[i], 10, bits)
		if err != nil {
			return Position{}, core.Wrap(op, core.Invalid("position", fmt.Sprintf("part %d is not a number of at most %d bits", i+1, bits)))
		}
		n[i] = int64(parsed)
	}
	return Position{
		attempt: int(n[0]), id: wire.FramePosition{TsMs: n[1], Seq: int32(n[2])}, number: n[3], durable: n[4], closed: closed,
	}, nil
}
