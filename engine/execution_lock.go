package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// heldExecution is an execution whose row and current attempt are locked by a transaction, with the values that a later
// statement read. The current attempt is the newest up to the execution's pointer.
//
// Its predicates accept the literals of other programs too. They don't report unknown ones; [heldExecution.check] does.
type heldExecution struct {
	lockedExecution
	*db.ReadHeldExecutionsRow // nil for an execution that does not exist

	awaited bool // an execution that has called it still needs its result; read by [Engine.readAwaited] only
}

func (x *heldExecution) notFound() error {
	if x.ReadHeldExecutionsRow == nil {
		return &fferr.NotFoundError{Entity: "execution", ID: x.id.String()}
	}
	return nil
}

// check refuses an execution with an unknown state literal.
func (x *heldExecution) check() error {
	_, err := x.vector()
	return err
}

// vector returns the states of the execution.
func (x *heldExecution) vector() (v state.Vector, err error) {
	if v.Phase, err = normalise.LifecyclePhase(x.LifecyclePhase); err != nil {
		return v, core.Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	if v.Ownership, err = normalise.OwnershipState(x.OwnershipState); err != nil {
		return v, core.Corrupt("ff_exec_core.ownership_state", err)
	}
	if v.Eligibility, err = normalise.EligibilityState(x.EligibilityState); err != nil {
		return v, core.Corrupt("ff_exec_core.eligibility_state", err)
	}
	if v.Public, err = normalise.PublicState(x.PublicState); err != nil {
		return v, core.Corrupt("ff_exec_core.public_state", err)
	}
	if v.Attempt, err = normalise.AttemptState(x.AttemptState); err != nil {
		return v, core.Corrupt("ff_exec_core.attempt_state", err)
	}
	if v.Blocking, err = normalise.BlockingReason(x.BlockingReason); err != nil {
		return v, core.Corrupt("ff_exec_core.blocking_reason", err)
	}
	v.Outcome = x.outcome()
	return v, nil
}

// outcome returns how the execution ended, or none if it has not.
func (x *heldExecution) outcome() state.TerminalOutcome {
	phase, err := normalise.LifecyclePhase(x.LifecyclePhase)
	if err != nil {
		return state.OutcomeNone
	}
	return normalise.TerminalOutcome(normalise.TerminalFacts{
		Phase:              phase,
		StoredPhase:        x.LifecyclePhase,
		PointerOutcome:     x.PointerOutcome,
		StoredPublicState:  x.PublicState,
		CurrentOutcome:     x.CurrentOutcome,
		RawTerminalOutcome: x.RawTerminalOutcome,
		CancellationReason: x.CancellationReason,
		LastFailureMessage: x.LastFailureMessage,
		FailureReason:      x.FailureReason,
	})
}

// ended returns the error for a call on an ended execution.
func (x *heldExecution) ended() error {
	failure := x.CancellationReason
	if failure == "" {
		failure = x.FailureReason
	}
	return &fferr.EndedError{Execution: x.id, Outcome: x.outcome(), Failure: failure}
}

func (x *heldExecution) phase() (state.LifecyclePhase, error) {
	phase, err := normalise.LifecyclePhase(x.LifecyclePhase)
	if err != nil {
		err = core.Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	return phase, err
}

func (x *heldExecution) terminal() bool { return core.IsTerminalPhase(x.LifecyclePhase) }

func (x *heldExecution) active() bool { return x.LifecyclePhase == "active" }

// resumable reports whether its suspension was satisfied and it was not claimed since.
func (x *heldExecution) resumable() bool { return x.PublicState == "resumable" }

func (x *heldExecution) runnable() bool {
	switch x.LifecyclePhase {
	case "runnable", "submitted", "pending", "eligible", "blocked":
		return true
	}
	return false
}

// free reports whether it has no owner.
func (x *heldExecution) free() bool {
	return x.OwnershipState == "unowned" || x.OwnershipState == "released"
}

// eligible reports whether a worker may claim it, with a grant or without.
func (x *heldExecution) eligible() bool {
	return x.EligibilityState == "eligible_now" || x.EligibilityState == "pending_claim"
}

// granted reports whether a worker has a grant for it and has not claimed it yet.
func (x *heldExecution) granted() bool {
	return x.runnable() && x.free() && x.EligibilityState == "pending_claim"
}

func (x *heldExecution) interrupted() bool { return x.AttemptState == "attempt_interrupted" }

// started reports whether it has a current attempt.
func (x *heldExecution) started() bool { return x.CurrentIndex >= 0 }

// leased reports whether a lease of its current attempt is recorded, live or not.
func (x *heldExecution) leased() bool {
	switch x.OwnershipState {
	case "leased", "lease_expired_reclaimable", "lease_revoked":
		return x.started() && x.LeaseExpiresAtMs != nil
	}
	return false
}

// live reports whether the lease of its current attempt has not expired, whatever its ownership state.
func (x *heldExecution) live() bool {
	return x.started() && x.LeaseExpiresAtMs != nil && *x.LeaseExpiresAtMs > x.NowMs
}

// finished reports whether its current attempt neither runs nor continues later.
func (x *heldExecution) finished() bool {
	outcome, err := normalise.AttemptOutcome(x.CurrentOutcome)
	return x.started() && err == nil && outcome.Finished(x.CurrentTerminalAtMs != nil)
}

// reclaimable reports whether its worker lost the lease and another one may start a new attempt.
func (x *heldExecution) reclaimable() bool {
	if x.active() {
		return x.OwnershipState == "lease_expired_reclaimable" || x.OwnershipState == "lease_revoked" || !x.live()
	}
	return x.runnable() && x.free() && x.EligibilityState == "eligible_now" && x.interrupted() &&
		(x.CurrentOutcome == "lease_expired_reclaimable" || x.CurrentOutcome == "interrupted" && x.CurrentDelayUntilMs == nil)
}

// raisedEpoch returns the fencing token that refuses every holder of the current attempt.
func (x *heldExecution) raisedEpoch() int64 { return max(x.HighestEpoch, x.CurrentEpoch) + 1 }

// not returns a refusal because of the execution's state.
func (x *heldExecution) not(reason error) error {
	vector, err := x.vector()
	if err != nil {
		return err
	}
	return &fferr.StateError{Execution: x.id, State: vector, Err: reason}
}

// executionReader returns the reader of transitions that change executions by their ids, whether or not they are leased.
func executionReader(e *Engine, ids []id.ExecutionID) reader[*heldExecution] {
	return reader[*heldExecution]{
		e: e,
		item: func(n int) *heldExecution {
			return &heldExecution{lockedExecution: lockedExecution{n: n, id: ids[n]}}
		},
		foresee: e.readForecasts, lockAttempts: e.lockCurrent, read: e.readHeld,
	}
}

// executionChunks splits executions into transactions of up to [MaxBatch], each in lock order and without repetitions:
// a repeated execution gets the result of the first occurrence.
func executionChunks(ids []id.ExecutionID, items []int) (chunks [][]int) {
	slices.SortStableFunc(items, func(a, b int) int { return ids[a].Compare(ids[b]) })
	for len(items) > 0 {
		var first, again []int
		for i, n := range items {
			if i > 0 && ids[n] == ids[items[i-1]] {
				again = append(again, n)
			} else {
				first = append(first, n)
			}
		}
		chunks = slices.AppendSeq(chunks, slices.Chunk(first, MaxBatch))
		items = again
	}
	return chunks
}

// readForecasts reads, without locks, the values that foresee which flows are needed: flow, phase, lost leases.
func (e *Engine) readForecasts(ctx context.Context, conn db.DBTX, items []*heldExecution) error {
	arrays := heldArrays(items)
	rows, err := e.c.Q.ReadExecutionForecasts(ctx, conn, db.ReadExecutionForecastsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, Ords: arrays.Ords(), DefaultCap: policy.ReclaimLimit,
	})
	for _, row := range rows {
		x := items[row.Ord]
		x.row.FlowID = row.FlowID
		x.ReadHeldExecutionsRow = &db.ReadHeldExecutionsRow{
			FlowID: row.FlowID, LifecyclePhase: row.LifecyclePhase, LostTooOften: row.LostTooOften,
		}
	}
	return err
}

// lockCurrent locks the current attempts, or marks locked ones as busy if the engine is impatient.
func (e *Engine) lockCurrent(ctx context.Context, conn db.DBTX, items []*heldExecution) error {
	arrays := heldArrays(items)
	if !e.c.Runner.IsImpatient() {
		return e.c.Q.LockCurrentAttempts(ctx, conn, db.LockCurrentAttemptsParams{
			PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
		})
	}
	rows, err := e.c.Q.TakeCurrentAttempts(ctx, conn, db.TakeCurrentAttemptsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
	})
	busy := make(map[id.ExecutionUUID]bool, len(rows))
	for _, row := range rows {
		busy[row.ExecutionID] = row.Busy
	}
	for _, x := range items {
		x.busy = x.busy || busy[x.id.UUID()]
	}
	return err
}

