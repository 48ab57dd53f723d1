package engine

import (
	"cmp"
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Progress is a progress report of a running attempt. A nil field keeps the previous value.
type Progress struct {
	Percent *int    // 0 to 100
	Message *string // at most 1024 bytes
}

// ReportProgress stores the progress of the attempt that l holds. It does not extend the lease.
//
// Errors: [*fferr.LeaseError] with [fferr.ErrStaleLease], [fferr.ErrLeaseExpired], [fferr.ErrLeaseRevoked] or
// [fferr.ErrNotActive]: stop work. [fferr.ErrInvalidInput]; [fferr.ErrNotFound]; [fferr.ErrContention].
//
// Transaction: four statements; locks the execution, then its attempt; waits for them up to two seconds, three times.
// Emits no events. Safe to repeat.
func (e *Engine) ReportProgress(ctx context.Context, l Lease, p Progress) error {
	const op = "report progress"
	if err := e.checkProgress(l, p); err != nil {
		return core.Wrap(op, err)
	}
	lease := func(int) *Lease { return &l }
	t := settlement(e, op, lease, func(*heldLease) bool { return false }, func(*heldLease) (none struct{}) { return none })
	t.write = func(ctx context.Context, tx *core.Txn, items []*heldLease, _ []Outcome[struct{}]) error {
		params := db.UpdateProgressParams{
			Message: p.Message, NowMs: items[0].facts.NowMs, PartitionKey: l.Execution.Partition(), ExecutionID: l.Execution.UUID(),
		}
		if p.Percent != nil {
			params.Percent = new(int32(*p.Percent))
		}
		return e.c.Q.UpdateProgress(ctx, tx, params)
	}
	outcomes := make([]Outcome[struct{}], 1)
	return cmp.Or(t.run(ctx, [][]int{{0}}, outcomes), outcomes[0].Err)
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
	return e.checkLease(l)
}
