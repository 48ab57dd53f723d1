package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// reasonUnique is the reason for the cancellation of an execution in the way.
const reasonUnique = "a newer execution has its unique key"

// uniqueKeys are the keys of unique work of some creations.
type uniqueKeys struct {
	taken     map[uniqueKey]uniqueHolder   // by a remaining execution
	held      map[uniqueKey]int            // new; until [Engine.settleUnique], the row names the creation at this index
	cancelled map[uniqueKey]id.ExecutionID // the former holder
}

// uniqueHolder is the execution with a key.
type uniqueHolder struct {
	execution  id.ExecutionID
	inForce    bool  // the execution still is in a state with the key
	taken      int64 // raised with each change of the holder, and when the holder runs again
	replacedBy int   // the creation whose payload was taken, or noCreation
}

// uniqueRuns divides creations into runs, so no creation changes or cancels an execution of the same run. A creation is a
// run of its own if it would change an existing execution, but may prove a duplicate for another reason.
func uniqueRuns(creations []creation) [][]creation {
	var runs [][]creation
	seen := make(map[uniqueKey]bool)
	start := 0
	end := func(at int) {
		if at > start {
			runs = append(runs, creations[start:at])
		}
		start = at
		clear(seen)
	}
	for i := range creations {
		c := &creations[i]
		if c.unique == nil {
			continue
		}
		if c.unique.changes() && (seen[c.unique.key] || !c.minted || c.holdsKey()) {
			end(i)
		}
		seen[c.unique.key] = true
		if c.unique.changes() && (!c.minted || c.holdsKey()) {
			end(i + 1)
		}
	}
	end(len(creations))
	return runs
}

// splitUnique divides creations into runs, and takes the locks of all runs ahead if there are several.
func (e *Engine) splitUnique(ctx context.Context, tx *core.Txn, creations []creation) ([][]creation, error) {
	runs := uniqueRuns(creations)
	if len(runs) > 1 {
		return runs, e.lockAhead(ctx, tx, creations)
	}
	return runs, nil
}

// changes reports whether the creation may change an existing execution.
func (u *Unique) changes() bool { return u.IfTaken == ReplaceWaiting || u.IfTaken == CancelExisting }

// holdUnique inserts the keys of unique creations, except for repetitions and refused creations. The insert waits for
// other creators of the same keys. Executions with such keys are changed or cancelled, as the creations say.
func (e *Engine) holdUnique(ctx context.Context, tx *core.Txn, r *creationRun) error {
	creations, keys := r.creations, &r.keys.unique
	first, err := e.uniqueOf(ctx, tx, creations, r.keys)
	if err != nil || len(first) == 0 {
		return err
	}
	keys.taken, keys.held = make(map[uniqueKey]uniqueHolder), make(map[uniqueKey]int)
	keys.cancelled = make(map[uniqueKey]id.ExecutionID)
	tried := make(map[uniqueKey]id.ExecutionID)
	of := func(key uniqueKey) (id.ExecutionID, UniqueWhile) {
		c := &creations[first[key]]
		return c.id, c.unique.while()
	}
	for pending := slices.SortedFunc(maps.Keys(first), uniqueKey.compare); len(pending) > 0; {
		got, err := e.insertUnique(ctx, tx, pending, of)
		if err != nil {
			return err
		}
		for key := range got {
			keys.held[key] = first[key]
		}
		pending = slices.DeleteFunc(pending, func(key uniqueKey) bool { return got[key] })
		holders, err := e.lockUnique(ctx, tx, pending, creations, first)
		if err != nil {
			return err
		}
		way := inTheWay{holders: holders, tried: tried}
		way.sort(pending, creations, first, keys)
		if err := e.clearUnique(ctx, tx, creations, first, &way, keys); err != nil {
			return err
		}
		// Any other key has changed holders meanwhile, or was deleted: try again.
		if got, err = e.takeOverUnique(ctx, tx, way.left, holders, of); err != nil {
			return err
		}
		for key := range got {
			keys.held[key] = first[key]
		}
		pending = slices.DeleteFunc(pending, func(key uniqueKey) bool { _, taken := keys.taken[key]; return taken || got[key] })
	}
	return nil
}

