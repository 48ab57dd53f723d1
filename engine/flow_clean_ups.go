package engine

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// cleanUps returns the members that may run after a flow's cancellation, in any state: members waiting for the end of
// others ([policy.OnFailure], [policy.Always]), and members depending only on clean-ups. The caller holds the flow
// exclusively. The result is final once the flow is cancelled, because a cancelled flow takes no more edges.
func (e *Engine) cleanUps(ctx context.Context, tx *core.Txn, c *flowCancel) ([]pgtype.UUID, error) {
	if c.policy != state.CancelAll && c.policy != state.CancelPending {
		return nil, nil
	}
	rows, err := e.c.Q.ListCleanUpEdges(ctx, tx, db.ListCleanUpEdgesParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow,
	})
	return cleanUpsAmong(rows), err
}

// cleanUpCandidate is a member waiting for the end of others, or depending on such a member.
type cleanUpCandidate struct {
	branch     bool // waits for the end of others
	held       bool // blocked by dependencies
	needs      int  // how many upstreams must succeed
	open       bool // the end of an upstream has yet to be counted
	replay     bool // an upstream would have to be replayed
	staged     bool // an edge to it was never applied
	upstreams  []pgtype.UUID
	downstream []pgtype.UUID
	ordinary   bool // not a clean-up
}

// stuck reports whether c can no longer be released or skipped in a flow without new edges and replays.
func (c *cleanUpCandidate) stuck() bool {
	return c.held && (!c.open || c.replay || c.staged || !c.branch && c.needs > len(c.upstreams))
}

// cleanUpsAmong returns the clean-ups among the members in rows.
func cleanUpsAmong(rows []db.ListCleanUpEdgesRow) []pgtype.UUID {
	candidates := make(map[pgtype.UUID]*cleanUpCandidate)
	for i := range rows {
		row := &rows[i]
		c := candidates[row.ExecutionID]
		if c == nil {
			c = &cleanUpCandidate{branch: row.Branch, held: row.Held, needs: int(row.KTarget)}
			candidates[row.ExecutionID] = c
		}
		if row.HasEdge {
			c.upstreams = append(c.upstreams, row.UpstreamEID)
			c.open = c.open || row.Open
			c.replay = c.replay || row.Replay
			c.staged = c.staged || row.Staged
		}
	}
	var ordinary []pgtype.UUID // downstreams not examined yet
	exclude := func(x pgtype.UUID, c *cleanUpCandidate) {
		if !c.ordinary {
			c.ordinary = true
			ordinary = append(ordinary, x)
		}
	}
	for x, c := range candidates {
		if c.stuck() {
			exclude(x, c)
		}
		for _, upstream := range c.upstreams {
			switch u, ok := candidates[upstream]; {
			case ok:
				u.downstream = append(u.downstream, x)
			case !c.branch:
				exclude(x, c)
			}
		}
	}
	for len(ordinary) > 0 {
		x := ordinary[len(ordinary)-1]
		ordinary = ordinary[:len(ordinary)-1]
		for _, d := range candidates[x].downstream {
			if c := candidates[d]; !c.branch {
				exclude(d, c)
			}
		}
	}
	var cleanUps []pgtype.UUID
	for x, c := range candidates {
		if !c.ordinary {
			cleanUps = append(cleanUps, x)
		}
	}
	return cleanUps
}
