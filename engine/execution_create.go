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

// CreateExecution creates an execution. Creating it again with the same id or idempotency key changes nothing and
// returns a duplicate. Set one of the two to be able to repeat a call with an unknown outcome.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrNotFound] and [fferr.ErrFlowTerminal] for a member's flow;
// [fferr.ErrKeyConflict] naming the execution that has the idempotency key with different content, or the execution or flow
// that has the business key; that of a unique one is a duplicate instead, as [ExecutionSpec.Unique] says; [fferr.ErrPruned] for
// the id of a member that its flow has pruned ([FlowSpec.PruneMembersAfter]).
//
// Transaction: one statement, or a constant number with a key, a flow, or a lane that this engine uses for
// the first time. One more for fair work. Emits no events.
func (e *Engine) CreateExecution(ctx context.Context, spec ExecutionSpec) (Created, error) {
	results, err := e.CreateExecutions(ctx, []ExecutionSpec{spec})
	if err != nil {
		return Created{}, err
	}
	return results[0].Value, results[0].Err
}

// CreateExecutions creates many executions, in transactions of at most [MaxCreate] executions and about 16 MiB of
// payloads, tags and policies. Members of a flow share transactions only with each other. Outcomes are in input order,
// and an invalid spec affects only its own; a failed one still has the id. The outcomes are those of single creations
// in input order: of two specs with the same id or key, the first that is created wins. The error means
// that nothing happened.
//
// At least ten executions with the same lane, kind, policy and CreatedAt cost half the time or less if they are claimable at
// once and have no deadline, key or flow. Creators, namespaces, tenants and tags may differ; tags and tenants cost the least.
func (e *Engine) CreateExecutions(ctx context.Context, specs []ExecutionSpec) ([]Outcome[Created], error) {
	specs, err := e.delayAll(ctx, e.adaptAll(ctx, specs))
	if err != nil {
		return nil, core.Wrap("create executions", err)
	}
	return e.createExecutions(ctx, specs)
}

// createExecutions is CreateExecutions for specs that have passed the middleware.
func (e *Engine) createExecutions(ctx context.Context, specs []ExecutionSpec) ([]Outcome[Created], error) {
	const op = "create executions"
	results := make([]Outcome[Created], len(specs))
	creations := make([]creation, len(specs))
	periodsAtMs, err := e.uniquePeriodsAt(ctx, specs)
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	var checked checkedSpecs
	var keyer uniqueKeyer
	for i := range specs {
		c := &creations[i]
		var err error
		if like, ok := checked.like(specs, i); ok {
			*c = creations[like]
			err = e.setOwn(c, &specs[i], &specs[like])
		} else if *c, err = e.prepare(specs[i]); err == nil {
			checked.add(i)
		}
		if err == nil && specs[i].Unique != nil {
			err = keyer.setUnique(c, specs[i].Unique, periodsAtMs)
		}
		if c.refused = err != nil; c.refused {
			results[i].Err = err
			continue
		}
		results[i].Value.ID = c.id
	}
	if err := e.findLimits(ctx, creations, func(i int, err error) {
		results[i].Err, creations[i].refused = err, true
	}); err != nil {
		return nil, core.Wrap(op, err)
	}
	valid := make([]int, 0, len(specs))
	for i := range creations {
		if !creations[i].refused {
			valid = append(valid, i)
		}
	}
	if err := e.placeFair(ctx, e.c.Reader(), creations); err != nil {
		return nil, core.Wrap(op, err)
	}
	chunks := chunkCreations(creations, valid)
	err = inChunks(len(chunks), 1, func(n, _ int) error {
		return e.createChunk(ctx, op, creations, chunks[n], results)
	}, func(n int, err error) {
		for _, i := range chunks[n] {
			results[i].Err = err
		}
	})
	return results, err
}

// chunkCreations splits creations into one chunk per transaction. Executions outside flows go together, as do the
// members of one flow. If an id occurs in two groups, all keep their order instead.
func chunkCreations(creations []creation, valid []int) [][]int {
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
		chunks = append(chunks, bySize(group, MaxCreate, func(i int) int { return creations[i].size() })...)
	}
	return chunks
}

