package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// CancelledByBudget is the [CancelSpec.Source] of executions that a breach of a budget has cancelled: see [BudgetSpec].
const CancelledByBudget = "budget"

const (
	// admissionLook is how long after an admission, and after each look at it, a job looks whether its execution is still
	// admitted. Rows of ended executions make a breach slower, and looks at running ones are for nothing.
	admissionLook = 15 * time.Second

	// maxCancelPage is how many executions one transaction cancels after a breach: the holders of the first ones need not wait
	// for the others.
	maxCancelPage = 100

	// breachTimeout is how long the process of a breach tries to cancel. A job does the rest.
	breachTimeout = 30 * time.Second
)

// cancelAdmitted makes the executions under a budget due for their cancellation if that is over, in the transaction of
// the breach: whatever happens to this process after the commit, they are cancelled.
func (c *usageCount) cancelAdmitted(ctx context.Context, b *countedBudget, due *core.Notifications) []core.Step {
	if !b.exists || !b.policy.CancelOnBreach || !b.account.Over() {
		return nil
	}
	return []core.Step{func(conn db.DBTX) error {
		n, err := c.c.Q.MarkBudgetAdmissions(ctx, conn, db.MarkBudgetAdmissionsParams{PartitionKey: b.partition, BudgetID: b.id})
		c.over = c.over || n > 0
		due.Over = c.over && c.c.Tx != nil
		return err
	}}
}

// cancelOver cancels executions that are due for it, up to batch, and returns how many of them it is done with.
func (e *Engine) cancelOver(ctx context.Context, op string, batch int) (done int, err error) {
	page := db.ListBudgetCancelsParams{AfterPartitionKey: -1, AfterExecutionID: core.PgUUID(id.ExecutionUUID{})}
	for seen := 0; seen < batch; {
		page.PageSize = int32(min(batch-seen, maxCancelPage))
		rows, err := e.c.Q.ListBudgetCancels(ctx, e.c.Reader(), page)
		if err != nil {
			return done, core.Wrap(op, err)
		}
		if len(rows) == 0 {
			return done, nil
		}
		n, err := e.cancelRows(ctx, op, rows)
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

// cancelRows cancels the executions of admissions unless they have moved on, and deletes the admissions.
func (e *Engine) cancelRows(ctx context.Context, op string, rows []db.ListBudgetCancelsRow) (int, error) {
	specs := make([]CancelSpec, len(rows))
	for i := range rows {
		specs[i] = CancelSpec{
			ID:     id.ExecutionIDFromRow(rows[i].ExecutionPartition, rows[i].ExecutionID.Bytes),
			Source: CancelledByBudget, Reason: fmt.Sprintf("the budget %s has no room", rows[i].BudgetID),
			unless: func(x *core.HeldExecution) bool { return !x.Admitted },
		}
	}
	errs, err := e.CancelExecutions(ctx, specs)
	if err != nil {
		return 0, err
	}
	var over db.DropBudgetAdmissionsParams
	for i, err := range errs {
		if errors.Is(err, fferr.ErrBusy) {
			err = e.CancelExecution(ctx, specs[i]) // alone, so that no other one waits for its locks
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
	return core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := e.c.Q.DropBudgetAdmissions(ctx, conn, over)
		return int(n), err
	})
}

// cancelOverSoon cancels executions after a breach that was committed. It doesn't wait: the caller, who may hold one of them,
// gets its outcome first.
func (e *Engine) cancelOverSoon() {
	m := &e.breaches
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = true
	if m.ended == nil {
		m.ended = make(chan struct{})
		// It ends when no breach is left.
		go e.serveBreaches()
	}
}

func (e *Engine) serveBreaches() {
	for e.breaches.take() {
		ctx, cancel := context.WithTimeout(context.Background(), breachTimeout)
		// The job repeats an error, and reports it.
		_, _ = e.cancelOver(ctx, "cancel executions over budget", MaxBatch)
		cancel()
	}
}
