package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// ConsumerStatus is the stored state of a named consumer.
type ConsumerStatus struct {
	Outbox Outbox
	Name   string

	Position Cursor // every event up to here is handled or filtered out
	Head     Cursor // the newest readable event
	Oldest   Cursor // no later event is missing
	Lag      int64  // ids between Position and Head: an upper bound for the events, since rollbacks leave gaps and the filter skips some

	Gone      bool      // events after Position were deleted; a handler will fail with [*GapError]
	UpdatedAt time.Time // when a process last worked for the consumer
	Stale     bool      // UpdatedAt is more than seven days ago, so events after Position may be trimmed

	Holder    string        // the working process: host, process id and a random part; "" if none
	HeldUntil time.Time     // when others take over unless the holder renews; zero without a holder
	Failing   *FailingEvent // nil if the handler is not failing
	SetAside  int64         // number of events in [SetAside]
}

// FailingEvent is an event to be retried after the consumer's handler failed.
type FailingEvent struct {
	Event    Cursor
	Tries    int // failures of the event tried alone
	FailedAt time.Time
	NextTry  time.Time
	Error    string // the handler's last error, cut at 16 KiB
}

// maxConsumers bounds [Consumers].
const maxConsumers = 10_000

// Consumers returns the named consumers of a database, by outbox and name, 10,000 at most.
//
// Errors: the database's. Transaction: one statement; locks nothing.
func Consumers(ctx context.Context, eng *engine.Engine) ([]ConsumerStatus, error) {
	const op = "list consumers"
	rows, err := onStatement(ctx, eng, func(conn db.DBTX) ([]db.ListConsumersRow, error) {
		return db.New().ListConsumers(ctx, conn, db.ListConsumersParams{PageSize: maxConsumers})
	})
	if err != nil {
		return nil, core.OutcomeOf(op, err)
	}
	consumers := make([]ConsumerStatus, len(rows))
	for i, row := range rows {
		c := ConsumerStatus{
			Outbox: Outbox(row.Outbox), Name: row.Consumer,
			Position: cursorOf(row.EventID), Head: cursorOf(row.HeadEventID), Oldest: cursorOf(row.FloorEventID), Lag: max(row.HeadEventID-row.EventID, 0),
			Gone: row.EventID < row.FloorEventID, UpdatedAt: time.UnixMilli(row.UpdatedAtMs), Stale: row.Stale,
			Holder: row.Holder, SetAside: row.SetAside,
		}
		if c.Holder != "" {
			c.HeldUntil = time.UnixMilli(row.HeldUntilMs)
		}
		if row.FailingEventID != 0 {
			c.Failing = &FailingEvent{
				Event: cursorOf(row.FailingEventID), Tries: int(row.Tries), Error: row.LastError,
				FailedAt: time.UnixMilli(row.FailedAtMs), NextTry: time.UnixMilli(row.NextTryAtMs),
			}
		}
		consumers[i] = c
	}
	return consumers, nil
}

// SetAsideEvent is an event skipped by a consumer without being handled.
type SetAsideEvent struct {
	Cursor Cursor
	Event  json.RawMessage // an object with the non-null columns of the outbox by name, and the execution's kind, lane, node key and tags; the outbox row may be gone
	Tries  int             // failures of the event tried alone; 0 if it could not be read
	Error  string          // the handler's last error, cut at 16 KiB, or why the event could not be read
	At     time.Time       // when the consumer skipped it
}

// SetAside returns the events that a consumer has stored and skipped, in ascending order, after a cursor. [Beginning]
// or the zero cursor starts at the first. It returns at most limit events; 0, or more than [engine.MaxPage], means
// [engine.MaxPage]. If a page is full, continue after its last cursor. An unknown consumer has no events.
//
// Call [RetrySetAside] to handle an event, or [ForgetSetAside] to drop one. Nothing else removes them.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; locks nothing.
func SetAside(ctx context.Context, eng *engine.Engine, outbox Outbox, name string, after Cursor, limit int) ([]SetAsideEvent, error) {
	const op = "list events set aside"
	if err := checkConsumer(outbox, name); err != nil {
		return nil, core.OutcomeOf(op, err)
	}
	if limit < 0 {
		return nil, core.OutcomeOf(op, &fferr.InputError{Field: "limit", Reason: "is negative"})
	}
	if limit == 0 || limit > engine.MaxPage {
		limit = engine.MaxPage
	}
	rows, err := onStatement(ctx, eng, func(conn db.DBTX) ([]db.ListSetAsideRow, error) {
		return db.New().ListSetAside(ctx, conn, db.ListSetAsideParams{
			Outbox: string(outbox), Consumer: name, AfterEventID: after.id, PageSize: int32(limit),
		})
	})
	if err != nil {
		return nil, core.OutcomeOf(op, err)
	}
	events := make([]SetAsideEvent, len(rows))
	for i, row := range rows {
		events[i] = SetAsideEvent{
			Cursor: cursorOf(row.EventID), Event: row.Event, Tries: int(row.Tries), Error: row.LastError,
			At: time.UnixMilli(row.SetAsideAtMs),
		}
	}
	return events, nil
}

