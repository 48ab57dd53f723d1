package engine

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxFlowCancelReason is the longest reason for cancelling a flow in bytes.
const MaxFlowCancelReason = 4096

// CancelFlowSpec asks for a flow to be cancelled.
type CancelFlowSpec struct {
	ID id.FlowID

	// Policy says which of the members that have not ended are cancelled. Clean-ups are members that wait for the end of
	// others, by [policy.OnFailure] or [policy.Always], and members that depend on nothing but clean-ups.
	//
	//   - [state.CancelAll], the default: all but clean-ups.
	//   - [state.CancelPending]: those that are not worked on, but for clean-ups: they wait for a worker, a delay or others.
	//   - [state.CancelEverything]: all, clean-ups too.
	//   - [state.CancelFlowOnly]: none. The flow takes no more members.
	Policy state.FlowCancelPolicy

	// Reason is what reads show as the reason of the cancellation, of the flow and of its members. Default "flow_cancelled";
	// at most [MaxFlowCancelReason] bytes.
	Reason string
}

// CancelledFlow is what became of a flow that was to be cancelled.
type CancelledFlow struct {
	Policy state.FlowCancelPolicy // by which it is cancelled now
	Reason string                 // that stands

	// Members are the members that the call cancelled, by id. For a flow that was already cancelled they are those not yet
	// acknowledged, or all members if there are none of those: the first [MaxBatch] of them.
	Members []id.ExecutionID

	// StillRunning are the members that have not ended, by id: clean-ups, and what the policy or a grace leaves. For a flow
	// that was already cancelled: the first [MaxBatch] of them.
	StillRunning []id.ExecutionID

	Already bool // it was cancelled before, by this policy or a stricter one, and nothing was written
}

const (
	defaultFlowCancelReason = "flow_cancelled"
	cancelledByFlow         = "cancel_flow"
)

