package engine

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowCancelRequest asks for a flow to be cancelled, with a grace for what is being worked on.
type FlowCancelRequest struct {
	ID     id.FlowID
	Policy state.FlowCancelPolicy // as in [CancelFlowSpec]
	Reason string                 // as in [CancelFlowSpec]

	// Grace is how long the members that are worked on, or are suspended, may go on before they are cancelled too: those
	// that end in that time end as they do. Default none; rounded up to a millisecond.
	Grace time.Duration

	// Requester is who asks, for whoever looks. Default nobody; at most 256 bytes.
	Requester string
}

const (
	maxRequester             = 256
	cancelledByFlowRequested = "cancel_flow_header"
)

// RequestFlowCancel cancels a flow as [Engine.CancelFlow] does, but those of its members that are worked on only once
// their grace is over: [Maintenance.CancelFlows] ends them then, if they have not ended by themselves. Nothing tells their
// handlers before that; one that is to hear of it looks at the flow.
//
// The members that it cancels now or later are noted until [Engine.AckFlowCancel] or [Maintenance.CancelFlows] takes them
// off; [Engine.AwaitFlow] waits for their end. An operator event tells of the request.
//
// [CancelledFlow.Members] are all members that it concerns. A flow that is cancelled already is left as it is, whatever
// the policy: [CancelledFlow.Already].
//
// Errors: [ErrInvalidInput]; [ErrNotFound]; [ErrCorruption]; [ErrContention].
//
// Transaction: as that of [Engine.CancelFlow], with two statements more. Safe to repeat.
func (e *Engine) RequestFlowCancel(ctx context.Context, request FlowCancelRequest) (CancelledFlow, error) {
	const op = "request flow cancel"
	c := flowCancel{
		flow: request.ID, policy: cmp.Or(request.Policy, state.CancelAll), reason: cmp.Or(request.Reason, defaultFlowCancelReason),
		once: true,
	}
	err := cmp.Or(c.check(), checkText("requester", request.Requester, maxRequester))
	if err == nil && request.Grace < 0 {
		err = invalid("grace", "is negative")
	}
	if err != nil {
		return CancelledFlow{}, wrap(op, err)
	}
	return inTx(ctx, e, op, func(tx *txn) (CancelledFlow, error) {
		cancelled, open, err := e.takeFlowToCancel(ctx, tx, c)
		switch {
		case err != nil:
			return CancelledFlow{}, err
		case !open:
			return e.cancelledBefore(ctx, tx, c, cancelled, math.MaxInt32, nil)
		}
		members, nowMs, err := e.lockMembersToCancel(ctx, tx, c)
		if err != nil {
			return CancelledFlow{}, err
		}
		cancelled.Members = members.ids()
		var graceUntilMs *int64
		if request.Grace > 0 {
			graceUntilMs = new(nowMs + 1 + (request.Grace - 1).Milliseconds())
		}
		if err := e.noteFlowCancel(ctx, tx, c, request.Requester, cancelled.Members, graceUntilMs, nowMs); err != nil {
			return CancelledFlow{}, err
		}
		if request.Grace > 0 && !members.empty() {
			if members, err = e.pendingAmong(ctx, tx, members); err != nil {
				return CancelledFlow{}, err
			}
		}
		how := cancellation{c.reason, cancelledByFlowRequested, revokedByOperator}
		if _, err := e.cancelMembers(ctx, tx, members, how, nowMs); err != nil {
			return CancelledFlow{}, err
		}
		if c.policy != state.CancelAll || request.Grace > 0 {
			return cancelled, nil
		}
		return cancelled, e.clearSiblingCancels(ctx, tx, c.flow)
	})
}

// noteFlowCancel makes a flow cancelled and notes the members that this concerns.
func (e *Engine) noteFlowCancel(
	ctx context.Context, tx *txn, c flowCancel, requester string, members []id.ExecutionID, graceUntilMs *int64, nowMs int64,
) error {
	tx.due.operatorEvents()
	return pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error { return e.markFlowCancelled(ctx, conn, c, nowMs) },
		func(conn db.DBTX) error {
			return e.q.InsertCancelBacklog(ctx, conn, db.InsertCancelBacklogParams{
				PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow, NowMs: nowMs, Requester: requester,
				Reason: c.reason, GraceUntilMs: graceUntilMs, CancellationPolicy: string(c.policy), Members: textsOf(members),
			})
		},
	)
}

// pendingAmong returns those of locked members that nobody works on and that are not suspended.
func (e *Engine) pendingAmong(ctx context.Context, tx *txn, members executionArrays) (pending executionArrays, err error) {
	rows, err := e.q.ListPendingAmong(ctx, tx, db.ListPendingAmongParams{
		PartitionKeys: members.partitions, ExecutionIDs: members.executions,
	})
	for _, row := range rows {
		pending.add(row.PartitionKey, row.ExecutionID)
	}
	return pending, err
}

// AckFlowCancel takes a member off the request by which its flow was cancelled, and the request with the last one: it is
// how a program that acts on the end of each member keeps account of which it has seen. What is not there is taken off
// already. It changes nothing about the member: one that has not ended, because its grace is not over, is not cancelled
// any more.
//
// Errors: [ErrInvalidInput], for an execution that is not of the flow's partition; [ErrContention]. Transaction: locks the
// request; three statements. Safe to repeat.
func (e *Engine) AckFlowCancel(ctx context.Context, flow id.FlowID, x id.ExecutionID) error {
	const op = "acknowledge flow cancel"
	partition := e.cfg.Partitions.FlowPartition(flow)
	err := e.checkExecution(x)
	if err == nil && x.Partition() != partition {
		err = invalid("execution", "is not of the flow's partition")
	}
	if err != nil {
		return wrap(op, err)
	}
	partitions, flows := []int16{partition}, []pgtype.UUID{pgUUID(flow)}
	return inStatements(ctx, e, op, func(*notifications) []step {
		return []step{
			func(conn db.DBTX) error {
				_, err := e.q.LockCancelBacklog(ctx, conn, db.LockCancelBacklogParams{PartitionKey: partition, FlowID: flow})
				return err
			},
			func(conn db.DBTX) error {
				_, err := e.q.DropBacklogMembers(ctx, conn, db.DropBacklogMembersParams{
					PartitionKeys: partitions, FlowIDs: flows, ExecutionIDs: textsOf([]id.ExecutionID{x}),
				})
				return err
			},
			func(conn db.DBTX) error {
				_, err := e.q.DropEmptyBacklogs(ctx, conn, db.DropEmptyBacklogsParams{PartitionKeys: partitions, FlowIDs: flows})
				return err
			},
		}
	})
}

func textsOf(executions []id.ExecutionID) []string {
	texts := make([]string, len(executions))
	for i, x := range executions {
		texts[i] = x.String()
	}
	return texts
}
