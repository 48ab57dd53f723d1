package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// uniqueAtOnce reports whether one statement is enough: all creations are unique and alike, without other keys or given
// ids, and none changes the execution of another one.
func uniqueAtOnce(creations []creation) bool {
	of, changes := creations[0].likeness(), false
	for i := range creations {
		c := &creations[i]
		if c.unique == nil || c.holdsKey() || !c.minted || !c.plain() || c.place.Ns != 0 || c.likeness() != of ||
			c.unique.while() != creations[0].unique.while() {
			return false
		}
		changes = changes || c.unique.changes()
	}
	return !changes || len(uniqueRuns(creations)) == 1
}

// createUnique creates unique executions that are alike in one statement, or in two if keys are in force and the creations
// keep the holders. The outcomes are nil if an execution must be changed or cancelled, or if another creation or a replay
// comes between.
func (e *Engine) createUnique(ctx context.Context, op string, creations []creation) ([]fferr.Outcome[Created], error) {
	if !uniqueAtOnce(creations) {
		return nil, nil
	}
	r := creationRun{creations: creations}
	for range 2 {
		e.deal(&r)
		fresh := r.freshByKey()
		if len(fresh) == 0 {
			return r.results, nil
		}
		if len(core.ByBytes(fresh, len(fresh), maxAlikeBytes, (*creation).size)) > 1 {
			break
		}
		taken, err := e.insertAlikeUnique(ctx, op, fresh)
		if errors.Is(err, core.ErrFellThrough) {
			break
		}
		if err != nil || len(taken) == 0 {
			return r.waiting(), err
		}
		if slices.ContainsFunc(fresh, func(c *creation) bool { _, is := taken[c.unique.key]; return is && c.unique.changes() }) {
			break
		}
		r.keys.unique.taken = taken
	}
	return nil, nil
}

// freshByKey returns the creations of new executions, in the order of their unique keys.
func (r *creationRun) freshByKey() []*creation {
	fresh := make([]*creation, len(r.creates))
	for n, i := range r.creates {
		fresh[n] = &r.creations[i]
	}
	slices.SortFunc(fresh, func(a, b *creation) int { return a.unique.key.compare(b.unique.key) })
	return fresh
}

// insertAlikeUnique creates unique executions, sorted by key. If keys are in force, insertAlikeUnique creates none and
// returns the holders. The error is [core.ErrFellThrough] if another transaction came between.
func (e *Engine) insertAlikeUnique(ctx context.Context, op string, group []*creation) (map[uniqueKey]uniqueHolder, error) {
	input := uniqueParams(alikeParams(group, e.c.NowMs()), group)
	row, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) (db.InsertUniqueRow, error) {
		row, err := e.c.Q.InsertUnique(ctx, conn, input)
		if err == nil && len(row.Held) == 0 {
			due.Lane(group[0].lane)
			e.c.NoteCreated(due, group[0].lane, group[0].kind, len(group))
		}
		return row, err
	})
	if err != nil || len(row.Held) == 0 {
		return nil, err
	}
	taken := make(map[uniqueKey]uniqueHolder, len(row.Held))
	for n, key := range row.Held {
		taken[key.Bytes] = uniqueHolder{
			execution: id.ExecutionIDFromRow(row.PartitionKeys[n], id.ExecutionUUID(row.ExecutionIDs[n].Bytes)),
			inForce:   true, replacedBy: noCreation,
		}
	}
	return taken, nil
}

// uniqueParams adds the keys to the parameters of alike creations.
func uniqueParams(p db.InsertAlikeParams, group []*creation) db.InsertUniqueParams {
	u := db.InsertUniqueParams{
		LaneID: p.LaneID, Kind: p.Kind, RequiredCapabilities: p.RequiredCapabilities, CreatedAtMs: p.CreatedAtMs, NowMs: p.NowMs,
		PartitionKeys: p.PartitionKeys, ExecutionIDs: p.ExecutionIDs, Priorities: p.Priorities, Payloads: p.Payloads,
		OwnFields: p.OwnFields, RawFields: p.RawFields, Policy: p.Policy,
		Lasts:      string(group[0].unique.while()),
		UniqueKeys: make([]pgtype.UUID, len(group)),
	}
	for n, c := range group {
		u.UniqueKeys[n] = c.unique.key.pg()
	}
	return u
}
