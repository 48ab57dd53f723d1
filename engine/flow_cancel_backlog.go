package engine

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

const maxRequester = 256

// FlowCancelRequest describes the cancellation of a flow with a grace period for running members.
type FlowCancelRequest struct {
	ID     id.FlowID
	Policy state.FlowCancelPolicy // as in [CancelFlowSpec]
	Reason string                 // as in [CancelFlowSpec]

	// Grace is how long running and suspended members may continue before being cancelled. A member that ends by itself
	// keeps its outcome. Default none; rounded up to a millisecond.
	Grace time.Duration

	// Requester is stored for information. Default empty; at most 256 bytes.
	Requester string
}

// RequestFlowCancel cancels a flow like [Engine.CancelFlow], but gives running and suspended members a grace period.
// The job cancel_flows cancels the rest after the grace. Handlers are not notified of the grace.
//
// [CancelledFlow.Members] lists all members to cancel, now or later, until [Engine.AckFlowCancel] or the job removes
// them from the request. If the flow is already cancelled, a further request with a policy no milder can only shorten
// the grace; without Grace the listed members are cancelled now.
//
// Errors and transaction: as [Engine.CancelFlow]; emits an operator event too. Safe to repeat.
func (e *Engine) RequestFlowCancel(ctx context.Context, request FlowCancelRequest) (CancelledFlow, error) {
	const op = "request flow cancel"
	c := flowCancel{
		flow: request.ID, policy: cmp.Or(request.Policy, state.CancelAll), reason: cmp.Or(request.Reason, core.DefaultFlowCancelReason),
		once: true,
	}
	err := cmp.Or(c.check(), core.CheckText("requester", request.Requester, maxRequester))
	if err == nil && request.Grace < 0 {
		err = core.Invalid("grace", "is negative")
	}
	if err != nil {
		return CancelledFlow{}, core.Wrap(op, err)
	}
	var graceMs int64
	if request.Grace > 0 {
		graceMs = 1 + (request.Grace - 1).Milliseconds()
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (CancelledFlow, error) {
		cancelled, open, err := e.takeFlowToCancel(ctx, tx, c)
		switch {
		case err != nil:
			return CancelledFlow{}, err
		case !open:
			return e.requestAgain(ctx, tx, c, cancelled, graceMs)
		}
		members, nowMs, err := e.lockMembersToCancel(ctx, tx, &c)
		if err != nil {
			return CancelledFlow{}, err
		}
		cancelled.Members = members.IDs()
		var graceUntilMs *int64
		if graceMs > 0 {
			graceUntilMs = new(nowMs + graceMs)
		}
		tx.Due.OperatorEvents()
		if err := pgtx.InOneTrip(ctx, tx,
			func(conn db.DBTX) error { return e.markFlowCancelled(ctx, conn, c, nowMs) },
			func(conn db.DBTX) error {
				return e.c.Q.InsertCancelBacklog(ctx, conn, db.InsertCancelBacklogParams{
					PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow, NowMs: nowMs, Requester: request.Requester,
					Reason: c.reason, GraceUntilMs: graceUntilMs, CancellationPolicy: string(c.policy), Members: core.TextsOf(cancelled.Members),
				})
			},
			func(conn db.DBTX) error { return e.reportFlowCancel(ctx, conn, c, len(cancelled.Members), nowMs) },
		); err != nil {
			return CancelledFlow{}, err
		}
		if graceMs > 0 && !members.Empty() {
			if members, err = e.pendingAmong(ctx, tx, members); err != nil {
				return CancelledFlow{}, err
			}
		}
		how := core.Cancellation{Reason: c.reason, Source: core.CancelledByFlowRequested, RevokedBy: core.RevokedByOperator}
		if _, err := e.c.CancelMembers(ctx, tx, members, how, nowMs); err != nil {
			return CancelledFlow{}, err
		}
		return cancelled, e.finishCancel(ctx, tx, c, &cancelled)
	})
}

// requestAgain shortens the grace of an earlier request, and cancels members without grace at once.
func (e *Engine) requestAgain(
	ctx context.Context, tx *core.Txn, c flowCancel, cancelled CancelledFlow, graceMs int64,
) (CancelledFlow, error) {
	hastened, err := e.hastenGrace(ctx, tx, &c, &cancelled, graceMs)
	switch {
	case err != nil:
		return CancelledFlow{}, err
	case !hastened:
		return e.cancelledBefore(ctx, tx, c, cancelled, math.MaxInt32)
	}
	if err := e.listToCancel(ctx, tx, c, &cancelled, math.MaxInt32); err != nil {
		return CancelledFlow{}, err
	}
	var nowMs int64
	if graceMs == 0 {
		how := core.Cancellation{Reason: c.reason, Source: core.CancelledByFlowRequested, RevokedBy: core.RevokedByOperator}
		if _, nowMs, err = e.cancelNoted(ctx, tx, c, how); err != nil {
			return CancelledFlow{}, err
		}
	} else if nowMs, err = e.c.Q.GetNow(ctx, tx, e.c.NowMs()); err != nil {
		return CancelledFlow{}, err
	}
	tx.Due.OperatorEvents()
	if err := e.reportFlowCancel(ctx, tx, c, len(cancelled.Members), nowMs); err != nil {
		return CancelledFlow{}, err
	}
	return cancelled, e.finishCancel(ctx, tx, c, &cancelled)
}

