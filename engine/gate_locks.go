package engine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// gateLocks has the limits that a transaction has locked, and the admissions that it makes there.
type gateLocks struct {
	*Engine
	state   gate.State
	taken   map[gate.ID]*takenGate
	missing []gate.ID               // limits that have no row
	whole   bool                    // counts examine all admissions, not pages
	uses    db.InsertGateUsesParams // admissions

	busy    bool // a limit was locked by another transaction
	nextMs  int64
	nowMs   int64
	corrupt error
}

// takenGate is a locked key of a limit, or a quota policy.
type takenGate struct {
	gate.Limit
	windowMs int64
	nextMs   int64 // when its window has room again; 0: unknown
	name     string
	whenFull WhenFull
	awaited  bool // executions wait for it
	changed  bool // its row has to be written
	used     bool
	page     int32    // how many admissions a count examines
	looked   lookedAt // where the next page begins
	tired    bool     // the last page found little: the next pass goes on
}

// begin forgets the locks, before a try.
func (p *gateLocks) begin() {
	p.taken, p.missing = make(map[gate.ID]*takenGate), nil
	p.uses = db.InsertGateUsesParams{NowMs: p.Engine.c.NowMs()}
	p.state = gate.State{Limits: make(map[gate.ID]*gate.Limit), Exhausted: make(map[gate.ID]bool)}
}

// take locks limits that are not locked by others, and notes their bounds.
func (p *gateLocks) take(ctx context.Context, tx db.DBTX, gates []gate.ID) error {
	if len(gates) == 0 {
		return nil
	}
	slices.SortFunc(gates, compareGates)
	params := db.TakeGatesParams{NowMs: p.Engine.c.NowMs()}
	for _, g := range gates {
		params.PartitionKeys = append(params.PartitionKeys, gatePartition(g))
		params.GateIDs = append(params.GateIDs, pgGate(g))
		params.QuotaPartitions = append(params.QuotaPartitions, p.cfg.Partitions.QuotaPartition(id.QuotaPolicyID(g)))
	}
	rows, err := p.c.Q.TakeGates(ctx, tx, params)
	for i := range rows {
		row := &rows[i]
		p.nowMs = row.NowMs
		switch {
		case row.Taken:
			p.note(row)
		case !row.Known:
			p.missing = append(p.missing, row.GateID.Bytes)
		default:
			p.busy = true
		}
	}
	return err
}

// note notes the bounds of a locked limit.
func (p *gateLocks) note(row *db.TakeGatesRow) {
	t := &takenGate{Limit: gate.Limit{Concurrent: gate.None, Starts: gate.None, Held: row.Held, Started: row.Started}}
	switch {
	case row.LimitUnits >= 0 && row.LimitWindowMs > 0:
		t.Starts, t.windowMs = row.LimitUnits, row.LimitWindowMs
	case row.LimitUnits >= 0:
		t.Concurrent = row.LimitUnits
	case row.QuotaConcurrent < 0 || row.QuotaStarts < 0 || row.QuotaWindowSeconds < 0:
		p.corrupt = errNegativeQuota(row.GateID.Bytes)
		t.Concurrent, t.Counted = 0, true
	default:
		if row.QuotaConcurrent > 0 {
			t.Concurrent = row.QuotaConcurrent
		}
		if row.QuotaStarts > 0 {
			t.Starts, t.windowMs = row.QuotaStarts, min(row.QuotaWindowSeconds, math.MaxInt64/2000)*1000
		}
	}
	// Until then a count would find the window as full as the last one did, unless the limit has changed. Times that a clock wrote
	// which was ahead mean nothing.
	ahead := row.UsedAtMs > row.NowMs || row.NextAtMs > row.NowMs+t.windowMs
	if row.NextAtMs > row.NowMs && !ahead && row.ChangedAtMs < row.UsedAtMs && t.NeedsCount(1) {
		t.Counted, t.nextMs = true, row.NextAtMs
		p.wakeAt(row.NextAtMs)
	}
	t.name, t.whenFull, t.awaited = row.LimitName, WhenFull(row.WhenFull), row.Awaited
	t.Replaces = t.whenFull == CancelRunning
	p.page(row.GateID.Bytes, t)
	p.taken[row.GateID.Bytes] = t
	p.state.Limits[row.GateID.Bytes] = &t.Limit
}

// wakeAt asks for the next pass at an instant.
func (p *gateLocks) wakeAt(ms int64) {
	if p.nextMs == 0 || ms < p.nextMs {
		p.nextMs = ms
	}
}

// use notes the admission of an execution.
func (p *gateLocks) use(x id.ExecutionID, uses []gate.Use) {
	for _, u := range uses {
		t := p.taken[u.Limit]
		if t.changed, t.used = true, true; t.Concurrent == gate.None && t.Starts == gate.None {
			continue // nothing to count
		}
		p.uses.PartitionKeys, p.uses.GateIDs = append(p.uses.PartitionKeys, gatePartition(u.Limit)), append(p.uses.GateIDs, pgGate(u.Limit))
		p.uses.ExecutionPartitionKeys = append(p.uses.ExecutionPartitionKeys, x.Partition())
		p.uses.ExecutionIDs, p.uses.Units = append(p.uses.ExecutionIDs, core.PgUUID(x.UUID())), append(p.uses.Units, u.Units)
	}
}

// admissions returns the steps that write the admissions and the bounds.
func (p *gateLocks) admissions(ctx context.Context) []core.Step {
	raise := db.RaiseGatesParams{NowMs: p.Engine.c.NowMs()}
	for _, g := range slices.SortedFunc(maps.Keys(p.taken), compareGates) {
		t := p.taken[g]
		if t.windowMs > 0 && t.used {
			p.uses.WindowedGateIDs = append(p.uses.WindowedGateIDs, pgGate(g))
		}
		if !t.changed {
			continue
		}
		raise.PartitionKeys, raise.GateIDs = append(raise.PartitionKeys, gatePartition(g)), append(raise.GateIDs, pgGate(g))
		raise.Held, raise.Started = append(raise.Held, t.Held), append(raise.Started, t.Started)
		raise.NextAtMs, raise.Used = append(raise.NextAtMs, t.nextMs), append(raise.Used, t.used)
	}
	var steps []core.Step
	if len(p.uses.ExecutionIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return p.c.Q.InsertGateUses(ctx, conn, p.uses) })
	}
	if len(raise.GateIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return p.c.Q.RaiseGates(ctx, conn, raise) })
	}
	return steps
}

// gatePartition is the partition of a key of a limit, and of a quota policy among these.
func gatePartition(g gate.ID) int16 { return int16(g[0]) }

func pgGate(g gate.ID) pgtype.UUID { return pgtype.UUID{Bytes: g, Valid: true} }

func compareGates(a, b gate.ID) int { return bytes.Compare(a[:], b[:]) }

// errNegativeQuota refuses a quota policy that another program has stored.
func errNegativeQuota(q id.QuotaPolicyID) error {
	return core.Corrupt("ff_quota_policy", fmt.Errorf("policy %s has a negative limit", q))
}
