package core

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
	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// GateLocks has the limits locked by a transaction, and the transaction's admissions at the limits.
type GateLocks struct {
	C       *Core
	State   gate.State
	Taken   map[gate.ID]*TakenGate
	Missing []gate.ID               // limits without a row
	Whole   bool                    // counts examine all admissions, not pages
	uses    db.InsertGateUsesParams // admissions

	Busy    bool // a limit was locked by another transaction
	NextMs  int64
	NowMs   int64
	Corrupt error
}

// TakenGate is a locked key of a limit, or a quota policy.
type TakenGate struct {
	gate.Limit
	windowMs int64
	NextMs   int64 // when the window admits again; 0: unknown
	Name     string
	WhenFull string
	Awaited  bool // executions wait here
	Changed  bool // the row has to be written
	used     bool
	page     int32    // how many admissions a count examines
	looked   lookedAt // where the next page begins
	tired    bool     // the last page found little: the next pass continues
}

// Begin forgets the locks, before a try.
func (p *GateLocks) Begin() {
	p.Taken, p.Missing = make(map[gate.ID]*TakenGate), nil
	p.uses = db.InsertGateUsesParams{NowMs: p.C.NowMs()}
	p.State = gate.State{Limits: make(map[gate.ID]*gate.Limit), Exhausted: make(map[gate.ID]bool)}
}

// Take locks limits, unless locked by others, and notes their bounds.
func (p *GateLocks) Take(ctx context.Context, tx db.DBTX, gates []gate.ID) error {
	if len(gates) == 0 {
		return nil
	}
	slices.SortFunc(gates, CompareGates)
	params := db.TakeGatesParams{NowMs: p.C.NowMs()}
	for _, g := range gates {
		params.PartitionKeys = append(params.PartitionKeys, GatePartition(g))
		params.GateIDs = append(params.GateIDs, PgGate(g))
		params.QuotaPartitions = append(params.QuotaPartitions, p.C.Partitions.QuotaPartition(id.QuotaPolicyID(g)))
	}
	rows, err := p.C.Q.TakeGates(ctx, tx, params)
	for i := range rows {
		row := &rows[i]
		p.NowMs = row.NowMs
		switch {
		case row.Taken:
			p.note(row)
		case !row.Known:
			p.Missing = append(p.Missing, row.GateID.Bytes)
		default:
			p.Busy = true
		}
	}
	return err
}

// note notes the bounds of a locked limit.
func (p *GateLocks) note(row *db.TakeGatesRow) {
	t := &TakenGate{Limit: gate.Limit{Concurrent: gate.None, Starts: gate.None, Held: row.Held, Started: row.Started}}
	switch {
	case row.LimitUnits >= 0 && row.LimitWindowMs > 0:
		t.Starts, t.windowMs = row.LimitUnits, row.LimitWindowMs
	case row.LimitUnits >= 0:
		t.Concurrent = row.LimitUnits
	case row.QuotaConcurrent < 0 || row.QuotaStarts < 0 || row.QuotaWindowSeconds < 0:
		p.Corrupt = ErrNegativeQuota(row.GateID.Bytes)
		t.Concurrent, t.Counted = 0, true
	default:
		if row.QuotaConcurrent > 0 {
			t.Concurrent = row.QuotaConcurrent
		}
		if row.QuotaStarts > 0 {
			t.Starts, t.windowMs = row.QuotaStarts, min(row.QuotaWindowSeconds, math.MaxInt64/2000)*1000
		}
	}
	// Until NextAtMs a count would find the window as full as the last count did, unless the limit has changed. Times
	// written by a clock ahead of the present one mean nothing.
	ahead := row.UsedAtMs > row.NowMs || row.NextAtMs > row.NowMs+t.windowMs
	if row.NextAtMs > row.NowMs && !ahead && row.ChangedAtMs < row.UsedAtMs && t.NeedsCount(1) {
		t.Counted, t.NextMs = true, row.NextAtMs
		p.wakeAt(row.NextAtMs)
	}
	t.Name, t.WhenFull, t.Awaited = row.LimitName, row.WhenFull, row.Awaited
	t.Replaces = t.WhenFull == "cancel_running"
	if t.OnHold = row.HoldUntilMs > row.NowMs; t.OnHold {
		p.wakeAt(row.HoldUntilMs)
	}
	p.page(row.GateID.Bytes, t)
	p.Taken[row.GateID.Bytes] = t
	p.State.Limits[row.GateID.Bytes] = &t.Limit
}

// wakeAt asks for the next pass at an instant.
func (p *GateLocks) wakeAt(ms int64) {
	if p.NextMs == 0 || ms < p.NextMs {
		p.NextMs = ms
	}
}

// Use notes the admission of an execution.
func (p *GateLocks) Use(x id.ExecutionID, uses []gate.Use) {
	for _, u := range uses {
		t := p.Taken[u.Limit]
		if t.Changed, t.used = true, true; t.Concurrent == gate.None && t.Starts == gate.None {
			continue // nothing to count
		}
		p.uses.PartitionKeys, p.uses.GateIDs = append(p.uses.PartitionKeys, GatePartition(u.Limit)), append(p.uses.GateIDs, PgGate(u.Limit))
		p.uses.ExecutionPartitionKeys = append(p.uses.ExecutionPartitionKeys, x.Partition())
		p.uses.ExecutionIDs, p.uses.Units = append(p.uses.ExecutionIDs, PgUUID(x.UUID())), append(p.uses.Units, u.Units)
	}
}

// Admissions returns the steps that write the admissions and the bounds.
func (p *GateLocks) Admissions(ctx context.Context) []Step {
	raise := db.RaiseGatesParams{NowMs: p.C.NowMs()}
	for _, g := range slices.SortedFunc(maps.Keys(p.Taken), CompareGates) {
		t := p.Taken[g]
		if t.windowMs > 0 && t.used {
			p.uses.WindowedGateIDs = append(p.uses.WindowedGateIDs, PgGate(g))
		}
		if !t.Changed {
			continue
		}
		raise.PartitionKeys, raise.GateIDs = append(raise.PartitionKeys, GatePartition(g)), append(raise.GateIDs, PgGate(g))
		raise.Held, raise.Started = append(raise.Held, t.Held), append(raise.Started, t.Started)
		raise.NextAtMs, raise.Used = append(raise.NextAtMs, t.NextMs), append(raise.Used, t.used)
	}
	var steps []Step
	if len(p.uses.ExecutionIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return p.C.Q.InsertGateUses(ctx, conn, p.uses) })
	}
	if len(raise.GateIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return p.C.Q.RaiseGates(ctx, conn, raise) })
	}
	return steps
}

// GatePartition returns the partition of the key of a limit or quota policy.
func GatePartition(g gate.ID) int16 { return int16(g[0]) }

func PgGate(g gate.ID) pgtype.UUID { return pgtype.UUID{Bytes: g, Valid: true} }

func CompareGates(a, b gate.ID) int { return bytes.Compare(a[:], b[:]) }

// ErrNegativeQuota refuses another program's quota policy with a negative limit.
func ErrNegativeQuota(q id.QuotaPolicyID) error {
	return Corrupt("ff_quota_policy", fmt.Errorf("policy %s has a negative limit", q))
}