func (e *Engine) createChunk(ctx context.Context, op string, all []creation, chunk []int, results []Outcome[Created]) error {
	creations := all[chunk[0] : chunk[len(chunk)-1]+1]
	if len(creations) != len(chunk) {
		creations = make([]creation, len(chunk))
		for n, i := range chunk {
			creations[n] = all[i]
		}
	}
	flow := creations[0].flow
	lanes := e.unknownLanes(creations)
	period := e.periods.missing(creations)
	if e.c.Tx == nil && slices.ContainsFunc(creations, func(c creation) bool { return c.admissible() }) {
		if err := e.registerBefore(ctx, op, creations, lanes, period); err != nil {
			return err
		}
		lanes, period = nil, 0
	}
	atOnce := flow == nil && len(lanes) == 0 && period == 0 &&
		!slices.ContainsFunc(creations, func(c creation) bool { return c.undeclared })
	var outcomes []Outcome[Created]
	var err error
	switch {
	case atOnce && !slices.ContainsFunc(creations, creation.needsKeys):
		outcomes, err = e.createPlain(ctx, op, creations)
	case atOnce && uniqueAtOnce(creations):
		outcomes, err = e.createUnique(ctx, op, creations)
	default:
		outcomes, err = core.InTx(ctx, e.c, op, func(tx *core.Txn) ([]Outcome[Created], error) {
			return e.createKeyed(ctx, tx, flow, creations, lanes, period)
		})
	}
	if err != nil {
		return err
	}
	if e.c.Tx == nil {
		e.rememberLanes(lanes)
		e.periods.remember(period)
		e.rememberLimits(creations)
	}
	for n, i := range chunk {
		results[i] = outcomes[n]
	}
	return nil
}

// createPlain creates executions without keys, outside flows and on known lanes. It uses one statement, or one per
// group of similar creations.
func (e *Engine) createPlain(ctx context.Context, op string, creations []creation) ([]Outcome[Created], error) {
	plan := deal(creations, creationKeys{}, nil)
	fresh := plan.fresh(creations)
	if e.c.Tx == nil && slices.ContainsFunc(fresh, func(c creation) bool { return c.admissible() }) {
		return e.createAdmitted(ctx, op, plan, fresh)
	}
	if groups := alike(fresh); groups != nil {
		if err := e.insertAlike(ctx, op, groups); !errors.Is(err, core.ErrFellThrough) {
			return plan.waiting(), err
		}
	}
	var created map[id.ExecutionID]Created
	err := core.InStatements(ctx, e.c, op, func(due *core.Notifications) []core.Step {
		return append([]core.Step{func(conn db.DBTX) (err error) {
			created, err = e.insertRows(ctx, conn, fresh, nil, e.c.NowMs(), due)
			return err
		}}, e.recordPlaces(ctx, pointersTo(fresh))...)
	})
	if errors.Is(err, core.ErrFellThrough) {
		// Can't happen: the insert skips existing rows.
		err = core.Wrap(op, fferr.ErrContention)
	}
	return plan.outcomes(created), err
}

// createKeyed locks the keys first and then inserts the creations that are no duplicates; lanes come last. It locks the
// flow of members before anything else, and refuses members that the flow has pruned.
func (e *Engine) createKeyed(
	ctx context.Context, tx *core.Txn, flow *id.FlowID, creations []creation, lanes []string, period int64,
) ([]Outcome[Created], error) {
	if flow != nil {
		if err := e.takeOpenFlow(ctx, tx, *flow); err != nil {
			return nil, err
		}
		pruned, err := e.prunedOf(ctx, tx, *flow, creations)
		if err != nil {
			return nil, err
		}
		if len(pruned) > 0 {
			return e.createUnpruned(ctx, tx, flow, creations, pruned, lanes, period)
		}
	}
	return e.createHeld(ctx, tx, flow, creations, lanes, period)
}

