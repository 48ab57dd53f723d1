package upkeep

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// gatePass admits executions in one transaction. It locks limits, then the executions that wait there, then their other
// limits. It skips every locked row, so it has no place in the order of locks. Admissions are counted only under the
// lock.
type gatePass struct {
	core.GateLocks
	batch   int
	budgets []gate.ID // to look at
	limits  []gate.ID
	namedBy map[gate.ID]id.ExecutionID // an execution that names a limit, for limits without a row

	cancelling map[gate.ID]bool // budgets that cancel at a breach
	let        db.InsertBudgetAdmissionsParams

	waiting []db.TakeWaitingRow
	more    bool          // another pass over the same ones may admit more
	surplus []core.Cancel // after the commit
}

// look adds a budget or a limit to the pass.
func (p *gatePass) look(g gate.ID, isBudget bool) {
	if isBudget {
		p.budgets = append(p.budgets, g)
	} else {
		p.limits = append(p.limits, g)
	}
}

// lookFor is look for a budget or limit with a waiting execution.
func (p *gatePass) lookFor(row *db.ScanWaitingGatesRow) {
	p.look(row.GateID.Bytes, row.IsBudget)
	p.name(row.GateID.Bytes, id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID.Bytes))
}

// name notes an execution that names a limit.
func (p *gatePass) name(g gate.ID, by id.ExecutionID) {
	if p.namedBy == nil {
		p.namedBy = make(map[gate.ID]id.ExecutionID)
	}
	p.namedBy[g] = by
}

// begin forgets the locks and the budgets, before a try.
func (p *gatePass) begin() {
	p.GateLocks.Begin()
	p.cancelling, p.let = make(map[gate.ID]bool), db.InsertBudgetAdmissionsParams{}
}

// run admits and moves executions, and returns how many.
func (p *gatePass) run(ctx context.Context, tx *core.Txn) (int, error) {
	if len(p.budgets)+len(p.limits) == 0 {
		return 0, nil
	}
	p.begin()
	if err := p.readBudgets(ctx, tx, p.budgets); err != nil {
		return 0, err
	}
	if err := p.Take(ctx, tx, p.limits); err != nil {
		return 0, err
	}
	full := func(*core.TakenGate) int64 { return 1 }
	if err := p.Count(ctx, tx, p.limits, full); err != nil {
		return 0, err
	}
	if err := p.takeWaiting(ctx, tx); err != nil {
		return 0, err
	}
	if err := p.takeOthers(ctx, tx); err != nil {
		return 0, err
	}
	return p.apply(ctx, tx)
}

// readBudgets notes which budgets are exhausted. A budget with an unreadable policy counts as exhausted.
func (p *gatePass) readBudgets(ctx context.Context, tx db.DBTX, gates []gate.ID) error {
	if len(gates) == 0 {
		return nil
	}
	var params db.ReadBudgetsInUseParams
	for _, b := range gates {
		params.PartitionKeys = append(params.PartitionKeys, p.C.Partitions.BudgetPartition(id.BudgetID(b)))
		params.BudgetIDs = append(params.BudgetIDs, id.BudgetID(b).String())
		p.State.Exhausted[b] = false
	}
	rows, err := p.C.Q.ReadBudgetsInUse(ctx, tx, params)
	if err != nil {
		return err
	}
	for _, row := range rows {
		b, err := id.ParseBudgetID(row.BudgetID)
		if err != nil {
			return core.Corrupt("ff_budget_policy.budget_id", err)
		}
		policy, err := budgets.Decode(row.Policy)
		p.State.Exhausted[gate.ID(b)] = err != nil || exhausted(policy, row)
		p.cancelling[gate.ID(b)] = policy.CancelOnBreach
	}
	return nil
}

