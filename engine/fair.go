package engine

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/fair"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// maxFairLook is the number of queue entries among which a creation looks for the head of a lane's fair work. If that many
// executions without a tenant wait before it, new tenants stand by their age, as those do.
const maxFairLook = 1000

// nearPlaces is how many turns from the head of a lane an execution may be hidden behind the scan positions of claimers, since these
// move on while it is created.
const nearPlaces = 1000

// maxKnownLines is how many heads this process remembers.
const maxKnownLines = 10_000

// fairMemory has the heads of the lanes where this process creates fair work.
type fairMemory struct {
	mu    sync.Mutex
	heads map[fairLine]*fair.Head
}

// of returns the head of a line. A full memory is simply cleared: the next look begins at the front of the queue.
func (m *fairMemory) of(line fairLine) *fair.Head {
	m.mu.Lock()
	defer m.mu.Unlock()
	head, known := m.heads[line]
	if !known {
		if m.heads == nil || len(m.heads) >= maxKnownLines {
			m.heads = make(map[fairLine]*fair.Head)
		}
		head = new(fair.Head)
		m.heads[line] = head
	}
	return head
}

// A placing gives creations their places. Its arrays are the parameters of one statement.
type placing struct {
	lines   []fairLine
	heads   []int64
	memory  []*fair.Head
	tenants []fairTenant
	keys    []int64
	lasts   []*fair.Last
	lineOf  []int // by tenant
	of      map[fairTenant]int
}

func (p *placing) add(c *creation) {
	tenant := fairTenant{fairLine{c.lane, c.priority}, c.namespace, c.fair.Tenant}
	if _, known := p.of[tenant]; known {
		return
	}
	line := -1
	for n, l := range p.lines {
		if l == tenant.fairLine {
			line = n
		}
	}
	if line < 0 {
		line = len(p.lines)
		p.lines = append(p.lines, tenant.fairLine)
	}
	p.of[tenant] = len(p.tenants)
	p.tenants, p.keys, p.lineOf = append(p.tenants, tenant), append(p.keys, tenant.key()), append(p.lineOf, line)
}

// placeFair gives the fair ones of creations their places in the queue, in order, by one statement that locks nothing. If
// none is fair it does nothing.
//
// Concurrent creations for a tenant may give out the same places, which lets that tenant go ahead by as many executions.
// The alternative is to wait for each other's transactions.
//
// The executions of moved exist, and come back to the queue by the caller's transaction.
func (e *Engine) placeFair(ctx context.Context, conn db.DBTX, creations []creation, moved ...pgtype.UUID) error {
	var p *placing
	for i := range creations {
		if c := &creations[i]; !c.fair.IsZero() && !c.refused {
			if p == nil {
				p = &placing{of: make(map[fairTenant]int)}
			}
			p.add(c)
		}
	}
	if p == nil {
		return nil
	}
	if err := e.lookFair(ctx, conn, p, moved); err != nil {
		return err
	}
	for i := range creations {
		c := &creations[i]
		if c.fair.IsZero() || c.refused {
			continue
		}
		tenant := p.of[fairTenant{fairLine{c.lane, c.priority}, c.namespace, c.fair.Tenant}]
		c.fairKey = p.keys[tenant]
		head := p.heads[p.lineOf[tenant]]
		if p.lasts[tenant].IsLeft(head) {
			c.leftNs = head + fair.Unit
		}
		c.placeNs = fair.Next(head, p.lasts[tenant], c.fair.Weight)
		c.near = c.placeNs < head+nearPlaces*fair.Unit
		p.lasts[tenant] = &fair.Last{Place: c.placeNs}
	}
	return nil
}

// maxLeftPlaces is how many left places of a tenant one call deletes.
const maxLeftPlaces = 1000

