package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
)

// What one call of SummariseFlows does at most, besides looking at a batch of flows.
const (
	summarisedMembers = 50_000 // members that it counts, about: it ends with the flow that exceeds it
	summarisedAtOnce  = 100    // flows of one statement
)

// SummariseFlows writes how many members of each flow are in which state, and the state of the flow that follows from it,
// into its summary, as FlowFabric's projector does: for dashboards, and for listings of flows. It looks at a batch of flows,
// up to [MaxSweep], in the order of their rows, and ends earlier where they have some 50,000 members. Flows all of whose
// members had ended at the last look, and to which nothing was added since, are passed over; so is a summary that
// somebody else holds, or whose flow somebody deletes, until the next time round. It returns how many summaries it wrote: those that had changed.
//
// Each call goes on where the last one of the same engine stopped, and begins anew after the last flow. A summary is as old
// as its flow has been left alone; [Engine.DescribeFlow] counts anew.
//
// Errors: [ErrInvalidInput]. Transaction: a statement that looks for flows, and one for a hundred flows of which something
// may have changed; locks their summaries, and holds their rows against deletion. Emits nothing. Safe to repeat and to
// run in any number of processes: a summary never gets older.
func (m Maintenance) SummariseFlows(ctx context.Context, batch int) (int, error) {
	const op = "summarise flows"
	e := m.e.impatient()
	if batch < 1 || batch > MaxSweep {
		return 0, invalid("batch", fmt.Sprintf("must be between 1 and %d", MaxSweep))
	}
	partition, flow := e.summarised.get()
	rows, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *notifications) ([]db.ScanFlowSummariesRow, error) {
		return e.q.ScanFlowSummaries(ctx, conn, db.ScanFlowSummariesParams{
			AfterPartitionKey: partition, AfterFlowID: pgUUID(flow), PageSize: int32(batch),
		})
	})
	if err != nil {
		return 0, err
	}
	written, members := 0, int64(0)
	var due flowArrays
	summarise := func() error {
		n, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *notifications) (int64, error) {
			return e.q.SummariseFlows(ctx, conn, db.SummariseFlowsParams{
				PartitionKeys: due.partitions, FlowIDs: due.flows, NowMs: e.nowMs(),
			})
		})
		written += int(n)
		due = flowArrays{}
		return err
	}
	var last flowRow // zero: begin anew
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
	e.summarised.move(last.partition, last.flow)
	return written, nil
}

// flowArrays are flows as the columns of an input table.
type flowArrays struct {
	partitions []int16
	flows      []pgtype.UUID
}
