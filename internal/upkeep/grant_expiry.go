package upkeep

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ExpireGrants deletes expired grants, oldest first, and returns executions without another grant to their lanes. It
// handles at most batch executions, and returns how many it changed. Grants of deleted executions are deleted too, and
// each counts.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per batch; locks the executions, then their expired grants, and skips
// locked executions for the next call. Emits nothing. Safe to repeat and to run in any number of processes.
func (u *Upkeep) ExpireGrants(ctx context.Context, batch int) (int, error) {
	const op = "expire grants"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanExpiredGrantsParams{NowMs: u.c.NowMs(), AfterPartitionKey: -1, AfterGrantID: []byte{}, PageSize: core.ScanPage}
	return u.c.NewPass(op, u.expireGrants).Through(ctx, batch, func(room int) ([]core.Candidate, int, bool, error) {
		rows, err := u.c.Q.ScanExpiredGrants(ctx, u.c.Reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, core.Wrap(op, err)
		}
		last := &rows[len(rows)-1]
		position.AfterExpiresAtMs, position.AfterPartitionKey, position.AfterGrantID = last.ExpiresAtMs, last.PartitionKey, last.GrantID
		var due []core.Candidate
		var gone core.ExecutionArrays
		seen := make(map[id.ExecutionUUID]bool, len(rows))
		for _, row := range rows {
			switch {
			case seen[row.ExecutionID]:
			case !row.Gone:
				due = append(due, core.Candidate{Partition: row.PartitionKey, Execution: row.ExecutionID})
			case len(gone.Executions) < room:
				gone.Add(row.PartitionKey, row.ExecutionID)
			}
			seen[row.ExecutionID] = true
		}
		if gone.Empty() {
			return due, 0, len(rows) == core.ScanPage, nil
		}
		// There is no row to lock.
		done, err := core.InTx(ctx, u.shortWait().c, op, func(tx *core.Txn) (int, error) { return u.writeExpiredGrants(ctx, tx, gone) })
		return due, done, len(rows) == core.ScanPage, err
	})
}

// expireGrants handles due executions, and skips locked ones.
func (u *Upkeep) expireGrants(ctx context.Context, tx *core.Txn, _ *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	var executions core.ExecutionArrays
	for _, c := range due {
		executions.Add(c.Partition, c.Execution)
	}
	taken, err := u.c.Q.TakeExecutions(ctx, tx, db.TakeExecutionsParams{
		PartitionKeys: executions.Partitions, ExecutionIDs: executions.Executions,
	})
	if err != nil {
		return 0, err
	}
	var locked core.ExecutionArrays
	for _, row := range taken[:min(limit, len(taken))] {
		c := due[row.Ord]
		locked.Add(c.Partition, c.Execution)
	}
	return u.writeExpiredGrants(ctx, tx, locked)
}

// writeExpiredGrants deletes the expired grants of locked executions, and returns executions without a usable grant to
// their lanes.
func (u *Upkeep) writeExpiredGrants(ctx context.Context, tx *core.Txn, executions core.ExecutionArrays) (int, error) {
	if executions.Empty() {
		return 0, nil
	}
	rows, err := u.c.Q.ExpireGrants(ctx, tx, db.ExpireGrantsParams{
		PartitionKeys: executions.Partitions, ExecutionIDs: executions.Executions, NowMs: u.c.NowMs(),
	})
	acted := make(map[pgtype.UUID]bool, len(rows)) // an execution may have two rows
	for _, row := range rows {
		if row.LaneID != "" {
			tx.Due.Lane(row.LaneID)
		}
		acted[row.ExecutionID] = true
	}
	return len(acted), err
}

// ungranted returns the executions of a page that wait for the use of a missing grant.
func ungranted(rows []db.ScanRepairsRow) []core.Candidate {
	var due []core.Candidate
	for _, row := range rows {
		if row.Ungranted {
			due = append(due, core.Candidate{Partition: row.PartitionKey, Execution: row.ExecutionID.Bytes})
		}
	}
	return due
}
