package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// lockAhead takes the locks of all runs of a creation: all keys, the executions that may be in the way, and the sequences,
// each kind in its own order. Otherwise two calls could wait for each other's first runs.
//
// A missing key or sequence is inserted and deleted again. Other creators of the same row wait until the transaction ends.
func (e *Engine) lockAhead(ctx context.Context, tx *core.Txn, creations []creation) error {
	r := creationRun{creations: creations}
	if err := e.holdKeys(ctx, tx, &r); err != nil {
		return err
	}
	if err := e.holdBusinessKeys(ctx, tx, &r); err != nil {
		return err
	}
	unique, members := make(map[uniqueKey]int), make(map[core.SequenceID][]*creation)
	var changed []pgtype.UUID
	for i := range creations {
		c := &creations[i]
		if !c.sequence.IsZero() {
			members[core.SequenceOf(c.namespace, c.sequence.Key)] = []*creation{c}
		}
		if c.unique == nil {
			continue
		}
		unique[c.unique.key] = i
		if c.unique.changes() {
			changed = append(changed, c.unique.key.pg())
		}
	}
	sorted := slices.SortedFunc(maps.Keys(unique), uniqueKey.compare)
	all := make([]pgtype.UUID, len(sorted))
	for n, key := range sorted {
		all[n] = key.pg()
	}
	got, err := e.insertUnique(ctx, tx, sorted, func(key uniqueKey) (id.ExecutionID, UniqueWhile) {
		c := &creations[unique[key]]
		return c.id, c.unique.while()
	})
	if err != nil {
		return err
	}
	r.keys.unique.held = make(map[uniqueKey]int)
	for key := range got {
		r.keys.unique.held[key] = unique[key]
	}
	for _, settle := range [...]func(context.Context, *core.Txn, *creationRun) error{e.settleKeys, e.settleBusinessKeys, e.settleUnique} {
		if err := settle(ctx, tx, &r); err != nil {
			return err
		}
	}
	sequences := sequenceParams(slices.SortedFunc(maps.Keys(members), core.SequenceID.Compare), members, 0)
	return pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error { return e.c.Q.LockUniqueKeys(ctx, conn, all) },
		func(conn db.DBTX) error { return e.c.Q.LockUniqueHolders(ctx, conn, changed) },
		func(conn db.DBTX) error {
			_, err := e.c.Q.LockSequences(ctx, conn, sequences)
			return err
		},
		func(conn db.DBTX) error {
			return e.c.Q.DropNewSequences(ctx, conn, db.DropNewSequencesParams{
				PartitionKeys: sequences.PartitionKeys, SequenceIDs: sequences.SequenceIDs,
			})
		},
	)
}
