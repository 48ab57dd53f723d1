package core

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/gate"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// countPage is how many admissions of a key one count examines: as many settled ones as others. With a window of 50,000
// starts, each pass would otherwise read the admissions of all executions that wait for a worker or run.
const countPage = 1000

// lookedAt is a position among the unsettled admissions of a key.
type lookedAt struct {
	ms        int64
	execution pgtype.UUID
}

// fromFirst is before the first admission.
var fromFirst = lookedAt{-1, pgtype.UUID{Valid: true}}

// page notes how many admissions of a key a count examines, and from where on. A count examines all admissions if a
// full limit cancels executions, or if there is no window.
func (p *GateLocks) page(g gate.ID, t *TakenGate) {
	t.page, t.looked = math.MaxInt32, fromFirst
	if p.Whole || t.windowMs == 0 || t.WhenFull != "" && t.WhenFull != "wait" {
		return
	}
	t.page = countPage
	if at, known := pagesOf(p.C).of(g); known {
		t.looked = at
	}
}

// pagesOf returns an engine's positions of counts.
func pagesOf(c *Core) *gatePages {
	return Memory(c, func() *gatePages { return &gatePages{} })
}

// gatePages has the positions of the counts of this process, of keys with more admissions than a page.
type gatePages struct {
	mu   sync.Mutex
	next map[gate.ID]lookedAt
}

func (m *gatePages) of(g gate.ID) (at lookedAt, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, known = m.next[g]
	return at, known
}

func (m *gatePages) note(g gate.ID, at lookedAt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case at == fromFirst:
		delete(m.next, g)
	case m.next == nil:
		m.next = map[gate.ID]lookedAt{g: at}
	default:
		m.next[g] = at
	}
}

// Count counts the use of the limits whose bounds are too low for the needed units, page after page as long as counts
// find changes.
func (p *GateLocks) Count(ctx context.Context, tx *Txn, gates []gate.ID, needs func(*TakenGate) int64) error {
	for {
		short := slices.DeleteFunc(slices.Clone(gates), func(g gate.ID) bool {
			t := p.Taken[g]
			return t == nil || t.tired || !t.NeedsCount(needs(t))
		})
		if len(short) == 0 {
			return nil
		}
		if err := p.CountPages(ctx, tx, short); err != nil {
			return err
		}
	}
}

// CountPages counts one page of each locked limit.
func (p *GateLocks) CountPages(ctx context.Context, tx *Txn, gates []gate.ID) error {
	params := db.CountGatesParams{NowMs: p.C.NowMs()}
	for _, g := range gates {
		if t := p.Taken[g]; t != nil {
			params.PartitionKeys = append(params.PartitionKeys, GatePartition(g))
			params.GateIDs = append(params.GateIDs, PgGate(g))
			params.WindowMs, params.PageSizes = append(params.WindowMs, t.windowMs), append(params.PageSizes, t.page)
			params.LastMs = append(params.LastMs, t.looked.ms)
			params.LastExecutionIDs = append(params.LastExecutionIDs, t.looked.execution)
		}
	}
	if len(params.GateIDs) == 0 {
		return nil
	}
	counts, err := CountGates(ctx, p.C, tx, params)
	for i := range counts {
		p.noteCount(&counts[i])
	}
	return err
}

// gateCount is the use of a key.
type gateCount struct {
	db.CountGatesRow
	moreOver bool // some settled admissions whose windows are over may be left
}

// CountGates counts the use of locked keys, and prunes their settled admissions, in one round trip.
func CountGates(ctx context.Context, c *Core, tx *Txn, params db.CountGatesParams) ([]gateCount, error) {
	var counted []db.CountGatesRow
	var pruned []db.PruneSettledUsesRow
	err := pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) (err error) {
			counted, err = c.Q.CountGates(ctx, conn, params)
			return err
		},
		func(conn db.DBTX) (err error) {
			pruned, err = c.Q.PruneSettledUses(ctx, conn, db.PruneSettledUsesParams{
				NowMs: params.NowMs, PartitionKeys: params.PartitionKeys, GateIDs: params.GateIDs, WindowMs: params.WindowMs, PageSizes: params.PageSizes,
			})
			return err
		})
	if err != nil {
		return nil, err
	}
	of := make(map[gate.ID]*db.PruneSettledUsesRow, len(pruned))
	for i := range pruned {
		of[pruned[i].GateID.Bytes] = &pruned[i]
	}
	counts := make([]gateCount, len(counted))
	for i, row := range counted {
		counts[i] = gateCount{CountGatesRow: row}
		if settled := of[row.GateID.Bytes]; settled != nil {
			counts[i].add(settled)
		}
	}
	return counts, nil
}

// add adds the findings among the settled admissions.
func (c *gateCount) add(settled *db.PruneSettledUsesRow) {
	c.Started -= settled.Units
	c.moreOver = settled.MoreOver
	if first := settled.FirstStartMs; first > 0 && (c.FirstStartMs == 0 || first < c.FirstStartMs) {
		c.FirstStartMs = first
	}
}

// noteCount notes the findings of a count.
func (p *GateLocks) noteCount(row *gateCount) {
	t := p.Taken[row.GateID.Bytes]
	t.Changed = t.Changed || t.Held != row.Held || t.Started != row.Started
	t.Held, t.Started = row.Held, row.Started
	t.Counted = row.Whole && !row.moreOver
	t.tired = !t.Counted && !row.moreOver && row.Changes < int64(t.page/4)
	if t.page < math.MaxInt32 {
		t.looked = lookedAt{row.LookedAtMs, row.LookedExecutionID}
		pagesOf(p.C).note(row.GateID.Bytes, t.looked)
	}
	// While a start is unknown, count again.
	if t.NextMs = 0; t.Starts != gate.None && row.FirstStartMs > 0 && t.Started >= t.Starts {
		t.NextMs = row.FirstStartMs + t.windowMs
		p.wakeAt(t.NextMs)
		t.Changed = t.Changed || !row.NotStarted
		if !t.Counted || row.NotStarted || t.Concurrent != gate.None && t.Held >= t.Concurrent {
			t.NextMs = 0
		}
	}
}

// WholeCount has the parameters of a count of all admissions of one key.
func WholeCount(g gate.ID, windowMs int64, nowMs *int64) db.CountGatesParams {
	return db.CountGatesParams{
		NowMs: nowMs, PartitionKeys: []int16{GatePartition(g)}, GateIDs: []pgtype.UUID{PgGate(g)}, WindowMs: []int64{windowMs},
		PageSizes: []int32{math.MaxInt32}, LastMs: []int64{fromFirst.ms}, LastExecutionIDs: []pgtype.UUID{fromFirst.execution},
	}
}
