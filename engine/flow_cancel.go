package engine

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxFlowCancelReason is the longest reason for cancelling a flow, in bytes.
const MaxFlowCancelReason = 4096

// CancelFlowSpec describes the cancellation of a flow.
type CancelFlowSpec struct {
	ID id.FlowID

	// Policy selects the members to cancel:
	//
	//   - [state.CancelAll], the default: all except clean-ups.
	//   - [state.CancelPending]: members waiting for a worker, a delay or other members, except clean-ups.
	//   - [state.CancelEverything]: all, including clean-ups.
	//   - [state.CancelFlowOnly]: none. The flow only stops growing.
	//
	// Clean-ups wait for the end of other members, by [policy.OnFailure] or [policy.Always], or depend only on
	// clean-ups. Ended members don't change.
	Policy state.FlowCancelPolicy

	// Reason is stored for the flow and its members. Default "flow_cancelled"; at most [MaxFlowCancelReason] bytes.
	Reason string
}

// CancelledFlow is the result of cancelling a flow.
type CancelledFlow struct {
	Policy state.FlowCancelPolicy // the policy in force now
	Reason string                 // the reason in force now

	// Members are the members cancelled by the call, sorted by id. If the flow was already cancelled, CancelFlow
	// returns the first [MaxBatch] unacknowledged members, or if all are acknowledged, the first [MaxBatch] members.
	Members []id.ExecutionID

	// StillRunning are the members that have not ended, sorted by id: clean-ups, and members spared by the policy or a
	// grace period. If the flow was already cancelled, CancelFlow returns the first [MaxBatch].
	StillRunning []id.ExecutionID

	Already bool // nothing was written: the same or a stricter policy had already cancelled the flow
}

// CancelFlow cancels a flow and the members selected by the policy. These members have ended when CancelFlow returns,
// as by [Engine.CancelExecution]. The flow then refuses members, edges and replays. Other members continue. Clean-ups
// still run after the members they wait for, unless nothing can release them any more (see docs/flows.md).
//
// A second call with the same policy only ends grace periods ([Engine.RequestFlowCancel]). A stricter policy cancels
// more members and keeps the first reason. A milder policy changes nothing.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound]; [fferr.ErrCorruption]; [fferr.ErrContention]. Transaction: one.
// Locks the flow exclusively, then members and their attempts; waits for each up to two seconds, three times. Emits a
// completion event per cancelled member, and a lease event if the member was leased. In a caller's transaction, lease
// holders are not notified; their next calls are refused. Safe to repeat.
func (e *Engine) CancelFlow(ctx context.Context, spec CancelFlowSpec) (CancelledFlow, error) {
	const op = "cancel flow"
	c := flowCancel{flow: spec.ID, policy: cmp.Or(spec.Policy, state.CancelAll), reason: cmp.Or(spec.Reason, core.DefaultFlowCancelReason)}
	if err := c.check(); err != nil {
		return CancelledFlow{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (CancelledFlow, error) {
		cancelled, open, err := e.takeFlowToCancel(ctx, tx, c)
		if err != nil {
			return CancelledFlow{}, err
		}
		if !open {
			return e.cancelGraced(ctx, tx, c, cancelled)
		}
		members, nowMs, err := e.lockMembersToCancel(ctx, tx, &c)
		if err != nil {
			return CancelledFlow{}, err
		}
		if err := e.markFlowCancelled(ctx, tx, c, nowMs); err != nil {
			return CancelledFlow{}, err
		}
		cancelled.Members, err = e.c.CancelMembers(ctx, tx, members, core.Cancellation{Reason: c.reason, Source: core.CancelledByFlow, RevokedBy: core.RevokedByOperator}, nowMs)
		if err != nil {
			return CancelledFlow{}, err
		}
		return cancelled, e.finishCancel(ctx, tx, c, &cancelled)
	})
}

// flowCancel is a checked request to cancel a flow.
type flowCancel struct {
	flow   id.FlowID
	policy state.FlowCancelPolicy
	reason string
	once   bool // do not cancel more of a flow cancelled by a milder policy
	noted  bool // only members listed by a request

	cleanUps []pgtype.UUID // members that may still run
}

func (c *flowCancel) check() error {
	if !c.policy.Valid() {
		return core.Invalid("policy", "is not a way to cancel a flow")
	}
	return core.CheckText("reason", c.reason, MaxFlowCancelReason)
}

// strictness orders policies by how much they cancel. FlowFabric treats an unknown policy as [state.CancelAll].
func strictness(p state.FlowCancelPolicy) int {
	switch p {
	case state.CancelFlowOnly:
		return 0
	case state.CancelPending:
		return 1
	case state.CancelEverything:
		return 3
	}
	return 2
}

// takeFlowToCancel locks a flow and returns the result of its cancellation so far. open reports whether the flow must
// still be cancelled.
func (e *Engine) takeFlowToCancel(ctx context.Context, tx *core.Txn, c flowCancel) (cancelled CancelledFlow, open bool, err error) {
	partition := e.cfg.Partitions.FlowPartition(c.flow)
	var rows []db.LockFlowToCancelRow
	err = pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			flows := core.NewFlowSet(e.cfg.Partitions)
			flows.Add(c.flow)
			_, ids := flows.Arrays()
			return e.c.Q.LockFlowsExclusive(ctx, conn, ids)
		},
		func(conn db.DBTX) (err error) {
			rows, err = e.c.Q.LockFlowToCancel(ctx, conn, db.LockFlowToCancelParams{PartitionKey: partition, FlowID: c.flow})
			return err
		},
	)
	cancelled = CancelledFlow{Policy: c.policy, Reason: c.reason}
	switch {
	case err != nil:
		return cancelled, false, err
	case len(rows) == 0:
		return cancelled, false, &fferr.NotFoundError{Entity: "flow", ID: c.flow.String()}
	case !rows[0].Readable:
		return cancelled, false, core.Corrupt("ff_flow_core.raw_fields", errNoObject)
	}
	stored := state.FlowCancelPolicy(rows[0].CancellationPolicy)
	switch flow := state.FlowState(rows[0].PublicFlowState); {
	case !flow.Terminal():
		return cancelled, true, nil
	case flow == state.FlowCancelled && !c.once && strictness(stored) < strictness(c.policy):
		cancelled.Reason = cmp.Or(rows[0].CancelReason, c.reason)
		return cancelled, true, nil
	}
	return CancelledFlow{Policy: cmp.Or(stored, c.policy), Reason: rows[0].CancelReason, Already: true}, false, nil
}

