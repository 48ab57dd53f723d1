package events

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// Options are the options of a subscription. The zero value of every field is its default.
type Options struct {
	// After is the position to go on from, strictly behind it. Default: from now on.
	After Cursor

	// Buffer is how many events wait for the reader at most, to 65,536; beyond, they wait in the database. Default 1024.
	Buffer int

	// Notices has outages told of, by a [*DisconnectedError]. Nothing is lost by one.
	Notices bool
}

// DefaultBuffer is the default of [Options].Buffer.
const DefaultBuffer = 1024

const maxBuffer = 1 << 16

// Subscription hands out the events of a source. Next and All are for one goroutine at a time, the rest for any.
type Subscription[E any] struct {
	src  Source[E]
	rows *outbox.Subscription
}

// Subscribe begins to read a source: each event that is committed from then on, or that stands behind [Options].After, is
// handed out exactly once, in the order of the ids, whichever program wrote it. It lives as long as ctx, until Close.
//
// From now on, Subscribe may wait for transactions that have written to the outbox and have not ended; ctx bounds that.
// After a cursor it waits for nobody.
//
// All subscriptions of an engine share one reader for each outbox and the listening connection of the engine, and none of
// them holds a connection while it waits. One that is slow is read for by itself, by a connection of the pool for a moment,
// and at most four at a time.
//
// Errors: [engine.ErrInvalidInput] for a filter, a cursor or an option that cannot be, and for an engine bound to a
// transaction; [engine.ErrUnavailable] if the database cannot be reached or is a standby; [engine.ErrDenied] for a missing
// login or right, naming the GRANT if it is for the sequence of the outbox; [engine.ErrNotMigrated]; [engine.ErrTransport] if the server fails in another way; a [*GapError] if events
// behind the cursor are gone, a [*CursorAheadError] if it is ahead of the database; [engine.ErrCorruption] if the sequence
// of the outbox is not one that can be followed; ctx's error. Nothing is written in any case.
func Subscribe[E any](ctx context.Context, eng *engine.Engine, src Source[E], o Options) (*Subscription[E], error) {
	if err := src.check(eng); err != nil {
		return nil, err
	}
	switch {
	case o.Buffer == 0:
		o.Buffer = DefaultBuffer
	case o.Buffer < 0 || o.Buffer > maxBuffer:
		return nil, &engine.InputError{Field: "Options.Buffer", Reason: fmt.Sprintf("is %d: from 1 to %d", o.Buffer, maxBuffer)}
	}
	rows, err := eng.Outboxes().Subscribe(ctx, src.outbox, outbox.Options{
		After: o.After.after(), Buffer: o.Buffer, Notices: o.Notices, Filter: src.filter,
	})
	if err != nil {
		return nil, subscribeError(ctx, src.outbox, err)
	}
	return &Subscription[E]{src, rows}, nil
}

// subscribeError says by a sentinel why a subscription could not begin.
func subscribeError(ctx context.Context, name outbox.Name, err error) error {
	if public := publicError(err); public != err { //nolint:errorlint // whether it is the same
		return public
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	op := ops[name]
	if _, answered := errors.AsType[*pgconn.PgError](err); answered {
		return engine.Classify(op, err)
	}
	return fmt.Errorf("%s: %w: %w", op, engine.ErrUnavailable, err)
}

// Next waits for the next event. An event is handed out once; a call that ends with ctx takes none.
//
// Errors: a [*CorruptEventError] in the place of an event that cannot be read, and with [Options].Notices a
// [*DisconnectedError], after which the next call goes on. Those that end the subscription, and are returned from then
// on: a [*GapError], a [*CursorAheadError], an [*UnreadableError], [ErrClosed], and the error of the context of Subscribe.
// Or ctx's. An outage of the database is waited out.
func (s *Subscription[E]) Next(ctx context.Context) (E, error) {
	row, err := s.rows.Next(ctx)
	if err != nil {
		var none E
		return none, publicError(err)
	}
	return s.src.decode(row)
}

// All hands out events until the subscription has ended, with the error that ended it as the last one; there is none when it
// was closed, or the context of [Subscribe] ended. The other errors of [Subscription.Next] stand in the middle, and the loop
// goes on. Who breaks out of it may range over All again, or call Next.
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

// ends says whether an error is the last of a subscription.
func ends(err error) bool {
	switch err.(type) { //nolint:errorlint // as Next returns them
	case nil, *CorruptEventError, *DisconnectedError:
		return false
	}
	return true
}

// Position is the cursor behind the last event that was handed out, and behind those after it that did not match, while none
// waits: what to store now and then, so that a subscription goes on from there after a restart. What was handled since the
// last stored position is handed out again then.
func (s *Subscription[E]) Position() Cursor { return cursorOf(s.rows.Position()) }

// Lag is how many events at most lie between the position and the last one that may be handed on.
func (s *Subscription[E]) Lag() int64 { return s.rows.Lag() }

// Close ends the subscription. When it returns nothing of it runs any more. What was not handed out is not lost: it stands
// behind the position.
func (s *Subscription[E]) Close() { s.rows.Close() }
