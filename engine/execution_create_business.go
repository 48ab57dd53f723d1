package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// businessKeys are the business keys of some creations.
type businessKeys struct {
	taken map[id.BusinessKey]keyHolder // by an existing execution or flow
	held  map[id.BusinessKey]int       // new; until [Engine.settleBusinessKeys], the row names the creation at this index
}

// ofFlow is the index of a flow instead of a creation.
const ofFlow = -2

// keyedFlow is the business key of a flow created together with executions. The zero value is none.
type keyedFlow struct {
	flow id.FlowID
	key  id.BusinessKey
}

// holdBusinessKeys inserts the business keys of a run, except those of repetitions by an idempotency key, and the key of a
// new flow. The insert waits for other creators of the same keys.
func (e *Engine) holdBusinessKeys(ctx context.Context, tx *core.Txn, r *creationRun) error {
	creations, keys, of := r.creations, &r.keys.business, r.newFlow
	first := make(map[id.BusinessKey]int)
	for i := range creations {
		c := &creations[i]
		if c.business.IsZero() {
			continue
		}
		if _, repeated := r.keys.taken[c.scope()]; repeated && c.keyed() {
			continue
		}
		if _, twice := first[c.business]; !twice {
			first[c.business] = i
		}
	}
	if !of.key.IsZero() {
		first[of.key] = ofFlow
	}
	if len(first) == 0 {
		return nil
	}
	keys.taken, keys.held = make(map[id.BusinessKey]keyHolder), make(map[id.BusinessKey]int)
	// A taken key missing at the read was deleted with its holder: insert the key again.
	for pending := slices.SortedFunc(maps.Keys(first), compareBusinessKeys); len(pending) > 0; {
		var insert db.InsertBusinessKeysParams
		for _, key := range pending {
			var execution, flow pgtype.UUID
			holder := e.cfg.Partitions.FlowPartition(of.flow)
			if i := first[key]; i == ofFlow {
				flow = core.PgUUID(of.flow)
			} else {
				execution, holder = core.PgUUID(creations[i].id.UUID()), creations[i].id.Partition()
			}
			insert.PartitionKeys = append(insert.PartitionKeys, businessKeyPartition(key))
			insert.Names = append(insert.Names, key.Name)
			insert.KeyValues = append(insert.KeyValues, key.Value)
			insert.HolderPartitionKeys = append(insert.HolderPartitionKeys, holder)
			insert.ExecutionIDs = append(insert.ExecutionIDs, execution)
			insert.FlowIDs = append(insert.FlowIDs, flow)
		}
		rows, err := e.c.Q.InsertBusinessKeys(ctx, tx, insert)
		if err != nil {
			return err
		}
		for _, row := range rows {
			key := id.BusinessKey{Name: row.Name, Value: row.Value}
			keys.held[key] = first[key]
		}
		pending = slices.DeleteFunc(pending, func(key id.BusinessKey) bool { _, ours := keys.held[key]; return ours })
		holders, err := e.listHolders(ctx, tx, pending)
		if err != nil {
			return err
		}
		maps.Copy(keys.taken, holders)
		pending = slices.DeleteFunc(pending, func(key id.BusinessKey) bool { _, taken := keys.taken[key]; return taken })
	}
	return nil
}

// listHolders returns the holders of business keys, without the free keys.
func (e *Engine) listHolders(ctx context.Context, conn db.DBTX, keys []id.BusinessKey) (map[id.BusinessKey]keyHolder, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var list db.ListBusinessKeysParams
	for _, key := range keys {
		list.PartitionKeys = append(list.PartitionKeys, businessKeyPartition(key))
		list.Names = append(list.Names, key.Name)
		list.KeyValues = append(list.KeyValues, key.Value)
	}
	rows, err := e.c.Q.ListBusinessKeys(ctx, conn, list)
	holders := make(map[id.BusinessKey]keyHolder, len(rows))
	for _, row := range rows {
		var holder keyHolder
		if row.FlowID.Valid {
			holder.flow = new(id.FlowID(row.FlowID.Bytes))
		} else {
			holder.execution = id.ExecutionIDFromRow(row.HolderPartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
		}
		holders[id.BusinessKey{Name: row.Name, Value: row.Value}] = holder
	}
	return holders, err
}

// businessTaken refuses a creation if another execution or flow has its business key.
func (r *creationRun) businessTaken(i int) (fferr.Outcome[Created], bool) {
	c := &r.creations[i]
	if c.business.IsZero() {
		return fferr.Outcome[Created]{}, false
	}
	holder, taken := r.keys.business.taken[c.business]
	if taken = taken && (holder.flow != nil || holder.execution != c.id); !taken {
		var owner int
		if owner, taken = r.keyOwner[c.business]; !taken {
			return fferr.Outcome[Created]{}, false
		}
		holder = keyHolder{execution: r.creations[owner].id}
	}
	return fferr.Outcome[Created]{Value: Created{ID: c.id}, Err: holder.conflict(c.business)}, true
}

func (r *creationRun) takeBusiness(i int) {
	if c := &r.creations[i]; !c.business.IsZero() {
		if r.keyOwner == nil {
			r.keyOwner = make(map[id.BusinessKey]int)
		}
		r.keyOwner[c.business] = i
	}
}

// settleBusinessKeys assigns the held business keys to their creations, and deletes the unowned ones.
func (e *Engine) settleBusinessKeys(ctx context.Context, tx *core.Txn, r *creationRun) error {
	keys := r.keys.business
	var reuse db.ReuseBusinessKeysParams
	var unused db.DropBusinessKeysParams
	for _, key := range slices.SortedFunc(maps.Keys(keys.held), compareBusinessKeys) {
		named := keys.held[key]
		owner, owned := r.keyOwner[key]
		switch {
		case named == ofFlow:
		case owned && owner != named:
			c := &r.creations[owner]
			reuse.PartitionKeys = append(reuse.PartitionKeys, businessKeyPartition(key))
			reuse.Names = append(reuse.Names, key.Name)
			reuse.KeyValues = append(reuse.KeyValues, key.Value)
			reuse.HolderPartitionKeys = append(reuse.HolderPartitionKeys, c.id.Partition())
			reuse.ExecutionIDs = append(reuse.ExecutionIDs, core.PgUUID(c.id.UUID()))
		case !owned:
			unused.PartitionKeys = append(unused.PartitionKeys, businessKeyPartition(key))
			unused.Names = append(unused.Names, key.Name)
			unused.KeyValues = append(unused.KeyValues, key.Value)
		}
	}
	if len(reuse.ExecutionIDs) > 0 {
		if err := e.c.Q.ReuseBusinessKeys(ctx, tx, reuse); err != nil {
			return err
		}
	}
	if len(unused.Names) > 0 {
		return e.c.Q.DropBusinessKeys(ctx, tx, unused)
	}
	return nil
}