// sort divides the pending keys by holders.
func (w *inTheWay) sort(pending []uniqueKey, creations []creation, first map[uniqueKey]int, keys *uniqueKeys) {
	for _, key := range pending {
		holder, has := w.holders[key]
		c := &creations[first[key]]
		switch {
		case !has:
		case !holder.inForce:
			w.left = append(w.left, key)
		case holder.execution == c.id || w.tried[key] == holder.execution || !c.unique.changes():
			keys.taken[key] = holder
		case c.unique.IfTaken == ReplaceWaiting:
			w.replace = append(w.replace, key)
		default:
			w.cancel = append(w.cancel, key)
		}
	}
}

// uniqueOf returns the keys to insert, and the first creation of each.
func (e *Engine) uniqueOf(ctx context.Context, tx *core.Txn, creations []creation, others creationKeys) (map[uniqueKey]int, error) {
	first := make(map[uniqueKey]int)
	for i := range creations {
		c := &creations[i]
		if c.unique == nil {
			continue
		}
		if _, repeated := others.taken[c.scope()]; repeated && c.keyed() {
			continue
		}
		if _, refused := others.business.taken[c.business]; refused && !c.business.IsZero() {
			continue
		}
		if !c.minted && c.unique.changes() {
			existing := make(map[id.ExecutionID]bool)
			if err := e.readExisting(ctx, tx, creations[i:i+1], existing); err != nil {
				return nil, err
			}
			if existing[c.id] {
				continue
			}
		}
		if _, twice := first[c.unique.key]; !twice {
			first[c.unique.key] = i
		}
	}
	return first, nil
}

// inTheWay has the taken keys of some creations, by the way to free them.
type inTheWay struct {
	holders map[uniqueKey]uniqueHolder
	tried   map[uniqueKey]id.ExecutionID // executions that could not be changed
	left    []uniqueKey                  // of executions no longer in force
	replace []uniqueKey
	cancel  []uniqueKey
}

// clearUnique changes or cancels executions with keys. The keys of cancelled executions go to left.
func (e *Engine) clearUnique(
	ctx context.Context, tx *core.Txn, creations []creation, first map[uniqueKey]int, way *inTheWay, keys *uniqueKeys,
) error {
	byHolder := func(a, b uniqueKey) int { return way.holders[a].execution.Compare(way.holders[b].execution) }
	slices.SortFunc(way.replace, byHolder)
	slices.SortFunc(way.cancel, byHolder)
	if err := e.replaceWaiting(ctx, tx, creations, first, way, keys); err != nil {
		return err
	}
	if len(way.cancel) == 0 {
		return nil
	}
	specs := make([]CancelSpec, len(way.cancel))
	for n, key := range way.cancel {
		specs[n] = CancelSpec{ID: way.holders[key].execution, Reason: reasonUnique, anew: true}
	}
	errs, err := e.WithTx(tx.Nested()).cancel(ctx, specs)
	if err != nil {
		return err
	}
	for n, key := range way.cancel {
		switch err := errs[n]; {
		case err == nil:
			keys.cancelled[key] = specs[n].ID
			way.left = append(way.left, key)
		case errors.Is(err, fferr.ErrEnded), errors.Is(err, fferr.ErrNotFound):
			way.tried[key] = specs[n].ID
		default:
			return err
		}
	}
	return nil
}

