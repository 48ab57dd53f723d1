package engine

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// callPointer precedes the name of a call in the pointer of a wait. ffx_resume_caller reads it.
const callPointer = "ffx_call:"

// waitForCall fills in the condition of a wait for a call.
func (s *SuspendSpec) waitForCall() error {
	switch {
	case s.Call == "":
		return nil
	case len(s.Call) > MaxStepName:
		return invalid("call", fmt.Sprintf("has %d bytes, a name has at most %d", len(s.Call), MaxStepName))
	case len(s.Condition.node.Kind) > 0 || s.Pointer != "":
		return invalid("call", "has no effect beside a condition or a pointer")
	}
	s.Condition, s.Pointer = OperatorOnly(), callPointer+s.Call
	if s.Asked == "" {
		s.Asked = "call " + s.Call
	}
	return nil
}

// callers are executions that wait for calls, and whose rows are locked.
type callers struct {
	executionArrays
	steps []string
}

func (c *callers) add(x id.ExecutionID, step string) {
	c.executionArrays.add(x.Partition(), x.UUID())
	c.steps = append(c.steps, step)
}

// resumeCallers lets those callers continue whose called executions have all ended.
func (e *Engine) resumeCallers(ctx context.Context, tx *txn, c *callers, nowMs int64) error {
	if c.empty() {
		return nil
	}
	rows, err := e.q.ResumeCallers(ctx, tx, db.ResumeCallersParams{
		PartitionKeys: c.partitions, ExecutionIDs: c.executions, Steps: c.steps, NowMs: nowMs,
	})
	for _, row := range rows {
		tx.due.completions()
		if row.Lane != "" {
			tx.due.resumed(row.Lane)
		}
	}
	return err
}
