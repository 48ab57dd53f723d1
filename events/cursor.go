package events

import (
	"encoding/hex"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

// Cursor is a position in an outbox: every event up to it has been handled. It is kept and given back, and not looked
// into. The zero value is no position: reading begins with what is committed from now on. A cursor of one outbox means
// nothing in another.
//
// Cursors are nine bytes, those of FlowFabric. One that FlowFabric made says only that its event was seen, and not that
// every earlier one was: who moves over goes on from an older cursor, and leaves out what he has had. One of its
// completions always holds [Beginning].
type Cursor struct {
	set bool
	id  int64
}

// Beginning is the position before the first event. Reading from there hands on every event that is kept, or ends with a
// [*GapError] where some were deleted already, which says from where the rest can be read. A new consumer that begins there
// begins with the oldest that is kept.
var Beginning = Cursor{set: true}

// ParseCursor returns the cursor that [Cursor.Bytes] gave. No bytes are the zero cursor.
//
// Errors: [engine.ErrInvalidInput] for bytes that are no cursor of a Postgres outbox.
func ParseCursor(b []byte) (Cursor, error) {
	event, set, err := wire.EventCursor(b).EventID()
	if err != nil {
		return Cursor{}, &engine.InputError{Field: "cursor", Reason: "does not belong to the Postgres backend"}
	}
	return Cursor{set, event}, nil
}

func cursorOf(event int64) Cursor { return Cursor{true, event} }

// IsZero says whether c is no position.
func (c Cursor) IsZero() bool { return !c.set }

// Bytes returns the nine bytes of c, none of the zero cursor.
func (c Cursor) Bytes() []byte {
	if !c.set {
		return nil
	}
	return wire.NewEventCursor(c.id)
}

// String is [Cursor.Bytes] in hexadecimal.
func (c Cursor) String() string { return hex.EncodeToString(c.Bytes()) }

// MarshalText is [Cursor.String].
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText takes what [Cursor.MarshalText] gave.
//
// Errors: as for [ParseCursor].
func (c *Cursor) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil {
		return &engine.InputError{Field: "cursor", Reason: "is not hexadecimal"}
	}
	*c, err = ParseCursor(b)
	return err
}

// after is what a subscription begins behind; nil: now.
func (c Cursor) after() *int64 {
	if !c.set {
		return nil
	}
	return &c.id
}
