package core

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/fair"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// FairWork is an execution of a tenant, which takes turns with other tenants in the queue of a lane.
type FairWork struct {
	ID        id.ExecutionID
	Minted    bool // the id was generated, so no other execution has it
	Lane      string
	Priority  int32
	Namespace string
	Tenant    string
	Weight    int

	FairPlace
}

// FairPlace is the place of an execution in the queue, by [Core.PlaceFair].
type FairPlace struct {
	Key    int64 // of its tenant
	Ns     int64 // 0: not placed yet
	LeftNs int64 // the start of the places that the tenant has left; 0: none
	Near   bool  // close to the head of the lane
}

func (w *FairWork) tenant() fairTenant {
	return fairTenant{fairLine{w.Lane, w.Priority}, w.Namespace, w.Tenant}
}

// maxFairLook is the number of queue entries among which a creation searches the head of a lane's fair work. If so many
// executions without a tenant wait before the head, new tenants are placed by age, as executions without a tenant are.
const maxFairLook = 1000

// nearPlaces is how many turns from the head of a lane a new execution may be hidden behind the scan positions of
// claimers, which advance during the creation.
const nearPlaces = 1000

// maxKnownLines is how many heads this process remembers.
const maxKnownLines = 10_000

// fairMemory has the heads of the lanes where this process creates fair work.
type fairMemory struct {
	mu    sync.Mutex
	heads map[fairLine]*fair.Head
}

// of returns the head of a line. A full map is simply cleared: the next search begins at the front of the queue.
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

// A placing assigns places to work. The arrays are the parameters of one statement.
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

