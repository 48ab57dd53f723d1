package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// A creationRun has the executions of one insert.
type creationRun struct {
	flow      *id.FlowID // nil outside a flow
	newFlow   keyedFlow  // zero unless the flow is new
	creations []creation
	keys      creationKeys // locked by the steps
	existing  map[id.ExecutionID]bool

	results []fferr.Outcome[Created] // a duplicate has the existing execution's id
	creates []int                    // indexes of the new executions
	created map[id.ExecutionID]Created

	made        map[id.ExecutionID]bool // given ids of earlier creations
	owner       map[scopedKey]int       // the index of the creation with a key
	keyOwner    map[id.BusinessKey]int
	uniqueOwner map[uniqueKey]int
}

// deal decides creations in order: the first step to find a creation a duplicate or refused decides.
func (e *Engine) deal(r *creationRun) {
	r.results, r.creates = make([]fferr.Outcome[Created], len(r.creations)), make([]int, 0, len(r.creations))
	r.made, r.owner, r.keyOwner, r.uniqueOwner = nil, nil, nil, nil
	for i := range r.creations {
		if e.decided(r, i) {
			continue
		}
		r.results[i].Value.ID = r.creations[i].id
		r.creates = append(r.creates, i)
		for n := range e.atCreation {
			if take := e.atCreation[n].take; take != nil {
				take(r, i)
			}
		}
	}
}

// decided reports whether a creation is a duplicate or refused, and sets the result.
func (e *Engine) decided(r *creationRun, i int) bool {
	for n := range e.atCreation {
		if taken := e.atCreation[n].taken; taken != nil {
			if out, is := taken(r, i); is {
				r.results[i] = out
				return true
			}
		}
	}
	return false
}

// idTaken makes a creation a duplicate if the id exists, or an earlier creation of the run has the same id.
func (r *creationRun) idTaken(i int) (fferr.Outcome[Created], bool) {
	x := r.creations[i].id
	return fferr.Outcome[Created]{Value: Created{ID: x, Duplicate: true}}, r.made[x] || r.existing[x]
}

func (r *creationRun) takeID(i int) {
	if c := &r.creations[i]; !c.minted {
		if r.made == nil {
			r.made = make(map[id.ExecutionID]bool)
		}
		r.made[c.id] = true
	}
}

// fresh returns the creations of new executions, in the order of locks if callers gave any ids.
func (r *creationRun) fresh() []creation {
	fresh := r.creations
	if len(r.creates) < len(r.creations) {
		fresh = make([]creation, len(r.creates))
		for n, i := range r.creates {
			fresh[n] = r.creations[i]
		}
	}
	if slices.ContainsFunc(fresh, func(c creation) bool { return !c.minted }) {
		fresh = slices.SortedFunc(slices.Values(fresh), func(a, b creation) int { return a.id.Compare(b.id) })
	}
	return fresh
}

// outcomes returns the outcomes of the creations after the insert. A creation without an inserted row existed already.
func (r *creationRun) outcomes() []fferr.Outcome[Created] {
	for _, i := range r.creates {
		value := &r.results[i].Value
		row, ok := r.created[value.ID]
		value.State, value.Duplicate = row.State, !ok
	}
	return r.results
}

// insertDealt inserts the creations of new executions. The steps have locked the keys.
func (e *Engine) insertDealt(ctx context.Context, tx *core.Txn, r *creationRun) (err error) {
	r.existing = make(map[id.ExecutionID]bool)
	if !interdependent(r.creations) {
		e.deal(r)
		r.created, err = e.insert(ctx, tx, r.fresh(), r.flow, e.c.NowMs(), &tx.Due)
		if err != nil || len(r.created) == len(r.creates) {
			return err
		}
		r.noteExisting()
		e.deal(r)
		return nil
	}
	// Each creation may decide later ones, so the existing ids must be known. If other transactions create some in the
	// meantime, decide again.
	if err := e.readExisting(ctx, tx, r.creations, r.existing); err != nil {
		return err
	}
	for {
		e.deal(r)
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		var due core.Notifications
		r.created, err = e.insert(ctx, savepoint, r.fresh(), r.flow, e.c.NowMs(), &due)
		switch {
		case err != nil:
			pgtx.Rollback(savepoint)
			return err
		case len(r.created) == len(r.creates):
			tx.Due.Include(&due)
			return savepoint.Commit(ctx)
		}
		r.noteExisting()
		if err := savepoint.Rollback(ctx); err != nil {
			return err
		}
	}
}

// noteExisting records the executions found by the insert.
func (r *creationRun) noteExisting() {
	for _, i := range r.creates {
		x := r.creations[i].id
		if _, ok := r.created[x]; !ok {
			r.existing[x] = true
		}
	}
}

// interdependent reports whether an id or a key occurs twice. An id given together with a business key or for unique work
// counts too: if the id exists, the creation is a duplicate even if the key is taken.
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