// exhausted reports whether the usage of a budget and its reservations have reached a hard limit.
func exhausted(policy budgets.Policy, row db.ReadBudgetsInUseRow) bool {
	reserved := make(map[string]int64, len(row.ReservedDimensions))
	for i, dimension := range row.ReservedDimensions {
		reserved[dimension] = row.ReservedAmounts[i]
	}
	used := make(map[string]int64, len(row.Dimensions))
	for i, dimension := range row.Dimensions {
		used[dimension] = row.Amounts[i]
	}
	for dimension, limit := range policy.Hard {
		if limit > 0 && used[dimension] >= limit-min(reserved[dimension], limit) {
			return true
		}
	}
	return false
}

// takeWaiting locks executions that wait for an open budget or a limit with free places, or that may replace others.
func (p *gatePass) takeWaiting(ctx context.Context, tx db.DBTX) error {
	var open []gate.ID
	var rooms []int64
	for _, b := range p.budgets {
		if !p.State.Exhausted[b] {
			open, rooms = append(open, b), append(rooms, int64(p.batch))
		}
	}
	for _, g := range p.limits {
		if limit := p.State.Limits[g]; limit != nil {
			if room, unlimited := limit.Room(); unlimited || room > 0 || limit.ByReplacing() {
				if unlimited || room > int64(p.batch) || limit.ByReplacing() {
					room = int64(p.batch)
				}
				open, rooms = append(open, g), append(rooms, room)
			}
		}
	}
	var params db.TakeWaitingParams
	shares := gate.Shares(rooms, p.batch)
	for i, g := range open {
		if shares[i] > 0 {
			params.GateIDs, params.Counts = append(params.GateIDs, core.PgGate(g)), append(params.Counts, shares[i])
		}
	}
	if len(params.GateIDs) == 0 {
		return nil
	}
	var err error
	p.waiting, err = p.C.Q.TakeWaiting(ctx, tx, params)
	// Executions at different limits may compete for a shared one.
	slices.SortFunc(p.waiting, compareWaiting)
	return err
}

// compareWaiting is the order of claims.
func compareWaiting(a, b db.TakeWaitingRow) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.CreatedAtMs, b.CreatedAtMs), bytes.Compare(a.ExecutionID[:], b.ExecutionID[:]),
	)
}

// takeOthers reads and locks the other budgets and limits of the executions.
func (p *gatePass) takeOthers(ctx context.Context, tx *core.Txn) error {
	budgets, limits := make(map[gate.ID]bool), make(map[gate.ID]bool)
	units := make(map[gate.ID]int64)
	for i := range p.waiting {
		w := waitingOf(&p.waiting[i])
		for _, b := range w.Budgets {
			if _, known := p.State.Exhausted[b]; !known {
				budgets[b] = true
			}
		}
		for _, u := range w.Uses {
			if units[u.Limit] += u.Units; p.Taken[u.Limit] == nil && !slices.Contains(p.limits, u.Limit) {
				limits[u.Limit] = true
				p.name(u.Limit, id.ExecutionIDFromRow(p.waiting[i].PartitionKey, p.waiting[i].ExecutionID))
			}
		}
	}
	if err := p.readBudgets(ctx, tx, slices.Collect(maps.Keys(budgets))); err != nil {
		return err
	}
	if err := p.Take(ctx, tx, slices.Collect(maps.Keys(limits))); err != nil {
		return err
	}
	all := slices.SortedFunc(maps.Keys(units), core.CompareGates)
	// One unit may fit, but not all units of the executions.
	need := make(map[*core.TakenGate]int64)
	for g, n := range units {
		if t := p.Taken[g]; t != nil {
			need[t] = n
		}
	}
	return p.Count(ctx, tx, all, func(t *core.TakenGate) int64 { return need[t] })
}

