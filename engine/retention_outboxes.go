package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

const (
	// eventsPerItem is how many events of an outbox are trimmed for each item of a batch: an execution leaves several.
	eventsPerItem = 10

	// trimAnew is how often trimming looks from the oldest event on, for those that were committed long after others.
	trimAnew = 10 * time.Minute
)

// trimPositions are where the next [Maintenance.TrimOutboxes] goes on in each outbox: what it has deleted stands before
// the oldest event until a vacuum.
type trimPositions struct {
	mu    sync.Mutex
	after map[string]int64
	begun map[string]time.Time
	final finalities
}

func (p *trimPositions) get(outbox string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == nil {
		p.after, p.begun = make(map[string]int64), make(map[string]time.Time)
	}
	if time.Since(p.begun[outbox]) > trimAnew {
		p.after[outbox], p.begun[outbox] = 0, time.Now()
	}
	return p.after[outbox]
}

// move moves from where a call began to where it ended, unless another call has moved meanwhile.
func (p *trimPositions) move(outbox string, from, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after[outbox] == from {
		p.after[outbox] = to
	}
}

// TrimOutboxes deletes the oldest events of the four outboxes that are older than [Config.OutboxRetention], of each at
// most ten times batch, and returns how many it deleted. The caller repeats it while that is batch or more.
//
// Events go in their order, so that a reader knows by one number what it may have missed. The first that is younger ends
// what is deleted, a completion that is not dispatched or that [Maintenance.Retain] has not come past, and the
// position of a named consumer that was stored in the last seven days. One that was not is passed, and the log told of it.
// So does the first id that may belong to a transaction that has not ended: its readers stand before it, and have not been
// handed what comes after it.
//
// Errors: [ErrInvalidInput]; [ErrDenied] naming the grant, without the right to a sequence; [ErrBusy] where somebody else held
// events of an outbox; the others were trimmed all the same.
// Transaction: one for each outbox; in a caller's transaction it keeps the rows of their floors locked. The commit does
// not wait for the disk, since what it deletes would be found again. Emits nothing. Safe to repeat and to run in any
// number of processes.
func (m Maintenance) TrimOutboxes(ctx context.Context, batch int) (int, error) {
	const op = "trim outboxes"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	e := m.e.impatient()
	keepMs := retentionMs(e.cfg.OutboxRetention)
	if keepMs == forever {
		return 0, nil
	}
	nowMs, err := e.q.GetNow(ctx, e.reader(), e.nowMs())
	if err != nil {
		return 0, wrap(op, err)
	}
	if err := e.tellStaleConsumers(ctx); err != nil {
		return 0, wrap(op, err)
	}
	upTo, err := e.finalEvents(ctx)
	if err != nil {
		return 0, wrap(op, err)
	}
	total, busy := 0, error(nil)
	for _, outbox := range e.trimmedOutboxes() {
		n, err := e.trim(ctx, op, outbox, nowMs-keepMs, upTo[outbox.name], batch*eventsPerItem)
		switch {
		case errors.Is(err, ErrBusy):
			busy = err
		case err != nil:
			return total, err
		}
		total += n
	}
	return total, busy
}

// trimmedOutbox can be trimmed.
type trimmedOutbox struct {
	name string
	trim func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error)
}

// outboxes returns them in the order in which their floors are locked.
func (e *Engine) trimmedOutboxes() []trimmedOutbox {
	return []trimmedOutbox{
		{"completion", e.q.TrimCompletionEvents},
		{"lease", func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error) {
			row, err := e.q.TrimLeaseEvents(ctx, conn, db.TrimLeaseEventsParams(p))
			return db.TrimCompletionEventsRow(row), err
		}},
		{"operator", func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error) {
			row, err := e.q.TrimOperatorEvents(ctx, conn, db.TrimOperatorEventsParams(p))
			return db.TrimCompletionEventsRow(row), err
		}},
		{"signal", func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error) {
			row, err := e.q.TrimSignalEvents(ctx, conn, db.TrimSignalEventsParams(p))
			return db.TrimCompletionEventsRow(row), err
		}},
	}
}

// trim deletes at most limit events of an outbox, up to an id, that are older than beforeMs.
func (e *Engine) trim(ctx context.Context, op string, o trimmedOutbox, beforeMs, upTo int64, limit int) (int, error) {
	params := db.TrimCompletionEventsParams{PageSize: int32(limit), BeforeMs: beforeMs, UpToEventID: upTo, NowMs: e.nowMs()}
	if e.tx == nil { // what a caller's transaction deletes may come back
		params.AfterEventID = e.trimmed.get(o.name)
	}
	if upTo <= params.AfterEventID { // nothing stands between
		return 0, nil
	}
	done, err := e.deleteAlone(ctx)
	if err != nil {
		return 0, wrap(op, err)
	}
	defer done()
	var row db.TrimCompletionEventsRow
	trim := func(conn db.DBTX) (err error) {
		row, err = o.trim(ctx, conn, params)
		return err
	}
	if e.tx != nil {
		_, err := inTx(ctx, e, op, func(tx *txn) (struct{}, error) { return struct{}{}, trim(tx) })
		if pgtx.SQLState(err) == sqlLockNotAvailable {
			err = wrap(op, ErrBusy)
		}
		return int(row.Deleted), err
	}
	err = inStatements(ctx, e, op, func(*notifications) []step {
		return []step{func(conn db.DBTX) error { return e.q.CommitLazily(ctx, conn) }, trim}
	})
	if err != nil {
		return 0, err
	}
	e.trimmed.move(o.name, params.AfterEventID, row.Reached)
	return int(row.Deleted), nil
}
