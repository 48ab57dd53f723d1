package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// scopedKey is an idempotency key where it holds.
type scopedKey struct {
	partition      int16
	namespace, key string
}

func (k scopedKey) compare(other scopedKey) int {
	return cmp.Or(
		cmp.Compare(k.partition, other.partition),
		cmp.Compare(k.namespace, other.namespace),
		cmp.Compare(k.key, other.key),
	)
}

// keyed says whether a creation has an idempotency key that is looked at.
func (c creation) keyed() bool { return c.key != "" && c.windowMs > 0 }

func (c creation) scope() scopedKey { return scopedKey{c.id.Partition(), c.namespace, c.key} }

// creationKeys are the idempotency keys of some creations, locked.
type creationKeys struct {
	taken map[scopedKey]id.ExecutionID // by an execution of an earlier call, within its window
	held  map[scopedKey]int            // free; its row names the creation of this index until [Engine.settleKeys]
}

// holdKeys locks the idempotency keys of creations.
func (e *Engine) holdKeys(ctx context.Context, tx db.DBTX, creations []creation) (creationKeys, error) {
	keys := creationKeys{taken: make(map[scopedKey]id.ExecutionID), held: make(map[scopedKey]int)}
	first := make(map[scopedKey]int)
	for i := range creations {
		if !creations[i].keyed() {
			continue
		}
		if _, twice := first[creations[i].scope()]; !twice {
			first[creations[i].scope()] = i
		}
	}
	// Taken keys that turn out to be gone when they are locked were rolled back or purged: begin again
	// with them.
	for pending := slices.SortedFunc(maps.Keys(first), scopedKey.compare); len(pending) > 0; {
		insert := db.InsertCreationKeysParams{NowMs: e.nowMs()}
		for _, key := range pending {
			c := &creations[first[key]]
			insert.PartitionKeys = append(insert.PartitionKeys, key.partition)
			insert.Namespaces = append(insert.Namespaces, key.namespace)
			insert.IdempotencyKeys = append(insert.IdempotencyKeys, key.key)
			insert.ExecutionIDs = append(insert.ExecutionIDs, pgUUID(c.id.UUID()))
			insert.WindowsMs = append(insert.WindowsMs, c.windowMs)
		}
		rows, err := e.q.InsertCreationKeys(ctx, tx, insert)
		if err != nil {
			return keys, err
		}
		for _, row := range rows {
			key := scopedKey{row.PartitionKey, row.Namespace, row.IdempotencyKey}
			keys.held[key] = first[key]
		}
		take := db.TakeCreationKeysParams{NowMs: e.nowMs()}
		pending = slices.DeleteFunc(pending, func(key scopedKey) bool { _, ours := keys.held[key]; return ours })
		for _, key := range pending {
			take.PartitionKeys = append(take.PartitionKeys, key.partition)
			take.Namespaces = append(take.Namespaces, key.namespace)
			take.IdempotencyKeys = append(take.IdempotencyKeys, key.key)
		}
		if len(pending) == 0 {
			break
		}
		stored, err := e.q.TakeCreationKeys(ctx, tx, take)
		if err != nil {
			return keys, err
		}
		found := make(map[scopedKey]bool, len(stored))
		for _, row := range stored {
			key := scopedKey{row.PartitionKey, row.Namespace, row.IdempotencyKey}
			found[key] = true
			if row.InWindow {
				keys.taken[key] = id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
			} else {
				keys.held[key] = noCreation
			}
		}
		pending = slices.DeleteFunc(pending, func(key scopedKey) bool { return found[key] })
	}
	return keys, nil
}

// noCreation is the index of no creation: the row of a key names an execution of an earlier call, whose window
// has passed.
const noCreation = -1

// A dealing is the outcome of creations one after the other.
type dealing struct {
	results []Created         // with the id of the execution that a duplicate is one of
	creates []int             // the indexes of those that are created
	owner   map[scopedKey]int // which creation a key goes to
}

// deal decides creations in their order: a taken key, then an id that exists already, makes a duplicate.
func deal(creations []creation, keys creationKeys, existing map[id.ExecutionID]bool) dealing {
	d := dealing{
		results: make([]Created, len(creations)), creates: make([]int, 0, len(creations)), owner: make(map[scopedKey]int),
	}
	made := make(map[id.ExecutionID]bool)
	for i := range creations {
		c := &creations[i]
		d.results[i] = Created{ID: c.id, Duplicate: true}
		if c.keyed() {
			if earlier, taken := keys.taken[c.scope()]; taken {
				d.results[i].ID = earlier
				continue
			}
			if earlier, taken := d.owner[c.scope()]; taken {
				d.results[i].ID = creations[earlier].id
				continue
			}
		}
		if existing[c.id] || made[c.id] {
			continue
		}
		d.results[i].Duplicate = false
		d.creates = append(d.creates, i)
		if !c.minted {
			made[c.id] = true
		}
		if c.keyed() {
			d.owner[c.scope()] = i
		}
	}
	return d
}

// fresh returns the creations that create something. IDs that others may give too stand in the order of locks.
func (d dealing) fresh(creations []creation) []creation {
	fresh := creations
	if len(d.creates) < len(creations) {
		fresh = make([]creation, len(d.creates))
		for n, i := range d.creates {
			fresh[n] = creations[i]
		}
	}
	if slices.ContainsFunc(fresh, func(c creation) bool { return !c.minted }) {
		fresh = slices.SortedFunc(slices.Values(fresh), func(a, b creation) int { return a.id.Compare(b.id) })
	}
	return fresh
}

