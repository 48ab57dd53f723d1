package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// SignalEach is [Engine.Signal] for many signals, [MaxBatch] per transaction. Outcomes are in input order; a refusal
// affects only its own signal. Signals to one execution are delivered in order. A returned error means nothing
// happened.
//
// Errors: as [Engine.Signal], in the outcomes; [fferr.ErrContention] if another transaction locks one of the
// executions too long. Transaction: locks the executions, then delivers. Safe to repeat if each signal has an ID or
// IdempotencyKey.
func (e *Engine) SignalEach(ctx context.Context, specs []SignalSpec) ([]fferr.Outcome[Signalled], error) {
	const op = "signal executions"
	outcomes := make([]fferr.Outcome[Signalled], len(specs))
	documents, trace := make([]string, len(specs)), e.c.TraceContext(ctx)
	valid := core.ValidItems(outcomes, func(n int) error {
		if !specs[n].BusinessKey.IsZero() {
			return core.Wrap(op, core.Invalid("business key", "has no effect in a batch: set Execution"))
		}
		if err := e.checkSignal(&specs[n]); err != nil {
			return core.Wrap(op, err)
		}
		var err error
		documents[n], err = specs[n].document(trace)
		return core.Wrap(op, err)
	})
	chunks := core.BySize(valid, MaxBatch, func(n int) int { return len(specs[n].Payload) + len(documents[n]) })
	err := core.InChunks(len(chunks), 1, func(from, _ int) error {
		return e.deliverEach(ctx, op, chunks[from], specs, documents, outcomes)
	}, func(i int, err error) {
		for _, n := range chunks[i] {
			outcomes[n].Err = err
		}
	})
	return outcomes, err
}

// deliverEach delivers the items of one transaction.
func (e *Engine) deliverEach(
	ctx context.Context, op string, items []int, specs []SignalSpec, documents []string, outcomes []fferr.Outcome[Signalled],
) error {
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b int) int { return specs[a].Execution.Compare(specs[b].Execution) })
	var locked core.ExecutionArrays
	params := db.DeliverSignalsParams{NowMs: e.c.NowMs()}
	for _, n := range items {
		spec := &specs[n]
		locked.Add(spec.Execution.Partition(), spec.Execution.UUID())
		params.Signals = append(params.Signals, documents[n])
		params.Payloads = append(params.Payloads, spec.Payload)
		params.DedupTtlsMs = append(params.DedupTtlsMs, spec.dedupTTLMs())
	}
	params.PartitionKeys, params.ExecutionIDs = locked.Partitions, locked.Executions
	return core.InStatements(ctx, e.c, op, func(due *core.Notifications) []core.Step {
		return []core.Step{
			func(conn db.DBTX) error {
				_, err := e.c.Q.LockExecutions(ctx, conn, db.LockExecutionsParams{
					PartitionKeys: locked.Partitions, ExecutionIDs: locked.Executions,
				})
				return err
			},
			func(conn db.DBTX) error {
				rows, err := e.c.Q.DeliverSignals(ctx, conn, params)
				for _, row := range rows {
					n := items[row.Ord]
					signalled, refused := e.signalledBy(specs[n].Execution, specs[n].Name, nil, db.DeliverSignalRow{
						Result: row.Result, SignalID: row.SignalID, Effect: row.Effect, Lane: row.Lane,
					}, due)
					outcomes[n] = fferr.Outcome[Signalled]{Value: signalled, Err: core.Wrap(op, refused)}
				}
				return err
			},
		}
	})
}
