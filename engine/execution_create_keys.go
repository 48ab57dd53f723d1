package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// creationKeys are the locked idempotency keys of some creations.
type creationKeys struct {
	taken map[scopedKey]takenKey // by an execution of an earlier call, within its window
	held  map[scopedKey]int      // free; until [Engine.settleKeys], the row names the creation at this index

	business businessKeys
	unique   uniqueKeys
}

// holdKeys locks the idempotency keys of creations.
func (e *Engine) holdKeys(ctx context.Context, tx db.DBTX, creations []creation) (creationKeys, error) {
	keys := creationKeys{taken: make(map[scopedKey]takenKey), held: make(map[scopedKey]int)}
	first := make(map[scopedKey]int)
	for i := range creations {
		if !creations[i].keyed() {
			continue
		}
		if _, twice := first[creations[i].scope()]; !twice {
			first[creations[i].scope()] = i
		}
	}
	// A taken key that no longer exists when it is locked was rolled back or purged. Try again with those keys.
	for pending := slices.SortedFunc(maps.Keys(first), scopedKey.compare); len(pending) > 0; {
		insert := db.InsertCreationKeysParams{NowMs: e.c.NowMs()}
		for _, key := range pending {
			c := &creations[first[key]]
			insert.PartitionKeys = append(insert.PartitionKeys, key.partition)
			insert.Namespaces = append(insert.Namespaces, key.namespace)
			insert.IdempotencyKeys = append(insert.IdempotencyKeys, key.key)
			insert.FormerKeys = append(insert.FormerKeys, c.key)
			insert.ExecutionIDs = append(insert.ExecutionIDs, core.PgUUID(c.id.UUID()))
			insert.WindowsMs = append(insert.WindowsMs, c.windowMs)
		}
		rows, err := e.c.Q.InsertCreationKeys(ctx, tx, insert)
		if err != nil {
			return keys, err
		}
		for _, row := range rows {
			key := scopedKey{row.PartitionKey, row.Namespace, row.IdempotencyKey}
			keys.held[key] = first[key]
		}
		pending = slices.DeleteFunc(pending, func(key scopedKey) bool { _, ours := keys.held[key]; return ours })
		if pending, err = e.takeFormerKeys(ctx, tx, &keys, creations, first, pending); err != nil {
			return keys, err
		}
		if pending, err = e.takeKeys(ctx, tx, &keys, pending); err != nil {
			return keys, err
		}
	}
	return keys, e.readTaken(ctx, tx, &keys)
}

// takeFormerKeys records the keys that are taken by rows of the former scope, and returns the others.
func (e *Engine) takeFormerKeys(
	ctx context.Context, tx db.DBTX, keys *creationKeys, creations []creation, first map[scopedKey]int, pending []scopedKey,
) ([]scopedKey, error) {
	if len(pending) == 0 {
		return nil, nil
	}
	list := db.ListFormerKeysParams{NowMs: e.c.NowMs()}
	for i, key := range pending {
		list.PartitionKeys = append(list.PartitionKeys, key.partition)
		list.Namespaces = append(list.Namespaces, key.namespace)
		list.FormerKeys = append(list.FormerKeys, creations[first[key]].key)
		list.Ords = append(list.Ords, int32(i))
	}
	rows, err := e.c.Q.ListFormerKeys(ctx, tx, list)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		key := pending[row.Ord]
		keys.taken[key] = takenKey{id: id.ExecutionIDFromRow(key.partition, id.ExecutionUUID(row.ExecutionID.Bytes))}
	}
	return slices.DeleteFunc(pending, func(key scopedKey) bool { _, taken := keys.taken[key]; return taken }), nil
}

// takeKeys locks taken keys, and returns those that no longer exist.
func (e *Engine) takeKeys(ctx context.Context, tx db.DBTX, keys *creationKeys, pending []scopedKey) ([]scopedKey, error) {
	if len(pending) == 0 {
		return nil, nil
	}
	take := db.TakeCreationKeysParams{NowMs: e.c.NowMs()}
	for _, key := range pending {
		take.PartitionKeys = append(take.PartitionKeys, key.partition)
		take.Namespaces = append(take.Namespaces, key.namespace)
		take.IdempotencyKeys = append(take.IdempotencyKeys, key.key)
	}
	stored, err := e.c.Q.TakeCreationKeys(ctx, tx, take)
	if err != nil {
		return nil, err
	}
	found := make(map[scopedKey]bool, len(stored))
	for _, row := range stored {
		key := scopedKey{row.PartitionKey, row.Namespace, row.IdempotencyKey}
		found[key] = true
		if row.InWindow {
			keys.taken[key] = takenKey{id: id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))}
		} else {
			keys.held[key] = noCreation
		}
	}
	return slices.DeleteFunc(pending, func(key scopedKey) bool { return found[key] }), nil
}

