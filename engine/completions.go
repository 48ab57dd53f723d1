package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// Completion is the success of one leased attempt. A nil Result means that there is none; an empty one
// is stored as empty.
type Completion struct {
	Lease  Lease
	Result []byte
}

// CompleteExecution ends the execution that l holds with success and stores its result. In the same
// transaction the executions that depend on it are released, and the completion event is written.
//
// Errors, in a [*LeaseError]: [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] and [ErrNotActive]:
// nothing was written, and the caller discards the result. [ErrNotFound] when the execution or attempt is
// gone; [ErrInvalidInput] for a result above the limit.
//
// Transaction: one statement for an execution outside a flow; inside one, a constant number, under the
// flow's shared lock. Locks the execution, its attempt, then the edge groups and executions that depend
// on it. Repeating it after an unknown outcome is safe: a completion that took effect answers success
// again and writes nothing.
func (e *Engine) CompleteExecution(ctx context.Context, l Lease, result []byte) error {
	outcomes, err := e.CompleteExecutions(ctx, []Completion{{Lease: l, Result: result}})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// CompleteExecutions is [Engine.CompleteExecution] for many leases at once, [MaxBatch] to a transaction.
// Outcomes stand in input order, nil for success; a lost lease affects only its own. The same execution
// twice: the first occurrence acts, the second is a repetition. The error means that nothing happened.
func (e *Engine) CompleteExecutions(ctx context.Context, completions []Completion) ([]error, error) {
	const op = "complete executions"
	outcomes := make([]error, len(completions))
	var order []int
	for i, c := range completions {
		if outcomes[i] = e.checkCompletion(c); outcomes[i] == nil {
			order = append(order, i)
		}
	}
	chunks := chunkByFlows(order, func(i int) *id.FlowID { return completions[i].Lease.flow })
	for n, chunk := range chunks {
		err := e.completeChunk(ctx, op, completions, chunk, outcomes)
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

func (e *Engine) checkCompletion(c Completion) error {
	if len(c.Result) > e.cfg.MaxPayload {
		return invalid("result", fmt.Sprintf("%d bytes, limit %d", len(c.Result), e.cfg.MaxPayload))
	}
	return e.checkLease(c.Lease)
}

// chunkByFlows cuts indexes into runs of at most MaxBatch items and maxFlowsPerTx flows.
func chunkByFlows(indexes []int, flowOf func(int) *id.FlowID) [][]int {
	var chunks [][]int
	flows := make(map[id.FlowID]struct{})
	from := 0
	for n, i := range indexes {
		if flow := flowOf(i); flow != nil {
			flows[*flow] = struct{}{}
		}
		if n-from == MaxBatch || len(flows) > maxFlowsPerTx {
			chunks = append(chunks, indexes[from:n])
			from = n
			clear(flows)
			if flow := flowOf(i); flow != nil {
				flows[*flow] = struct{}{}
			}
		}
	}
	if from < len(indexes) {
		chunks = append(chunks, indexes[from:])
	}
	return chunks
}

// completeChunk completes by one guarded statement what that serves, and the rest by locking first.
func (e *Engine) completeChunk(ctx context.Context, op string, all []Completion, chunk []int, outcomes []error) error {
	order := slices.Clone(chunk)
	slices.SortStableFunc(order, func(a, b int) int { return compareLeases(all[a].Lease, all[b].Lease) })
	first := make([]int, 0, len(order)) // the first occurrence of each execution
	for n, i := range order {
		if n == 0 || all[i].Lease.Execution != all[order[n-1]].Lease.Execution {
			first = append(first, i)
		}
	}
	done, err := e.completeGuarded(ctx, op, all, first)
	if err != nil && !errors.Is(err, errMissed) {
		return err
	}
	var rest []int
	for _, i := range order {
		switch {
		case !done[i]:
			rest = append(rest, i)
		case e.tx == nil:
			e.ended.over(all[i].Lease.watched)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	err = e.completeLocked(ctx, op, all, rest, outcomes)
	if err == nil || len(rest) == len(order) {
		return err
	}
	// What the lean statement completed is committed.
	for _, i := range rest {
		outcomes[i] = err
	}
	return nil
}

// completeGuarded runs the lean statement and returns which items it completed.
func (e *Engine) completeGuarded(ctx context.Context, op string, all []Completion, order []int) (map[int]bool, error) {
	arrays := newLeaseArrays(len(order))
	params := db.CompleteExecutionsParams{
		NowMs:   e.nowMs(),
		FlowIds: make([]pgtype.UUID, len(order)),
		Results: make([][]byte, len(order)),
	}
	flows := newFlowSet(e.cfg.Partitions)
	for n, i := range order {
		arrays.add(all[i].Lease)
		params.Results[n] = all[i].Result
		params.FlowIds[n] = pgFlow(all[i].Lease.flow)
		if flow := all[i].Lease.flow; flow != nil {
			flows.add(*flow)
		}
	}
	params.PartitionKeys, params.ExecutionIds = arrays.partitions, arrays.executions
	params.AttemptIndexes, params.LeaseEpochs, params.LeaseIds = arrays.attempts, arrays.epochs, arrays.leases
	params.Ords = arrays.ords

	complete := func(conn db.DBTX, due *rings) ([]db.CompleteExecutionsRow, error) {
		rows, err := e.q.CompleteExecutions(ctx, conn, params)
		if len(rows) > 0 {
			due.leases()
			due.completions()
		}
		return rows, err
	}
	var rows []db.CompleteExecutionsRow
	var err error
	if flows.empty() {
		rows, err = inStatement(ctx, e, op, complete)
	} else {
		rows, err = inTx(ctx, e, op, func(tx *txn) ([]db.CompleteExecutionsRow, error) {
			return e.completeMembers(ctx, tx, flows, complete, leasesOf(order, func(i int) Lease { return all[i].Lease }))
		})
	}
	if err != nil {
		return nil, err
	}
	done := make(map[int]bool, len(rows))
	for _, row := range rows {
		done[order[row.Ord-1]] = true
	}
	return done, nil
}

// completeMembers completes leases, members of flows among them, and resolves what depends on these.
func (e *Engine) completeMembers(
	ctx context.Context, tx *txn, flows *flowSet,
	complete func(db.DBTX, *rings) ([]db.CompleteExecutionsRow, error), leases []Lease,
) ([]db.CompleteExecutionsRow, error) {
	var members flowMemberArrays
	for i := range leases {
		members.addMember(leases[i].Execution, leases[i].flow)
	}
	var rows []db.CompleteExecutionsRow
	var groups int64
	err := inOneTrip(ctx, tx, append(e.shareFlows(ctx, flows),
		func(conn db.DBTX) (err error) {
			rows, err = complete(conn, &tx.rings)
			return missed(err)
		},
		func(conn db.DBTX) (err error) {
			groups, err = e.lockGroups(ctx, conn, members)
			return err
		},
	)...)
	if err != nil || groups == 0 || len(rows) == 0 {
		return rows, err
	}
	ended := make([]endedExecution, 0, len(rows))
	for _, row := range rows {
		if l := leases[row.Ord-1]; l.flow != nil {
			ended = append(ended, endedExecution{id: l.Execution, flow: l.flow, outcome: state.CompletionSuccess})
		}
	}
	nowMs := rows[0].NowMs
	all, undispatched, err := e.resolveDependents(ctx, tx, ended, nowMs)
	if err != nil || len(all) == len(ended) {
		return rows, err
	}
	// The statement recorded those that it completed.
	return rows, e.record(ctx, tx, all[len(ended):], undispatched-len(ended), nowMs)
}

// completeLocked locks the rows first and judges each alone: the form for whatever the lean statement
// does not serve, and the one that names the reason of a refusal.
func (e *Engine) completeLocked(ctx context.Context, op string, all []Completion, order []int, outcomes []error) error {
	settled, err := settle(ctx, e, op, leasesOf(order, func(i int) Lease { return all[i].Lease }), settling[error]{
		repeated: func(f *leaseFacts) bool { return f.AttemptOutcome == "success" },
		again:    func(*leaseFacts, error) error { return nil },
		refused:  func(err error) error { return err },
		write: func(tx *txn, batch *settlementBatch, _ []error) ([]endedExecution, error) {
			params := db.EndSucceededParams{NowMs: batch.nowMs}
			var ended []endedExecution
			for _, n := range batch.acting {
				l := batch.leases[n]
				params.PartitionKeys = append(params.PartitionKeys, l.Execution.Partition())
				params.ExecutionIds = append(params.ExecutionIds, pgUUID(l.Execution.UUID()))
				params.AttemptIndexes = append(params.AttemptIndexes, l.Attempt)
				params.LeaseIds = append(params.LeaseIds, pgUUID(l.ID))
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
	return nil
}
