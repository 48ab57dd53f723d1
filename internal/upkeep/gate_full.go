package upkeep

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
	"github.com/flowfabric/flowfabric-go/state"
)

// findSurplus finds the executions that full limits cancel, while the pass holds the locks of the limits. admitted and
// moved no longer wait.
func (p *gatePass) findSurplus(ctx context.Context, tx db.DBTX, admitted, moved []pgtype.UUID) error {
	params := db.ListSurplusParams{But: slices.Concat([]pgtype.UUID{}, admitted, moved)}
	if params.But == nil {
		params.But = []pgtype.UUID{} // NULL would exclude all
	}
	list := func(g gate.ID, units int64) {
		params.PartitionKeys, params.GateIDs = append(params.PartitionKeys, core.GatePartition(g)), append(params.GateIDs, core.PgGate(g))
		params.WhenFull, params.Units = append(params.WhenFull, p.Taken[g].WhenFull), append(params.Units, units)
	}
	for _, g := range p.limits {
		t := p.Taken[g]
		if t == nil || t.WhenFull == "wait" || t.WhenFull == "" {
			continue
		}
		p.more = p.more || t.NeedsCount(1) // the next pass knows whether the limit is full
		if !t.Replaces && t.Full() {
			list(g, 0)
		}
	}
	for g, t := range p.Taken {
		if units := t.Surplus(); units > 0 {
			list(g, units)
		}
	}
	if len(params.GateIDs) == 0 {
		return nil
	}
	rows, err := p.C.Q.ListSurplus(ctx, tx, params)
	for i := range rows {
		row := &rows[i]
		at := row.GateID
		how := core.Cancel{
			ID: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID.Bytes),
			Cancellation: core.Cancellation{
				Source: core.CancelledByLimit, Reason: fmt.Sprintf("the limit %s has no room", p.Taken[at.Bytes].Name), RevokedBy: core.RevokedByOperator,
			},
			Check: func(x *core.HeldExecution, _ state.LifecyclePhase) (bool, error) { return x.FfxGateID == at, nil },
		}
		if !row.Waits {
			how.Reason = fmt.Sprintf("another execution takes its place in the limit %s", p.Taken[at.Bytes].Name)
			how.Check = func(x *core.HeldExecution, _ state.LifecyclePhase) (bool, error) { return x.Admitted, nil }
		}
		p.surplus = append(p.surplus, how)
	}
	return err
}

// cancelSurplus cancels the executions found by a pass, unless their state has changed since, and returns how many.
// Locked executions are retried soon.
func (u *Upkeep) cancelSurplus(ctx context.Context, p *gatePass) (cancelled int, err error) {
	for len(p.surplus) > 0 {
		some := p.surplus[:min(len(p.surplus), engine.MaxBatch)]
		p.surplus = p.surplus[len(some):]
		outcomes := make([]fferr.Outcome[struct{}], len(some))
		all := core.ValidItems(outcomes, func(int) error { return nil })
		if err := u.c.ShortWait().CancelEach(ctx, "cancel executions", some, all, outcomes); err != nil {
			return cancelled, err
		}
		for _, err := range core.ErrorsOf(outcomes) {
			switch {
			case err == nil:
				cancelled++
			case errors.Is(err, fferr.ErrBusy), errors.Is(err, fferr.ErrContention):
				p.Busy = true
			case !errors.Is(err, fferr.ErrEnded) && !errors.Is(err, fferr.ErrNotFound):
				return cancelled, err
			}
		}
	}
	p.more = p.more || cancelled > 0
	return cancelled, nil
}

// noteAdmission notes the admission of an execution under budgets that cancel at a breach.
func (p *gatePass) noteAdmission(row *db.TakeWaitingRow, budgets []gate.ID) {
	for _, b := range budgets {
		if p.cancelling[b] {
			p.let.PartitionKeys = append(p.let.PartitionKeys, p.C.Partitions.BudgetPartition(id.BudgetID(b)))
			p.let.BudgetIDs = append(p.let.BudgetIDs, id.BudgetID(b).String())
			p.let.ExecutionPartitions = append(p.let.ExecutionPartitions, row.PartitionKey)
			p.let.ExecutionIDs = append(p.let.ExecutionIDs, core.PgUUID(row.ExecutionID))
		}
	}
	p.let.NowMs, p.let.LookMs = p.C.NowMs(), core.AdmissionLook.Milliseconds()
}
