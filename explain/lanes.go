package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxLanes limits the lanes of [Lanes].
const MaxLanes = 1000

// Lane has the obstacles of a lane, at one moment.
type Lane struct {
	ID     id.LaneID
	Next   id.ExecutionID // claimed next; zero: no execution is claimable
	Causes []Cause        // the nearest first; empty: nothing holds the lane up
	At     time.Time      // the database's time

	// Workers is how many live workers claim from the lane: registered, not drained and not stopping, of the first 1,000
	// workers of the lanes. Running and Places are their running handlers and their places for handlers, of all lanes: a
	// worker of several lanes counts in each.
	Workers, Running, Places int
}

// Lanes returns the obstacles of lanes: pauses, missing workers, or workers without a free place. The causes are about the execution
// that is claimed next. Executions that are not claimable have causes of their own: see [Execution].
//
// Lanes keep their order. Errors: [fferr.ErrInvalidInput], also above [MaxLanes]. Two plain reads in one round trip; takes no
// locks.
func Lanes(ctx context.Context, eng *engine.Engine, lanes ...id.LaneID) ([]Lane, error) {
	const op = "explain lanes"
	c := core.Of(eng)
	if len(lanes) > MaxLanes {
		return nil, core.Wrap(op, core.Invalid("lanes", fmt.Sprintf("%d lanes, limit %d", len(lanes), MaxLanes)))
	}
	texts, err := core.LaneTexts(lanes, "lanes")
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	var heads []db.ListLaneHeadsRow
	var workers []db.ListWorkersOfLanesRow
	err = c.Read(ctx,
		func(conn db.DBTX) (err error) {
			heads, err = c.Q.ListLaneHeads(ctx, conn, db.ListLaneHeadsParams{NowMs: c.NowMs(), Lanes: texts})
			return err
		},
		func(conn db.DBTX) (err error) {
			workers, err = c.Q.ListWorkersOfLanes(ctx, conn, db.ListWorkersOfLanesParams{NowMs: c.NowMs(), Lanes: texts})
			return err
		},
	)
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	byLane := make(map[string]Lane, len(heads))
	for i := range heads {
		byLane[heads[i].LaneID] = explainLane(&heads[i], workers)
	}
	explained := make([]Lane, len(lanes))
	for i, lane := range texts {
		explained[i] = byLane[lane]
	}
	return explained, nil
}

// explainLane explains a lane by the execution that is claimed next.
func explainLane(head *db.ListLaneHeadsRow, workers []db.ListWorkersOfLanesRow) Lane {
	f := &facts{now: head.NowMs, execution: &engine.ExecutionSnapshot{
		Lane: id.LaneID(head.LaneID), Kind: head.Kind, RequiredCapabilities: head.RequiredCapabilities,
	}}
	f.around.PausedAtMs, f.around.PauseReason, f.around.PausedUntilMs = head.PausedAtMs, head.PauseReason, head.PausedUntilMs
	lane := Lane{ID: f.execution.Lane, Causes: f.lane(), At: f.at()}
	for i := range workers {
		w := &workers[i]
		if slices.Contains(w.Lanes, head.LaneID) && w.Live && !w.Drained && !w.Stopping {
			lane.Workers++
			lane.Running, lane.Places = lane.Running+int(w.Running), lane.Places+int(w.Concurrency)
		}
	}
	if !head.ExecutionID.Valid {
		return lane
	}
	lane.Next = id.ExecutionIDFromRow(head.PartitionKey, id.ExecutionUUID(head.ExecutionID.Bytes))
	f.execution.ID, f.execution.LastMutationAt = lane.Next, time.UnixMilli(head.SinceMs)
	for i := range workers {
		if w := &workers[i]; slices.Contains(w.Lanes, head.LaneID) {
			f.workers = append(f.workers, db.ListWorkersAroundRow{
				WorkerInstanceID: w.WorkerInstanceID, CapabilitiesCSV: w.CapabilitiesCSV, LastHeartbeatMs: w.LastHeartbeatMs, Kinds: w.Kinds,
				Running: w.Running, Concurrency: w.Concurrency, Stopping: w.Stopping, Stuck: w.Stuck, FullKinds: w.FullKinds,
				Live: w.Live, Drained: w.Drained, Claims: true,
			})
		}
	}
	if missing := f.missing(); len(missing) > 0 {
		lane.Causes = append(lane.Causes, missing...)
		return lane
	}
	waited, l := f.at().Sub(f.execution.LastMutationAt), f.load()
	if waited > late || l.running >= l.places || l.full == l.workers {
		lane.Causes = append(lane.Causes, f.inLine(waited))
	}
	return lane
}