// cancelledBefore adds the members, at most limit, to the result for a flow cancelled earlier.
func (e *Engine) cancelledBefore(
	ctx context.Context, tx *core.Txn, c flowCancel, cancelled CancelledFlow, limit int,
) (CancelledFlow, error) {
	if err := e.listToCancel(ctx, tx, c, &cancelled, limit); err != nil {
		return CancelledFlow{}, err
	}
	return cancelled, e.listStillRunning(ctx, tx, c, &cancelled, limit)
}

// listToCancel adds the members listed by a request to the result, or all members if none are left there.
func (e *Engine) listToCancel(ctx context.Context, tx *core.Txn, c flowCancel, cancelled *CancelledFlow, limit int) error {
	rows, err := e.c.Q.ListFlowToCancel(ctx, tx, db.ListFlowToCancelParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow, PageSize: int64(limit),
	})
	for _, text := range rows {
		x, err := id.ParseExecutionID(text)
		if err != nil {
			continue // another program's: the job deletes it
		}
		cancelled.Members = append(cancelled.Members, x)
	}
	return err
}

// listStillRunning adds unended members, at most limit, to the result.
func (e *Engine) listStillRunning(ctx context.Context, tx *core.Txn, c flowCancel, cancelled *CancelledFlow, limit int) error {
	partition := e.cfg.Partitions.FlowPartition(c.flow)
	rows, err := e.c.Q.ListUnended(ctx, tx, db.ListUnendedParams{
		PartitionKey: partition, FlowID: core.PgUUID(c.flow), PageSize: int64(limit),
	})
	for _, x := range rows {
		cancelled.StillRunning = append(cancelled.StillRunning, id.ExecutionIDFromRow(partition, x))
	}
	return err
}

// finishCancel completes a cancellation by listing the running members. If there are none, it deletes the flow's queued
// sibling cancellations, because the siblings have ended with the flow.
func (e *Engine) finishCancel(ctx context.Context, tx *core.Txn, c flowCancel, cancelled *CancelledFlow) error {
	if err := e.listStillRunning(ctx, tx, c, cancelled, math.MaxInt32); err != nil {
		return err
	}
	if strictness(c.policy) < strictness(state.CancelAll) || len(cancelled.StillRunning) > 0 {
		return nil
	}
	return e.clearSiblingCancels(ctx, tx, c.flow)
}

// lockMembersToCancel finds the clean-ups of a flow, locks the members to cancel and their current attempts, and reads
// the clock.
func (e *Engine) lockMembersToCancel(ctx context.Context, tx *core.Txn, c *flowCancel) (members core.ExecutionArrays, nowMs int64, err error) {
	if c.cleanUps, err = e.cleanUps(ctx, tx, c); err != nil {
		return members, 0, err
	}
	members, attempts, err := e.lockMembers(ctx, tx, c)
	if err != nil {
		return members, 0, err
	}
	var steps []core.Step
	if !members.Empty() {
		steps = append(steps, func(conn db.DBTX) error {
			return e.c.Q.LockMemberAttempts(ctx, conn, db.LockMemberAttemptsParams{
				PartitionKeys: members.Partitions, ExecutionIDs: members.Executions, AttemptIndexes: attempts,
			})
		})
	}
	err = pgtx.InOneTrip(ctx, tx, append(steps, func(conn db.DBTX) (err error) {
		nowMs, err = e.c.Q.GetNow(ctx, conn, e.c.NowMs())
		return err
	})...)
	return members, nowMs, err
}

func (e *Engine) markFlowCancelled(ctx context.Context, conn db.DBTX, c flowCancel, nowMs int64) error {
	return e.c.Q.MarkFlowCancelled(ctx, conn, db.MarkFlowCancelledParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow,
		CancellationPolicy: string(c.policy), Reason: c.reason, NowMs: nowMs,
	})
}

var errNoObject = errors.New("is not an object")

func (e *Engine) clearSiblingCancels(ctx context.Context, tx *core.Txn, flow id.FlowID) error {
	return e.c.Q.ForgetSiblingCancels(ctx, tx, db.ForgetSiblingCancelsParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow,
	})
}