// replaceWaiting gives waiting executions the payloads, limits and due times of creations.
func (e *Engine) replaceWaiting(
	ctx context.Context, tx *core.Txn, creations []creation, first map[uniqueKey]int, way *inTheWay, keys *uniqueKeys,
) error {
	if len(way.replace) == 0 {
		return nil
	}
	params, limits := db.ReplaceWaitingParams{NowMs: e.c.NowMs()}, db.ReplaceLimitsParams{}
	for _, key := range way.replace {
		c, x := &creations[first[key]], way.holders[key].execution
		way.tried[key] = x
		params.PartitionKeys = append(params.PartitionKeys, x.Partition())
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
		params.UniqueKeys = append(params.UniqueKeys, key.pg())
		params.DelaysUntilMs = append(params.DelaysUntilMs, c.delayUntilMs)
		params.WithinMs = append(params.WithinMs, c.unique.Within.Milliseconds())
		params.Payloads = append(params.Payloads, c.payload)
		own := gates{limits: c.gates.limits[:len(c.limits)]} // the quota policy stays
		_, ids, units := own.texts()
		limits.LimitIDs, limits.LimitUnits = append(limits.LimitIDs, ids), append(limits.LimitUnits, units)
		limits.LimitFields = append(limits.LimitFields, "{"+strings.TrimPrefix(limitsField(c.limits), ",")+"}")
	}
	limits.PartitionKeys, limits.ExecutionIDs, limits.UniqueKeys = params.PartitionKeys, params.ExecutionIDs, params.UniqueKeys
	var rows []db.ReplaceWaitingRow
	err := pgtx.InOneTrip(ctx, tx, func(conn db.DBTX) error {
		return e.c.Q.ReplaceLimits(ctx, conn, limits)
	}, func(conn db.DBTX) (err error) {
		rows, err = e.c.Q.ReplaceWaiting(ctx, conn, params)
		return err
	})
	if err != nil {
		return err
	}
	replaced := make(map[id.ExecutionID]bool, len(rows))
	for _, row := range rows {
		replaced[id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)] = true
		switch state.PublicState(row.PublicState) {
		case state.PublicWaiting:
			tx.Due.Lane(row.LaneID)
		case state.PublicDelayed:
			tx.Due.Delayed = true
		case state.PublicRateLimited:
			core.AwaitedPlacesOf(e.c).Note()
			tx.Due.Gated()
		}
		if row.Freed {
			tx.Due.Gated()
		}
	}
	for _, key := range way.replace {
		if x := way.holders[key].execution; replaced[x] {
			keys.taken[key] = uniqueHolder{execution: x, replacedBy: first[key]}
		}
	}
	return nil
}

// insertUnique inserts keys for executions, and returns the new keys.
func (e *Engine) insertUnique(
	ctx context.Context, conn db.DBTX, keys []uniqueKey, holder func(uniqueKey) (id.ExecutionID, UniqueWhile),
) (map[uniqueKey]bool, error) {
	var params db.InsertUniqueKeysParams
	for _, key := range keys {
		x, lasts := holder(key)
		params.UniqueKeys = append(params.UniqueKeys, key.pg())
		params.Lasts = append(params.Lasts, string(lasts))
		params.HolderPartitionKeys = append(params.HolderPartitionKeys, x.Partition())
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
	}
	rows, err := e.c.Q.InsertUniqueKeys(ctx, conn, params)
	return uniqueKeySet(rows), err
}

func uniqueKeySet(rows []pgtype.UUID) map[uniqueKey]bool {
	set := make(map[uniqueKey]bool, len(rows))
	for _, row := range rows {
		set[row.Bytes] = true
	}
	return set
}

// listUnique returns the holders of keys, without the keys that have no row.
func (e *Engine) listUnique(ctx context.Context, conn db.DBTX, keys []uniqueKey) (map[uniqueKey]uniqueHolder, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	list := make([]pgtype.UUID, len(keys))
	for i, key := range keys {
		list[i] = key.pg()
	}
	rows, err := e.c.Q.ListUniqueKeys(ctx, conn, list)
	holders := make(map[uniqueKey]uniqueHolder, len(rows))
	for _, row := range rows {
		holders[row.Key.Bytes] = uniqueHolder{
			execution: id.ExecutionIDFromRow(row.HolderPartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			inForce:   row.InForce, taken: row.Taken, replacedBy: noCreation,
		}
	}
	return holders, err
}

// lockUnique returns the holders of keys. If creations may change holders, lockUnique first locks all keys, then the
// changeable holders. All creators and replays take locks in this order.
func (e *Engine) lockUnique(
	ctx context.Context, tx *core.Txn, keys []uniqueKey, creations []creation, first map[uniqueKey]int,
) (holders map[uniqueKey]uniqueHolder, err error) {
	var all, changed []pgtype.UUID
	for _, key := range keys {
		all = append(all, key.pg())
		if creations[first[key]].unique.changes() {
			changed = append(changed, key.pg())
		}
	}
	if len(changed) == 0 {
		return e.listUnique(ctx, tx, keys)
	}
	return holders, pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error { return e.c.Q.LockUniqueKeys(ctx, conn, all) },
		func(conn db.DBTX) error { return e.c.Q.LockUniqueHolders(ctx, conn, changed) },
		func(conn db.DBTX) (err error) {
			holders, err = e.listUnique(ctx, conn, keys)
			return err
		},
	)
}

