package core

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// Limits of one call of a job, besides its batch.
const (
	ScanPage     = MaxBatch // rows per scan
	SmallestTake = 64       // minimum number of rows offered to a transaction, because some may be locked
	LateWaits    = 100      // waits of 50 ms for locks needed by endings only
	comebacks    = 8        // busy flows to wait for, 50 ms each
)

// A Candidate is a due execution found by a job but not locked yet.
type Candidate struct {
	Partition int16
	Execution id.ExecutionUUID
	Attempt   int32      // the attempt whose lease or time has ended
	Flow      *id.FlowID // the flow whose exclusive lock the end needs; nil if none is expected
}

// A Pass is one call of a job. It skips locked flows and rows instead of waiting, examines each due row once, however
// many are locked, and acts on at most a batch.
type Pass struct {
	*Core
	Op string

	// act handles at most limit due rows, and skips locked ones. It holds the locks of flows exclusively.
	act func(ctx context.Context, tx *Txn, flows *FlowSet, due []Candidate, limit int) (int, error)

	busy  map[id.FlowID][]Candidate // skipped because of their flow
	waits int                       // for locks needed by endings only
}

// NewPass returns a pass of a job.
func (c *Core) NewPass(
	op string, act func(ctx context.Context, tx *Txn, flows *FlowSet, due []Candidate, limit int) (int, error),
) *Pass {
	return &Pass{Core: c.ShortWait(), Op: op, act: act, busy: make(map[id.FlowID][]Candidate)}
}

// Through acts on up to batch rows found by scan. Each scan continues after the last one, and may itself handle as many
// rows as its argument says. No row is examined twice, except rows of a few busy flows.
func (p *Pass) Through(
	ctx context.Context, batch int, scan func(room int) (due []Candidate, done int, more bool, err error),
) (acted int, err error) {
	for more := true; more && acted < batch; {
		var due []Candidate
		var n int
		if due, n, more, err = scan(batch - acted); err != nil {
			return acted, err
		}
		acted += n
		n, err = p.Work(ctx, due, batch-acted)
		acted += n
		if err != nil {
			return acted, err
		}
	}
	n, err := p.comeBack(ctx, batch-acted)
	return acted + n, err
}

// Work acts on at most limit of due, in transactions of as many flows as one may lock.
func (p *Pass) Work(ctx context.Context, due []Candidate, limit int) (acted int, err error) {
	for len(due) > 0 && acted < limit {
		next := p.cut(due, max(limit-acted, SmallestTake))
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
func (p *Pass) cut(due []Candidate, n int) int {
	flows := NewFlowSet(p.Partitions)
	for i, c := range due[:min(n, len(due))] {
		if !flows.Admit(c.Flow) {
			return i
		}
	}
	return min(n, len(due))
}

// try acts on at most limit of due in one transaction. If it meets an unexpected lock, it tries each half separately,
// so that only locked rows are left out.
func (p *Pass) try(ctx context.Context, due []Candidate, limit int) (int, error) {
	var free, busy []Candidate
	n, err := InTx(ctx, p.Core, p.Op, func(tx *Txn) (int, error) {
		flows := NewFlowSet(p.Partitions)
		for _, c := range due {
			if c.Flow != nil && len(p.busy[*c.Flow]) == 0 {
				flows.Add(*c.Flow)
			}
		}
		if err := p.TryFlowsExclusive(ctx, tx, flows); err != nil {
			return 0, err
		}
		free, busy = nil, nil
		for _, c := range due {
			if c.Flow == nil || flows.Has(*c.Flow) {
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
		if len(p.busy[*c.Flow]) < MaxBatch {
			p.busy[*c.Flow] = append(p.busy[*c.Flow], c)
		}
	}
	if !errors.Is(err, fferr.ErrBusy) {
		return n, err
	}
	if p.waits++; len(free) == 1 || p.waits >= LateWaits {
		return 0, nil
	}
	// In random order: after the last wait allowed for a call, the rest is left for the next call.
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

// comeBack queues once for the locks of a few busy flows, because a flow whose members complete all the time is hardly
// ever free. The flows are chosen at random, so none is left out forever.
func (p *Pass) comeBack(ctx context.Context, limit int) (acted int, err error) {
	if p.Tx != nil {
		return 0, nil // a caller's transaction might wait long
	}
	tries := 0
	for flow, due := range p.busy {
		if acted == limit || tries == comebacks {
			break
		}
		tries++
		n, err := InTx(ctx, p.Core, p.Op, func(tx *Txn) (int, error) {
			flows := NewFlowSet(p.Partitions)
			flows.Add(flow)
			if err := p.LockFlowsExclusive(ctx, tx, flows); err != nil {
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

// LockCurrentAttempts locks the current attempts of locked executions, and returns the attempts by execution. Attempts
// locked by others are marked busy.
func (c *Core) LockCurrentAttempts(
	ctx context.Context, tx db.DBTX, executions ExecutionArrays,
) (map[id.ExecutionUUID]db.TakeCurrentAttemptsRow, error) {
	rows, err := c.Q.TakeCurrentAttempts(ctx, tx, db.TakeCurrentAttemptsParams{
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
