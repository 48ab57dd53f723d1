package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// Created is the outcome of one creation.
type Created struct {
	ID    id.ExecutionID
	State state.PublicState // waiting, delayed or rate limited; empty for a duplicate

	// Duplicate: nothing was written, since the id exists already, whatever its content, or the
	// idempotency key names an earlier execution, whose id ID then is.
	Duplicate bool

	Err error // in the plural form: why this one was not created
}

// CreateExecution creates an execution. Creating it again, with the same id or idempotency key, is a
// duplicate and changes nothing, so a call whose outcome is unknown may be repeated as long as one of the
// two was given.
//
// Errors: [ErrInvalidInput] naming the field; [ErrNotFound] and [ErrFlowTerminal] for the flow of a member.
//
// Transaction: one statement, without an idempotency key, a flow or a lane this engine meets for the
// first time; else a constant number. No events.
func (e *Engine) CreateExecution(ctx context.Context, spec ExecutionSpec) (Created, error) {
	results, err := e.CreateExecutions(ctx, []ExecutionSpec{spec})
	if err != nil {
		return Created{}, err
	}
	return results[0], results[0].Err
}

// CreateExecutions creates many executions, [MaxCreate] to a transaction and members of different flows
// in transactions of their own. Outcomes stand in input order; an invalid spec affects only its own. Of
// two specs with one id the first wins. The error means that nothing happened.
//
// A hundred and more that are claimable at once, without a deadline, a key or a flow, take about half the
// time for each: the server copies them in.
func (e *Engine) CreateExecutions(ctx context.Context, specs []ExecutionSpec) ([]Created, error) {
	const op = "create executions"
	results := make([]Created, len(specs))
	creations := make([]creation, len(specs))
	// Members of one flow go together, and so do executions outside flows.
	var flows []*id.FlowID
	groups := make(map[id.FlowID][]int)
	var solos []int
	seen := make(map[id.ExecutionID]struct{}, len(specs))
	for i := range specs {
		var err error
		if creations[i], err = e.prepare(specs[i]); err != nil {
			results[i].Err = err
			continue
		}
		results[i].ID = creations[i].id
		if _, twice := seen[creations[i].id]; twice {
			results[i].Duplicate = true
			continue
		}
		seen[creations[i].id] = struct{}{}
		flow := specs[i].Flow
		if flow == nil {
			solos = append(solos, i)
			continue
		}
		if _, ok := groups[*flow]; !ok {
			flows = append(flows, flow)
		}
		groups[*flow] = append(groups[*flow], i)
	}
	chunks := slices.Collect(slices.Chunk(solos, MaxCreate))
	for _, flow := range flows {
		chunks = slices.AppendSeq(chunks, slices.Chunk(groups[*flow], MaxCreate))
	}
	err := inChunks(len(chunks), 1, func(n, _ int) error {
		return e.createChunk(ctx, op, specs[chunks[n][0]].Flow, creations, chunks[n], results)
	}, func(n int, err error) {
		for _, i := range chunks[n] {
			results[i].Err = err
		}
	})
	return results, err
}

func (e *Engine) createChunk(
	ctx context.Context, op string, flow *id.FlowID, all []creation, chunk []int, results []Created,
) error {
	creations := make([]creation, len(chunk))
	keyed := false
	for n, i := range chunk {
		creations[n] = all[i]
		keyed = keyed || all[i].key != "" && all[i].windowMs > 0
	}
	lanes := e.unknownLanes(creations)
	var created map[id.ExecutionID]Created
	var err error
	lean := flow == nil && !keyed && len(lanes) == 0
	copied := lean && copyable(creations)
	if copied {
		created, err = e.copy(ctx, op, creations)
		copied = !errors.Is(err, errMissed)
	}
	switch {
	case copied:
	case lean:
		created, err = inStatement(ctx, e, op, func(conn db.DBTX, due *rings) (map[id.ExecutionID]Created, error) {
			return e.insert(ctx, conn, creations, nil, nil, due)
		})
		// A unique violation cannot be: the insert passes over what exists.
		if errors.Is(err, errMissed) {
			err = wrap(op, ErrContention)
		}
	default:
		created, err = inTx(ctx, e, op, func(tx *txn) (map[id.ExecutionID]Created, error) {
			return e.createKeyed(ctx, tx, flow, creations, lanes)
		})
	}
	if err != nil {
		return err
	}
	if e.tx == nil {
		e.rememberLanes(lanes)
	}
	for n, i := range chunk {
		if done, ok := created[creations[n].id]; ok {
			results[i] = done
		} else {
			results[i].Duplicate = true
		}
	}
	return nil
}

