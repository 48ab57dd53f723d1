package upkeep

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Limits of one call of SummariseFlows, besides the batch of flows.
const (
	summarisedMembers = 50_000 // approximate number of counted members: the flow that exceeds the number is the last
	summarisedAtOnce  = 100    // flows per statement
)

// SummariseFlows updates the summaries of flows, as FlowFabric's projector does, for dashboards and listings: the
// number of members by state, and the resulting state of the flow. It examines up to batch flows, at most
// [core.MaxSweep], in the order of their rows, and ends early after about 50,000 members. It skips flows whose members
// had all ended at the last summary, unless there are new members since, and locked summaries or flows until the next
// round. It returns how many summaries it changed.
//
// Each call continues after the previous one of the same engine, and restarts after the last flow. A summary may be as
// old as one round; [engine.Engine.DescribeFlow] has current counts.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement for finding flows, and two per hundred flows with
// possible changes: one counts their members, the other locks their summaries, and keeps their rows from being deleted.
// Emits nothing. Safe to repeat and to run in any number of processes: a summary never gets older.
func (u *Upkeep) SummariseFlows(ctx context.Context, batch int) (int, error) {
	const op = "summarise flows"
	u = u.shortWait()
	if batch < 1 || batch > core.MaxSweep {
		return 0, core.Invalid("batch", fmt.Sprintf("must be between 1 and %d", core.MaxSweep))
	}
	partition, flow := u.summarised.get()
	rows, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) ([]db.ScanFlowSummariesRow, error) {
		return u.c.Q.ScanFlowSummaries(ctx, conn, db.ScanFlowSummariesParams{
			AfterPartitionKey: partition, AfterFlowID: core.PgUUID(flow), PageSize: int32(batch),
		})
	})
	if err != nil {
		return 0, err
	}
	written, members := 0, int64(0)
	var due flowArrays
	summarise := func() error {
		n, err := u.summariseFlows(ctx, op, due)
		written += n
		due = flowArrays{}
		return err
	}
	var last flowRow // zero restarts
	for i, row := range rows {
		last = flowRow{row.PartitionKey, row.FlowID.Bytes}
		if !row.Settled {
			due.partitions = append(due.partitions, row.PartitionKey)
			due.flows = append(due.flows, row.FlowID)
			members += row.NodeCount
		}
		if len(due.flows) == summarisedAtOnce {
			if err := summarise(); err != nil {
				return written, err
			}
		}
		if i == len(rows)-1 && len(rows) < batch {
			last = flowRow{}
		} else if members > summarisedMembers {
			break
		}
	}
	if len(due.flows) > 0 {
		if err := summarise(); err != nil {
			return written, err
		}
	}
	u.summarised.move(last.partition, last.flow)
	return written, nil
}

// summariseFlows counts the members of flows and writes their summaries. It returns how many were written.
//
// Nothing is locked between the two statements. The summaries bear the time of the counts, so the summary of a process
// that counted later and wrote earlier has the later time, and stays.
func (u *Upkeep) summariseFlows(ctx context.Context, op string, flows flowArrays) (int, error) {
	counts, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) ([]db.ReadMemberCountsRow, error) {
		return u.c.Q.ReadMemberCounts(ctx, conn, db.ReadMemberCountsParams{
			PartitionKeys: flows.partitions, FlowIDs: flows.flows, NowMs: u.c.NowMs(),
		})
	})
	if err != nil || len(counts) == 0 {
		return 0, err
	}
	summaries := db.SummariseFlowsParams{NowMs: counts[0].NowMs}
	for _, c := range counts {
		summaries.PartitionKeys = append(summaries.PartitionKeys, c.PartitionKey)
		summaries.FlowIDs = append(summaries.FlowIDs, c.FlowID)
		summaries.Total = append(summaries.Total, c.Total)
		summaries.Completed = append(summaries.Completed, c.Completed)
		summaries.Failed = append(summaries.Failed, c.Failed)
		summaries.Cancelled = append(summaries.Cancelled, c.Cancelled)
		summaries.Expired = append(summaries.Expired, c.Expired)
		summaries.Skipped = append(summaries.Skipped, c.Skipped)
		summaries.Active = append(summaries.Active, c.Active)
		summaries.Suspended = append(summaries.Suspended, c.Suspended)
		summaries.Waiting = append(summaries.Waiting, c.Waiting)
		summaries.Delayed = append(summaries.Delayed, c.Delayed)
		summaries.RateLimited = append(summaries.RateLimited, c.RateLimited)
		summaries.WaitingChildren = append(summaries.WaitingChildren, c.WaitingChildren)
		summaries.FlowStates = append(summaries.FlowStates, c.FlowState)
	}
	n, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return u.c.Q.SummariseFlows(ctx, conn, summaries)
	})
	return int(n), err
}

// flowArrays are flows as the columns of an input table.
type flowArrays struct {
	partitions []int16
	flows      []pgtype.UUID
}
