package wire

import (
	"encoding/binary"

	"github.com/flowfabric/flowfabric-go/id"
)

// EventCursor is a reader's position in an outbox, in nine opaque bytes. Empty means "from now". A cursor is only valid
// for the outbox it came from.
type EventCursor []byte

const (
	eventCursorTag = 0x02
	eventCursorLen = 9
)

// NewEventCursor returns the cursor of the row with that event id. Reading resumes after it.
func NewEventCursor(eventID int64) EventCursor {
	return binary.BigEndian.AppendUint64(append(make(EventCursor, 0, eventCursorLen), eventCursorTag), uint64(eventID))
}

// EventID returns the event id in c; ok is false for the empty cursor. Id 0 means "from the beginning".
//
// Errors: [*id.ParseError] with ReasonForeignCursor for bytes of any other shape, with ReasonOutOfRange for a negative id.
func (c EventCursor) EventID() (eventID int64, ok bool, err error) {
	if len(c) == 0 {
		return 0, false, nil
	}
	if len(c) != eventCursorLen || c[0] != eventCursorTag {
		return 0, false, &id.ParseError{
			Type: eventCursorType, Reason: id.ReasonForeignCursor,
			Detail: "stream_subscribe: cursor does not belong to the Postgres backend",
		}
	}
	eventID = int64(binary.BigEndian.Uint64(c[1:]))
	if eventID < 0 {
		return 0, false, &id.ParseError{Type: eventCursorType, Reason: id.ReasonOutOfRange}
	}
	return eventID, true, nil
}

const eventCursorType = "event cursor"
