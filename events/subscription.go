package events

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// Options configures a subscription. The zero value of every field is its default.
type Options struct {
	// After is the position to continue from: delivery starts with the first event after it. Default: from now on.
	After Cursor

	// Buffer is how many events may wait in the process for the reader, up to 65,536. Further events wait in the
	// database. Default 1024.
	Buffer int

	// Notices makes Next report outages with a [*DisconnectedError]. Outages lose no events either way.
	Notices bool
}

// DefaultBuffer is the default of [Options].Buffer.
const DefaultBuffer = 1024

const maxBuffer = 1 << 16

// Subscription delivers the events of a source. Call Next and All from one goroutine at a time; the other methods are safe
// for concurrent use.
type Subscription[E any] struct {
	src  Source[E]
	rows *outbox.Subscription
}

// Subscribe starts reading a source. It delivers each matching event exactly once, in the order of the ids, whichever
// program wrote the event: events committed from now on, or all events after [Options].After. The subscription lasts
// until ctx ends or Close is called.
//
// Without a cursor, Subscribe waits for open transactions with writes to the outbox, until ctx ends. With a cursor it
// does not wait.
//
// Subscriptions of an engine share one reader per outbox and the engine's listener. They hold no connection while
// waiting. The events of a slow subscription are read separately, on a pooled connection for a moment, at most four at
// a time.
//
// Errors: [fferr.ErrInvalidInput] for a bad filter, cursor or option, and for an engine bound to a transaction;
// [fferr.ErrUnavailable] if the database cannot be reached or is a standby; [fferr.ErrDenied] if a login or right is
// missing, with the GRANT if it is for the outbox's sequence; [fferr.ErrNotMigrated]; [fferr.ErrTransport] for other
// server failures; [*GapError] if events after the cursor were deleted; [*CursorAheadError]; [fferr.ErrCorruption] if the
// outbox's sequence cannot be followed; ctx's error. Nothing is written.
func Subscribe[E any](ctx context.Context, eng *engine.Engine, src Source[E], o Options) (*Subscription[E], error) {
	if err := src.check(eng); err != nil {
		return nil, err
	}
	switch {
	case o.Buffer == 0:
		o.Buffer = DefaultBuffer
	case o.Buffer < 0 || o.Buffer > maxBuffer:
		return nil, &fferr.InputError{Field: "Options.Buffer", Reason: fmt.Sprintf("is %d: from 1 to %d", o.Buffer, maxBuffer)}
	}
	rows, err := outbox.Of(core.Of(eng)).Subscribe(ctx, src.outbox, outbox.Options{
		After: o.After.after(), Buffer: o.Buffer, Notices: o.Notices, Filter: src.filter,
	})
	if err != nil {
		return nil, subscribeError(ctx, src.outbox, err)
	}
	return &Subscription[E]{src, rows}, nil
}

// subscribeError classifies an error from starting a subscription.
func subscribeError(ctx context.Context, name outbox.Name, err error) error {
	if public := publicError(err); public != err { //nolint:errorlint // whether it is the same
		return public
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	op := ops[name]
	if _, answered := errors.AsType[*pgconn.PgError](err); answered {
		return core.OutcomeOf(op, err)
	}
	return fmt.Errorf("%s: %w: %w", op, fferr.ErrUnavailable, err)
}

// Next waits for the next event and returns it. If ctx ends first, no event is lost.
//
// Errors: [*CorruptEventError] in place of an event that cannot be read and, with [Options].Notices, [*DisconnectedError];
// call Next again. [*GapError], [*CursorAheadError], [*UnreadableError], [ErrClosed] and the error of Subscribe's context
// end the subscription, and every later call returns them. ctx's error. Next waits through outages of the database.
func (s *Subscription[E]) Next(ctx context.Context) (E, error) {
	row, err := s.rows.Next(ctx)
	if err != nil {
		var none E
		return none, publicError(err)
	}
	return s.src.decode(row)
}

// All returns an iterator over the events until the subscription ends. The final error comes last, unless the
// subscription was closed or the context of [Subscribe] ended. Other errors of [Subscription.Next] come in between, and
// the loop continues. After a break, All or Next may be called again.
func (s *Subscription[E]) All() iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for {
			event, err := s.Next(context.Background())
			if errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				return
			}
			if !yield(event, err) || ends(err) {
				return
			}
		}
	}
}

// ends reports whether an error ends a subscription.
func ends(err error) bool {
	switch err.(type) { //nolint:errorlint // as from Next
	case nil, *CorruptEventError, *DisconnectedError:
		return false
	}
	return true
}

// Position returns the cursor after the last delivered event and, once no event is waiting, after the skipped ones that
// follow. Store it from time to time to continue from there after a restart. Events handled since the last stored position
// are then delivered again.
func (s *Subscription[E]) Position() Cursor { return cursorOf(s.rows.Position()) }

// Lag returns the largest number of events that may lie between the position and the newest deliverable event.
func (s *Subscription[E]) Lag() int64 { return s.rows.Lag() }

// Close ends the subscription and waits until it has stopped. Undelivered events are not lost: they come after the
// position.
func (s *Subscription[E]) Close() { s.rows.Close() }
