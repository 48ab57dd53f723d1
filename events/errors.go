package events

import (
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/state"
)

// The sentinels of this package.
var (
	// ErrGap reports that unread events after the position were deleted, an unknown number. Read the executions
	// themselves, then continue from [GapError].Oldest.
	ErrGap = errors.New("events were deleted before they were read")

	// ErrNotKept reports that not all events of the source are written in this database. Carried by [NotKeptError].
	ErrNotKept = errors.New("events are not kept")

	// ErrCursorAhead reports a database older than the position: the database was restored, a standby without some
	// events was promoted, or the cursor is from another database. Choose a position to continue from. Carried by
	// [CursorAheadError].
	ErrCursorAhead = errors.New("cursor is ahead of the database")

	// ErrClosed reports that the subscription was closed.
	ErrClosed = errors.New("subscription is closed")
)

// GapError says which range of events was deleted.
type GapError struct {
	Outbox    Outbox
	Requested Cursor // the position; events between it and Oldest may be unread
	Oldest    Cursor // no later event is missing
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s events were deleted before they were read: between the cursors %s and %s", e.Outbox, e.Requested, e.Oldest)
}

// Unwrap returns [ErrGap].
func (e *GapError) Unwrap() error { return ErrGap }

// NotKeptError says which lease events are written. Read [LostLeases] if lost ones are, or have all kept by
// operator.KeepLeaseEvents and begin anew.
type NotKeptError struct {
	Outbox Outbox
	Cursor Cursor // of the last event that was read
	Kept   state.Kept
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("not all %s events are kept in this database, but %s: ff event keep leases=all, or read the lost leases only", e.Outbox, e.Kept)
}

// Unwrap returns [ErrNotKept].
func (e *NotKeptError) Unwrap() error { return ErrNotKept }

// CursorAheadError says how far the database has come.
type CursorAheadError struct {
	Outbox   Outbox
	Cursor   Cursor // the position
	Database Cursor // the last event of the database
}

func (e *CursorAheadError) Error() string {
	return fmt.Sprintf("the cursor %s is ahead of the %s events of this database, which end at %s", e.Cursor, e.Outbox, e.Database)
}

// Unwrap returns [ErrCursorAhead].
func (e *CursorAheadError) Unwrap() error { return ErrCursorAhead }

// CorruptEventError takes the place of an unreadable event. Reading continues after the event.
type CorruptEventError struct {
	Outbox  Outbox
	EventID int64
	Cursor  Cursor // the position right after the event
	Field   string // the column
	Raw     string // the first 200 bytes of the stored value
}

func (e *CorruptEventError) Error() string {
	return fmt.Sprintf("%s event %d cannot be read: its %s", e.Outbox, e.EventID, e.Field)
}

// Unwrap returns [fferr.ErrCorruption].
func (e *CorruptEventError) Unwrap() error { return fferr.ErrCorruption }

// corrupt returns a CorruptEventError without its outbox, which named adds.
func corrupt(row *outbox.Row, field string, raw any) error {
	return &CorruptEventError{EventID: row.ID, Cursor: cursorOf(row.ID), Field: field, Raw: fmt.Sprintf("%.200s", fmt.Sprint(raw))}
}

func named(name outbox.Name, err error) error {
	if corrupt, ok := errors.AsType[*CorruptEventError](err); ok {
		corrupt.Outbox = Outbox(name)
	}
	return err
}

// DisconnectedError reports that for a while the database could not be read, or notifications could not be received. No
// event is lost, and reading continues. A subscription reports such a time only with [Options].Notices.
type DisconnectedError struct {
	Outbox Outbox
	Cursor Cursor // of the last delivered event
}

func (e *DisconnectedError) Error() string {
	return fmt.Sprintf("the %s events were interrupted after the cursor %s", e.Outbox, e.Cursor)
}

// UnreadableError reports that the outbox cannot be read after a position, because its table or sequence has an unknown
// form.
type UnreadableError struct {
	Outbox Outbox
	Cursor Cursor // of the last readable event
	err    error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the %s events cannot be read: %v", e.Outbox, e.err)
}

// Unwrap returns [fferr.ErrCorruption] and the cause.
func (e *UnreadableError) Unwrap() []error { return []error{fferr.ErrCorruption, e.err} }

// publicError converts an error of internal/outbox to the exported one.
func publicError(err error) error {
	switch e := err.(type) { //nolint:errorlint // nothing wraps them
	case *outbox.GapError:
		return &GapError{Outbox(e.Outbox), cursorOf(e.Position), cursorOf(e.Floor)}
	case *outbox.NotKeptError:
		return &NotKeptError{Outbox(e.Outbox), cursorOf(e.Position), e.Kept}
	case *outbox.AheadError:
		return &CursorAheadError{Outbox(e.Outbox), cursorOf(e.Position), cursorOf(e.Database)}
	case *outbox.DisconnectedError:
		return &DisconnectedError{Outbox(e.Outbox), cursorOf(e.Position)}
	case *outbox.UnreadableError:
		return &UnreadableError{Outbox(e.Outbox), cursorOf(e.Position), e.Err}
	case *outbox.DeniedError:
		return fmt.Errorf("%w: %w", fferr.ErrDenied, e)
	case *outbox.StandbyError:
		return fmt.Errorf("%w: %w", fferr.ErrUnavailable, e)
	}
	if errors.Is(err, outbox.ErrClosed) {
		return ErrClosed
	}
	return err
}
