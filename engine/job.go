package engine

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Failure reasons that background jobs store on executions.
const (
	reasonDeadline = "execution_deadline"
)

// Limits of one call of a job, besides its batch.
const (
	scanPage     = MaxBatch // rows per scan
	smallestTake = 64       // minimum number of rows offered to a transaction, because some may be locked
	lateWaits    = 100      // waits of 50 ms for locks that only endings need
	comebacks    = 8        // busy flows to wait for, 50 ms each
)

// sweepPositions are the places where this process's sweeps continue.
type sweepPositions struct {
	repair     repairPosition
	groups     groupPosition
	summarised flowPosition
	waits      waitPositions
}

// A candidate is a due execution that a job found but has not locked yet.
type candidate struct {
	partition int16
	execution id.ExecutionUUID
	attempt   int32      // the attempt whose lease or time has ended
	flow      *id.FlowID // the flow whose exclusive lock its end needs; nil if none is expected
}

// A pass is one call of a job. It never waits for locked flows and rows, but skips them. It examines each due row once,
// however many are locked, and acts on at most a batch.
type pass struct {
	*Engine
	op string

	// act handles at most limit of the due rows that it can lock. It holds the locks of flows exclusively.
	act func(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []candidate, limit int) (int, error)

	busy  map[id.FlowID][]candidate // skipped because of their flow
	waits int                       // for locks that only endings need
}

func (e *Engine) newPass(
	op string, act func(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []candidate, limit int) (int, error),
) *pass {
	return &pass{Engine: e.impatient(), op: op, act: act, busy: make(map[id.FlowID][]candidate)}
}

// through acts on up to batch rows found by scan. Each scan continues after the last one, and may itself handle up to
// room rows. No row is examined twice, except those of a few busy flows.
func (p *pass) through(
	ctx context.Context, batch int, scan func(room int) (due []candidate, done int, more bool, err error),
) (acted int, err error) {
	for more := true; more && acted < batch; {
		var due []candidate
		var n int
		if due, n, more, err = scan(batch - acted); err != nil {
			return acted, err
		}
		acted += n
		n, err = p.work(ctx, due, batch-acted)
		acted += n
		if err != nil {
			return acted, err
		}
	}
	n, err := p.comeBack(ctx, batch-acted)
	return acted + n, err
}

// work acts on at most limit of due, in transactions of as many flows as one may lock.
func (p *pass) work(ctx context.Context, due []candidate, limit int) (acted int, err error) {
	for len(due) > 0 && acted < limit {
		next := p.cut(due, max(limit-acted, smallestTake))
		n, err := p.try(ctx, due[:next], limit-acted)
		acted += n
		if err != nil {
			return acted, err
		}
		due = due[next:]
	}
	return acted, nil
}

// cut returns how many of due one transaction may handle, at most n.
func (p *pass) cut(due []candidate, n int) int {
	flows := core.NewFlowSet(p.cfg.Partitions)
	for i, c := range due[:min(n, len(due))] {
		if !flows.Admit(c.flow) {
			return i
		}
	}
	return min(n, len(due))
}

// try acts on at most limit of due in one transaction. If it meets an unexpected lock, it tries each half separately,
// so that only locked rows are left out.
func (p *pass) try(ctx context.Context, due []candidate, limit int) (int, error) {
	var free, busy []candidate
	n, err := core.InTx(ctx, p.Engine.c, p.op, func(tx *core.Txn) (int, error) {
		flows := core.NewFlowSet(p.cfg.Partitions)
		for _, c := range due {
			if c.flow != nil && len(p.busy[*c.flow]) == 0 {
				flows.Add(*c.flow)
			}
		}
		if err := p.c.TryFlowsExclusive(ctx, tx, flows); err != nil {
			return 0, err
		}
		free, busy = nil, nil
		for _, c := range due {
			if c.flow == nil || flows.Has(*c.flow) {
				free = append(free, c)
			} else {
				busy = append(busy, c)
			}
		}
		if len(free) == 0 {
			return 0, nil
		}
		return p.act(ctx, tx, flows, free, limit)
	})
	for _, c := range busy {
		if len(p.busy[*c.flow]) < MaxBatch {
			p.busy[*c.flow] = append(p.busy[*c.flow], c)
		}
	}
	if !errors.Is(err, fferr.ErrBusy) {
		return n, err
	}
	if p.waits++; len(free) == 1 || p.waits >= lateWaits {
		return 0, nil
	}
	// In random order: after the last wait that a call may spend, the rest is left for the next call.
	first, second := free[:len(free)/2], free[len(free)/2:]
	if rand.IntN(2) == 0 {
		first, second = second, first
	}
	acted, err := p.try(ctx, first, limit)
	if err != nil || acted == limit {
		return acted, err
	}
	n, err = p.try(ctx, second, limit-acted)
	return acted + n, err
}

// comeBack queues once for the locks of a few flows that were busy, because a flow whose members complete all the time
// is hardly ever free. They are chosen at random, so that none is left out forever.
func (p *pass) comeBack(ctx context.Context, limit int) (acted int, err error) {
	if p.c.Tx != nil {
		return 0, nil // a caller's transaction might wait long
	}
	tries := 0
	for flow, due := range p.busy {
		if acted == limit || tries == comebacks {
			break
		}
		tries++
		n, err := core.InTx(ctx, p.Engine.c, p.op, func(tx *core.Txn) (int, error) {
			flows := core.NewFlowSet(p.cfg.Partitions)
			flows.Add(flow)
			if err := p.c.LockFlowsExclusive(ctx, tx, flows); err != nil {
				return 0, err
			}
			return p.act(ctx, tx, flows, due, limit-acted)
		})
		if err != nil && !errors.Is(err, fferr.ErrBusy) {
			return acted, err
		}
		acted += n
	}
	return acted, nil
}

// lockCurrentAttempts locks the current attempts of locked executions, and returns them by execution. Locked attempts
// are marked busy.
func (e *Engine) lockCurrentAttempts(
	ctx context.Context, tx db.DBTX, executions core.ExecutionArrays,
) (map[id.ExecutionUUID]db.TakeCurrentAttemptsRow, error) {
	rows, err := e.c.Q.TakeCurrentAttempts(ctx, tx, db.TakeCurrentAttemptsParams{
		PartitionKeys: executions.Partitions, ExecutionIDs: executions.Executions,
	})
	if err != nil {
		return nil, err
	}
	current := make(map[id.ExecutionUUID]db.TakeCurrentAttemptsRow, len(rows))
	for _, row := range rows {
		current[row.ExecutionID] = row
	}
	return current, nil
}

// PruneCreationKeys deletes idempotency keys whose window has passed, at most batch of them, and returns how many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked keys. Safe to repeat and to run in any number of
// processes.
func (m Maintenance) PruneCreationKeys(ctx context.Context, batch int) (int, error) {
	e := m.e
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, e.impatient().c, "prune creation keys", func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := e.c.Q.PruneCreationKeys(ctx, conn, db.PruneCreationKeysParams{NowMs: e.c.NowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}
