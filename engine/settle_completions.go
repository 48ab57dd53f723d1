package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// Completion is the success of one leased attempt. A nil Result means none; an empty one is stored as empty.
type Completion struct {
	Lease  Lease
	Result []byte
}

// CompleteExecution ends the execution that l holds with success and stores its result. The same transaction releases
// its dependents and writes the completion event.
//
// Errors: [*LeaseError] with [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] or [ErrNotActive]: nothing was
// written; discard the result. [ErrNotFound] if the execution or attempt no longer exists; [ErrInvalidInput] for a
// result above the limit; [ErrContention].
//
// Transaction: one statement outside a flow; in a flow a constant number, under its shared lock. Locks the execution,
// its attempt, then the edge groups and executions that depend on it. Safe to repeat after an unknown outcome: a
// repetition succeeds and writes nothing.
func (e *Engine) CompleteExecution(ctx context.Context, l Lease, result []byte) error {
	outcomes, err := e.complete(ctx, []Completion{{Lease: l, Result: result}})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// CompleteExecutions is [Engine.CompleteExecution] for many leases, [MaxBatch] per transaction. Outcomes are in input
// order, nil for success; a lost lease affects only its own. If an execution is given twice, the second completion
// counts as a repetition. The error means that nothing happened.
//
// It never waits for locks. If another transaction holds an execution, its attempt, its flow or a dependent, the
// outcome is [ErrBusy]; repeat that item.
func (e *Engine) CompleteExecutions(ctx context.Context, completions []Completion) ([]error, error) {
	return e.impatient().complete(ctx, completions)
}

func (e *Engine) complete(ctx context.Context, completions []Completion) ([]error, error) {
	const op = "complete executions"
	outcomes, order := e.checkCompletions(completions)
	flows := e.leases.flowsOf(len(completions), completionLease(completions))
	chunks := chunkByFlows(order, func(i int) *id.FlowID { return flows[i] }, resultSize(completions))
	for n, chunk := range chunks {
		err := e.completeChunk(ctx, op, completions, flows, chunk, outcomes)
		switch {
		case err == nil:
		case n == 0:
			return outcomes, err
		default:
			for _, chunk := range chunks[n:] {
				for _, i := range chunk {
					outcomes[i] = err
				}
			}
			return outcomes, nil
		}
	}
	return outcomes, nil
}

// checkCompletions returns the errors of invalid completions, and the indexes of the others.
func (e *Engine) checkCompletions(completions []Completion) (outcomes []error, valid []int) {
	outcomes = make([]error, len(completions))
	valid = make([]int, 0, len(completions))
	for i, c := range completions {
		if outcomes[i] = e.checkCompletion(c); outcomes[i] == nil {
			valid = append(valid, i)
		}
	}
	return outcomes, valid
}

func (e *Engine) checkCompletion(c Completion) error {
	if len(c.Result) > e.cfg.MaxPayload {
		return invalid("result", fmt.Sprintf("%d bytes, limit %d", len(c.Result), e.cfg.MaxPayload))
	}
	return e.checkLease(c.Lease)
}

// resultSize returns a function for the size of a completion's result in bytes.
func resultSize(completions []Completion) func(int) int {
	return func(i int) int { return len(completions[i].Result) }
}

func completionLease(completions []Completion) func(int) *Lease {
	return func(i int) *Lease { return &completions[i].Lease }
}

// completeChunk completes as many items as possible by one guarded statement, and the rest by locking first.
func (e *Engine) completeChunk(
	ctx context.Context, op string, all []Completion, of []*id.FlowID, chunk []int, outcomes []error,
) error {
	c := e.newCompleting(all, of, chunk)
	var err error
	switch {
	case e.tx != nil && e.runner.IsImpatient():
		// The statement waits for rows as long as the caller's transaction allows.
		err = errFellThrough
	case c.flows.empty():
		_, err = inStatement(ctx, e, op, func(conn db.DBTX, due *notifications) (struct{}, error) {
			return struct{}{}, c.run(ctx, conn, due)
		})
	default:
		_, err = inTx(ctx, e, op, func(tx *txn) (struct{}, error) { return struct{}{}, e.completeMembers(ctx, tx, c) })
	}
	switch {
	case err == nil:
	case errors.Is(err, errFellThrough), e.runner.IsImpatient() && errors.Is(err, ErrBusy):
		c.rows = nil
	default:
		return err
	}
	return c.finish(ctx, op, outcomes)
}

// A completing is the fast path of a completion: its parameters and its answer.
type completing struct {
	e     *Engine
	all   []Completion
	of    []*id.FlowID // by completion, if known
	order []int        // sorted by lease
	first []int        // the first occurrence of each execution, which is sent
	flows *flowSet

	params db.CompleteExecutionsParams
	rows   []db.CompleteExecutionsRow
}

func (e *Engine) newCompleting(all []Completion, of []*id.FlowID, chunk []int) *completing {
	c := &completing{e: e, all: all, of: of, order: slices.Clone(chunk), flows: newFlowSet(e.cfg.Partitions)}
	slices.SortStableFunc(c.order, func(a, b int) int { return compareLeases(all[a].Lease, all[b].Lease) })
	arrays := newLeaseArrays(len(chunk))
	c.params = db.CompleteExecutionsParams{
		NowMs:   e.nowMs(),
		FlowIDs: make([]pgtype.UUID, 0, len(chunk)),
		Results: make([][]byte, 0, len(chunk)),
	}
	for n, i := range c.order {
		l := all[i].Lease
		if n > 0 && l.Execution == all[c.order[n-1]].Lease.Execution {
			continue
		}
		c.first = append(c.first, i)
		arrays.add(l)
		c.params.Results = append(c.params.Results, all[i].Result)
		c.params.FlowIDs = append(c.params.FlowIDs, pgFlow(of[i]))
		if of[i] != nil {
			c.flows.add(*of[i])
		}
	}
	c.params.PartitionKeys, c.params.ExecutionIDs = arrays.partitions, arrays.executions
	c.params.AttemptIndexes, c.params.LeaseEpochs = arrays.attempts, arrays.epochs
	c.params.Ords = arrays.ords
	return c
}

func (c *completing) run(ctx context.Context, conn db.DBTX, due *notifications) (err error) {
	if len(c.first) == 1 {
		c.rows, err = c.runOne(ctx, conn)
	} else {
		c.rows, err = c.e.q.CompleteExecutions(ctx, conn, c.params)
	}
	if len(c.rows) > 0 {
		due.leases()
		due.completions()
	}
	if err == nil && c.e.tx != nil && len(c.rows) < len(c.first) {
		// A refused item must leave no lock behind in the caller's transaction.
		return errFellThrough
	}
	return err
}

func (c *completing) runOne(ctx context.Context, conn db.DBTX) ([]db.CompleteExecutionsRow, error) {
	p := &c.params
	answer, err := c.e.q.CompleteOne(ctx, conn, db.CompleteOneParams{
		PartitionKey: p.PartitionKeys[0], ExecutionID: p.ExecutionIDs[0], AttemptIndex: p.AttemptIndexes[0],
		LeaseEpoch: p.LeaseEpochs[0], FlowID: p.FlowIDs[0], Result: p.Results[0], NowMs: p.NowMs,
	})
	rows := make([]db.CompleteExecutionsRow, len(answer))
	for i := range answer {
		rows[i] = db.CompleteExecutionsRow(answer[i])
	}
	return rows, err
}

// finish records the statement's completions after the commit, and settles the rest by locking first.
func (c *completing) finish(ctx context.Context, op string, outcomes []error) error {
	done := make(map[int]bool, len(c.rows))
	for _, row := range c.rows {
		done[c.first[row.Ord]] = true
	}
	var rest []int
	over := make([]Fence, 0, len(c.rows))
	for _, i := range c.order {
		if done[i] {
			over = append(over, c.all[i].Lease.Fence)
		} else {
			rest = append(rest, i)
		}
	}
	if c.e.tx == nil {
		c.e.leases.completed(over)
	}
	if len(rest) == 0 {
		return nil
	}
	err := c.e.completeSlowly(ctx, op, c.all, rest, outcomes)
	if err == nil || len(rest) == len(c.order) {
		return err
	}
	for _, i := range rest {
		outcomes[i] = err
	}
	return nil
}

// completeMembers completes leases, including those of flow members, and resolves their dependents.
func (e *Engine) completeMembers(ctx context.Context, tx *txn, c *completing) error {
	var members flowMemberArrays
	for _, i := range c.first {
		members.addMember(c.all[i].Lease.Execution, c.of[i])
	}
	var groups int64
	err := pgtx.InOneTrip(ctx, tx, append(e.shareFlows(ctx, c.flows),
		func(conn db.DBTX) error { return fellThrough(c.run(ctx, conn, &tx.due)) },
		func(conn db.DBTX) (err error) {
			groups, err = e.lockGroups(ctx, conn, members)
			return err
		},
	)...)
	if err != nil || groups == 0 || len(c.rows) == 0 {
		return err
	}
	ended := make([]endedExecution, 0, len(c.rows))
	for _, row := range c.rows {
		i := c.first[row.Ord]
		if flow := c.of[i]; flow != nil {
			ended = append(ended, endedExecution{id: c.all[i].Lease.Execution, flow: flow, outcome: state.CompletionSuccess, once: true})
		}
	}
	if len(ended) == 0 {
		return nil // members were refused
	}
	nowMs := c.rows[0].NowMs
	all, err := e.resolveDependents(ctx, tx, ended, groups, maxSkipLevels, nowMs)
	if err != nil {
		return err
	}
	// The statement recorded its completions as dispatched.
	if slices.ContainsFunc(all[:len(ended)], func(x endedExecution) bool { return x.left }) {
		return errFellThrough
	}
	return e.record(ctx, tx, all[len(ended):], nowMs)
}

// completeSlowly locks the rows first and judges each. It handles the items that the fast path can't, and finds the
// reasons of refusals.
func (e *Engine) completeSlowly(ctx context.Context, op string, all []Completion, order []int, outcomes []error) error {
	settled, err := settle(ctx, e, op, leasesOf(order, func(i int) Lease { return all[i].Lease }), settling[error]{
		repeated: func(_ int, f *leaseFacts) bool { return f.AttemptOutcome == "success" },
		again:    func(*leaseFacts, error) error { return nil },
		refused:  func(err error) error { return err },
		write: func(tx *txn, batch *settlementBatch, _ []error) ([]endedExecution, error) {
			params := db.EndSucceededParams{NowMs: batch.nowMs}
			var ended []endedExecution
			for _, n := range batch.acting {
				l := batch.leases[n]
				params.PartitionKeys = append(params.PartitionKeys, l.Execution.Partition())
				params.ExecutionIDs = append(params.ExecutionIDs, pgUUID(l.Execution.UUID()))
				params.AttemptIndexes = append(params.AttemptIndexes, int32(l.Attempt))
				params.Results = append(params.Results, all[order[n]].Result)
				ended = append(ended, endedExecution{
					id: l.Execution, flow: batch.rows[n].FlowID, outcome: state.CompletionSuccess, hasQuota: batch.rows[n].HasQuota,
				})
			}
			return ended, e.q.EndSucceeded(ctx, tx, params)
		},
	})
	if err != nil {
		return err
	}
	for n, i := range order {
		outcomes[i] = settled[n]
	}
	e.forgetSettled(order, func(i int) (Fence, error) { return all[i].Lease.Fence, outcomes[i] })
	return nil
}