func (p *placing) add(w *FairWork) {
	tenant := w.tenant()
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

// PlaceFair assigns places in the queue to work, in order, by one statement that locks nothing. Without work it does
// nothing.
//
// Concurrent transactions may assign the same places of a tenant, which then gets ahead by as many executions. The
// alternative is to wait for each other's transactions.
//
// moved are existing executions returned to the queue by the caller's transaction.
func (c *Core) PlaceFair(ctx context.Context, conn db.DBTX, work []*FairWork, moved ...pgtype.UUID) error {
	if len(work) == 0 {
		return nil
	}
	p := &placing{of: make(map[fairTenant]int)}
	for _, w := range work {
		p.add(w)
	}
	if err := c.lookFair(ctx, conn, p, moved); err != nil {
		return err
	}
	for _, w := range work {
		tenant := p.of[w.tenant()]
		w.Key = p.keys[tenant]
		head := p.heads[p.lineOf[tenant]]
		if p.lasts[tenant].IsLeft(head) {
			w.LeftNs = head + fair.Unit
		}
		w.Ns = fair.Next(head, p.lasts[tenant], w.Weight)
		w.Near = w.Ns < head+nearPlaces*fair.Unit
		p.lasts[tenant] = &fair.Last{Place: w.Ns}
	}
	return nil
}

// maxLeftPlaces is how many left places of a tenant one call deletes.
const maxLeftPlaces = 1000

// RecordPlaces returns the steps for recording the places of work, after the insertion of the executions: the last
// place of each tenant, and every place of an id given by a caller, which may exist already. Places left by tenants are
// deleted before. Without fair work there is no step.
func (c *Core) RecordPlaces(ctx context.Context, work []*FairWork) []Step {
	var p db.EnsureFairPlacesParams
	left := db.DropLeftPlacesParams{MaxItems: maxLeftPlaces}
	var last map[int64]int // by tenant, for generated ids
	for _, w := range work {
		if w.LeftNs != 0 {
			left.FairKeys, left.FromsNs = append(left.FairKeys, w.Key), append(left.FromsNs, w.LeftNs)
		}
		n, known := last[w.Key]
		if !known || !w.Minted {
			n = len(p.FairKeys)
			p.FairKeys, p.PlacesNs = append(p.FairKeys, 0), append(p.PlacesNs, 0)
			p.PartitionKeys, p.ExecutionIDs = append(p.PartitionKeys, 0), append(p.ExecutionIDs, pgtype.UUID{})
			if w.Minted {
				if last == nil {
					last = make(map[int64]int)
				}
				last[w.Key] = n
			}
		}
		if w.Ns > p.PlacesNs[n] {
			p.FairKeys[n], p.PlacesNs[n] = w.Key, w.Ns
			p.PartitionKeys[n], p.ExecutionIDs[n] = w.ID.Partition(), PgUUID(w.ID.UUID())
		}
	}
	if len(p.FairKeys) == 0 {
		return nil
	}
	steps := []Step{func(conn db.DBTX) error { return c.Q.EnsureFairPlaces(ctx, conn, p) }}
	if len(left.FairKeys) > 0 {
		steps = slices.Insert(steps, 0, Step(func(conn db.DBTX) error { return c.Q.DropLeftPlaces(ctx, conn, left) }))
	}
	return steps
}

// ReturningFair returns a tenant's execution for [Core.PlaceReturning]. share is the stored tenant and weight, as JSON.
func ReturningFair(x id.ExecutionID, lane string, priority int32, namespace, share string) *FairWork {
	var stored struct {
		Tenant string `json:"tenant"`
		Weight int    `json:"weight"`
	}
	_ = json.Unmarshal([]byte(share), &stored)
	return &FairWork{
		ID: x, Minted: true, Lane: lane, Priority: priority, Namespace: namespace,
		Tenant: stored.Tenant, Weight: min(max(stored.Weight, 1), fair.MaxWeight),
	}
}

// PlaceReturning assigns the next places of their tenants to executions returning to the queue, and notifies. The
// caller has made the executions claimable, in the same transaction.
func (c *Core) PlaceReturning(ctx context.Context, tx *Txn, work []*FairWork) error {
	if len(work) == 0 {
		return nil
	}
	var moves db.MoveFairExecutionsParams
	for _, w := range work {
		moves.PartitionKeys = append(moves.PartitionKeys, w.ID.Partition())
		moves.ExecutionIDs = append(moves.ExecutionIDs, PgUUID(w.ID.UUID()))
	}
	if err := c.PlaceFair(ctx, tx, work, moves.ExecutionIDs...); err != nil {
		return err
	}
	for _, w := range work {
		moves.PlacesMs = append(moves.PlacesMs, w.Ns/fair.Unit)
	}
	steps := []Step{func(conn db.DBTX) error { return c.Q.MoveFairExecutions(ctx, conn, moves) }}
	if err := pgtx.InOneTrip(ctx, tx, append(steps, c.RecordPlaces(ctx, work)...)...); err != nil {
		return err
	}
	for _, w := range work {
		if w.Near {
			tx.Due.Resumed(w.Lane)
		} else {
			tx.Due.Lane(w.Lane)
		}
	}
	return nil
}

// lookFair reads the heads of lines and the last places of tenants.
func (c *Core) lookFair(ctx context.Context, conn db.DBTX, p *placing, moved []pgtype.UUID) error {
	params := db.ListFairPlacesParams{
		NowMs: c.NowMs(), MaxItems: maxFairLook, FairKeys: p.keys, MovedExecutions: append([]pgtype.UUID{}, moved...), // not NULL
	}
	memory, began := Memory(c, func() *fairMemory { return &fairMemory{} }), c.ProcessTime()
	for n, line := range p.lines {
		head := memory.of(line)
		p.memory = append(p.memory, head)
		params.LineOrds = append(params.LineOrds, int32(n))
		params.LaneIDs = append(params.LaneIDs, line.lane)
		params.Ranks = append(params.Ranks, -int64(line.priority))
		params.FromMs = append(params.FromMs, head.From(began))
	}
	for n := range p.keys {
		params.TenantOrds = append(params.TenantOrds, int32(n))
	}
	rows, err := c.Q.ListFairPlaces(ctx, conn, params)
	if err != nil {
		return err
	}
	p.heads, p.lasts = make([]int64, len(p.lines)), make([]*fair.Last, len(p.keys))
	now := c.ProcessTime()
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

// fairLine is a queue whose tenants take turns.
type fairLine struct {
	lane     string
	priority int32
}

// fairTenant is a tenant in a queue.
type fairTenant struct {
	fairLine
	namespace, name string
}

// key returns the stored key: the first bytes of SHA-256. Two of a million keys are equal by chance with a probability of
// about 10^-8; such tenants would share their turns.
func (t fairTenant) key() int64 {
	text := t.lane + "\x00" + strconv.Itoa(int(t.priority)) + "\x00" + t.namespace + "\x00" + t.name
	digest := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(digest[:8]))
}