// wantAll refuses creations of which one carries a key that is taken.
func (d dealing) wantAll(creations []creation) error {
	for i, result := range d.results {
		if result.Duplicate {
			return fmt.Errorf("execution %s: %w by %s", creations[i].id, ErrIdempotencyKeyTaken, result.ID)
		}
	}
	return nil
}

// outcomes returns what became of the creations once those that create something were inserted; who has no row
// there existed already.
func (d dealing) outcomes(created map[id.ExecutionID]Created) []Created {
	for _, i := range d.creates {
		row, ok := created[d.results[i].ID]
		d.results[i].State, d.results[i].Duplicate = row.State, !ok
	}
	return d.results
}

// insertDealt inserts what has to be created when creations are held against the keys, against what exists, and
// against those before them.
func (e *Engine) insertDealt(
	ctx context.Context, tx *txn, flow *id.FlowID, creations []creation, keys creationKeys,
) (dealing, map[id.ExecutionID]Created, error) {
	existing := make(map[id.ExecutionID]bool)
	if !interdependent(creations) {
		plan := deal(creations, keys, existing)
		created, err := e.insert(ctx, tx, plan.fresh(creations), nil, flow, e.nowMs(), &tx.due)
		if err != nil || len(created) == len(plan.creates) {
			return plan, created, err
		}
		plan.noteExisting(creations, created, existing)
		return deal(creations, keys, existing), created, nil
	}
	// What one of these becomes decides about those after it, so it has to be known which ids exist. Others may
	// create some of them meanwhile; then it is decided anew.
	if err := e.readExisting(ctx, tx, creations, existing); err != nil {
		return dealing{}, nil, err
	}
	for {
		plan := deal(creations, keys, existing)
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return plan, nil, err
		}
		created, err := e.insert(ctx, savepoint, plan.fresh(creations), nil, flow, e.nowMs(), &tx.due)
		switch {
		case err != nil:
			pgtx.Rollback(savepoint)
			return plan, nil, err
		case len(created) == len(plan.creates):
			return plan, created, savepoint.Commit(ctx)
		}
		plan.noteExisting(creations, created, existing)
		if err := savepoint.Rollback(ctx); err != nil {
			return plan, nil, err
		}
	}
}

func (d dealing) noteExisting(creations []creation, created map[id.ExecutionID]Created, existing map[id.ExecutionID]bool) {
	for _, i := range d.creates {
		if _, ok := created[creations[i].id]; !ok {
			existing[creations[i].id] = true
		}
	}
}

// interdependent says whether an id or a key stands twice.
func interdependent(creations []creation) bool {
	ids, keys := make(map[id.ExecutionID]bool), make(map[scopedKey]bool)
	for i := range creations {
		c := &creations[i]
		if ids[c.id] || c.keyed() && keys[c.scope()] {
			return true
		}
		if !c.minted {
			ids[c.id] = true
		}
		if c.keyed() {
			keys[c.scope()] = true
		}
	}
	return false
}

func (e *Engine) readExisting(ctx context.Context, tx db.DBTX, creations []creation, existing map[id.ExecutionID]bool) error {
	var p db.ReadExistingExecutionsParams
	for i := range creations {
		p.PartitionKeys = append(p.PartitionKeys, creations[i].id.Partition())
		p.ExecutionIDs = append(p.ExecutionIDs, pgUUID(creations[i].id.UUID()))
	}
	rows, err := e.q.ReadExistingExecutions(ctx, tx, p)
	for _, row := range rows {
		existing[id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)] = true
	}
	return err
}

// settleKeys gives the keys held to the creations that they go to; one that goes to none is given back.
func (e *Engine) settleKeys(ctx context.Context, tx db.DBTX, creations []creation, keys creationKeys, plan dealing) error {
	reuse := db.ReuseCreationKeysParams{NowMs: e.nowMs()}
	var unused db.DropCreationKeysParams
	for _, key := range slices.SortedFunc(maps.Keys(keys.held), scopedKey.compare) {
		named := keys.held[key]
		owner, owned := plan.owner[key]
		switch {
		case owned && owner != named:
			c := &creations[owner]
			reuse.PartitionKeys = append(reuse.PartitionKeys, key.partition)
			reuse.Namespaces = append(reuse.Namespaces, key.namespace)
			reuse.IdempotencyKeys = append(reuse.IdempotencyKeys, key.key)
			reuse.ExecutionIDs = append(reuse.ExecutionIDs, pgUUID(c.id.UUID()))
			reuse.WindowsMs = append(reuse.WindowsMs, c.windowMs)
		case !owned && named != noCreation:
			unused.PartitionKeys = append(unused.PartitionKeys, key.partition)
			unused.Namespaces = append(unused.Namespaces, key.namespace)
			unused.IdempotencyKeys = append(unused.IdempotencyKeys, key.key)
			unused.ExecutionIDs = append(unused.ExecutionIDs, pgUUID(creations[named].id.UUID()))
		}
	}
	if len(reuse.ExecutionIDs) > 0 {
		if err := e.q.ReuseCreationKeys(ctx, tx, reuse); err != nil {
			return err
		}
	}
	if len(unused.ExecutionIDs) > 0 {
		return e.q.DropCreationKeys(ctx, tx, unused)
	}
	return nil
}