// recordPlaces returns the steps that record the places of creations, behind the one that inserts them: the last one of each
// tenant, and all of ids that callers have given, which may exist already. Places that tenants have left are deleted before.
// Without fair ones there is no step.
func (e *Engine) recordPlaces(ctx context.Context, creations []creation) []core.Step {
	var p db.EnsureFairPlacesParams
	left := db.DropLeftPlacesParams{MaxItems: maxLeftPlaces}
	var last map[int64]int // by tenant, of those that can't exist
	for i := range creations {
		c := &creations[i]
		if c.placeNs == 0 {
			continue
		}
		if c.leftNs != 0 {
			left.FairKeys, left.FromsNs = append(left.FairKeys, c.fairKey), append(left.FromsNs, c.leftNs)
		}
		n, known := last[c.fairKey]
		if !known || !c.minted {
			n = len(p.FairKeys)
			p.FairKeys, p.PlacesNs = append(p.FairKeys, 0), append(p.PlacesNs, 0)
			p.PartitionKeys, p.ExecutionIDs = append(p.PartitionKeys, 0), append(p.ExecutionIDs, pgtype.UUID{})
			if c.minted {
				if last == nil {
					last = make(map[int64]int)
				}
				last[c.fairKey] = n
			}
		}
		if c.placeNs > p.PlacesNs[n] {
			p.FairKeys[n], p.PlacesNs[n] = c.fairKey, c.placeNs
			p.PartitionKeys[n], p.ExecutionIDs[n] = c.id.Partition(), core.PgUUID(c.id.UUID())
		}
	}
	if len(p.FairKeys) == 0 {
		return nil
	}
	steps := []core.Step{func(conn db.DBTX) error { return e.c.Q.EnsureFairPlaces(ctx, conn, p) }}
	if len(left.FairKeys) > 0 {
		steps = slices.Insert(steps, 0, core.Step(func(conn db.DBTX) error { return e.c.Q.DropLeftPlaces(ctx, conn, left) }))
	}
	return steps
}

// comingBack returns an execution of a tenant that comes back to the queue, as [Engine.placeReturning] needs it. Share is
// [FairShare] as JSON.
func comingBack(x id.ExecutionID, lane string, priority int32, namespace, share string) creation {
	var raw rawFair
	_ = json.Unmarshal([]byte(share), &raw)
	return creation{
		id: x, lane: lane, priority: priority, namespace: namespace, minted: true,
		fair: FairShare{Tenant: raw.Tenant, Weight: min(max(raw.Weight, 1), MaxFairWeight)},
	}
}

// placeReturning gives executions that come back to the queue the next places of their tenants, and notifies. The
// caller has made them claimable, in the same transaction.
func (e *Engine) placeReturning(ctx context.Context, tx *core.Txn, creations []creation) error {
	if len(creations) == 0 {
		return nil
	}
	var moves db.MoveFairExecutionsParams
	for i := range creations {
		c := &creations[i]
		moves.PartitionKeys = append(moves.PartitionKeys, c.id.Partition())
		moves.ExecutionIDs = append(moves.ExecutionIDs, core.PgUUID(c.id.UUID()))
	}
	if err := e.placeFair(ctx, tx, creations, moves.ExecutionIDs...); err != nil {
		return err
	}
	moves.PlacesMs = placesMs(creations)
	steps := []core.Step{func(conn db.DBTX) error { return e.c.Q.MoveFairExecutions(ctx, conn, moves) }}
	if err := pgtx.InOneTrip(ctx, tx, append(steps, e.recordPlaces(ctx, creations)...)...); err != nil {
		return err
	}
	for i := range creations {
		creations[i].announce(&tx.Due)
	}
	return nil
}

// announce notifies that an execution is claimable.
func (c *creation) announce(due *core.Notifications) {
	if c.near {
		due.Resumed(c.lane)
	} else {
		due.Lane(c.lane)
	}
}

// lookFair reads where lines and tenants stand.
func (e *Engine) lookFair(ctx context.Context, conn db.DBTX, p *placing, moved []pgtype.UUID) error {
	params := db.ListFairPlacesParams{
		NowMs: e.c.NowMs(), MaxItems: maxFairLook, FairKeys: p.keys, MovedExecutions: append([]pgtype.UUID{}, moved...), // not NULL
	}
	began := e.c.ProcessTime()
	for n, line := range p.lines {
		head := e.fair.of(line)
		p.memory = append(p.memory, head)
		params.LineOrds = append(params.LineOrds, int32(n))
		params.LaneIDs = append(params.LaneIDs, line.lane)
		params.Ranks = append(params.Ranks, -int64(line.priority))
		params.FromMs = append(params.FromMs, head.From(began))
	}
	for n := range p.keys {
		params.TenantOrds = append(params.TenantOrds, int32(n))
	}
	rows, err := e.c.Q.ListFairPlaces(ctx, conn, params)
	if err != nil {
		return err
	}
	p.heads, p.lasts = make([]int64, len(p.lines)), make([]*fair.Last, len(p.keys))
	now := e.c.ProcessTime()
	for _, row := range rows {
		switch {
		case row.Tenant:
			p.lasts[row.Ord] = &fair.Last{Place: row.PlaceNs, Started: row.Started}
		case row.PlaceNs >= 0:
			p.heads[row.Ord] = row.PlaceNs
			p.memory[row.Ord].Found(params.FromMs[row.Ord], row.PlaceNs, row.ExecutionID.Bytes, began, now)
		default:
			p.heads[row.Ord] = row.NowMs * fair.Unit
			p.memory[row.Ord].Missed(params.FromMs[row.Ord], p.heads[row.Ord], began, now)
		}
	}
	return nil
}
