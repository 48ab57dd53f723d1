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
)

// creationKeys are the locked idempotency keys of some creations.
type creationKeys struct {
	taken map[scopedKey]takenKey // by an execution of an earlier call, within the window
	held  map[scopedKey]int      // free; until [Engine.settleKeys], the row names the creation at this index

	business businessKeys
	unique   uniqueKeys
}

// holdKeys locks the idempotency keys of a run.
func (e *Engine) holdKeys(ctx context.Context, tx *core.Txn, r *creationRun) error {
	creations, keys := r.creations, &r.keys
	keys.taken, keys.held = make(map[scopedKey]takenKey), make(map[scopedKey]int)
	first := make(map[scopedKey]int)
	for i := range creations {
		if !creations[i].keyed() {
			continue
		}
		if _, twice := first[creations[i].scope()]; !twice {
			first[creations[i].scope()] = i
		}
	}
	// A taken key missing at the lock was rolled back or purged: insert the key again.
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
			return err
		}
		for _, row := range rows {
			key := scopedKey{row.PartitionKey, row.Namespace, row.IdempotencyKey}
			keys.held[key] = first[key]
		}
		pending = slices.DeleteFunc(pending, func(key scopedKey) bool { _, ours := keys.held[key]; return ours })
		if pending, err = e.takeFormerKeys(ctx, tx, keys, creations, first, pending); err != nil {
			return err
		}
		if pending, err = e.takeKeys(ctx, tx, keys, pending); err != nil {
			return err
		}
	}
	return e.readTaken(ctx, tx, keys)
}

// takeFormerKeys records the keys taken by rows of the former scope, and returns the other keys.
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

// takeKeys locks taken keys, and returns the keys without a row.
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

// noCreation is the index of no creation: the key's row names an execution of an earlier call, after its window.
const noCreation = -1

// keyTaken decides a creation by the idempotency key: a repetition of the key's execution, or a conflict.
func (r *creationRun) keyTaken(i int) (fferr.Outcome[Created], bool) {
	c := &r.creations[i]
	if !c.keyed() {
		return fferr.Outcome[Created]{}, false
	}
	var existing id.ExecutionID
	var err error
	if earlier, taken := r.keys.taken[c.scope()]; taken {
		existing, err = earlier.id, earlier.conflict(c)
	} else if owner, taken := r.owner[c.scope()]; taken {
		earlier := &r.creations[owner]
		if existing = earlier.id; !bytes.Equal(earlier.payload, c.payload) || earlier.encoding != c.encoding {
			err = c.conflictWith(earlier.id, otherPayload)
		}
	} else {
		return fferr.Outcome[Created]{}, false
	}
	if err != nil {
		return fferr.Outcome[Created]{Value: Created{ID: c.id}, Err: err}, true
	}
	return fferr.Outcome[Created]{Value: Created{ID: existing, Duplicate: true}}, true
}

func (r *creationRun) takeKey(i int) {
	if c := &r.creations[i]; c.keyed() {
		if r.owner == nil {
			r.owner = make(map[scopedKey]int)
		}
		r.owner[c.scope()] = i
	}
}

// wantAll returns an error if a key of any creation is taken.
func (r *creationRun) wantAll() error {
	for i, result := range r.results {
		x := r.creations[i].id
		conflict, _ := errors.AsType[*fferr.KeyConflictError](result.Err)
		switch {
		case conflict != nil && !conflict.BusinessKey.IsZero():
			return fmt.Errorf("execution %s: %w", x, result.Err)
		case result.Err != nil:
			return fmt.Errorf("execution %s: %w: %w", x, fferr.ErrIdempotencyKeyTaken, result.Err)
		case result.Value.Duplicate:
			return fmt.Errorf("execution %s: %w by %s", x, fferr.ErrIdempotencyKeyTaken, result.Value.ID)
		}
	}
	return nil
}

// settleKeys assigns the held keys to their creations, and deletes the unowned ones.
func (e *Engine) settleKeys(ctx context.Context, tx *core.Txn, r *creationRun) error {
	reuse := db.ReuseCreationKeysParams{NowMs: e.c.NowMs()}
	var unused db.DropCreationKeysParams
	for _, key := range slices.SortedFunc(maps.Keys(r.keys.held), scopedKey.compare) {
		named := r.keys.held[key]
		owner, owned := r.owner[key]
		switch {
		case owned && owner != named:
			c := &r.creations[owner]
			reuse.PartitionKeys = append(reuse.PartitionKeys, key.partition)
			reuse.Namespaces = append(reuse.Namespaces, key.namespace)
			reuse.IdempotencyKeys = append(reuse.IdempotencyKeys, key.key)
			reuse.ExecutionIDs = append(reuse.ExecutionIDs, core.PgUUID(c.id.UUID()))
			reuse.WindowsMs = append(reuse.WindowsMs, c.windowMs)
		case !owned && named != noCreation:
			unused.PartitionKeys = append(unused.PartitionKeys, key.partition)
			unused.Namespaces = append(unused.Namespaces, key.namespace)
			unused.IdempotencyKeys = append(unused.IdempotencyKeys, key.key)
			unused.ExecutionIDs = append(unused.ExecutionIDs, core.PgUUID(r.creations[named].id.UUID()))
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