// apply decides and writes.
func (p *gatePass) apply(ctx context.Context, tx *core.Txn) (int, error) {
	var admit db.AdmitExecutionsParams
	var move db.MoveWaitingParams
	admit.NowMs = p.C.NowMs()
	for i := range p.waiting {
		row := &p.waiting[i]
		w := waitingOf(row)
		switch d := p.State.Decide(w); d.Verb {
		case gate.Admit:
			admit.PartitionKeys, admit.ExecutionIDs = append(admit.PartitionKeys, row.PartitionKey), append(admit.ExecutionIDs, core.PgUUID(row.ExecutionID))
			tx.Due.Resumed(row.LaneID)
			p.noteAdmission(row, w.Budgets)
			p.Use(id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), w.Uses)
		case gate.Move:
			move.PartitionKeys, move.ExecutionIDs = append(move.PartitionKeys, row.PartitionKey), append(move.ExecutionIDs, core.PgUUID(row.ExecutionID))
			move.GateIDs, move.AreBudgets = append(move.GateIDs, core.PgGate(d.To)), append(move.AreBudgets, d.Budget)
			p.more = true
		case gate.Leave:
			p.Busy = p.Busy || d.Busy
		}
	}
	p.more = p.more || len(p.waiting) >= p.batch
	if err := p.findSurplus(ctx, tx, admit.ExecutionIDs, move.ExecutionIDs); err != nil {
		return 0, err
	}
	return len(admit.ExecutionIDs) + len(move.ExecutionIDs), p.write(ctx, tx, admit, move)
}

func (p *gatePass) write(ctx context.Context, tx *core.Txn, admit db.AdmitExecutionsParams, move db.MoveWaitingParams) error {
	var steps []core.Step
	if len(admit.ExecutionIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return p.C.Q.AdmitExecutions(ctx, conn, admit) })
	}
	if len(move.ExecutionIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return p.C.Q.MoveWaiting(ctx, conn, move) })
	}
	if len(p.let.ExecutionIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return p.C.Q.InsertBudgetAdmissions(ctx, conn, p.let) })
	}
	if steps = append(steps, p.Admissions(ctx)...); len(steps) == 0 {
		return nil
	}
	return pgtx.InOneTrip(ctx, tx, steps...)
}

// waitingOf converts a waiting execution for package gate.
func waitingOf(row *db.TakeWaitingRow) gate.Waiting {
	w := gate.Waiting{At: row.GateID.Bytes}
	for _, b := range row.FfxBudgetIDs {
		w.Budgets = append(w.Budgets, b.Bytes)
	}
	for i, l := range row.FfxLimitIDs {
		use := gate.Use{Limit: l.Bytes, Units: 1}
		if i < len(row.FfxLimitUnits) {
			use.Units = row.FfxLimitUnits[i]
		}
		w.Uses = append(w.Uses, use)
	}
	return w
}

// ensure creates missing rows of limits, in a transaction of its own: another creator of the same row waits for the
// commit. Creations of executions don't create the rows, since an idle row may be gone when an execution waits at last.
// ensure reports whether the pass should be repeated.
func (p *gatePass) ensure(ctx context.Context, op string) (again bool, err error) {
	params := db.EnsureGatesParams{NowMs: p.C.NowMs()}
	slices.SortFunc(p.Missing, core.CompareGates)
	for _, g := range slices.Compact(p.Missing) {
		if x, named := p.namedBy[g]; named {
			params.PartitionKeys, params.GateIDs = append(params.PartitionKeys, core.GatePartition(g)), append(params.GateIDs, core.PgGate(g))
			params.ExecutionPartitionKeys = append(params.ExecutionPartitionKeys, x.Partition())
			params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
		}
	}
	if len(params.GateIDs) == 0 {
		return false, nil
	}
	_, err = core.InStatement(ctx, p.C, op, func(conn db.DBTX, _ *core.Notifications) (struct{}, error) {
		return struct{}{}, p.C.Q.EnsureGates(ctx, conn, params)
	})
	if errors.Is(err, fferr.ErrBusy) {
		p.Busy = true
		return false, nil
	}
	return err == nil, err
}
