package upkeep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// idleKeyAfter is the time since the last admission at a key after which the key is deleted.
const idleKeyAfter = time.Hour

// crowdedKey is the number of admissions from which a key in use is counted, to delete admissions of ended executions.
// A limit may be so wide that an admission never needs a count.
const crowdedKey = 1000

// keySweep is where the next call of the job forget_limit_keys continues.
type keySweep struct {
	mu    sync.Mutex
	after core.RowPosition
}

// ForgetLimitKeys deletes keys of limits at which nothing has been admitted for an hour, nothing is in use, nothing
// waits and no hold is in force, with their admissions. The next execution creates the key again. At keys in use with a thousand admissions, it
// deletes the admissions that no longer count. It examines up to batch keys, at most [core.MaxSweep], in the order of
// their rows, and returns how many it deleted. Each call continues after the previous one of the same engine, and
// begins again after the last row.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement without locks, and a transaction per 200 such keys, which
// skips locked ones. Safe to repeat and to run in any number of processes.
func (u *Upkeep) ForgetLimitKeys(ctx context.Context, batch int) (int, error) {
	const op = "forget keys of limits"
	u = u.shortWait()
	if batch < 1 || batch > core.MaxSweep {
		return 0, core.Invalid("batch", fmt.Sprintf("must be between 1 and %d", core.MaxSweep))
	}
	u.keySweep.mu.Lock()
	from := u.keySweep.after
	u.keySweep.mu.Unlock()
	partition, after := from.After()
	rows, err := u.c.Q.ListIdleGates(ctx, u.c.Reader(), db.ListIdleGatesParams{
		NowMs: u.c.NowMs(), IdleMs: idleKeyAfter.Milliseconds(), Crowded: crowdedKey, AfterPartitionKey: partition, AfterGateID: after, PageSize: int32(batch),
	})
	if err != nil {
		return 0, core.Wrap(op, err)
	}
	var next core.RowPosition
	var due []gate.ID
	for _, row := range rows {
		if row.Due {
			due = append(due, row.GateID.Bytes)
		}
		next = core.RowPosition{Partition: row.PartitionKey, Key: row.GateID}
	}
	if len(rows) < batch {
		next = core.RowPosition{}
	}
	forgotten := 0
	for len(due) > 0 {
		some := due[:min(len(due), maxPassGates)]
		due = due[len(some):]
		n, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (int, error) { return u.forgetKeys(ctx, tx, some) })
		forgotten += n
		if err != nil {
			return forgotten, err
		}
	}
	u.keySweep.mu.Lock()
	if u.keySweep.after == from { // no other call has moved the position
		u.keySweep.after = next
	}
	u.keySweep.mu.Unlock()
	return forgotten, nil
}

// forgetKeys locks keys, counts their admissions, and deletes unused keys.
func (u *Upkeep) forgetKeys(ctx context.Context, tx *core.Txn, keys []gate.ID) (int, error) {
	pass := core.GateLocks{C: u.c, Whole: true}
	pass.Begin()
	if err := pass.Take(ctx, tx, keys); err != nil {
		return 0, err
	}
	if err := pass.CountPages(ctx, tx, keys); err != nil {
		return 0, err
	}
	unused := db.DropIdleGatesParams{NowMs: u.c.NowMs()}
	counted := db.RaiseGatesParams{NowMs: u.c.NowMs()}
	for _, g := range keys {
		switch t := pass.Taken[g]; {
		case t == nil:
		case t.Held == 0 && t.Started == 0:
			unused.PartitionKeys, unused.GateIDs = append(unused.PartitionKeys, core.GatePartition(g)), append(unused.GateIDs, core.PgGate(g))
		case t.Changed:
			counted.PartitionKeys, counted.GateIDs = append(counted.PartitionKeys, core.GatePartition(g)), append(counted.GateIDs, core.PgGate(g))
			counted.Held, counted.Started = append(counted.Held, t.Held), append(counted.Started, t.Started)
			counted.NextAtMs, counted.Used = append(counted.NextAtMs, t.NextMs), append(counted.Used, false)
		}
	}
	if len(counted.GateIDs) > 0 {
		if err := u.c.Q.RaiseGates(ctx, tx, counted); err != nil {
			return 0, err
		}
	}
	if len(unused.GateIDs) == 0 {
		return 0, nil
	}
	n, err := u.c.Q.DropIdleGates(ctx, tx, unused)
	return int(n), err
}