// takeOverUnique gives keys of the listed holders to executions. A key stays, and is not returned, if the holder has
// changed or run again.
func (e *Engine) takeOverUnique(
	ctx context.Context, conn db.DBTX, keys []uniqueKey, holders map[uniqueKey]uniqueHolder,
	holder func(uniqueKey) (id.ExecutionID, UniqueWhile),
) (map[uniqueKey]bool, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var params db.TakeOverUniqueKeysParams
	for _, key := range slices.SortedFunc(slices.Values(keys), uniqueKey.compare) {
		x, lasts := holder(key)
		former := holders[key]
		params.UniqueKeys = append(params.UniqueKeys, key.pg())
		params.FormerIDs = append(params.FormerIDs, core.PgUUID(former.execution.UUID()))
		params.Taken = append(params.Taken, former.taken)
		params.Lasts = append(params.Lasts, string(lasts))
		params.HolderPartitionKeys = append(params.HolderPartitionKeys, x.Partition())
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
	}
	rows, err := e.c.Q.TakeOverUniqueKeys(ctx, conn, params)
	return uniqueKeySet(rows), err
}

// uniqueTaken makes a creation a duplicate if another execution has the key.
func (r *creationRun) uniqueTaken(i int) (out fferr.Outcome[Created], taken bool) {
	c := &r.creations[i]
	if c.unique == nil {
		return out, false
	}
	if holder, taken := r.keys.unique.taken[c.unique.key]; taken && holder.execution != c.id {
		out.Value = Created{ID: holder.execution, Duplicate: true, Replaced: holder.replacedBy == i}
		return out, true
	}
	owner, taken := r.uniqueOwner[c.unique.key]
	if taken {
		out.Value = Created{ID: r.creations[owner].id, Duplicate: true}
	}
	return out, taken
}

func (r *creationRun) takeUnique(i int) {
	if c := &r.creations[i]; c.unique != nil {
		if r.uniqueOwner == nil {
			r.uniqueOwner = make(map[uniqueKey]int, len(r.creations))
		}
		r.uniqueOwner[c.unique.key] = i
		r.results[i].Value.Cancelled = r.keys.unique.cancelled[c.unique.key]
	}
}

// settleUnique assigns the held keys to their creations, and deletes the unowned ones.
func (e *Engine) settleUnique(ctx context.Context, tx *core.Txn, r *creationRun) error {
	creations, keys := r.creations, r.keys.unique
	var reuse db.ReuseUniqueKeysParams
	var unused db.DropUniqueKeysParams
	for _, key := range slices.SortedFunc(maps.Keys(keys.held), uniqueKey.compare) {
		owner, owned := r.uniqueOwner[key]
		switch {
		case owned && owner != keys.held[key]:
			c := &creations[owner]
			reuse.UniqueKeys = append(reuse.UniqueKeys, key.pg())
			reuse.Lasts = append(reuse.Lasts, string(c.unique.while()))
			reuse.HolderPartitionKeys = append(reuse.HolderPartitionKeys, c.id.Partition())
			reuse.ExecutionIDs = append(reuse.ExecutionIDs, core.PgUUID(c.id.UUID()))
		case !owned:
			unused.UniqueKeys = append(unused.UniqueKeys, key.pg())
			unused.ExecutionIDs = append(unused.ExecutionIDs, core.PgUUID(creations[keys.held[key]].id.UUID()))
		}
	}
	if len(reuse.ExecutionIDs) > 0 {
		if err := e.c.Q.ReuseUniqueKeys(ctx, tx, reuse); err != nil {
			return err
		}
	}
	if len(unused.ExecutionIDs) == 0 {
		return nil
	}
	return e.c.Q.DropUniqueKeys(ctx, tx, unused)
}

// setUniqueKeys computes the keys of unique creations, and reads the database's time if needed.
func (e *Engine) setUniqueKeys(ctx context.Context, b *creationBatch) (err error) {
	var nowMs int64
	if slices.ContainsFunc(b.specs, func(s ExecutionSpec) bool {
		return s.Unique != nil && s.Unique.Period > 0 && s.DelayUntil.IsZero()
	}) {
		if nowMs, err = e.c.Q.GetNow(ctx, e.c.Reader(), e.c.NowMs()); err != nil {
			return err
		}
	}
	var keyer uniqueKeyer
	for i := range b.specs {
		if u := b.specs[i].Unique; u != nil && !b.creations[i].refused {
			if err := keyer.setUnique(&b.creations[i], u, nowMs); err != nil {
				b.refuse(i, err)
			}
		}
	}
	return nil
}
