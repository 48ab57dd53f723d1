package events

import (
	"encoding/hex"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

// Cursor is an opaque position in an outbox: every event up to the cursor has been handled. The zero value is no
// position; reading then begins with events committed from now on. A cursor is only valid for its own outbox.
//
// A cursor has nine bytes, in FlowFabric's format. FlowFabric's own cursor only says its event was seen, not that every
// earlier event was. To move over, continue from an older cursor and skip the events already handled. FlowFabric's
// cursors for completions are always [Beginning].
type Cursor struct {
	set bool
	id  int64
}

// Beginning is the position before the first event. A subscription from Beginning delivers every kept event. If events
// were already deleted, it ends with a [*GapError] with the oldest readable position. A new consumer from Beginning
// begins with the oldest event kept.
var Beginning = Cursor{set: true}

// ParseCursor returns the cursor for bytes from [Cursor.Bytes]. No bytes are the zero cursor.
//
// Errors: [fferr.ErrInvalidInput] if b is no cursor of a Postgres outbox.
func ParseCursor(b []byte) (Cursor, error) {
	event, set, err := wire.EventCursor(b).EventID()
	if err != nil {
		return Cursor{}, &fferr.InputError{Field: "cursor", Reason: "does not belong to the Postgres backend"}
	}
	return Cursor{set, event}, nil
}

func cursorOf(event int64) Cursor { return Cursor{true, event} }

// IsZero reports whether c is the zero cursor, which is no position.
func (c Cursor) IsZero() bool { return !c.set }

// Bytes returns the nine bytes of c, or nil for the zero cursor.
func (c Cursor) Bytes() []byte {
	if !c.set {
		return nil
	}
	return wire.NewEventCursor(c.id)
}

// String returns [Cursor.Bytes] in hexadecimal.
func (c Cursor) String() string { return hex.EncodeToString(c.Bytes()) }

// MarshalText returns [Cursor.String].
func (c Cursor) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the text of [Cursor.MarshalText].
//
// Errors: as for [ParseCursor].
func (c *Cursor) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil {
		return &fferr.InputError{Field: "cursor", Reason: "is not hexadecimal"}
	}
	*c, err = ParseCursor(b)
	return err
}

// after returns the event to subscribe after, or nil for now.
func (c Cursor) after() *int64 {
	if !c.set {
		return nil
	}
	return &c.id
}