// cancelGraced cancels the members of a cancelled flow that are still in the grace of an earlier request.
func (e *Engine) cancelGraced(ctx context.Context, tx *core.Txn, c flowCancel, cancelled CancelledFlow) (CancelledFlow, error) {
	hastened, err := e.hastenGrace(ctx, tx, &c, &cancelled, 0)
	switch {
	case err != nil:
		return CancelledFlow{}, err
	case !hastened:
		return e.cancelledBefore(ctx, tx, c, cancelled, MaxBatch)
	}
	how := core.Cancellation{Reason: c.reason, Source: core.CancelledByFlow, RevokedBy: core.RevokedByOperator}
	if cancelled.Members, _, err = e.cancelNoted(ctx, tx, c, how); err != nil {
		return CancelledFlow{}, err
	}
	if cancelled.Already = len(cancelled.Members) == 0; cancelled.Already {
		return e.cancelledBefore(ctx, tx, c, cancelled, MaxBatch)
	}
	return cancelled, e.finishCancel(ctx, tx, c, &cancelled)
}

// hastenGrace ends the grace of a flow's earlier cancel request within graceMs, and reports whether the end is earlier
// than before. The flow keeps its policy and reason, and c adopts both.
func (e *Engine) hastenGrace(
	ctx context.Context, tx *core.Txn, c *flowCancel, cancelled *CancelledFlow, graceMs int64,
) (bool, error) {
	if strictness(c.policy) < strictness(cancelled.Policy) {
		return false, nil
	}
	n, err := e.c.Q.HastenCancelBacklog(ctx, tx, db.HastenCancelBacklogParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow, GraceMs: graceMs, NowMs: e.c.NowMs(),
	})
	if err != nil || n == 0 {
		return false, err
	}
	c.policy, c.reason, c.noted = cancelled.Policy, cmp.Or(cancelled.Reason, c.reason), true
	cancelled.Already = false
	return true, nil
}

// cancelNoted ends the members listed by a request that have not ended.
func (e *Engine) cancelNoted(
	ctx context.Context, tx *core.Txn, c flowCancel, how core.Cancellation,
) (cancelled []id.ExecutionID, nowMs int64, err error) {
	members, nowMs, err := e.lockMembersToCancel(ctx, tx, &c)
	if err != nil {
		return nil, 0, err
	}
	cancelled, err = e.c.CancelMembers(ctx, tx, members, how, nowMs)
	return cancelled, nowMs, err
}

// reportFlowCancel emits the operator event of a request with the number of its members.
func (e *Engine) reportFlowCancel(ctx context.Context, conn db.DBTX, c flowCancel, members int, nowMs int64) error {
	return e.c.Q.InsertFlowCancelEvent(ctx, conn, db.InsertFlowCancelEventParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow, CancellationPolicy: string(c.policy), Reason: c.reason,
		MemberCount: int32(members), NowMs: nowMs,
	})
}

// pendingAmong returns the locked members that neither run nor are suspended.
func (e *Engine) pendingAmong(ctx context.Context, tx *core.Txn, members core.ExecutionArrays) (pending core.ExecutionArrays, err error) {
	rows, err := e.c.Q.ListPendingAmong(ctx, tx, db.ListPendingAmongParams{
		PartitionKeys: members.Partitions, ExecutionIDs: members.Executions,
	})
	for _, row := range rows {
		pending.Add(row.PartitionKey, row.ExecutionID)
	}
	return pending, err
}

// AckFlowCancel removes a member from the request that cancelled its flow, and deletes the request with the last
// member. Use it to record that the end of the member was handled. A missing entry counts as removed. A member removed
// during its grace is not cancelled any more.
//
// Errors: [fferr.ErrInvalidInput] if the execution is not in the flow's partition; [fferr.ErrContention]. Transaction:
// one; locks the request. Safe to repeat.
func (e *Engine) AckFlowCancel(ctx context.Context, flow id.FlowID, x id.ExecutionID) error {
	const op = "acknowledge flow cancel"
	partition := e.cfg.Partitions.FlowPartition(flow)
	err := e.c.CheckExecution(x)
	if err == nil && x.Partition() != partition {
		err = core.Invalid("execution", "is not of the flow's partition")
	}
	if err != nil {
		return core.Wrap(op, err)
	}
	partitions, flows := []int16{partition}, []pgtype.UUID{core.PgUUID(flow)}
	return core.InStatements(ctx, e.c, op, func(*core.Notifications) []core.Step {
		return []core.Step{
			func(conn db.DBTX) error {
				_, err := e.c.Q.LockCancelBacklog(ctx, conn, db.LockCancelBacklogParams{PartitionKey: partition, FlowID: flow})
				return err
			},
			func(conn db.DBTX) error {
				_, err := e.c.Q.DropBacklogMembers(ctx, conn, db.DropBacklogMembersParams{
					PartitionKeys: partitions, FlowIDs: flows, ExecutionIDs: core.TextsOf([]id.ExecutionID{x}),
				})
				return err
			},
			func(conn db.DBTX) error {
				_, err := e.c.Q.DropEmptyBacklogs(ctx, conn, db.DropEmptyBacklogsParams{PartitionKeys: partitions, FlowIDs: flows})
				return err
			},
		}
	})
}
