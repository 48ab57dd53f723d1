package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// Completion is the success of one leased attempt. A nil Result means none; an empty Result is stored as empty.
type Completion struct {
	Lease  Lease
	Result []byte
}

// CompleteExecution ends the leased execution with success and stores the result. The same transaction releases
// dependents and emits the completion event.
//
// Errors: [*fferr.LeaseError]: nothing was written; discard the result. [fferr.ErrNotFound] if the execution or
// attempt no longer exists; [fferr.ErrInvalidInput] for a result above [Config.MaxPayload]; [fferr.ErrContention].
//
// Transaction: one, in a flow under the shared lock. Locks the execution, its attempt, then dependent edge groups and
// executions. Safe to repeat: a repetition succeeds and writes nothing.
func (e *Engine) CompleteExecution(ctx context.Context, l Lease, result []byte) error {
	outcomes, err := e.complete(ctx, []Completion{{Lease: l, Result: result}})
	return cmp.Or(err, outcomes[0].Err)
}

// CompleteExecutions is [Engine.CompleteExecution] for many leases, [MaxBatch] per transaction. Outcomes are in input
// order, nil for success; a lost lease affects only its own. A second completion of an execution counts as a
// repetition. An item with locked rows gets [fferr.ErrBusy] at once. A returned error means nothing happened.
func (e *Engine) CompleteExecutions(ctx context.Context, completions []Completion) ([]error, error) {
	outcomes, err := e.shortWait().complete(ctx, completions)
	return core.ErrorsOf(outcomes), err
}

func (e *Engine) complete(ctx context.Context, completions []Completion) ([]fferr.Outcome[struct{}], error) {
	outcomes := make([]fferr.Outcome[struct{}], len(completions))
	chunks := e.completionChunks(completions, outcomes)
	err := core.InChunks(len(chunks), 1, func(n, _ int) error {
		return e.completeChunk(ctx, completions, chunks[n], outcomes)
	}, func(n int, err error) {
		for _, item := range chunks[n] {
			outcomes[item.n].Err = err
		}
	})
	return outcomes, err
}

// completionItem is a valid completion with its position in the input, and its flow if known.
type completionItem struct {
	n int
	*Completion
	flow *id.FlowID
}

// completionChunks splits completions into transactions, each in lock order. It fills the outcomes of invalid items.
func (e *Engine) completionChunks(completions []Completion, outcomes []fferr.Outcome[struct{}]) [][]completionItem {
	valid := core.ValidItems(outcomes, func(n int) error { return e.checkCompletion(completions[n]) })
	lease := completionLease(completions)
	flows := e.c.Leases.FlowsOf(len(completions), lease)
	chunks := core.LeaseChunks(valid, lease, func(n int) *id.FlowID { return flows[n] }, func(n int) int { return len(completions[n].Result) })
	items := make([][]completionItem, len(chunks))
	for i, chunk := range chunks {
		items[i] = make([]completionItem, len(chunk))
		for j, n := range chunk {
			items[i][j] = completionItem{n, &completions[n], flows[n]}
		}
	}
	return items
}

func (e *Engine) checkCompletion(c Completion) error {
	if len(c.Result) > e.cfg.MaxPayload {
		return core.Invalid("result", fmt.Sprintf("%d bytes, limit %d", len(c.Result), e.cfg.MaxPayload))
	}
	return e.c.CheckLease(c.Lease.Fence)
}

func completionLease(completions []Completion) func(int) id.Fence {
	return func(i int) id.Fence { return completions[i].Lease.Fence }
}

// completeChunk completes as many items as possible by one guarded statement, and the rest by locking first.
func (e *Engine) completeChunk(ctx context.Context, all []Completion, items []completionItem, outcomes []fferr.Outcome[struct{}]) error {
	const op = "complete executions"
	c := e.newCompleting(items)
	var err error
	switch {
	case c.flows.Empty():
		err = core.InStatements(ctx, e.c, op, func(due *core.Notifications) []core.Step {
			steps := []core.Step{func(conn db.DBTX) error { return c.run(ctx, conn, due) }}
			if c.places != nil {
				steps = append(steps, c.places.Steps(ctx, func() { c.places.Announce(due, nil) })...)
			}
			return steps
		})
	case e.c.Tx != nil && e.c.Runner.HasShortWait():
		// The statements wait for rows as long as the caller's transaction allows.
		err = core.ErrFellThrough
	default:
		_, err = core.InTx(ctx, e.c, op, func(tx *core.Txn) (struct{}, error) { return struct{}{}, e.completeMembers(ctx, tx, c) })
	}
	switch {
	case err == nil:
	case errors.Is(err, core.ErrFellThrough), e.c.Runner.HasShortWait() && errors.Is(err, fferr.ErrBusy):
		c.rows = nil
	default:
		return err
	}
	return c.finish(ctx, op, all, outcomes)
}

