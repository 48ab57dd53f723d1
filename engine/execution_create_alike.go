package engine

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/fair"
	"github.com/flowfabric/flowfabric-go/state"
)

// minAlike is the minimum average size of groups with a statement each.
const minAlike = 10

// maxAlikeBytes is the approximate size of one statement of a group. The server also keeps inserted rows for the queue's
// trigger, even a skipped one, and spills rows beyond work_mem, 4 MB by default, to a file.
const maxAlikeBytes = 2 << 20

// likeness has the common fields of a group's creations. The capabilities are the policy's.
type likeness struct {
	lane, kind, policy string
	createdAtMs        int64
	fair, admitted     bool
}

func (c *creation) likeness() likeness {
	return likeness{c.lane, c.kind, c.policy, c.createdAtMs, c.place.Ns != 0, c.admitted}
}

// plain reports whether a creation is claimable at once and has no deadline.
func (c *creation) plain() bool { return c.prompt() && (c.admitted || c.gates.open()) }

// prompt reports whether a creation has neither a delay nor a deadline.
func (c *creation) prompt() bool {
	return c.delayUntilMs == 0 && c.deadlineMs == 0 && c.deadlineIn == 0
}

// alike divides creations into groups, one per statement. The result is nil if a creation is not plain, or if the groups
// are so small that a single statement is cheaper.
func alike(creations []creation) [][]*creation {
	var groups [][]*creation
	of := make(map[likeness]int)
	for i := range creations {
		c := &creations[i]
		if !c.plain() {
			return nil
		}
		group, known := of[c.likeness()]
		if !known {
			group = len(groups)
			if group > 0 && minAlike*(group+1) > len(creations) {
				return nil
			}
			of[c.likeness()] = group
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], c)
	}
	return groups
}

// insertAlike creates executions in one round trip, with one or a few statements per group. The error is
// [core.ErrFellThrough] if an execution already exists; none was created then.
func (e *Engine) insertAlike(ctx context.Context, op string, creations []creation, groups [][]*creation) error {
	steps := e.alikeSteps(ctx, creations, groups)
	return core.InStatements(ctx, e.c, op, func(due *core.Notifications) []core.Step {
		for _, group := range groups {
			e.announce(due, group)
		}
		return steps
	})
}

// announce notifies that new executions, of one lane and kind, are claimable.
func (e *Engine) announce(due *core.Notifications, group []*creation) {
	e.c.NoteCreated(due, group[0].lane, group[0].kind, len(group))
	group[0].announce(due)
	if near := slices.IndexFunc(group, func(c *creation) bool { return c.place.Near }); near > 0 {
		group[near].announce(due)
	}
}

// alikeSteps returns the statements to insert the groups of creations, followed by the statements of the steps.
func (e *Engine) alikeSteps(ctx context.Context, creations []creation, groups [][]*creation) (steps []core.Step) {
	for _, group := range groups {
		for _, part := range core.ByBytes(group, len(group), maxAlikeBytes, (*creation).size) {
			steps = append(steps, e.alikeStep(ctx, part))
		}
	}
	return append(steps, e.besideInsert(ctx, creations)...)
}

// alikeStep returns the step to insert a group.
func (e *Engine) alikeStep(ctx context.Context, group []*creation) core.Step {
	p := alikeParams(group, e.c.NowMs())
	switch like := group[0].likeness(); {
	case like.admitted:
		admitted := db.InsertAlikeAdmittedParams{
			LaneID: p.LaneID, Kind: p.Kind, RequiredCapabilities: p.RequiredCapabilities, CreatedAtMs: p.CreatedAtMs, NowMs: p.NowMs,
			PartitionKeys: p.PartitionKeys, ExecutionIDs: p.ExecutionIDs, Priorities: p.Priorities, Payloads: p.Payloads,
			OwnFields: p.OwnFields, RawFields: p.RawFields, Policy: p.Policy,
			LimitIDs: make([]string, len(group)), LimitUnits: make([]string, len(group)),
		}
		for n, c := range group {
			_, admitted.LimitIDs[n], admitted.LimitUnits[n] = c.gates.texts()
		}
		return func(conn db.DBTX) error { return e.c.Q.InsertAlikeAdmitted(ctx, conn, admitted) }
	case !like.fair:
		return func(conn db.DBTX) error { return e.c.Q.InsertAlike(ctx, conn, p) }
	}
	placed := db.InsertAlikeFairParams{
		LaneID: p.LaneID, Kind: p.Kind, RequiredCapabilities: p.RequiredCapabilities, CreatedAtMs: p.CreatedAtMs, NowMs: p.NowMs,
		PartitionKeys: p.PartitionKeys, ExecutionIDs: p.ExecutionIDs, Priorities: p.Priorities, Payloads: p.Payloads,
		OwnFields: p.OwnFields, RawFields: p.RawFields, Policy: p.Policy,
		PlacesMs: make([]int64, len(group)),
	}
	for n, c := range group {
		placed.PlacesMs[n] = c.place.Ns / fair.Unit
	}
	return func(conn db.DBTX) error { return e.c.Q.InsertAlikeFair(ctx, conn, placed) }
}

func alikeParams(group []*creation, nowMs *int64) db.InsertAlikeParams {
	first := group[0]
	p := db.InsertAlikeParams{
		LaneID: first.lane, Kind: first.kind, RequiredCapabilities: first.capabilities, CreatedAtMs: first.createdAtMs, NowMs: nowMs,
		PartitionKeys: make([]int16, len(group)),
		ExecutionIDs:  make([]pgtype.UUID, len(group)),
		Priorities:    make([]int32, len(group)),
		Payloads:      make([][]byte, len(group)),
		OwnFields:     []string{},
		Policy:        first.policy,
	}
	oneRaw, oneTags := true, true
	for n, c := range group {
		p.PartitionKeys[n] = c.id.Partition()
		p.ExecutionIDs[n] = core.PgUUID(c.id.UUID())
		p.Priorities[n] = c.priority
		p.Payloads[n] = c.payload
		oneRaw, oneTags = oneRaw && c.raw == first.raw, oneTags && c.tags == first.tags
	}
	if oneRaw && oneTags {
		p.RawFields = first.raw + first.tags
		return p
	}
	p.OwnFields = make([]string, len(group))
	for n, c := range group {
		if oneRaw {
			p.RawFields, p.OwnFields[n] = c.raw, c.tags
		} else {
			p.OwnFields[n] = c.raw + c.tags
		}
	}
	return p
}

// waiting returns the outcomes if all new executions were inserted and are claimable at once.
func (r *creationRun) waiting() []fferr.Outcome[Created] {
	for _, i := range r.creates {
		r.results[i].Value.State = state.PublicWaiting
	}
	return r.results
}
