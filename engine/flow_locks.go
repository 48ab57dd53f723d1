package engine

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

// flowSet is the set of flows that a transaction locks, with their partitions.
type flowSet struct {
	counts id.Partitions
	flows  map[id.FlowID]int16
}

func newFlowSet(counts id.Partitions) *flowSet {
	return &flowSet{counts: counts, flows: make(map[id.FlowID]int16)}
}

func (s *flowSet) add(flow id.FlowID) {
	if !s.has(flow) {
		s.flows[flow] = s.counts.FlowPartition(flow)
	}
}

func (s *flowSet) has(flow id.FlowID) bool {
	_, ok := s.flows[flow]
	return ok
}

// admit adds a member's flow unless the transaction has too many flows. A nil flow needs no lock.
func (s *flowSet) admit(flow *id.FlowID) bool {
	switch {
	case flow == nil || s.has(*flow):
		return true
	case len(s.flows) == maxFlowsPerTx:
		return false
	}
	s.add(*flow)
	return true
}

func (s *flowSet) empty() bool { return len(s.flows) == 0 }

// arrays returns the flows by (partition_key, flow_id), the lock order of their rows.
func (s *flowSet) arrays() (partitions []int16, flows []pgtype.UUID) {
	for _, flow := range slices.SortedFunc(maps.Keys(s.flows), func(a, b id.FlowID) int {
		return cmp.Or(cmp.Compare(s.flows[a], s.flows[b]), a.Compare(b))
	}) {
		partitions = append(partitions, s.flows[flow])
		flows = append(flows, pgUUID(flow))
	}
	return partitions, flows
}

// keep removes all flows from s except the given ones.
func (s *flowSet) keep(flows []pgtype.UUID) {
	kept := make(map[id.FlowID]int16, len(flows))
	for _, flow := range flows {
		kept[flow.Bytes] = s.flows[flow.Bytes]
	}
	s.flows = kept
}

// holdFlows locks the flows of set. An impatient engine removes locked flows from set instead of waiting.
func (e *Engine) holdFlows(ctx context.Context, tx db.DBTX, set *flowSet, exclusive bool) error {
	switch {
	case exclusive && e.runner.IsImpatient():
		return e.tryFlowsExclusive(ctx, tx, set)
	case exclusive:
		return e.lockFlowsExclusive(ctx, tx, set)
	case e.runner.IsImpatient():
		if err := e.tryFlowsShared(ctx, tx, set); err != nil {
			return err
		}
	case !set.empty():
		_, flows := set.arrays()
		if err := e.q.LockFlowsShared(ctx, tx, flows); err != nil {
			return err
		}
	}
	if rows := e.shareFlowRows(ctx, set); rows != nil {
		return rows(tx)
	}
	return nil
}

// shareFlows returns the statements that admit concurrent successes of members, but no structure changes.
func (e *Engine) shareFlows(ctx context.Context, set *flowSet) []step {
	if set.empty() {
		return nil
	}
	_, flows := set.arrays()
	steps := []step{func(conn db.DBTX) error { return e.q.LockFlowsShared(ctx, conn, flows) }}
	if rows := e.shareFlowRows(ctx, set); rows != nil {
		steps = append(steps, rows)
	}
	return steps
}

// shareFlowRows returns the additional statement for a caller's transaction, or nil if none is needed.
func (e *Engine) shareFlowRows(ctx context.Context, set *flowSet) step {
	if e.tx == nil || set.empty() {
		return nil // begun by the engine, at READ COMMITTED
	}
	partitions, flows := set.arrays()
	return func(conn db.DBTX) error {
		return e.q.ShareFlowRows(ctx, conn, db.ShareFlowRowsParams{PartitionKeys: partitions, FlowIDs: flows})
	}
}

// tryFlowsShared is shareFlows without waiting: it removes locked flows from set.
func (e *Engine) tryFlowsShared(ctx context.Context, tx db.DBTX, set *flowSet) error {
	if set.empty() {
		return nil
	}
	_, flows := set.arrays()
	held, err := e.q.TryFlowsShared(ctx, tx, flows)
	set.keep(held)
	return err
}

// tryFlowsExclusive is lockFlowsExclusive without waiting: it removes locked flows from set.
func (e *Engine) tryFlowsExclusive(ctx context.Context, tx db.DBTX, set *flowSet) error {
	if set.empty() {
		return nil
	}
	partitions, flows := set.arrays()
	held, err := e.q.TryFlowsExclusive(ctx, tx, db.TryFlowsExclusiveParams{PartitionKeys: partitions, FlowIDs: flows})
	set.keep(held)
	return err
}

// lockFlowsExclusive locks flows against all other transitions of members.
func (e *Engine) lockFlowsExclusive(ctx context.Context, tx db.DBTX, set *flowSet) error {
	_, err := e.takeFlows(ctx, tx, set)
	return err
}

// takeFlows is lockFlowsExclusive, and returns the states of existing flows.
func (e *Engine) takeFlows(ctx context.Context, tx db.DBTX, set *flowSet) (map[id.FlowID]state.FlowState, error) {
	if set.empty() {
		return nil, nil
	}
	partitions, flows := set.arrays()
	if err := e.q.LockFlowsExclusive(ctx, tx, flows); err != nil {
		return nil, err
	}
	rows, err := e.q.LockFlowRows(ctx, tx, db.LockFlowRowsParams{PartitionKeys: partitions, FlowIDs: flows})
	if err != nil {
		return nil, err
	}
	states := make(map[id.FlowID]state.FlowState, len(rows))
	for _, row := range rows {
		states[row.FlowID] = state.FlowState(row.PublicFlowState)
	}
	return states, nil
}
