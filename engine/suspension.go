package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Suspend releases the leased attempt, unfinished, until signals satisfy a condition. The same attempt then continues
// with the next claim. Meanwhile the execution uses no worker and no retry; its deadline still applies. Unused signals
// of earlier waits count too.
//
// Errors: [*fferr.LeaseError]: nothing was written. [fferr.ErrNotFound] if the execution or attempt no longer exists;
// [fferr.ErrInvalidInput].
//
// Transaction: one. Locks the execution, then its attempt; waits for each up to two seconds, three times, then
// [fferr.ErrContention]. Emits a lease event. Safe to repeat with the same ID.
func (e *Engine) Suspend(ctx context.Context, spec SuspendSpec) (Suspended, error) {
	outcomes, err := e.suspend(ctx, []SuspendSpec{spec})
	if err != nil {
		return Suspended{}, err
	}
	return outcomes[0].Value, outcomes[0].Err
}

// SuspendEach is [Engine.Suspend] for many leases, [MaxBatch] per transaction. Outcomes are in input order; a lost
// lease affects only its own. An item with locked rows gets [fferr.ErrBusy] at once. A returned error means nothing
// happened.
func (e *Engine) SuspendEach(ctx context.Context, specs []SuspendSpec) ([]fferr.Outcome[Suspended], error) {
	return e.shortWait().suspend(ctx, specs)
}

func (e *Engine) suspend(ctx context.Context, specs []SuspendSpec) ([]fferr.Outcome[Suspended], error) {
	const op = "suspend executions"
	specs = slices.Clone(specs)
	outcomes := make([]fferr.Outcome[Suspended], len(specs))
	var paths []string
	for n := range specs {
		if specs[n].ID.IsZero() {
			specs[n].ID = id.NewSuspensionID()
		}
		paths = append(paths, specs[n].Condition.node.Predicates()...)
	}
	valid := core.ValidItems(outcomes, func(n int) error {
		return core.Wrap(op, cmp.Or(e.c.CheckLease(specs[n].Lease.Fence), specs[n].waitForCall(), specs[n].check()))
	})
	if len(paths) > 0 {
		var err error
		if valid, err = e.checkPaths(ctx, op, specs, valid, outcomes); err != nil {
			return outcomes, err
		}
	}
	lease := func(n int) id.Fence { return specs[n].Lease.Fence }
	t := core.Settlement(e.c, op, lease,
		func(*core.HeldLease) bool { return false }, // repetitions are recognised by id, below
		func(*core.HeldLease) (none Suspended) { return none },
	)
	t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldLease, outcomes []fferr.Outcome[Suspended]) error {
		return e.writeSuspensions(ctx, tx, items, specs, outcomes)
	}
	t.Keeps = func(n int) bool { return outcomes[n].Value.Satisfied }
	chunks := core.LeaseChunks(valid, lease, func(int) *id.FlowID { return nil }, func(int) int { return 0 })
	if err := core.Settle(ctx, t, lease, chunks, outcomes); err != nil {
		return outcomes, err
	}
	return outcomes, core.Wrap(op, e.recogniseSuspensions(ctx, specs, outcomes))
}

// writeSuspensions suspends executions.
func (e *Engine) writeSuspensions(
	ctx context.Context, tx *core.Txn, items []*core.HeldLease, specs []SuspendSpec, outcomes []fferr.Outcome[Suspended],
) error {
	params := db.SuspendExecutionsParams{NowMs: items[0].Facts.NowMs}
	for _, x := range items {
		document, err := specs[x.N].document(params.NowMs, x.Row.Policy)
		if err != nil {
			return err
		}
		params.PartitionKeys = append(params.PartitionKeys, x.ID.Partition())
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.ID.UUID()))
		params.AttemptIndexes = append(params.AttemptIndexes, int32(x.Attempt))
		params.Specs = append(params.Specs, document)
	}
	rows, err := e.c.Q.SuspendExecutions(ctx, tx, params)
	if err != nil {
		return err
	}
	tx.Due.Leases()
	var calls core.Callers
	for _, row := range rows {
		x := items[row.Ord]
		satisfied := row.Result == "satisfied"
		outcomes[x.N].Value = Suspended{ID: specs[x.N].ID, Satisfied: satisfied}
		if x.Row.HasLimits {
			tx.Due.Gated()
		}
		if call := specs[x.N].Call; call != "" {
			calls.Add(x.ID, call)
		}
	}
	return e.c.ResumeCallers(ctx, tx, &calls, params.NowMs)
}

// recogniseSuspensions turns refusals into successes if the latest suspension has the id of the call: an earlier try
// was committed.
func (e *Engine) recogniseSuspensions(ctx context.Context, specs []SuspendSpec, outcomes []fferr.Outcome[Suspended]) error {
	var refused []int
	var arrays core.ExecutionArrays
	for n, outcome := range outcomes {
		if errors.Is(outcome.Err, fferr.ErrStaleLease) || errors.Is(outcome.Err, fferr.ErrNotActive) {
			refused = append(refused, n)
			arrays.Add(specs[n].Lease.Execution.Partition(), specs[n].Lease.Execution.UUID())
		}
	}
	if len(refused) == 0 {
		return nil
	}
	rows, err := e.c.Q.ListSuspensionIDs(ctx, e.c.Reader(), db.ListSuspensionIDsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
	})
	for _, row := range rows {
		if n := refused[row.Ord]; row.SuspensionID == specs[n].ID {
			outcomes[n] = fferr.Outcome[Suspended]{Value: Suspended{ID: row.SuspensionID}}
		}
	}
	return err
}

// checkPaths refuses items with a predicate that is no SQL/JSON path, or has variables, which have no values. It
// returns the other items.
func (e *Engine) checkPaths(
	ctx context.Context, op string, specs []SuspendSpec, items []int, outcomes []fferr.Outcome[Suspended],
) (valid []int, err error) {
	for _, n := range items {
		if paths := specs[n].Condition.node.Predicates(); len(paths) > 0 {
			ok, err := e.c.Q.AreValidPaths(ctx, e.c.Reader(), paths)
			switch {
			case err != nil:
				return nil, core.Wrap(op, err)
			case !ok:
				outcomes[n].Err = core.Wrap(op, core.Invalid("condition", "has a predicate that is no SQL/JSON path, or that has a variable"))
				continue
			}
		}
		valid = append(valid, n)
	}
	return valid, nil
}
