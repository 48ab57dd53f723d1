package engine

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExecutionSummary is an execution as listings have it.
type ExecutionSummary struct {
	ID         id.ExecutionID
	Flow       *id.FlowID // nil outside a flow
	Lane       id.LaneID
	Kind       string
	State      state.PublicState
	Outcome    state.TerminalOutcome // none until it has ended
	LeasesLost int                   // leases that ran out
	CreatedAt  time.Time

	// Err is a [*CorruptionError] where what is stored cannot be read. There is no State and no Outcome then; the others
	// are listed.
	Err error
}

// ExecutionFilter says which executions are listed. The zero value lists all.
type ExecutionFilter struct {
	Partition *int // those of one partition; nil: of all
}

// ListExecutions returns the executions by partition, then id, after a cursor: [Page.Next] of the page before, ""
// for the first page. A limit of 0, or above [MaxPage], is taken as that. What is created meanwhile is in a later
// page or in none.
//
// Errors: [ErrInvalidInput] for a partition that this database does not have, a negative limit, or a cursor of another
// listing or filter. One statement; reads as many rows as it returns, by the primary key; locks nothing.
func (e *Engine) ListExecutions(
	ctx context.Context, filter ExecutionFilter, after string, limit int,
) (Page[ExecutionSummary], error) {
	const op = "list executions"
	page, err := e.listExecutions(ctx, filter, after, limit)
	return page, wrap(op, err)
}

// Executions goes through the executions as [Engine.ListExecutions] lists them, a page at a time.
func (e *Engine) Executions(ctx context.Context, filter ExecutionFilter) iter.Seq2[ExecutionSummary, error] {
	return pages(func(after string) (Page[ExecutionSummary], error) {
		return e.ListExecutions(ctx, filter, after, MaxPage)
	})
}

func (e *Engine) listExecutions(
	ctx context.Context, filter ExecutionFilter, after string, limit int,
) (page Page[ExecutionSummary], err error) {
	list := "executions"
	partitions := int(e.cfg.Partitions.WithDefaults().Flow)
	params := db.ListExecutionsParams{
		AfterPartitionKey: -1, AfterExecutionID: pgUUID(greatestExecution), LastPartitionKey: int16(partitions - 1),
	}
	if p := filter.Partition; p != nil {
		if *p < 0 || *p >= partitions {
			return page, invalid("partition", fmt.Sprintf("must be between 0 and %d", partitions-1))
		}
		list = fmt.Sprintf("executions of %d", *p)
		params.AfterPartitionKey, params.LastPartitionKey = int16(*p-1), int16(*p)
	}
	if limit, err = pageSize(limit); err != nil {
		return page, err
	}
	last, behind, err := readExecutionCursor(list, after)
	if err != nil {
		return page, err
	}
	if behind {
		params.AfterPartitionKey, params.AfterExecutionID = last.Partition(), pgUUID(last.UUID())
	}
	params.PageSize = int32(limit) + 1
	rows, err := e.q.ListExecutions(ctx, e.reader(), params)
	if err != nil {
		return page, err
	}
	items := make([]ExecutionSummary, len(rows))
	for i := range rows {
		items[i] = summaryOf(&rows[i])
	}
	return pageOf(items, limit, func(x *ExecutionSummary) string { return executionCursor(list, x.ID) }), nil
}

var greatestExecution = id.ExecutionUUID{
	255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
}

func summaryOf(row *db.ListExecutionsRow) ExecutionSummary {
	public, outcome, err := publicState(row.LifecyclePhase, row.EligibilityState, row.PublicState, normalise.TerminalFacts{
		PointerOutcome:     row.PointerOutcome,
		CurrentOutcome:     row.CurrentOutcome,
		RawTerminalOutcome: row.RawTerminalOutcome,
		CancellationReason: row.CancellationReason,
		LastFailureMessage: row.LastFailureMessage,
		FailureReason:      row.FailureReason,
	})
	return ExecutionSummary{
		ID:         id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID),
		Flow:       row.FlowID,
		Lane:       id.LaneID(row.LaneID),
		Kind:       row.ExecutionKind,
		State:      public,
		Outcome:    outcome,
		LeasesLost: int(max(row.LeaseReclaimCount, 0)),
		CreatedAt:  time.UnixMilli(row.CreatedAtMs),
		Err:        err,
	}
}

// publicState derives what to show of an execution, and how it ended, from its stored literals.
func publicState(phase, eligibility, public string, facts normalise.TerminalFacts) (state.PublicState, state.TerminalOutcome, error) {
	canonical, err := normalise.LifecyclePhase(phase)
	if err != nil {
		return "", "", corrupt("ff_exec_core.lifecycle_phase", err)
	}
	eligible, err := normalise.EligibilityState(eligibility)
	if err != nil {
		return "", "", corrupt("ff_exec_core.eligibility_state", err)
	}
	stored, err := normalise.PublicState(public)
	if err != nil {
		return "", "", corrupt("ff_exec_core.public_state", err)
	}
	facts.Phase, facts.StoredPhase, facts.StoredPublicState = canonical, phase, public
	outcome := normalise.TerminalOutcome(facts)
	return state.Effective(stored, canonical, eligible, outcome), outcome, nil
}
