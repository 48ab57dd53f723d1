package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// CreateExecution creates an execution. A second creation with the same id or idempotency key changes nothing and returns
// a duplicate: set one to be able to repeat a call with an unknown outcome.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrNotFound] and [fferr.ErrFlowTerminal] for a member's flow;
// [fferr.ErrKeyConflict] naming the execution with the same idempotency key and other content, or the execution or flow
// with the same business key; [fferr.ErrPruned] for the id of a pruned member ([FlowSpec.PruneMembersAfter]). Emits no
// events.
func (e *Engine) CreateExecution(ctx context.Context, spec ExecutionSpec) (Created, error) {
	results, err := e.CreateExecutions(ctx, []ExecutionSpec{spec})
	if err != nil {
		return Created{}, err
	}
	return results[0].Value, results[0].Err
}

// CreateExecutions creates many executions, in transactions of at most [MaxCreate] executions and about 16 MiB of
// payloads, tags and policies. Members of a flow share transactions only with each other. Outcomes are in input order, as
// if each execution were created alone, one after the other; a failed outcome still has the id. The error means that
// nothing happened.
//
// Ten or more executions with the same lane, kind, policy and CreatedAt cost half the time or less if they are claimable
// at once and have no deadline, key or flow.
func (e *Engine) CreateExecutions(ctx context.Context, specs []ExecutionSpec) ([]fferr.Outcome[Created], error) {
	specs, err := e.delayAll(ctx, e.adaptAll(ctx, specs))
	if err != nil {
		return nil, core.Wrap("create executions", err)
	}
	return e.createExecutions(ctx, specs)
}

// createExecutions is CreateExecutions after the middleware.
func (e *Engine) createExecutions(ctx context.Context, specs []ExecutionSpec) ([]fferr.Outcome[Created], error) {
	const op = "create executions"
	b := e.prepareBatch(specs)
	for i := range e.atCreation {
		if check := e.atCreation[i].check; check != nil {
			if err := check(e, ctx, &b); err != nil {
				return nil, core.Wrap(op, err)
			}
		}
	}
	chunks := chunkCreations(b.creations)
	err := core.InChunks(len(chunks), 1, func(n, _ int) error {
		return e.createChunk(ctx, op, b.creations, chunks[n], b.results)
	}, func(n int, err error) {
		for _, i := range chunks[n] {
			b.results[i].Err = err
		}
	})
	return b.results, err
}

// prepareBatch checks specs. Similar specs share most of the work.
func (e *Engine) prepareBatch(specs []ExecutionSpec) creationBatch {
	b := creationBatch{specs: specs, creations: make([]creation, len(specs)), results: make([]fferr.Outcome[Created], len(specs))}
	var checked checkedSpecs
	for i := range specs {
		c := &b.creations[i]
		var err error
		if like, ok := checked.like(specs, i); ok {
			*c = b.creations[like]
			err = e.setOwn(c, &specs[i], &specs[like])
		} else if *c, err = e.prepare(specs[i]); err == nil {
			checked.add(i)
		}
		if err != nil {
			b.refuse(i, err)
			continue
		}
		b.results[i].Value.ID = c.id
	}
	return b
}

// chunkCreations splits the valid creations into one chunk per transaction. Executions outside flows go together, as do the
// members of one flow. If an id occurs in two groups, all creations keep their order instead.
func chunkCreations(creations []creation) [][]int {
	valid := make([]int, 0, len(creations))
	for i := range creations {
		if !creations[i].refused {
			valid = append(valid, i)
		}
	}
	var groups [][]int
	of := make(map[id.FlowID]int) // the zero id: outside flows
	ids := make(map[id.ExecutionID]id.FlowID)
	ordered := false
	for _, i := range valid {
		c := &creations[i]
		flow := core.Deref(c.flow)
		group, known := of[flow]
		if !known {
			group = len(groups)
			of[flow] = group
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], i)
		if !c.minted {
			if other, twice := ids[c.id]; twice && other != flow {
				ordered = true
			}
			ids[c.id] = flow
		}
	}
	if ordered {
		groups = groups[:0]
		for n, i := range valid {
			if n == 0 || core.Deref(creations[i].flow) != core.Deref(creations[valid[n-1]].flow) {
				groups = append(groups, nil)
			}
			groups[len(groups)-1] = append(groups[len(groups)-1], i)
		}
	}
	var chunks [][]int
	for _, group := range groups {
		chunks = append(chunks, core.BySize(group, MaxCreate, func(i int) int { return creations[i].size() })...)
	}
	return chunks
}