// readTaken reads the executions of taken keys.
func (e *Engine) readTaken(ctx context.Context, tx db.DBTX, keys *creationKeys) error {
	if len(keys.taken) == 0 {
		return nil
	}
	var read db.ReadKeyedExecutionsParams
	for _, taken := range keys.taken {
		read.PartitionKeys = append(read.PartitionKeys, taken.id.Partition())
		read.ExecutionIDs = append(read.ExecutionIDs, core.PgUUID(taken.id.UUID()))
	}
	rows, err := e.c.Q.ReadKeyedExecutions(ctx, tx, read)
	if err != nil {
		return err
	}
	facts := make(map[id.ExecutionID]*db.ReadKeyedExecutionsRow, len(rows))
	for i := range rows {
		facts[id.ExecutionIDFromRow(rows[i].PartitionKey, rows[i].ExecutionID)] = &rows[i]
	}
	for key, taken := range keys.taken {
		keys.taken[key] = takenKey{id: taken.id, facts: facts[taken.id]}
	}
	return nil
}

// noCreation is the index of no creation. The key's row names an execution of an earlier call whose window has passed.
const noCreation = -1

// A dealing is the outcome of creations in sequence.
type dealing struct {
	results []fferr.Outcome[Created] // a duplicate has the existing execution's id
	creates []int                    // indexes of the new executions
	owner   map[scopedKey]int        // index of the creation that gets a key

	keyOwner    map[id.BusinessKey]int // the same for business keys
	uniqueOwner map[uniqueKey]int      // and for those of unique work
}

// deal decides creations in order. A taken idempotency key, or else an existing id, makes a creation a duplicate. A taken
// business key refuses it.
func deal(creations []creation, keys creationKeys, existing map[id.ExecutionID]bool) dealing {
	d := dealing{
		results: make([]fferr.Outcome[Created], len(creations)), creates: make([]int, 0, len(creations)), owner: make(map[scopedKey]int),
		keyOwner: make(map[id.BusinessKey]int),
	}
	if len(creations) > 0 && creations[0].unique != nil {
		d.uniqueOwner = make(map[uniqueKey]int, len(creations))
	} else {
		d.uniqueOwner = make(map[uniqueKey]int)
	}
	made := make(map[id.ExecutionID]bool)
	for i := range creations {
		c := &creations[i]
		d.results[i].Value = Created{ID: c.id, Duplicate: true}
		if existing, err, taken := d.taken(c, creations, keys); taken {
			d.results[i] = fferr.Outcome[Created]{Value: Created{ID: existing, Duplicate: true}}
			if err != nil {
				d.results[i] = fferr.Outcome[Created]{Value: Created{ID: c.id}, Err: err}
			}
			continue
		}
		if existing[c.id] || made[c.id] {
			continue
		}
		if err := d.businessTaken(c, creations, keys.business); err != nil {
			d.results[i] = fferr.Outcome[Created]{Value: Created{ID: c.id}, Err: err}
			continue
		}
		if taken, is := d.uniqueTaken(i, creations, keys.unique); is {
			d.results[i].Value = taken
			continue
		}
		d.results[i].Value.Duplicate = false
		d.creates = append(d.creates, i)
		if !c.minted {
			made[c.id] = true
		}
		if c.keyed() {
			d.owner[c.scope()] = i
		}
		if !c.business.IsZero() {
			d.keyOwner[c.business] = i
		}
		if c.unique != nil {
			d.uniqueOwner[c.unique.key] = i
			d.results[i].Value.Cancelled = keys.unique.cancelled[c.unique.key]
		}
	}
	return d
}

// taken returns the execution that has a creation's key, and an error if the creation does not repeat that one's.
func (d dealing) taken(c *creation, creations []creation, keys creationKeys) (id.ExecutionID, error, bool) {
	if !c.keyed() {
		return id.ExecutionID{}, nil, false
	}
	if earlier, taken := keys.taken[c.scope()]; taken {
		return earlier.id, earlier.conflict(c), true
	}
	owner, taken := d.owner[c.scope()]
	if !taken {
		return id.ExecutionID{}, nil, false
	}
	earlier := &creations[owner]
	if !bytes.Equal(earlier.payload, c.payload) || earlier.encoding != c.encoding {
		return earlier.id, c.conflictWith(earlier.id, otherPayload), true
	}
	return earlier.id, nil, true
}

// fresh returns the creations that create an execution. If any of their ids were given by callers, they are in lock
// order.
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

