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
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// ConsumerStatus is what the database knows of a named consumer.
type ConsumerStatus struct {
	Outbox Outbox
	Name   string

	Position Cursor // it is through with every event up to here
	Head     Cursor // the newest event that can be read
	Oldest   Cursor // behind it every event is there
	Lag      int64  // how many ids are between the two: at most so many events, fewer where transactions rolled back or the filter leaves some out

	Gone      bool      // events behind Position were deleted: a handler of it ends with a [*GapError]
	UpdatedAt time.Time // when a process last worked for it
	Stale     bool      // that is seven days ago: events behind Position may be trimmed

	Holder    string        // who works for it: host, process and a random part; "" when nobody does
	HeldUntil time.Time     // when others take over, if the holder is silent until then; zero without one
	Failing   *FailingEvent // nil: the handler is not failing
	SetAside  int64         // how many events were set aside
}

// FailingEvent is an event at which the handler of a consumer has failed, and which it will try again.
type FailingEvent struct {
	Event    Cursor
	Tries    int // alone
	FailedAt time.Time
	NextTry  time.Time
	Error    string // what the handler returned last, cut at 16 KiB
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
		return nil, engine.Classify(op, err)
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

// SetAsideEvent is an event that a consumer went past without having handled it.
type SetAsideEvent struct {
	Cursor Cursor
	Event  json.RawMessage // an object: the columns of its outbox that hold something, by name, and its execution's kind, lane, node key and tags; its row there may be gone
	Tries  int             // how often the handler failed at it, alone; 0: it could not be read
	Error  string          // what the handler returned last, cut at 16 KiB; or why it could not be read
	At     time.Time       // when the consumer went past it
}

// SetAside returns events that a consumer has set aside, ascending, after a cursor: [Beginning], or the zero cursor,
// for the first. limit is how many at most; 0: [engine.MaxPage], which no page exceeds. Where as many come as were asked
// for, the next call goes on behind the last one's cursor. A consumer that is not there has none.
//
// [RetrySetAside] handles one after all, [ForgetSetAside] drops what is dealt with; nothing else does.
//
// Errors: [engine.ErrInvalidInput]. Transaction: one statement; locks nothing.
func SetAside(ctx context.Context, eng *engine.Engine, outbox Outbox, name string, after Cursor, limit int) ([]SetAsideEvent, error) {
	const op = "list events set aside"
	if err := checkConsumer(outbox, name); err != nil {
		return nil, engine.Classify(op, err)
	}
	if limit < 0 {
		return nil, engine.Classify(op, &engine.InputError{Field: "limit", Reason: "is negative"})
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
		return nil, engine.Classify(op, err)
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

// MoveConsumer moves a consumer to a cursor, back or forth: it goes on with the first event behind it. What its handler
// failed at is forgotten; what it has set aside stays. A process that works for it drops what it has read, and what it was
// in the middle of is not committed or was committed before.
//
// [ConsumerStatus.Head] as the cursor leaves out all that is there now. An event that is handled a second time has its effects a
// second time, unless the handler knows better.
//
// Errors: [engine.ErrInvalidInput], for the zero cursor too; [engine.ErrNotFound]; a [*GapError], when events behind the
// cursor are gone, and a [*CursorAheadError], when it is beyond the newest; [engine.ErrContention], while a handler's
// transaction takes longer than it waits: 2 s, three times; repeat it. Transaction: two statements; in a caller's
// transaction the row is locked until its end, and the consumer stands still. Safe to repeat.
func MoveConsumer(ctx context.Context, eng *engine.Engine, outbox Outbox, name string, to Cursor) error {
	const op = "move consumer"
	if err := checkConsumer(outbox, name); err != nil {
		return engine.Classify(op, err)
	}
	if to.IsZero() {
		return engine.Classify(op, &engine.InputError{Field: "to", Reason: "is the zero cursor: name one, as Beginning or the Head of a status"})
	}
	q := db.New()
	_, err := onTx(ctx, eng, func(tx pgx.Tx) (struct{}, error) {
		n, err := q.MoveConsumer(ctx, tx, db.MoveConsumerParams{Outbox: string(outbox), Consumer: name, EventID: to.id})
		if err != nil {
			return struct{}{}, err
		}
		if n == 0 {
			return struct{}{}, &engine.NotFoundError{Entity: "consumer", ID: name}
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

// RemoveConsumer forgets a consumer and what it has set aside. Trimming no longer waits for it. A process that works for it, or
// waits to, ends with [engine.ErrNotFound]; one that starts later begins anew.
//
// Errors: [engine.ErrInvalidInput]; [engine.ErrNotFound]; [engine.ErrContention], as of [MoveConsumer]. Transaction: two
// statements; locks the consumer. Repeated, it finds nothing.
func RemoveConsumer(ctx context.Context, eng *engine.Engine, outbox Outbox, name string) error {
	const op = "remove consumer"
	if err := checkConsumer(outbox, name); err != nil {
		return engine.Classify(op, err)
	}
	q := db.New()
	_, err := onTx(ctx, eng, func(tx pgx.Tx) (struct{}, error) {
		n, err := q.RemoveConsumer(ctx, tx, db.RemoveConsumerParams{Outbox: string(outbox), Consumer: name})
		if err == nil && n == 0 {
			err = &engine.NotFoundError{Entity: "consumer", ID: name}
		}
		if err != nil {
			return struct{}{}, err
		}
		_, err = q.ForgetSetAside(ctx, tx, db.ForgetSetAsideParams{Outbox: string(outbox), Consumer: name})
		return struct{}{}, err
	})
	return engine.Classify(op, err)
}

// ForgetSetAside drops an event that a consumer has set aside, once it is dealt with.
//
// Errors: [engine.ErrInvalidInput]; [engine.ErrNotFound]; [engine.ErrContention]. Transaction: one statement. Repeated, it
// finds nothing.
func ForgetSetAside(ctx context.Context, eng *engine.Engine, outbox Outbox, name string, event Cursor) error {
	const op = "forget event set aside"
	if err := checkSetAside(outbox, name, event); err != nil {
		return engine.Classify(op, err)
	}
	_, err := onTx(ctx, eng, func(tx pgx.Tx) (struct{}, error) {
		n, err := db.New().ForgetSetAside(ctx, tx, db.ForgetSetAsideParams{
			Outbox: string(outbox), Consumer: name, EventID: event.id,
		})
		if err == nil && n == 0 {
			err = &engine.NotFoundError{Entity: "event set aside", ID: event.String()}
		}
		return struct{}{}, err
	})
	return engine.Classify(op, err)
}

// RetrySetAside handles an event after all that the consumer of that name has set aside: fn runs in the transaction that
// drops it, once, so that its effects happen exactly once. With an error of fn, which it returns, nothing has happened. It
// does not matter whether the consumer runs. On an engine bound to a transaction fn runs in a savepoint of that.
//
// Errors: fn's; [engine.ErrInvalidInput]; [engine.ErrNotFound], when it is not set aside, or somebody else is at it;
// a [*CorruptEventError], when it cannot be read. Transaction: READ COMMITTED, a minute at most.
func RetrySetAside[E any](
	ctx context.Context, eng *engine.Engine, name string, src Source[E], event Cursor,
	fn func(ctx context.Context, tx pgx.Tx, event E) error,
) error {
	const op = "retry event set aside"
	if fn == nil {
		return engine.Classify(op, &engine.InputError{Field: "fn", Reason: "is nil"})
	}
	if err := readable(src); err != nil {
		return engine.Classify(op, err)
	}
	if err := checkSetAside(Outbox(src.outbox), name, event); err != nil {
		return engine.Classify(op, err)
	}
	retry := func(tx pgx.Tx) (struct{}, error) {
		document, err := db.New().DropSetAside(ctx, tx, db.DropSetAsideParams{
			Outbox: string(src.outbox), Consumer: name, EventID: event.id,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = &engine.NotFoundError{Entity: "event set aside", ID: event.String()}
		}
		if err != nil {
			return struct{}{}, classified(op, err)
		}
		row, err := readStoredEvent(src.outbox, document)
		if err != nil {
			return struct{}{}, classified(op, &engine.CorruptionError{Column: "ffx_outbox_set_aside.event"})
		}
		decoded, err := src.decode(row)
		if err != nil {
			return struct{}{}, classified(op, err)
		}
		return struct{}{}, guarded(tx, func() error { return fn(ctx, handlerTx{tx}, decoded) })
	}
	if tx := eng.Tx(); tx != nil {
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

// classified names the operation that ended with an error, which may be one of this package.
func classified(op string, err error) error {
	_, isCorrupt := errors.AsType[*CorruptEventError](err)
	if isCorrupt || errors.Is(err, ErrGap) || errors.Is(err, ErrCursorAhead) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return engine.Classify(op, err)
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
		return &engine.InputError{Field: "event", Reason: "names no event"}
	}
	return nil
}

// onStatement runs a statement that writes nothing, where the engine runs its own.
func onStatement[T any](ctx context.Context, eng *engine.Engine, fn func(conn db.DBTX) (T, error)) (T, error) {
	if tx := eng.Tx(); tx != nil {
		return fn(pgtx.Callers(tx))
	}
	runner := pgtx.NewRunner(eng.Pool())
	return fn(runner.AtOnce())
}

// onTx runs fn in a transaction, or behind a savepoint of the one that the engine is bound to.
func onTx[T any](ctx context.Context, eng *engine.Engine, fn func(tx pgx.Tx) (T, error)) (T, error) {
	if tx := eng.Tx(); tx != nil {
		return pgtx.InCallers(ctx, tx, fn)
	}
	runner := pgtx.NewRunner(eng.Pool())
	return pgtx.InTx(ctx, &runner, fn)
}
