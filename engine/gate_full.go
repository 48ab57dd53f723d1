package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
	"github.com/flowfabric/flowfabric-go/state"
)

// CancelledByLimit is the [CancelSpec.Source] of executions that a limit has cancelled: see [WhenFull].
const CancelledByLimit = "limit"

// findSurplus finds the executions that full limits cancel, while the pass has them locked. admitted and moved no longer wait.
func (p *gatePass) findSurplus(ctx context.Context, tx db.DBTX, admitted, moved []pgtype.UUID) error {
	params := db.ListSurplusParams{But: slices.Concat([]pgtype.UUID{}, admitted, moved)}
	if params.But == nil {
		params.But = []pgtype.UUID{} // NULL would exclude all
	}
	list := func(g gate.ID, units int64) {
		params.PartitionKeys, params.GateIDs = append(params.PartitionKeys, gatePartition(g)), append(params.GateIDs, pgGate(g))
		params.WhenFull, params.Units = append(params.WhenFull, string(p.taken[g].whenFull)), append(params.Units, units)
	}
	for _, g := range p.limits {
		t := p.taken[g]
		if t == nil || t.whenFull == WaitForRoom || t.whenFull == "" {
			continue
		}
		p.more = p.more || t.NeedsCount(1) // the next pass knows whether it is full
		if !t.Replaces && t.Full() {
			list(g, 0)
		}
	}
	for g, t := range p.taken {
		if units := t.Surplus(); units > 0 {
			list(g, units)
		}
	}
	if len(params.GateIDs) == 0 {
		return nil
	}
	rows, err := p.c.Q.ListSurplus(ctx, tx, params)
	for i := range rows {
		row := &rows[i]
		at := row.GateID
		how := core.Cancel{
			ID: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID.Bytes),
			Cancellation: core.Cancellation{
				Source: CancelledByLimit, Reason: fmt.Sprintf("the limit %s has no room", p.taken[at.Bytes].name), RevokedBy: core.RevokedByOperator,
			},
			Check: func(x *core.HeldExecution, _ state.LifecyclePhase) (bool, error) { return x.FfxGateID == at, nil },
		}
		if !row.Waits {
			how.Reason = fmt.Sprintf("another execution takes its place in the limit %s", p.taken[at.Bytes].name)
			how.Check = func(x *core.HeldExecution, _ state.LifecyclePhase) (bool, error) { return x.Admitted, nil }
		}
		p.surplus = append(p.surplus, how)
	}
	return err
}

// cancelSurplus cancels executions that a pass has found, unless they have moved on. It returns how many it has cancelled.
// Locked ones are looked at again soon.
func (e *Engine) cancelSurplus(ctx context.Context, p *gatePass) (cancelled int, err error) {
	for len(p.surplus) > 0 {
		some := p.surplus[:min(len(p.surplus), MaxBatch)]
		p.surplus = p.surplus[len(some):]
		outcomes := make([]fferr.Outcome[struct{}], len(some))
		all := core.ValidItems(outcomes, func(int) error { return nil })
		if err := e.c.Impatient().CancelEach(ctx, "cancel executions", some, all, outcomes); err != nil {
			return cancelled, err
		}
		for _, err := range core.ErrorsOf(outcomes) {
			switch {
			case err == nil:
				cancelled++
			case errors.Is(err, fferr.ErrBusy), errors.Is(err, fferr.ErrContention):
				p.busy = true
			case !errors.Is(err, fferr.ErrEnded) && !errors.Is(err, fferr.ErrNotFound):
				return cancelled, err
			}
		}
	}
	p.more = p.more || cancelled > 0
	return cancelled, nil
}

// noteAdmission notes that an execution is let in under budgets that cancel at a breach.
func (p *gatePass) noteAdmission(row *db.TakeWaitingRow, budgets []gate.ID) {
	for _, b := range budgets {
		if p.cancelling[b] {
			p.let.PartitionKeys = append(p.let.PartitionKeys, p.cfg.Partitions.BudgetPartition(id.BudgetID(b)))
			p.let.BudgetIDs = append(p.let.BudgetIDs, id.BudgetID(b).String())
			p.let.ExecutionPartitions = append(p.let.ExecutionPartitions, row.PartitionKey)
			p.let.ExecutionIDs = append(p.let.ExecutionIDs, core.PgUUID(row.ExecutionID))
		}
	}
	p.let.NowMs, p.let.LookMs = p.Engine.c.NowMs(), core.AdmissionLook.Milliseconds()
}