// CancelFlow cancels a flow, and its members as the policy says: when it returns they have ended. Each is cancelled as
// [Engine.CancelExecution] does: its holder is refused from now on, and the context of its handler ends within a moment,
// with worker.ErrCancelled as the cause. A member that has ended is left as it is. No member escapes: one that is added,
// released, retried or replayed at the same time is either cancelled, or refused because the flow is cancelled.
//
// Clean-ups run: members with [policy.OnFailure] or [policy.Always], and what depends on nothing else, are released or
// skipped once the members that they wait for have ended. So cancelling an order whose charge has been made still runs the
// refund. [CancelledFlow.StillRunning] lists them. [state.CancelEverything] cancels them too, in the same call or a later
// one. A clean-up that nothing can release any more, because it waits for an edge that was never applied or for the replay
// of an upstream, is cancelled like any other member.
//
// Afterwards the flow takes no members and edges, and replays none. What still runs goes on, and releases and skips what
// depends on it.
//
// A flow that is cancelled already is left as it is, unless by a milder policy: then the rest is cancelled too, and the
// first reason stands. Members whose grace is not over yet ([Engine.RequestFlowCancel]) are cancelled now.
//
// Errors: [ErrInvalidInput]; [ErrNotFound]; [ErrCorruption]; [ErrContention].
//
// Transaction: at most fourteen statements however many members there are, plus a few for each level of what is skipped.
// Locks the flow exclusively, then its members and their attempts; it waits for each up to two seconds, three times, and
// stands in line for the flow, so that one whose members complete all the time is cancelled too. Emits a lease event for
// each member that was worked on, and a completion event for each. In a caller's transaction the holders are not told;
// they are refused with their next call. Safe to repeat.
func (e *Engine) CancelFlow(ctx context.Context, spec CancelFlowSpec) (CancelledFlow, error) {
	const op = "cancel flow"
	c := flowCancel{flow: spec.ID, policy: cmp.Or(spec.Policy, state.CancelAll), reason: cmp.Or(spec.Reason, defaultFlowCancelReason)}
	if err := c.check(); err != nil {
		return CancelledFlow{}, wrap(op, err)
	}
	return inTx(ctx, e, op, func(tx *txn) (CancelledFlow, error) {
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
		cancelled.Members, err = e.cancelMembers(ctx, tx, members, cancellation{c.reason, cancelledByFlow, revokedByOperator}, nowMs)
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
	once   bool // a flow that is cancelled by a milder policy is left as it is
	noted  bool // only members that a request has noted

	cleanUps []pgtype.UUID // members that are left to run
}

func (c *flowCancel) check() error {
	if !c.policy.Valid() {
		return invalid("policy", "is none of the ways to cancel a flow")
	}
	return checkText("reason", c.reason, MaxFlowCancelReason)
}

// strictness orders policies by how much they cancel. FlowFabric takes one that it does not know for [state.CancelAll].
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

// takeFlowToCancel locks a flow and says what stands when it has been cancelled; open says that this is still to be done.
func (e *Engine) takeFlowToCancel(ctx context.Context, tx *txn, c flowCancel) (cancelled CancelledFlow, open bool, err error) {
	partition := e.cfg.Partitions.FlowPartition(c.flow)
	var rows []db.LockFlowToCancelRow
	err = pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			flows := newFlowSet(e.cfg.Partitions)
			flows.add(c.flow)
			_, ids := flows.arrays()
			return e.q.LockFlowsExclusive(ctx, conn, ids)
		},
		func(conn db.DBTX) (err error) {
			rows, err = e.q.LockFlowToCancel(ctx, conn, db.LockFlowToCancelParams{PartitionKey: partition, FlowID: c.flow})
			return err
		},
	)
	cancelled = CancelledFlow{Policy: c.policy, Reason: c.reason}
	switch {
	case err != nil:
		return cancelled, false, err
	case len(rows) == 0:
		return cancelled, false, &NotFoundError{Entity: "flow", ID: c.flow.String()}
	case !rows[0].Readable:
		return cancelled, false, corrupt("ff_flow_core.raw_fields", errNoObject)
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

// cancelledBefore adds the members, at most limit, to the answer for a flow that is left as it is.
func (e *Engine) cancelledBefore(
	ctx context.Context, tx *txn, c flowCancel, cancelled CancelledFlow, limit int,
) (CancelledFlow, error) {
	if err := e.listToCancel(ctx, tx, c, &cancelled, limit); err != nil {
		return CancelledFlow{}, err
	}
	return cancelled, e.listStillRunning(ctx, tx, c, &cancelled, limit)
}

// listToCancel adds the members to the answer that a request has noted, or all if there are none of those.
func (e *Engine) listToCancel(ctx context.Context, tx *txn, c flowCancel, cancelled *CancelledFlow, limit int) error {
	rows, err := e.q.ListFlowToCancel(ctx, tx, db.ListFlowToCancelParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow, PageSize: int64(limit),
	})
	for _, text := range rows {
		x, err := id.ParseExecutionID(text)
		if err != nil {
			continue // another program's: the job drops it
		}
		cancelled.Members = append(cancelled.Members, x)
	}
	return err
}

// listStillRunning adds the members that have not ended, at most limit, to the answer.
func (e *Engine) listStillRunning(ctx context.Context, tx *txn, c flowCancel, cancelled *CancelledFlow, limit int) error {
	partition := e.cfg.Partitions.FlowPartition(c.flow)
	rows, err := e.q.ListUnended(ctx, tx, db.ListUnendedParams{
		PartitionKey: partition, FlowID: pgUUID(c.flow), PageSize: int64(limit),
	})
	for _, x := range rows {
		cancelled.StillRunning = append(cancelled.StillRunning, id.ExecutionIDFromRow(partition, x))
	}
	return err
}

// finishCancel ends a cancel. It lists what still runs; if that is nothing, siblings that were to be cancelled have ended
// with their flow.
func (e *Engine) finishCancel(ctx context.Context, tx *txn, c flowCancel, cancelled *CancelledFlow) error {
	if err := e.listStillRunning(ctx, tx, c, cancelled, math.MaxInt32); err != nil {
		return err
	}
	if strictness(c.policy) < strictness(state.CancelAll) || len(cancelled.StillRunning) > 0 {
		return nil
	}
	return e.clearSiblingCancels(ctx, tx, c.flow)
}

// lockMembersToCancel finds the clean-ups of a flow, locks the members that a cancel concerns, and their current attempts,
// and reads the clock.
func (e *Engine) lockMembersToCancel(ctx context.Context, tx *txn, c *flowCancel) (members executionArrays, nowMs int64, err error) {
	if c.cleanUps, err = e.cleanUps(ctx, tx, c); err != nil {
		return members, 0, err
	}
	members, attempts, err := e.lockMembers(ctx, tx, c)
	if err != nil {
		return members, 0, err
	}
	var steps []step
	if !members.empty() {
		steps = append(steps, func(conn db.DBTX) error {
			return e.q.LockMemberAttempts(ctx, conn, db.LockMemberAttemptsParams{
				PartitionKeys: members.partitions, ExecutionIDs: members.executions, AttemptIndexes: attempts,
			})
		})
	}
	err = pgtx.InOneTrip(ctx, tx, append(steps, func(conn db.DBTX) (err error) {
		nowMs, err = e.q.GetNow(ctx, conn, e.nowMs())
		return err
	})...)
	return members, nowMs, err
}

func (e *Engine) markFlowCancelled(ctx context.Context, conn db.DBTX, c flowCancel, nowMs int64) error {
	return e.q.MarkFlowCancelled(ctx, conn, db.MarkFlowCancelledParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: c.flow,
		CancellationPolicy: string(c.policy), Reason: c.reason, NowMs: nowMs,
	})
}

var errNoObject = errors.New("is no object")

func (e *Engine) clearSiblingCancels(ctx context.Context, tx *txn, flow id.FlowID) error {
	return e.q.ForgetSiblingCancels(ctx, tx, db.ForgetSiblingCancelsParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(flow), FlowID: flow,
	})
}