// createKeyed claims the idempotency keys first, then inserts what they leave, lanes last. The flow of
// members is locked before anything else.
func (e *Engine) createKeyed(
	ctx context.Context, tx *txn, flow *id.FlowID, creations []creation, lanes []string,
) (map[id.ExecutionID]Created, error) {
	if flow != nil {
		if err := e.takeOpenFlow(ctx, tx, *flow); err != nil {
			return nil, err
		}
	}
	duplicates, claimed, err := e.claimKeys(ctx, tx, creations)
	if err != nil {
		return nil, err
	}
	fresh := slices.DeleteFunc(slices.Clone(creations), func(c creation) bool {
		_, taken := duplicates[c.id]
		return taken
	})
	created, err := e.insert(ctx, tx, fresh, nil, flow, &tx.rings)
	if err != nil {
		return nil, err
	}
	// A key whose execution exists already goes back: the creation did not happen.
	var unused db.DropCreationKeysParams
	for _, c := range claimed {
		if _, ok := created[c.id]; !ok {
			unused.PartitionKeys = append(unused.PartitionKeys, c.id.Partition())
			unused.Namespaces = append(unused.Namespaces, c.namespace)
			unused.IdempotencyKeys = append(unused.IdempotencyKeys, c.key)
			unused.ExecutionIds = append(unused.ExecutionIds, pgUUID(c.id.UUID()))
		}
	}
	if len(unused.ExecutionIds) > 0 {
		if err := e.q.DropCreationKeys(ctx, tx, unused); err != nil {
			return nil, err
		}
	}
	if flow != nil && len(created) > 0 {
		nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
		if err != nil {
			return nil, err
		}
		members, err := e.q.CountNewMembers(ctx, tx, db.CountNewMembersParams{
			PartitionKey: e.cfg.Partitions.FlowPartition(*flow), FlowID: *flow, Members: int64(len(created)), NowMs: nowMs,
		})
		switch {
		case err != nil:
			return nil, err
		case members > MaxMembers:
			return nil, invalid("flow", fmt.Sprintf("%d members, limit %d", members, MaxMembers))
		}
	}
	if len(lanes) > 0 {
		if err := e.q.EnsureLanes(ctx, tx, db.EnsureLanesParams{LaneIds: lanes, NowMs: e.nowMs()}); err != nil {
			return nil, err
		}
	}
	for x, first := range duplicates {
		// The first of this batch may itself be a duplicate of an earlier creation.
		if earlier, ok := duplicates[first]; ok {
			first = earlier
		}
		created[x] = Created{ID: first, Duplicate: true}
	}
	return created, nil
}

// takeOpenFlow locks a flow that is about to grow.
func (e *Engine) takeOpenFlow(ctx context.Context, tx db.DBTX, flow id.FlowID) error {
	set := newFlowSet(e.cfg.Partitions)
	set.add(flow)
	states, err := e.takeFlows(ctx, tx, set)
	if err != nil {
		return err
	}
	current, ok := states[flow]
	switch {
	case !ok:
		return &NotFoundError{Entity: "flow", ID: flow.String()}
	case current.Terminal():
		return ErrFlowTerminal
	}
	return nil
}

// insert creates rows and returns those that did not exist.
func (e *Engine) insert(
	ctx context.Context, conn db.DBTX, creations []creation, held []bool, flow *id.FlowID, due *rings,
) (map[id.ExecutionID]Created, error) {
	created := make(map[id.ExecutionID]Created, len(creations))
	if len(creations) == 0 {
		return created, nil
	}
	rows, err := e.q.InsertExecutions(ctx, conn, insertParams(creations, held, flow, e.nowMs()))
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
		created[x] = Created{ID: x, State: state.PublicState(row.PublicState)}
	}
	for i := range creations {
		if created[creations[i].id].State == state.PublicWaiting {
			due.lane(creations[i].lane)
		}
	}
	return created, nil
}