func (e *Engine) createChunk(ctx context.Context, op string, all []creation, chunk []int, results []fferr.Outcome[Created]) error {
	creations := all[chunk[0] : chunk[len(chunk)-1]+1]
	if len(creations) != len(chunk) {
		creations = make([]creation, len(chunk))
		for n, i := range chunk {
			creations[n] = all[i]
		}
	}
	new := e.unregistered(creations)
	for i := range e.atCreation {
		if before := e.atCreation[i].before; before != nil {
			if err := before(e, ctx, op, creations, &new); err != nil {
				return err
			}
		}
	}
	outcomes, err := e.createAtOnce(ctx, op, creations, new)
	if outcomes == nil && err == nil {
		outcomes, err = core.InTx(ctx, e.c, op, func(tx *core.Txn) ([]fferr.Outcome[Created], error) {
			return e.createInTx(ctx, tx, creations, new)
		})
	}
	if err != nil {
		return err
	}
	if e.c.Tx == nil {
		e.remember(new)
	}
	for n, i := range chunk {
		results[i] = outcomes[n]
	}
	return nil
}

// createAtOnce creates executions without a transaction of several round trips, or returns nil outcomes.
func (e *Engine) createAtOnce(ctx context.Context, op string, creations []creation, new registration) ([]fferr.Outcome[Created], error) {
	if creations[0].flow != nil || !new.empty() {
		return nil, nil
	}
	for i := range e.atCreation {
		if atOnce := e.atCreation[i].atOnce; atOnce != nil {
			if outcomes, err := atOnce(e, ctx, op, creations); outcomes != nil || err != nil {
				return outcomes, err
			}
		}
	}
	if slices.ContainsFunc(creations, creation.needsKeys) {
		return nil, nil
	}
	return e.createPlain(ctx, op, creations)
}

// createPlain creates executions without keys, outside flows and on known lanes. It uses one statement, or one per
// group of similar creations.
func (e *Engine) createPlain(ctx context.Context, op string, creations []creation) ([]fferr.Outcome[Created], error) {
	r := creationRun{creations: creations}
	e.deal(&r)
	fresh := r.fresh()
	if groups := alike(fresh); groups != nil {
		if err := e.insertAlike(ctx, op, fresh, groups); !errors.Is(err, core.ErrFellThrough) {
			return r.waiting(), err
		}
	}
	err := core.InStatements(ctx, e.c, op, func(due *core.Notifications) []core.Step {
		return append([]core.Step{func(conn db.DBTX) (err error) {
			r.created, err = e.insertRows(ctx, conn, fresh, nil, e.c.NowMs(), due)
			return err
		}}, e.besideInsert(ctx, fresh)...)
	})
	if errors.Is(err, core.ErrFellThrough) {
		// Can't happen: the insert skips existing rows.
		err = core.Wrap(op, fferr.ErrContention)
	}
	return r.outcomes(), err
}

// createInTx locks the flow of members, then the keys, and inserts the new executions; lanes come last. Pruned members are
// refused.
func (e *Engine) createInTx(ctx context.Context, tx *core.Txn, creations []creation, new registration) ([]fferr.Outcome[Created], error) {
	flow := creations[0].flow
	var pruned map[id.ExecutionID]bool
	left := creations
	if flow != nil {
		var err error
		if pruned, err = e.lockForMembers(ctx, tx, *flow, creations); err != nil {
			return nil, err
		}
		if len(pruned) > 0 {
			left = slices.DeleteFunc(slices.Clone(creations), func(c creation) bool { return pruned[c.id] })
		}
	}
	runs := [][]creation{left}
	for i := range e.atCreation {
		if split := e.atCreation[i].split; split != nil {
			var err error
			if runs, err = split(e, ctx, tx, left); err != nil {
				return nil, err
			}
		}
	}
	outcomes := make([]fferr.Outcome[Created], 0, len(creations))
	made := 0
	for _, run := range runs {
		r := creationRun{flow: flow, creations: run}
		if err := e.createRun(ctx, tx, &r); err != nil {
			return nil, err
		}
		outcomes, made = append(outcomes, r.outcomes()...), made+len(r.created)
	}
	if len(pruned) > 0 {
		dealt := outcomes
		outcomes = make([]fferr.Outcome[Created], len(creations))
		for i := range creations {
			if x := creations[i].id; pruned[x] {
				outcomes[i] = fferr.Outcome[Created]{Value: Created{ID: x}, Err: fmt.Errorf("execution %s: %w", x, fferr.ErrPruned)}
			} else {
				outcomes[i], dealt = dealt[0], dealt[1:]
			}
		}
	}
	if flow != nil && made > 0 {
		if err := e.countMembers(ctx, tx, *flow, made); err != nil {
			return nil, err
		}
	}
	return outcomes, e.register(ctx, tx, new)
}

