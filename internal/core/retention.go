package core

import (
	"context"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Forever is the retention of subjects kept forever, in milliseconds.
const Forever = math.MaxInt64

// RetentionMs returns a retention in milliseconds, rounded up.
func RetentionMs(d time.Duration) int64 {
	if d == policy.KeepForever {
		return Forever
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// DropEnded returns the statements for deleting locked executions with all their data.
func (c *Core) DropEnded(ctx context.Context, arrays ExecutionArrays, used db.GetRetainedTablesRow, dropped *int64) []Step {
	partitions, executions := arrays.Partitions, arrays.Executions
	var steps []Step
	if used.GateUses { // by the attempts
		steps = append(steps, func(conn db.DBTX) error {
			return c.Q.NoteStartsOf(ctx, conn, db.NoteStartsOfParams{PartitionKeys: partitions, ExecutionIDs: executions, NowMs: c.NowMs()})
		})
	}
	steps = append(steps, func(conn db.DBTX) error {
		return c.Q.DropAttemptsOf(ctx, conn, db.DropAttemptsOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
	})
	for _, table := range []struct {
		used bool
		Step
	}{
		{used.StreamFrames, func(conn db.DBTX) error {
			return c.Q.DropStreamFramesOf(ctx, conn, db.DropStreamFramesOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.StreamMetas, func(conn db.DBTX) error {
			return c.Q.DropStreamMetasOf(ctx, conn, db.DropStreamMetasOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.StreamSummaries, func(conn db.DBTX) error {
			return c.Q.DropStreamSummariesOf(ctx, conn, db.DropStreamSummariesOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.ClaimGrants, func(conn db.DBTX) error {
			return c.Q.DropClaimGrantsOf(ctx, conn, db.DropClaimGrantsOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.Suspensions, func(conn db.DBTX) error {
			return c.Q.DropSuspensionsOf(ctx, conn, db.DropSuspensionsOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.Waitpoints, func(conn db.DBTX) error {
			return c.Q.DropWaitpointsOf(ctx, conn, db.DropWaitpointsOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.BusinessKeys, func(conn db.DBTX) error {
			return c.Q.DropBusinessKeysOf(ctx, conn, db.DropBusinessKeysOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.UniqueKeys, func(conn db.DBTX) error {
			return c.Q.DropUniqueKeysOf(ctx, conn, db.DropUniqueKeysOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.Steps, func(conn db.DBTX) error {
			return c.Q.DropStepsOf(ctx, conn, db.DropStepsOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.SignalKeys, func(conn db.DBTX) error {
			return c.Q.DropSignalKeysOf(ctx, conn, db.DropSignalKeysOfParams{PartitionKeys: partitions, ExecutionIDs: executions})
		}},
		{used.BudgetUsage, func(conn db.DBTX) error { return c.Q.DropBudgetUsageOf(ctx, conn, executions) }},
	} {
		if table.used {
			steps = append(steps, table.Step)
		}
	}
	return append(steps, func(conn db.DBTX) (err error) {
		*dropped, err = c.Q.DropExecutions(ctx, conn, db.DropExecutionsParams{PartitionKeys: partitions, ExecutionIDs: executions})
		return err
	})
}

// LookAfterMs returns how long after its end an execution is first examined: no later than events are trimmed.
func (c *Core) LookAfterMs() int64 {
	return min(RetentionMs(c.Retention), RetentionMs(c.OutboxRetention))
}