// readHeld reads the values that decide about locked executions.
func (e *Engine) readHeld(ctx context.Context, conn db.DBTX, items []*heldExecution) error {
	arrays := heldArrays(items)
	rows, err := e.c.Q.ReadHeldExecutions(ctx, conn, db.ReadHeldExecutionsParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, Ords: arrays.Ords(),
		DefaultCap: policy.ReclaimLimit, NowMs: e.c.NowMs(),
	})
	for i := range rows {
		items[rows[i].Ord].ReadHeldExecutionsRow = &rows[i]
	}
	return err
}

func heldArrays(items []*heldExecution) (arrays core.ExecutionArrays) {
	for _, x := range items {
		arrays.Add(x.id.Partition(), x.id.UUID())
	}
	return arrays
}

// An operation is a call that changes one execution. R is its answer.
type operation[R any] struct {
	op string // prefix of every error

	// needsFlow reports whether the exclusive lock of a member's flow is needed. It may look at the phase and the lost
	// leases; nil means never.
	needsFlow func(x *heldExecution) bool

	// readMore reads values for judge that other operations don't need. Nil: there are none.
	readMore func(ctx context.Context, conn db.DBTX, items []*heldExecution) error

	// lockKeys locks keys before the executions. Nil: none.
	lockKeys func(ctx context.Context, conn db.DBTX, items []*heldExecution) error

	// judge decides from the values read under the locks. If acts, write changes the execution and returns the answer.
	// Otherwise nothing is written, and answer or err is the result.
	judge func(x *heldExecution) (answer R, acts bool, err error)
	write func(tx *core.Txn, x *heldExecution) (R, error)
}

