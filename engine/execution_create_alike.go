package engine

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/state"
)

// minAlike is how many creations a group has on average, at least, where each group is a statement of its own.
const minAlike = 10

// maxAlikeBytes is about how much one statement of a group is sent: what a statement inserts the server also keeps for the
// trigger of the queue, even where that is left out, and beyond its work_mem, 4 MB by default, in a file.
const maxAlikeBytes = 2 << 20

// likeness is what creations of a group have in common. Their capabilities are the policy's.
type likeness struct {
	lane, kind, policy string
	createdAtMs        int64
}

func (c *creation) likeness() likeness {
	return likeness{c.lane, c.kind, c.policy, c.createdAtMs}
}

// plain says whether a creation is claimable at once, and has no deadline.
func (c *creation) plain() bool {
	return c.delayUntilMs == 0 && c.deadlineMs == 0 && c.deadlineIn == 0 && c.quota == ""
}

// alike divides creations into groups, each for a statement of its own. nil: one of them is not plain, or so little is
// alike that a statement for all is less.
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

// insertAlike creates executions, each group by one statement or a few, in one round trip. [errFellThrough]: one of them exists already,
// and none was created.
func (e *Engine) insertAlike(ctx context.Context, op string, groups [][]*creation) error {
	inputs := make([]db.InsertAlikeParams, 0, len(groups))
	for _, group := range groups {
		for _, part := range byBytes(group, len(group), maxAlikeBytes, (*creation).size) {
			inputs = append(inputs, alikeParams(part, e.nowMs()))
		}
	}
	return inStatements(ctx, e, op, func(due *notifications) []step {
		steps := make([]step, len(inputs))
		for n := range inputs {
			due.lane(inputs[n].LaneID)
			steps[n] = func(conn db.DBTX) error { return e.q.InsertAlike(ctx, conn, inputs[n]) }
		}
		return steps
	})
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
		p.ExecutionIDs[n] = pgUUID(c.id.UUID())
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

// waiting returns what became of the creations when those that create something were all inserted, claimable at once.
func (d dealing) waiting() []Outcome[Created] {
	for _, i := range d.creates {
		d.results[i].Value.State = state.PublicWaiting
	}
	return d.results
}