// claimKeys takes the idempotency keys of creations. It returns the executions that earlier creations
// made with them, and the creations whose keys are theirs now.
func (e *Engine) claimKeys(
	ctx context.Context, tx db.DBTX, creations []creation,
) (duplicates map[id.ExecutionID]id.ExecutionID, claimed []creation, err error) {
	type scopedKey struct {
		partition      int16
		namespace, key string
	}
	scope := func(c creation) scopedKey { return scopedKey{c.id.Partition(), c.namespace, c.key} }
	duplicates = make(map[id.ExecutionID]id.ExecutionID)
	var keyed []creation
	first := make(map[scopedKey]id.ExecutionID)
	for _, c := range creations {
		if c.key == "" || c.windowMs == 0 {
			continue
		}
		if winner, ok := first[scope(c)]; ok {
			duplicates[c.id] = winner
			continue
		}
		first[scope(c)] = c.id
		keyed = append(keyed, c)
	}
	slices.SortFunc(keyed, func(a, b creation) int {
		return cmp.Or(
			cmp.Compare(a.id.Partition(), b.id.Partition()),
			cmp.Compare(a.namespace, b.namespace),
			cmp.Compare(a.key, b.key),
		)
	})
	// Taken keys that turn out to be gone when they are locked were rolled back or purged: begin again
	// with them.
	for pending := keyed; len(pending) > 0; {
		var insert db.InsertCreationKeysParams
		insert.NowMs = e.nowMs()
		for _, c := range pending {
			insert.PartitionKeys = append(insert.PartitionKeys, c.id.Partition())
			insert.Namespaces = append(insert.Namespaces, c.namespace)
			insert.IdempotencyKeys = append(insert.IdempotencyKeys, c.key)
			insert.ExecutionIds = append(insert.ExecutionIds, pgUUID(c.id.UUID()))
			insert.WindowsMs = append(insert.WindowsMs, c.windowMs)
		}
		rows, err := e.q.InsertCreationKeys(ctx, tx, insert)
		if err != nil {
			return nil, nil, err
		}
		ours := make(map[scopedKey]bool, len(rows))
		for _, row := range rows {
			ours[scopedKey{row.PartitionKey, row.Namespace, row.IdempotencyKey}] = true
		}
		var taken []creation
		var take db.TakeCreationKeysParams
		take.NowMs = e.nowMs()
		for _, c := range pending {
			if ours[scope(c)] {
				claimed = append(claimed, c)
				continue
			}
			taken = append(taken, c)
			take.PartitionKeys = append(take.PartitionKeys, c.id.Partition())
			take.Namespaces = append(take.Namespaces, c.namespace)
			take.IdempotencyKeys = append(take.IdempotencyKeys, c.key)
		}
		if len(taken) == 0 {
			break
		}
		stored, err := e.q.TakeCreationKeys(ctx, tx, take)
		if err != nil {
			return nil, nil, err
		}
		found := make(map[scopedKey]db.TakeCreationKeysRow, len(stored))
		for _, row := range stored {
			found[scopedKey{row.PartitionKey, row.Namespace, row.IdempotencyKey}] = row
		}
		var reuse db.ReuseCreationKeysParams
		reuse.NowMs = e.nowMs()
		pending = nil
		for _, c := range taken {
			row, ok := found[scope(c)]
			switch {
			case !ok:
				pending = append(pending, c)
			case row.InWindow:
				duplicates[c.id] = id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
			default:
				claimed = append(claimed, c)
				reuse.PartitionKeys = append(reuse.PartitionKeys, c.id.Partition())
				reuse.Namespaces = append(reuse.Namespaces, c.namespace)
				reuse.IdempotencyKeys = append(reuse.IdempotencyKeys, c.key)
				reuse.ExecutionIds = append(reuse.ExecutionIds, pgUUID(c.id.UUID()))
				reuse.WindowsMs = append(reuse.WindowsMs, c.windowMs)
			}
		}
		if len(reuse.ExecutionIds) > 0 {
			if err := e.q.ReuseCreationKeys(ctx, tx, reuse); err != nil {
				return nil, nil, err
			}
		}
	}
	return duplicates, claimed, nil
}

// unknownLanes returns the lanes of creations that this engine has not seen registered, sorted.
func (e *Engine) unknownLanes(creations []creation) []string {
	var lanes []string
	for i := range creations {
		if _, known := e.lanes.Load(creations[i].lane); !known && !slices.Contains(lanes, creations[i].lane) {
			lanes = append(lanes, creations[i].lane)
		}
	}
	slices.Sort(lanes)
	return lanes
}

func (e *Engine) rememberLanes(lanes []string) {
	for _, lane := range lanes {
		e.lanes.Store(lane, struct{}{})
	}
}