// MoveConsumer moves a consumer to a cursor, forwards or backwards. The consumer continues with the first event after
// the cursor, and events handled again have their effects again. MoveConsumer clears the failure count; skipped events
// stay stored. A running process drops its pending events and rolls back an open transaction.
//
// Use [ConsumerStatus.Head] to skip all current events.
//
// Errors: [fferr.ErrInvalidInput], also for the zero cursor; [fferr.ErrNotFound]; [*GapError] if events after the cursor
// were deleted; [*CursorAheadError] if it is after the newest event; [fferr.ErrContention] if a handler's transaction
// outlasts three waits of 2 s: repeat the call. Transaction: two statements; a caller's transaction locks the row, which
// stops the consumer until it ends. Safe to repeat.
func MoveConsumer(ctx context.Context, eng *engine.Engine, outbox Outbox, name string, to Cursor) error {
	const op = "move consumer"
	if err := checkConsumer(outbox, name); err != nil {
		return core.OutcomeOf(op, err)
	}
	if to.IsZero() {
		return core.OutcomeOf(op, &fferr.InputError{Field: "to", Reason: "is the zero cursor: use Beginning or the Head of a status"})
	}
	q := db.New()
	_, err := onTx(ctx, eng, func(tx pgx.Tx) (struct{}, error) {
		n, err := q.MoveConsumer(ctx, tx, db.MoveConsumerParams{Outbox: string(outbox), Consumer: name, EventID: to.id})
		if err != nil {
			return struct{}{}, err
		}
		if n == 0 {
			return struct{}{}, &fferr.NotFoundError{Entity: "consumer", ID: name}
		}
		ends, err := q.GetOutboxEnds(ctx, tx, string(outbox))
		switch newest := max(ends.HeadEventID, ends.FloorEventID); {
		case err != nil:
			return struct{}{}, err
		case to.id < ends.FloorEventID:
			return struct{}{}, &GapError{Outbox: outbox, Requested: to, Oldest: cursorOf(ends.FloorEventID)}
		case to.id > newest:
			return struct{}{}, &CursorAheadError{Outbox: outbox, Cursor: to, Database: cursorOf(newest)}
		}
		return struct{}{}, nil
	})
	return classified(op, err)
}

// RemoveConsumer deletes a consumer and its skipped events. Trimming no longer waits for this consumer. Its running and
// waiting processes return [fferr.ErrNotFound]; a process started later creates it again.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound], also when repeated; [fferr.ErrContention], as for
// [MoveConsumer]. Transaction: two statements; locks the consumer.
func RemoveConsumer(ctx context.Context, eng *engine.Engine, outbox Outbox, name string) error {
	const op = "remove consumer"
	if err := checkConsumer(outbox, name); err != nil {
		return core.OutcomeOf(op, err)
	}
	q := db.New()
	_, err := onTx(ctx, eng, func(tx pgx.Tx) (struct{}, error) {
		n, err := q.RemoveConsumer(ctx, tx, db.RemoveConsumerParams{Outbox: string(outbox), Consumer: name})
		if err == nil && n == 0 {
			err = &fferr.NotFoundError{Entity: "consumer", ID: name}
		}
		if err != nil {
			return struct{}{}, err
		}
		_, err = q.ForgetSetAside(ctx, tx, db.ForgetSetAsideParams{Outbox: string(outbox), Consumer: name})
		return struct{}{}, err
	})
	return core.OutcomeOf(op, err)
}

// ForgetSetAside drops an event in [SetAside].
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound], also when repeated; [fferr.ErrContention]. Transaction: one
// statement.
func ForgetSetAside(ctx context.Context, eng *engine.Engine, outbox Outbox, name string, event Cursor) error {
	const op = "forget event set aside"
	if err := checkSetAside(outbox, name, event); err != nil {
		return core.OutcomeOf(op, err)
	}
	_, err := onTx(ctx, eng, func(tx pgx.Tx) (struct{}, error) {
		n, err := db.New().ForgetSetAside(ctx, tx, db.ForgetSetAsideParams{
			Outbox: string(outbox), Consumer: name, EventID: event.id,
		})
		if err == nil && n == 0 {
			err = &fferr.NotFoundError{Entity: "event set aside", ID: event.String()}
		}
		return struct{}{}, err
	})
	return core.OutcomeOf(op, err)
}