// wantAll returns an error if a key of any creation is taken.
func (d dealing) wantAll(creations []creation) error {
	for i, result := range d.results {
		conflict, _ := errors.AsType[*fferr.KeyConflictError](result.Err)
		switch {
		case conflict != nil && !conflict.BusinessKey.IsZero():
			return fmt.Errorf("execution %s: %w", creations[i].id, result.Err)
		case result.Err != nil:
			return fmt.Errorf("execution %s: %w: %w", creations[i].id, fferr.ErrIdempotencyKeyTaken, result.Err)
		case result.Value.Duplicate:
			return fmt.Errorf("execution %s: %w by %s", creations[i].id, fferr.ErrIdempotencyKeyTaken, result.Value.ID)
		}
	}
	return nil
}

// outcomes returns the outcomes of the creations after the insert. Those without an inserted row existed already.
func (d dealing) outcomes(created map[id.ExecutionID]Created) []fferr.Outcome[Created] {
	for _, i := range d.creates {
		value := &d.results[i].Value
		row, ok := created[value.ID]
		value.State, value.Duplicate = row.State, !ok
	}
	return d.results
}

// insertDealt inserts the creations that are no duplicates of the keys, of existing executions or of creations before
// them.
func (e *Engine) insertDealt(ctx context.Context, tx *core.Txn, r *creationRun) (err error) {
	existing := make(map[id.ExecutionID]bool)
	if !interdependent(r.creations) {
		r.plan = deal(r.creations, r.keys, existing)
		r.created, err = e.insert(ctx, tx, r.plan.fresh(r.creations), r.flow, e.c.NowMs(), &tx.Due)
		if err != nil || len(r.created) == len(r.plan.creates) {
			return err
		}
		r.plan.noteExisting(r.creations, r.created, existing)
		r.plan = deal(r.creations, r.keys, existing)
		return nil
	}
	// Each creation may decide those after it, so the existing ids must be known. If other transactions create some of
	// them in the meantime, decide again.
	if err := e.readExisting(ctx, tx, r.creations, existing); err != nil {
		return err
	}
	for {
		r.plan = deal(r.creations, r.keys, existing)
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		r.created, err = e.insert(ctx, savepoint, r.plan.fresh(r.creations), r.flow, e.c.NowMs(), &tx.Due)
		switch {
		case err != nil:
			pgtx.Rollback(savepoint)
			return err
		case len(r.created) == len(r.plan.creates):
			return savepoint.Commit(ctx)
		}
		r.plan.noteExisting(r.creations, r.created, existing)
		if err := savepoint.Rollback(ctx); err != nil {
			return err
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

// interdependent reports whether an id or a key occurs twice. An id that was given together with a business key or for
// unique work counts too: if it exists, the creation is a duplicate even if that key is taken.
func interdependent(creations []creation) bool {
	ids, keys, business := make(map[id.ExecutionID]bool), make(map[scopedKey]bool), make(map[id.BusinessKey]bool)
	for i := range creations {
		c := &creations[i]
		if ids[c.id] || c.keyed() && keys[c.scope()] || c.unique != nil && !c.minted {
			return true
		}
		if !c.business.IsZero() {
			if business[c.business] || !c.minted {
				return true
			}
			business[c.business] = true
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
		p.ExecutionIDs = append(p.ExecutionIDs, core.PgUUID(creations[i].id.UUID()))
	}
	rows, err := e.c.Q.ReadExistingExecutions(ctx, tx, p)
	for _, row := range rows {
		existing[id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)] = true
	}
	return err
}

// settleKeys assigns the held keys to the creations that own them, and deletes the unowned ones.
func (e *Engine) settleKeys(ctx context.Context, tx db.DBTX, creations []creation, keys creationKeys, plan dealing) error {
	reuse := db.ReuseCreationKeysParams{NowMs: e.c.NowMs()}
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
			reuse.ExecutionIDs = append(reuse.ExecutionIDs, core.PgUUID(c.id.UUID()))
			reuse.WindowsMs = append(reuse.WindowsMs, c.windowMs)
		case !owned && named != noCreation:
			unused.PartitionKeys = append(unused.PartitionKeys, key.partition)
			unused.Namespaces = append(unused.Namespaces, key.namespace)
			unused.IdempotencyKeys = append(unused.IdempotencyKeys, key.key)
			unused.ExecutionIDs = append(unused.ExecutionIDs, core.PgUUID(creations[named].id.UUID()))
		}
	}
	if len(reuse.ExecutionIDs) > 0 {
		if err := e.c.Q.ReuseCreationKeys(ctx, tx, reuse); err != nil {
			return err
		}
	}
	if len(unused.ExecutionIDs) > 0 {
		return e.c.Q.DropCreationKeys(ctx, tx, unused)
	}
	return nil
}
