package engine

import (
	"cmp"
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Progress is a progress report of a running attempt. A nil field keeps the previous value.
type Progress struct {
	Percent *int    // 0 to 100
	Message *string // at most 1024 bytes
}

// ReportProgress stores the progress of l's attempt, without extending the lease.
//
// Errors: [*fferr.LeaseError] as [Engine.RenewLease]: stop work; [fferr.ErrInvalidInput]; [fferr.ErrNotFound];
// [fferr.ErrContention]. Transaction: one; locks the execution, then its attempt; waits for each up to two seconds,
// three times. Emits no events. Safe to repeat.
func (e *Engine) ReportProgress(ctx context.Context, l Lease, p Progress) error {
	const op = "report progress"
	if err := e.checkProgress(l, p); err != nil {
		return core.Wrap(op, err)
	}
	lease := func(int) id.Fence { return l.Fence }
	t := core.Settlement(e.c, op, lease, func(*core.HeldLease) bool { return false }, func(*core.HeldLease) (none struct{}) { return none })
	t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldLease, _ []fferr.Outcome[struct{}]) error {
		params := db.UpdateProgressParams{
			Message: p.Message, NowMs: items[0].Facts.NowMs, PartitionKey: l.Execution.Partition(), ExecutionID: l.Execution.UUID(),
		}
		if p.Percent != nil {
			params.Percent = new(int32(*p.Percent))
		}
		return e.c.Q.UpdateProgress(ctx, tx, params)
	}
	outcomes := make([]fferr.Outcome[struct{}], 1)
	return cmp.Or(t.Run(ctx, [][]int{{0}}, outcomes), outcomes[0].Err)
}

func (e *Engine) checkProgress(l Lease, p Progress) error {
	if p.Percent != nil && (*p.Percent < 0 || *p.Percent > 100) {
		return core.Invalid("percent", "must be between 0 and 100")
	}
	if p.Message != nil {
		if err := core.CheckText("message", *p.Message, core.MaxFreeText); err != nil {
			return err
		}
	}
	return e.c.CheckLease(l.Fence)
}