// prunedOf returns those of the ids given that are of pruned members. Pruning holds a lock of the flow that the caller's
// excludes.
func (e *Engine) prunedOf(ctx context.Context, tx db.DBTX, flow id.FlowID, creations []creation) (map[id.ExecutionID]bool, error) {
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

// createUnpruned creates the executions whose flow members were not pruned.
func (e *Engine) createUnpruned(
	ctx context.Context, tx *core.Txn, flow *id.FlowID, creations []creation, pruned map[id.ExecutionID]bool, lanes []string, period int64,
) ([]Outcome[Created], error) {
	outcomes := make([]Outcome[Created], len(creations))
	var left []creation
	var of []int
	for i := range creations {
		if x := creations[i].id; pruned[x] {
			outcomes[i] = Outcome[Created]{Value: Created{ID: x}, Err: fmt.Errorf("execution %s: %w", x, fferr.ErrPruned)}
		} else {
			left, of = append(left, creations[i]), append(of, i)
		}
	}
	created, err := e.createHeld(ctx, tx, flow, left, lanes, period)
	for n := range created {
		outcomes[of[n]] = created[n]
	}
	return outcomes, err
}

// createHeld locks the keys first. Then it inserts the remaining executions, in lane order. The caller has
// locked the flow of members.
func (e *Engine) createHeld(
	ctx context.Context, tx *core.Txn, flow *id.FlowID, creations []creation, lanes []string, period int64,
) ([]Outcome[Created], error) {
	var outcomes []Outcome[Created]
	made := 0
	runs := uniqueRuns(creations)
	if len(runs) > 1 {
		if err := e.lockAhead(ctx, tx, creations); err != nil {
			return nil, err
		}
	}
	for _, run := range runs {
		dealt, created, err := e.createRun(ctx, tx, flow, run)
		if err != nil {
			return nil, err
		}
		outcomes, made = append(outcomes, dealt...), made+created
	}
	if flow != nil && made > 0 {
		nowMs, err := e.c.Q.GetNow(ctx, tx, e.c.NowMs())
		if err != nil {
			return nil, err
		}
		members, err := e.c.Q.CountNewMembers(ctx, tx, db.CountNewMembersParams{
			PartitionKey: e.cfg.Partitions.FlowPartition(*flow), FlowID: *flow, Members: int64(made), NowMs: nowMs,
		})
		switch {
		case err != nil:
			return nil, err
		case members > MaxMembers:
			return nil, core.Invalid("flow", fmt.Sprintf("%d members, limit %d", members, MaxMembers))
		}
	}
	if err := e.register(ctx, tx, lanes, period); err != nil {
		return nil, err
	}
	return outcomes, e.declareLimits(ctx, tx, creations)
}

// createRun is createHeld for creations that change no execution of each other, without the lanes. It returns how many
// executions were created.
func (e *Engine) createRun(
	ctx context.Context, tx *core.Txn, flow *id.FlowID, creations []creation,
) ([]Outcome[Created], int, error) {
	keys, err := e.holdKeys(ctx, tx, creations)
	if err != nil {
		return nil, 0, err
	}
	if keys.business, err = e.holdBusinessKeys(ctx, tx, creations, keys, keyedFlow{}); err != nil {
		return nil, 0, err
	}
	if keys.unique, err = e.holdUnique(ctx, tx, creations, keys); err != nil {
		return nil, 0, err
	}
	plan, created, err := e.insertDealt(ctx, tx, flow, creations, keys)
	if err != nil {
		return nil, 0, err
	}
	if err := e.settleKeys(ctx, tx, creations, keys, plan); err != nil {
		return nil, 0, err
	}
	if err := e.seatCreated(ctx, tx, creations, plan, created); err != nil {
		return nil, 0, err
	}
	return plan.outcomes(created), len(created), nil
}

// register registers lanes, and a retention period, that may be unknown.
func (e *Engine) register(ctx context.Context, tx db.DBTX, lanes []string, period int64) error {
	if len(lanes) > 0 {
		if err := e.c.Q.EnsureLanes(ctx, tx, db.EnsureLanesParams{LaneIDs: lanes, NowMs: e.c.NowMs()}); err != nil {
			return err
		}
	}
	if period == 0 {
		return nil
	}
	return e.c.Q.EnsureRetentionPeriod(ctx, tx, period)
}

// takeOpenFlow locks a flow that is about to grow.
func (e *Engine) takeOpenFlow(ctx context.Context, tx db.DBTX, flow id.FlowID) error {
	set := core.NewFlowSet(e.cfg.Partitions)
	set.Add(flow)
	states, err := e.c.TakeFlows(ctx, tx, set)
	if err != nil {
		return err
	}
	current, ok := states[flow]
	switch {
	case !ok:
		return &fferr.NotFoundError{Entity: "flow", ID: flow.String()}
	case current.Terminal():
		return fferr.ErrFlowTerminal
	}
	return nil
}

// insert creates rows, with the places of fair ones, and returns those that did not exist.
func (e *Engine) insert(
	ctx context.Context, tx pgx.Tx, creations []creation, flow *id.FlowID, nowMs *int64, due *core.Notifications,
) (created map[id.ExecutionID]Created, err error) {
	places := e.recordPlaces(ctx, pointersTo(creations))
	if len(places) == 0 {
		return e.insertRows(ctx, tx, creations, flow, nowMs, due)
	}
	err = pgtx.InOneTrip(ctx, tx, append([]core.Step{func(conn db.DBTX) (err error) {
		created, err = e.insertRows(ctx, conn, creations, flow, nowMs, due)
		return err
	}}, places...)...)
	return created, err
}

// insertRows is insert without the places.
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
	for i := range creations {
		switch created[creations[i].id].State {
		case state.PublicWaiting:
			creations[i].announce(due)
		case state.PublicDelayed:
			due.Delayed = true
		case state.PublicRateLimited:
			e.places.note()
			due.Gated()
		}
	}
	return created, nil
}
