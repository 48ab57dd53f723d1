package core

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowSet is the set of flows locked by a transaction, with their partitions.
type FlowSet struct {
	counts id.Partitions
	Flows  map[id.FlowID]int16
}

// NewFlowSet returns an empty set.
func NewFlowSet(counts id.Partitions) *FlowSet {
	return &FlowSet{counts: counts, Flows: make(map[id.FlowID]int16)}
}

// Add adds a flow.
func (s *FlowSet) Add(flow id.FlowID) {
	if !s.Has(flow) {
		s.Flows[flow] = s.counts.FlowPartition(flow)
	}
}

// Has reports whether the set has a flow.
func (s *FlowSet) Has(flow id.FlowID) bool {
	_, ok := s.Flows[flow]
	return ok
}

// Admit adds a member's flow unless the transaction has too many flows. A nil flow needs no lock.
func (s *FlowSet) Admit(flow *id.FlowID) bool {
	switch {
	case flow == nil || s.Has(*flow):
		return true
	case len(s.Flows) == MaxFlowsPerTx:
		return false
	}
	s.Add(*flow)
	return true
}

// Empty reports whether the set has no flows.
func (s *FlowSet) Empty() bool { return len(s.Flows) == 0 }

// Arrays returns the flows by (partition_key, flow_id), the lock order of their rows. See
// docs/internals/decisions.md#lock-order.
func (s *FlowSet) Arrays() (partitions []int16, flows []pgtype.UUID) {
	for _, flow := range slices.SortedFunc(maps.Keys(s.Flows), func(a, b id.FlowID) int {
		return cmp.Or(cmp.Compare(s.Flows[a], s.Flows[b]), a.Compare(b))
	}) {
		partitions = append(partitions, s.Flows[flow])
		flows = append(flows, PgUUID(flow))
	}
	return partitions, flows
}

// keep removes all flows from s except the given ones.
func (s *FlowSet) keep(flows []pgtype.UUID) {
	kept := make(map[id.FlowID]int16, len(flows))
	for _, flow := range flows {
		kept[flow.Bytes] = s.Flows[flow.Bytes]
	}
	s.Flows = kept
}

// HoldFlows locks the flows of set. Under a short wait HoldFlows removes locked flows from set.
func (c *Core) HoldFlows(ctx context.Context, tx db.DBTX, set *FlowSet, exclusive bool) error {
	switch {
	case exclusive && c.Runner.HasShortWait():
		return c.TryFlowsExclusive(ctx, tx, set)
	case exclusive:
		return c.LockFlowsExclusive(ctx, tx, set)
	case c.Runner.HasShortWait():
		if err := c.TryFlowsShared(ctx, tx, set); err != nil {
			return err
		}
	case !set.Empty():
		_, flows := set.Arrays()
		if err := c.Q.LockFlowsShared(ctx, tx, flows); err != nil {
			return err
		}
	}
	if rows := c.shareFlowRows(ctx, set); rows != nil {
		return rows(tx)
	}
	return nil
}

// ShareFlows returns the statements for shared locks of flows, which admit concurrent successes of members, but no
// structure changes.
func (c *Core) ShareFlows(ctx context.Context, set *FlowSet) []Step {
	if set.Empty() {
		return nil
	}
	_, flows := set.Arrays()
	steps := []Step{func(conn db.DBTX) error { return c.Q.LockFlowsShared(ctx, conn, flows) }}
	if rows := c.shareFlowRows(ctx, set); rows != nil {
		steps = append(steps, rows)
	}
	return steps
}

// shareFlowRows returns the additional statement for a caller's transaction, or nil if none is needed.
func (c *Core) shareFlowRows(ctx context.Context, set *FlowSet) Step {
	if c.Tx == nil || set.Empty() {
		return nil // begun by the engine, at READ COMMITTED
	}
	partitions, flows := set.Arrays()
	return func(conn db.DBTX) error {
		return c.Q.ShareFlowRows(ctx, conn, db.ShareFlowRowsParams{PartitionKeys: partitions, FlowIDs: flows})
	}
}

// TryFlowsShared is ShareFlows without waiting: locked flows are removed from set.
func (c *Core) TryFlowsShared(ctx context.Context, tx db.DBTX, set *FlowSet) error {
	if set.Empty() {
		return nil
	}
	_, flows := set.Arrays()
	held, err := c.Q.TryFlowsShared(ctx, tx, flows)
	set.keep(held)
	return err
}

// TryFlowsExclusive is LockFlowsExclusive without waiting: locked flows are removed from set.
func (c *Core) TryFlowsExclusive(ctx context.Context, tx db.DBTX, set *FlowSet) error {
	if set.Empty() {
		return nil
	}
	partitions, flows := set.Arrays()
	held, err := c.Q.TryFlowsExclusive(ctx, tx, db.TryFlowsExclusiveParams{PartitionKeys: partitions, FlowIDs: flows})
	set.keep(held)
	return err
}

// LockFlowsExclusive locks flows against all other transitions of members.
func (c *Core) LockFlowsExclusive(ctx context.Context, tx db.DBTX, set *FlowSet) error {
	_, err := c.TakeFlows(ctx, tx, set)
	return err
}

// TakeFlows is LockFlowsExclusive, and returns the states of existing flows.
func (c *Core) TakeFlows(ctx context.Context, tx db.DBTX, set *FlowSet) (map[id.FlowID]state.FlowState, error) {
	if set.Empty() {
		return nil, nil
	}
	partitions, flows := set.Arrays()
	if err := c.Q.LockFlowsExclusive(ctx, tx, flows); err != nil {
		return nil, err
	}
	rows, err := c.Q.LockFlowRows(ctx, tx, db.LockFlowRowsParams{PartitionKeys: partitions, FlowIDs: flows})
	if err != nil {
		return nil, err
	}
	states := make(map[id.FlowID]state.FlowState, len(rows))
	for _, row := range rows {
		states[row.FlowID] = state.FlowState(row.PublicFlowState)
	}
	return states, nil
}