// operate runs an operation on an execution. It waits for locks like the engine's other transactions.
func operate[R any](ctx context.Context, e *Engine, x id.ExecutionID, o operation[R]) (answer R, err error) {
	if err := e.checkExecution(x); err != nil {
		return answer, core.Wrap(o.op, err)
	}
	t := o.transition(e, []id.ExecutionID{x})
	t.write = func(_ context.Context, tx *core.Txn, items []*heldExecution, outcomes []Outcome[R]) (err error) {
		outcomes[0].Value, err = o.write(tx, items[0])
		return err
	}
	outcomes := make([]Outcome[R], 1)
	err = t.run(ctx, [][]int{{0}}, outcomes)
	return outcomes[0].Value, cmp.Or(err, outcomes[0].Err)
}

// transition returns the operation on executions, without its write.
func (o *operation[R]) transition(e *Engine, ids []id.ExecutionID) transition[*heldExecution, R] {
	t := transition[*heldExecution, R]{
		op: o.op, reader: executionReader(e, ids),
		judge: func(x *heldExecution) (answer R, acts bool, err error) {
			if err := x.check(); err != nil {
				return answer, false, err
			}
			return o.judge(x)
		},
	}
	t.readMore = o.readMore
	t.lockKeys = o.lockKeys
	if o.needsFlow != nil {
		t.needs = func(x *heldExecution) flowLock {
			if o.needsFlow(x) {
				return exclusiveFlow
			}
			return noFlow
		}
	}
	return t
}
