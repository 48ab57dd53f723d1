package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

const (
	// eventsPerItem is the number of events trimmed per outbox and item of a batch, because an execution leaves
	// several.
	eventsPerItem = 10

	// trimAnew is how often trimming restarts at the oldest event, for events committed long after later ones.
	trimAnew = 10 * time.Minute
)

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

// move moves the position from the start of a call to the end, unless another call has moved the position.
func (p *trimPositions) move(outbox string, from, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after[outbox] == from {
		p.after[outbox] = to
	}
}

// TrimOutboxes deletes the oldest events of the four outboxes, after [engine.Config.OutboxRetention]. It deletes at
// most ten times batch per outbox and returns how many it deleted.
//
// Events are deleted in order. In each outbox, trimming stops at the first event that is too recent, undispatched, not
// yet examined by [Upkeep.Retain], or after an id that an open transaction may use, and at a named consumer's position
// stored in the last seven days. Older positions are logged and ignored.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrDenied] naming the grant if the right to a sequence is missing; [fferr.ErrBusy] if
// events of an outbox were locked; the other outboxes were trimmed. Transaction: one per outbox; a caller's transaction keeps
// the floors' rows locked. Commits don't wait for the disk, since lost deletions are repeated. Emits nothing. Safe to repeat
// and to run in any number of processes.
func (u *Upkeep) TrimOutboxes(ctx context.Context, batch int) (int, error) {
	const op = "trim outboxes"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	keepMs := core.RetentionMs(u.c.OutboxRetention)
	if keepMs == core.Forever {
		return 0, nil
	}
	nowMs, err := u.c.Q.GetNow(ctx, u.c.Reader(), u.c.NowMs())
	if err != nil {
		return 0, core.Wrap(op, err)
	}
	if err := u.logStaleConsumers(ctx); err != nil {
		return 0, core.Wrap(op, err)
	}
	upTo, err := u.finalEvents(ctx)
	if err != nil {
		return 0, core.Wrap(op, err)
	}
	total, busy := 0, error(nil)
	for _, outbox := range u.trimmedOutboxes() {
		n, err := u.trim(ctx, op, outbox, nowMs-keepMs, upTo[outbox.name], batch*eventsPerItem)
		switch {
		case errors.Is(err, fferr.ErrBusy):
			busy = err
		case err != nil:
			return total, err
		}
		total += n
	}
	return total, busy
}

// trimmedOutbox is an outbox that can be trimmed.
type trimmedOutbox struct {
	name string
	trim func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error)
}

// trimmedOutboxes returns the outboxes in the order in which their floors are locked.
func (u *Upkeep) trimmedOutboxes() []trimmedOutbox {
	return []trimmedOutbox{
		{"completion", u.c.Q.TrimCompletionEvents},
		{"lease", func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error) {
			row, err := u.c.Q.TrimLeaseEvents(ctx, conn, db.TrimLeaseEventsParams(p))
			return db.TrimCompletionEventsRow(row), err
		}},
		{"operator", func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error) {
			row, err := u.c.Q.TrimOperatorEvents(ctx, conn, db.TrimOperatorEventsParams(p))
			return db.TrimCompletionEventsRow(row), err
		}},
		{"signal", func(ctx context.Context, conn db.DBTX, p db.TrimCompletionEventsParams) (db.TrimCompletionEventsRow, error) {
			row, err := u.c.Q.TrimSignalEvents(ctx, conn, db.TrimSignalEventsParams(p))
			return db.TrimCompletionEventsRow(row), err
		}},
	}
}

// trim deletes at most limit events of an outbox, up to an id and older than beforeMs.
func (u *Upkeep) trim(ctx context.Context, op string, o trimmedOutbox, beforeMs, upTo int64, limit int) (int, error) {
	params := db.TrimCompletionEventsParams{PageSize: int32(limit), BeforeMs: beforeMs, UpToEventID: upTo, NowMs: u.c.NowMs()}
	if u.c.Tx == nil { // deletions of a caller's transaction may be rolled back
		params.AfterEventID = u.trimmed.get(o.name)
	}
	if upTo <= params.AfterEventID { // no event is in between
		return 0, nil
	}
	done, err := u.deleteAlone(ctx)
	if err != nil {
		return 0, core.Wrap(op, err)
	}
	defer done()
	var row db.TrimCompletionEventsRow
	trim := func(conn db.DBTX) (err error) {
		row, err = o.trim(ctx, conn, params)
		return err
	}
	if u.c.Tx != nil {
		_, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (struct{}, error) { return struct{}{}, trim(tx) })
		if pgtx.SQLState(err) == core.SQLLockNotAvailable {
			err = core.Wrap(op, fferr.ErrBusy)
		}
		return int(row.Deleted), err
	}
	err = core.InStatements(ctx, u.c, op, func(*core.Notifications) []core.Step {
		return []core.Step{func(conn db.DBTX) error { return u.c.Q.CommitLazily(ctx, conn) }, trim}
	})
	if err != nil {
		return 0, err
	}
	u.trimmed.move(o.name, params.AfterEventID, row.Reached)
	return int(row.Deleted), nil
}
