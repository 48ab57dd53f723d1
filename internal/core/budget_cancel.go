package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// maxCancelPage is how many executions one transaction cancels after a breach: the holders of the first ones need not wait
// for the others.
const maxCancelPage = 100

// CancelOverBudget cancels up to batch executions after a breach, and returns how many admissions it deleted.
func (c *Core) CancelOverBudget(ctx context.Context, op string, batch int) (done int, err error) {
	page := db.ListBudgetCancelsParams{AfterPartitionKey: -1, AfterExecutionID: PgUUID(id.ExecutionUUID{})}
	for seen := 0; seen < batch; {
		page.PageSize = int32(min(batch-seen, maxCancelPage))
		rows, err := c.Q.ListBudgetCancels(ctx, c.Reader(), page)
		if err != nil {
			return done, Wrap(op, err)
		}
		if len(rows) == 0 {
			return done, nil
		}
		n, err := c.cancelOver(ctx, op, rows)
		done += n
		if err != nil || len(rows) < int(page.PageSize) {
			return done, err
		}
		seen += len(rows)
		last := rows[len(rows)-1]
		page.AfterPartitionKey, page.AfterBudgetID = last.PartitionKey, last.BudgetID
		page.AfterExecutionID, page.AfterAdmittedAtMs = last.ExecutionID, last.AdmittedAtMs
	}
	return done, nil
}

// cancelOver cancels the executions that are still admitted, and deletes their admissions.
func (c *Core) cancelOver(ctx context.Context, op string, rows []db.ListBudgetCancelsRow) (int, error) {
	cancels := make([]Cancel, len(rows))
	for i := range rows {
		reason := fmt.Sprintf("the budget %s has no room", rows[i].BudgetID)
		if key := rows[i].BudgetKey; key != "" {
			reason = fmt.Sprintf("the budget %q (%s) has no room", key, rows[i].BudgetID)
		}
		cancels[i] = Cancel{
			ID: id.ExecutionIDFromRow(rows[i].ExecutionPartition, rows[i].ExecutionID.Bytes),
			Cancellation: Cancellation{
				Source: CancelledByBudget, Reason: reason, RevokedBy: RevokedByOperator,
			},
			Check: func(x *HeldExecution, _ state.LifecyclePhase) (bool, error) { return x.Admitted, nil },
		}
	}
	outcomes := make([]fferr.Outcome[struct{}], len(rows))
	all := ValidItems(outcomes, func(int) error { return nil })
	if err := c.ShortWait().CancelEach(ctx, op, cancels, all, outcomes); err != nil {
		return 0, err
	}
	var over db.DropBudgetAdmissionsParams
	for i := range rows {
		err := outcomes[i].Err
		if errors.Is(err, fferr.ErrBusy) { // alone, so no other one waits for the locks
			alone := make([]fferr.Outcome[struct{}], 1)
			if err = c.CancelEach(ctx, op, cancels[i:i+1], []int{0}, alone); err == nil {
				err = alone[0].Err
			}
		}
		switch {
		case errors.Is(err, fferr.ErrBusy), errors.Is(err, fferr.ErrContention): // by the next call of the job
		case err != nil && !errors.Is(err, fferr.ErrEnded) && !errors.Is(err, fferr.ErrNotFound):
			return 0, err
		default:
			over.PartitionKeys, over.BudgetIDs = append(over.PartitionKeys, rows[i].PartitionKey), append(over.BudgetIDs, rows[i].BudgetID)
			over.ExecutionIDs = append(over.ExecutionIDs, rows[i].ExecutionID)
			over.AdmittedAtMs = append(over.AdmittedAtMs, rows[i].AdmittedAtMs)
		}
	}
	if len(over.ExecutionIDs) == 0 {
		return 0, nil
	}
	return InStatement(ctx, c, op, func(conn db.DBTX, _ *Notifications) (int, error) {
		n, err := c.Q.DropBudgetAdmissions(ctx, conn, over)
		return int(n), err
	})
}