// A completing is the fast path of a completion: parameters and answer.
type completing struct {
	e     *Engine
	items []completionItem // in lock order
	first []completionItem // the first item of each execution; only first items are sent
	flows *core.FlowSet

	places       *core.HandOver // nil: as far as this process knows, the completions free no places
	notifiesGate bool           // places are freed, and the gate has to look after the caller's commit

	params db.CompleteExecutionsParams
	rows   []db.CompleteExecutionsRow
}

func (e *Engine) newCompleting(items []completionItem) *completing {
	c := &completing{e: e, items: items}
	c.params = db.CompleteExecutionsParams{
		NowMs:   e.c.NowMs(),
		FlowIDs: make([]pgtype.UUID, 0, len(items)),
		Results: make([][]byte, 0, len(items)),
	}
	arrays := core.NewLeaseArrays(len(items))
	for i, item := range items {
		if i > 0 && item.Lease.Execution == items[i-1].Lease.Execution {
			continue
		}
		c.first = append(c.first, item)
		arrays.Add(item.Lease.Fence)
		c.params.Traces = core.AddTrace(c.params.Traces, len(c.params.Results), item.Lease.Trace)
		c.params.Results = append(c.params.Results, item.Result)
		c.params.FlowIDs = append(c.params.FlowIDs, core.PgFlow(item.flow))
	}
	c.params.PartitionKeys, c.params.ExecutionIDs = arrays.Partitions, arrays.Executions
	c.params.AttemptIndexes, c.params.LeaseEpochs = arrays.Attempts, arrays.Epochs
	c.params.Ords = arrays.Ords()
	if e.c.Tx != nil {
		// A refused item must leave no lock behind in the caller's transaction.
		c.params.AtLeast = int64(len(c.first))
	}
	c.flows = core.NewFlowSet(e.cfg.Partitions)
	for _, item := range c.first {
		if item.flow != nil {
			c.flows.Add(*item.flow)
		}
	}
	if places := e.c.HandOverOf(len(c.first), func(i int) id.Fence { return c.first[i].Lease.Fence }); e.c.Tx == nil {
		c.places = places
	} else {
		c.notifiesGate = places != nil
	}
	return c
}

func (c *completing) run(ctx context.Context, conn db.DBTX, due *core.Notifications) (err error) {
	if len(c.first) == 1 {
		c.rows, err = c.runOne(ctx, conn)
	} else {
		c.rows, err = c.e.c.Q.CompleteExecutions(ctx, conn, c.params)
	}
	if len(c.rows) > 0 {
		due.Leases()
		due.Completions()
		if c.notifiesGate {
			due.Gated()
		}
		for _, row := range c.rows {
			if row.InSequence {
				due.SequenceEnded(string(c.first[row.Ord].Lease.Lane))
			}
		}
	}
	return err
}

func (c *completing) runOne(ctx context.Context, conn db.DBTX) ([]db.CompleteExecutionsRow, error) {
	p := &c.params
	answer, err := c.e.c.Q.CompleteOne(ctx, conn, db.CompleteOneParams{
		PartitionKey: p.PartitionKeys[0], ExecutionID: p.ExecutionIDs[0], AttemptIndex: p.AttemptIndexes[0],
		LeaseEpoch: p.LeaseEpochs[0], FlowID: p.FlowIDs[0], Result: p.Results[0], Trace: core.FirstTrace(p.Traces), NowMs: p.NowMs,
		AtLeast: p.AtLeast,
	})
	rows := make([]db.CompleteExecutionsRow, len(answer))
	for i := range answer {
		rows[i] = db.CompleteExecutionsRow(answer[i])
	}
	return rows, err
}