// RetrySetAside handles an event that the consumer has skipped. It calls fn once, in the transaction dropping the
// event, so fn's effects happen exactly once. If fn fails, the event stays and RetrySetAside returns fn's error. The
// consumer may be running or not. On an engine bound to a transaction, fn runs in a savepoint.
//
// Errors: fn's errors; [fferr.ErrInvalidInput]; [fferr.ErrNotFound] if the event is not in [SetAside] or another call
// is handling it; [*CorruptEventError] if the event cannot be read. Transaction: READ COMMITTED, at most a minute.
func RetrySetAside[E any](
	ctx context.Context, eng *engine.Engine, name string, src Source[E], event Cursor,
	fn func(ctx context.Context, tx pgx.Tx, event E) error,
) error {
	const op = "retry event set aside"
	if fn == nil {
		return core.OutcomeOf(op, &fferr.InputError{Field: "fn", Reason: "is nil"})
	}
	if err := readable(src); err != nil {
		return core.OutcomeOf(op, err)
	}
	if err := checkSetAside(Outbox(src.outbox), name, event); err != nil {
		return core.OutcomeOf(op, err)
	}
	retry := func(tx pgx.Tx) (struct{}, error) {
		document, err := db.New().DropSetAside(ctx, tx, db.DropSetAsideParams{
			Outbox: string(src.outbox), Consumer: name, EventID: event.id,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = &fferr.NotFoundError{Entity: "event set aside", ID: event.String()}
		}
		if err != nil {
			return struct{}{}, classified(op, err)
		}
		row, err := readStoredEvent(src.outbox, document)
		if err != nil {
			return struct{}{}, classified(op, &fferr.CorruptionError{Column: "ffx_outbox_set_aside.event"})
		}
		decoded, err := src.decode(row)
		if err != nil {
			return struct{}{}, classified(op, err)
		}
		return struct{}{}, guarded(tx, func() error { return fn(ctx, handlerTx{tx}, decoded) })
	}
	if tx := core.Of(eng).Tx; tx != nil {
		_, err := pgtx.InSavepoint(ctx, tx, retry)
		return err
	}
	runner := pgtx.NewRunner(eng.Pool())
	tx, err := runner.BeginForeign(ctx, DefaultConsumerTimeout)
	if err != nil {
		return classified(op, err)
	}
	defer pgtx.Rollback(tx)
	if _, err := retry(tx); err != nil {
		return err
	}
	return classified(op, tx.Commit(ctx))
}

// classified adds op to an error, and keeps this package's errors as they are.
func classified(op string, err error) error {
	_, isCorrupt := errors.AsType[*CorruptEventError](err)
	if isCorrupt || errors.Is(err, ErrGap) || errors.Is(err, ErrCursorAhead) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return core.OutcomeOf(op, err)
}

func checkConsumer(outbox Outbox, name string) error {
	if err := checkOutbox(outbox); err != nil {
		return err
	}
	return checkConsumerName(name)
}

func checkSetAside(outbox Outbox, name string, event Cursor) error {
	if err := checkConsumer(outbox, name); err != nil {
		return err
	}
	if event.id == 0 {
		return &fferr.InputError{Field: "event", Reason: "names no event"}
	}
	return nil
}

// onStatement runs a read-only statement, on the pool or in the engine's transaction.
func onStatement[T any](ctx context.Context, eng *engine.Engine, fn func(conn db.DBTX) (T, error)) (T, error) {
	if tx := core.Of(eng).Tx; tx != nil {
		return fn(pgtx.Callers(tx))
	}
	runner := pgtx.NewRunner(eng.Pool())
	return fn(runner.AtOnce())
}

// onTx runs fn in a transaction, or in a savepoint of the one the engine is bound to.
func onTx[T any](ctx context.Context, eng *engine.Engine, fn func(tx pgx.Tx) (T, error)) (T, error) {
	if tx := core.Of(eng).Tx; tx != nil {
		return pgtx.InCallers(ctx, tx, fn)
	}
	runner := pgtx.NewRunner(eng.Pool())
	return pgtx.InTx(ctx, &runner, fn)
}
