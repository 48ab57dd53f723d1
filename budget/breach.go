package budget

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// CancelSource is the [engine.CancelSpec.Source] of executions cancelled by a breach: see [Spec.CancelOnBreach].
const CancelSource = "budget"

// breachTimeout is how long the process of a breach tries to cancel. A job does the rest.
const breachTimeout = 30 * time.Second

// cancelAdmitted makes the executions under a budget due for cancellation if a hard limit is exceeded. The mark is part of
// the breach's transaction, so the executions are cancelled even if this process ends after the commit.
func (c *usageCount) cancelAdmitted(ctx context.Context, b *countedBudget, due *core.Notifications) []core.Step {
	if !b.exists || !b.policy.CancelOnBreach || !b.account.Over() {
		return nil
	}
	return []core.Step{func(conn db.DBTX) error {
		n, err := c.Q.MarkBudgetAdmissions(ctx, conn, db.MarkBudgetAdmissionsParams{PartitionKey: b.partition, BudgetID: b.id})
		c.over = c.over || n > 0
		due.Over = c.over && c.Tx != nil
		return err
	}}
}

// cancelOverSoon cancels executions after a committed breach, in the background: the caller may hold one of the cancelled
// executions, and gets its outcome first.
func cancelOverSoon(c *core.Core) {
	c.Breaches.Run(func() {
		ctx, cancel := context.WithTimeout(context.Background(), breachTimeout)
		defer cancel()
		// The job retries after an error, and reports the error.
		_, _ = c.CancelOverBudget(ctx, "cancel executions over budget", engine.MaxBatch)
	})
}
