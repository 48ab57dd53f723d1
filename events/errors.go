package events

import (
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// The sentinels of this package.
var (
	// ErrGap: events behind the position were deleted before they were handed on. Nothing tells which. The caller looks at
	// the executions themselves, and goes on from [GapError].Oldest.
	ErrGap = errors.New("events were deleted before they were read")

	// ErrCursorAhead: the database is older than the position: it was restored, or another server was promoted that had not
	// got everything, or the cursor is of another database. The caller decides from where to go on. Carried by
	// [CursorAheadError].
	ErrCursorAhead = errors.New("cursor is ahead of the database")

	// ErrClosed: the subscription was closed.
	ErrClosed = errors.New("subscription is closed")
)

// GapError says what was deleted.
type GapError struct {
	Outbox    Outbox
	Requested Cursor // the position: what lay between it and Oldest may not have been seen
	Oldest    Cursor // from here on every event is there
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s events were deleted before they were read: between the cursors %s and %s", e.Outbox, e.Requested, e.Oldest)
}

// Unwrap gives [ErrGap].
func (e *GapError) Unwrap() error { return ErrGap }

// CursorAheadError says how far the database has come.
type CursorAheadError struct {
	Outbox   Outbox
	Cursor   Cursor // the position
	Database Cursor // where the database's sequence stands
}

func (e *CursorAheadError) Error() string {
	return fmt.Sprintf("the cursor %s is ahead of the %s events of this database, which end at %s", e.Cursor, e.Outbox, e.Database)
}

// Unwrap gives [ErrCursorAhead].
func (e *CursorAheadError) Unwrap() error { return ErrCursorAhead }

// CorruptEventError stands in the place of an event that cannot be read. Reading goes on behind it.
type CorruptEventError struct {
	Outbox  Outbox
	EventID int64
	Cursor  Cursor // right behind it
	Field   string // the column
	Raw     string // what stands there, its first 200 bytes
}

func (e *CorruptEventError) Error() string {
	return fmt.Sprintf("%s event %d cannot be read: its %s", e.Outbox, e.EventID, e.Field)
}

// Unwrap gives [engine.ErrCorruption].
func (e *CorruptEventError) Unwrap() error { return engine.ErrCorruption }

// corrupt leaves out the outbox, which named fills in.
func corrupt(row *outbox.Row, field string, raw any) error {
	return &CorruptEventError{EventID: row.ID, Cursor: cursorOf(row.ID), Field: field, Raw: fmt.Sprintf("%.200s", fmt.Sprint(raw))}
}

func named(name outbox.Name, err error) error {
	if corrupt, ok := errors.AsType[*CorruptEventError](err); ok {
		corrupt.Outbox = Outbox(name)
	}
	return err
}

// DisconnectedError says that the database could not be read for a while, or its notifications not be heard. Nothing was
// lost, and reading goes on. Only [Options].Notices asks for it.
type DisconnectedError struct {
	Outbox Outbox
	Cursor Cursor // of the last event that was handed out
}

func (e *DisconnectedError) Error() string {
	return fmt.Sprintf("the %s events were interrupted behind the cursor %s", e.Outbox, e.Cursor)
}

// UnreadableError says that the table is not what this library reads, after a position.
type UnreadableError struct {
	Outbox Outbox
	Cursor Cursor // of the last event that could be read
	err    error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the %s events cannot be read: %v", e.Outbox, e.err)
}

// Unwrap gives [engine.ErrCorruption] and what was in the way.
func (e *UnreadableError) Unwrap() []error { return []error{engine.ErrCorruption, e.err} }

// publicError says what an error of the machine means to a user.
func publicError(err error) error {
	switch e := err.(type) { //nolint:errorlint // nothing wraps them
	case *outbox.GapError:
		return &GapError{Outbox(e.Outbox), cursorOf(e.Position), cursorOf(e.Floor)}
	case *outbox.AheadError:
		return &CursorAheadError{Outbox(e.Outbox), cursorOf(e.Position), cursorOf(e.Database)}
	case *outbox.DisconnectedError:
		return &DisconnectedError{Outbox(e.Outbox), cursorOf(e.Position)}
	case *outbox.UnreadableError:
		return &UnreadableError{Outbox(e.Outbox), cursorOf(e.Position), e.Err}
	case *outbox.DeniedError:
		return fmt.Errorf("%w: %w", engine.ErrDenied, e)
	case *outbox.StandbyError:
		return &engine.UnavailableError{Reason: e.Error()}
	}
	if errors.Is(err, outbox.ErrClosed) {
		return ErrClosed
	}
	return err
}