// createRun creates executions. No creation changes another execution of the run.
func (e *Engine) createRun(ctx context.Context, tx *core.Txn, r *creationRun) error {
	for i := range e.atCreation {
		if lock := e.atCreation[i].lock; lock != nil {
			if err := lock(e, ctx, tx, r); err != nil {
				return err
			}
		}
	}
	if err := e.insertDealt(ctx, tx, r); err != nil {
		return err
	}
	for i := range e.atCreation {
		if after := e.atCreation[i].after; after != nil {
			if err := after(e, ctx, tx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockForMembers locks a flow before it grows, and returns the pruned members among the creations. Pruning takes a
// conflicting lock of the flow.
func (e *Engine) lockForMembers(ctx context.Context, tx db.DBTX, flow id.FlowID, creations []creation) (map[id.ExecutionID]bool, error) {
	set := core.NewFlowSet(e.cfg.Partitions)
	set.Add(flow)
	states, err := e.c.TakeFlows(ctx, tx, set)
	current, ok := states[flow]
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, &fferr.NotFoundError{Entity: "flow", ID: flow.String()}
	case current.Terminal():
		return nil, fferr.ErrFlowTerminal
	}
	params := db.ListPrunedMembersParams{PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: core.PgUUID(flow)}
	for i := range creations {
		if !creations[i].minted {
			params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(creations[i].id.UUID()))
		}
	}
	if len(params.ExecutionIDs) == 0 {
		return nil, nil
	}
	rows, err := e.c.Q.ListPrunedMembers(ctx, tx, params)
	pruned := make(map[id.ExecutionID]bool, len(rows))
	for _, x := range rows {
		pruned[id.ExecutionIDFromRow(params.PartitionKey, x.Bytes)] = true
	}
	return pruned, err
}

// countMembers counts the new members of a flow.
func (e *Engine) countMembers(ctx context.Context, tx db.DBTX, flow id.FlowID, made int) error {
	nowMs, err := e.c.Q.GetNow(ctx, tx, e.c.NowMs())
	if err != nil {
		return err
	}
	members, err := e.c.Q.CountNewMembers(ctx, tx, db.CountNewMembersParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow, Members: int64(made), NowMs: nowMs,
	})
	if err == nil && members > MaxMembers {
		err = core.Invalid("flow", fmt.Sprintf("%d members, limit %d", members, MaxMembers))
	}
	return err
}

// besideInsert returns the steps' statements to send after the insert of creations.
func (e *Engine) besideInsert(ctx context.Context, creations []creation) (beside []core.Step) {
	for i := range e.atCreation {
		if insert := e.atCreation[i].insert; insert != nil {
			beside = append(beside, insert(e, ctx, creations)...)
		}
	}
	return beside
}

// insert creates rows, runs the insert functions of the steps, and returns the new rows.
func (e *Engine) insert(
	ctx context.Context, tx pgx.Tx, creations []creation, flow *id.FlowID, nowMs *int64, due *core.Notifications,
) (created map[id.ExecutionID]Created, err error) {
	beside := e.besideInsert(ctx, creations)
	if len(beside) == 0 {
		return e.insertRows(ctx, tx, creations, flow, nowMs, due)
	}
	err = pgtx.InOneTrip(ctx, tx, append([]core.Step{func(conn db.DBTX) (err error) {
		created, err = e.insertRows(ctx, conn, creations, flow, nowMs, due)
		return err
	}}, beside...)...)
	return created, err
}

// insertRows is insert without the functions of the steps.
func (e *Engine) insertRows(
	ctx context.Context, conn db.DBTX, creations []creation, flow *id.FlowID, nowMs *int64, due *core.Notifications,
) (map[id.ExecutionID]Created, error) {
	created := make(map[id.ExecutionID]Created, len(creations))
	if len(creations) == 0 {
		return created, nil
	}
	rows, err := e.c.Q.InsertExecutions(ctx, conn, insertParams(creations, flow, nowMs))
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
		created[x] = Created{ID: x, State: state.PublicState(row.PublicState)}
	}
	if e.c.Observer != nil {
		e.noteCreated(due, creations, created)
	}
	for i := range creations {
		switch created[creations[i].id].State {
		case state.PublicWaiting:
			creations[i].announce(due)
		case state.PublicDelayed:
			due.Delayed = true
		case state.PublicRateLimited:
			core.AwaitedPlacesOf(e.c).Note()
			due.Gated()
		}
	}
	return created, nil
}

// noteCreated notes the inserted rows of creations for the observer.
func (e *Engine) noteCreated(due *core.Notifications, creations []creation, created map[id.ExecutionID]Created) {
	for i := range creations {
		if _, is := created[creations[i].id]; is {
			e.c.NoteCreated(due, creations[i].lane, creations[i].kind, 1)
		}
	}
}