// finish records the statement's completions after the commit, and settles the rest by locking first.
func (c *completing) finish(ctx context.Context, op string, all []Completion, outcomes []fferr.Outcome[struct{}]) error {
	done := make(map[int]bool, len(c.rows))
	for _, row := range c.rows {
		done[c.first[row.Ord].n] = true
	}
	var rest []int
	over := make([]id.Fence, 0, len(c.rows))
	for _, item := range c.items {
		if done[item.n] {
			over = append(over, item.Lease.Fence)
		} else {
			rest = append(rest, item.n)
		}
	}
	c.e.c.NotifyStreams(over)
	if c.e.c.Tx == nil {
		c.e.c.Leases.Ended(over)
	}
	if len(rest) == 0 {
		return nil
	}
	err := c.e.completeSlowly(ctx, op, all, rest, outcomes)
	if err == nil || len(rest) == len(c.items) {
		return err
	}
	for _, n := range rest {
		outcomes[n].Err = err
	}
	return nil
}

// completeMembers completes leases, including leases of flow members, and resolves their dependents.
func (e *Engine) completeMembers(ctx context.Context, tx *core.Txn, c *completing) error {
	var members core.FlowMemberArrays
	for _, item := range c.first {
		members.AddMember(item.Lease.Execution, item.flow)
	}
	var groups int64
	err := pgtx.InOneTrip(ctx, tx, append(e.c.ShareFlows(ctx, c.flows),
		func(conn db.DBTX) error { return core.FellThrough(c.run(ctx, conn, &tx.Due)) },
		func(conn db.DBTX) (err error) {
			groups, err = e.c.LockGroups(ctx, conn, members)
			return err
		},
	)...)
	if err == nil && c.places != nil {
		err = pgtx.InOneTrip(ctx, tx, c.places.Steps(ctx, func() { c.places.Announce(&tx.Due, nil) })...)
	}
	if err != nil || groups == 0 || len(c.rows) == 0 {
		return err
	}
	ended := make([]core.EndedExecution, 0, len(c.rows))
	for _, row := range c.rows {
		if item := c.first[row.Ord]; item.flow != nil {
			ended = append(ended, core.EndedExecution{
				ID: item.Lease.Execution, Flow: item.flow, Outcome: state.CompletionSuccess, Once: true,
			})
		}
	}
	if len(ended) == 0 {
		return nil // members were refused
	}
	nowMs := c.rows[0].NowMs
	all, err := e.c.ResolveDependents(ctx, tx, ended, groups, core.MaxSkipLevels, nowMs)
	if err != nil {
		return err
	}
	// The statement recorded its completions as dispatched.
	if slices.ContainsFunc(all[:len(ended)], func(x core.EndedExecution) bool { return x.Left }) {
		return core.ErrFellThrough
	}
	return e.c.Record(ctx, tx, all[len(ended):], nowMs)
}

// completeSlowly locks the rows first and checks each. It handles items the fast path can't complete, and finds the
// reasons of refusals.
func (e *Engine) completeSlowly(ctx context.Context, op string, all []Completion, items []int, outcomes []fferr.Outcome[struct{}]) error {
	lease := completionLease(all)
	t := core.Settlement(e.c, op, lease,
		func(x *core.HeldLease) bool { return x.Facts.AttemptOutcome == "success" },
		func(*core.HeldLease) (none struct{}) { return none },
	)
	t.Needs = func(*core.HeldLease) core.FlowLock { return core.SharedFlow }
	t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldLease, _ []fferr.Outcome[struct{}]) error {
		params := db.EndSucceededParams{NowMs: items[0].Facts.NowMs}
		ended := make([]core.EndedExecution, len(items))
		for i, x := range items {
			params.PartitionKeys = append(params.PartitionKeys, x.ID.Partition())
			params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.ID.UUID()))
			params.AttemptIndexes = append(params.AttemptIndexes, int32(x.Attempt))
			params.Traces = core.AddTrace(params.Traces, i, all[x.N].Lease.Trace)
			params.Results = append(params.Results, all[x.N].Result)
			ended[i] = core.EndedExecution{ID: x.ID, Flow: x.Row.FlowID, Outcome: state.CompletionSuccess}
			if x.Row.HasLimits {
				tx.Due.Gated()
			}
			if x.Row.InSequence {
				tx.Due.SequenceEnded(x.Row.LaneID)
			}
		}
		if err := e.c.Q.EndSucceeded(ctx, tx, params); err != nil {
			return err
		}
		tx.Due.Leases()
		return e.c.ResolveAndRecord(ctx, tx, ended, params.NowMs)
	}
	return core.Settle(ctx, t, lease, [][]int{items}, outcomes)
}
