package interop

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// AdmissionSpec has the options of [CheckAdmission].
type AdmissionSpec struct {
	// Jitter spreads the calls after a refusal: RetryAfter is longer by a random time up to Jitter. Default 0.
	Jitter time.Duration
}

// AdmissionOutcome is the outcome of [CheckAdmission].
type AdmissionOutcome string

// The outcomes.
const (
	Admitted            AdmissionOutcome = "admitted"
	AlreadyAdmitted     AdmissionOutcome = "already_admitted"     // by an earlier call; nothing was taken
	RateExceeded        AdmissionOutcome = "rate_exceeded"        // not admitted: too many starts in the window
	ConcurrencyExceeded AdmissionOutcome = "concurrency_exceeded" // not admitted: too many in use
)

// AdmissionResult is the result of [CheckAdmission].
type AdmissionResult struct {
	Outcome    AdmissionOutcome
	RetryAfter time.Duration // for [RateExceeded]: the time until the window may admit again, and the jitter
}

// CheckAdmission asks a quota policy to admit an execution that does not name the policy, for callers that admit work
// themselves. An execution that names the policy in its spec is admitted by the gate alone. Both take places and starts of
// the same policy, and together never more than the policy allows.
//
// An admission counts as a start at once, by the database's clock. It takes a place until [ReleaseAdmission], or until the
// execution ends. A further call takes nothing while the place is taken and the window of the start is not over. After the
// window it counts as another start, in the same place. A refusal is a result.
//
// Errors: [fferr.ErrInvalidInput], also for an execution that names the policy; [fferr.ErrNotFound] for the policy or the
// execution; [fferr.ErrEnded]; [fferr.ErrCorruption] for a negative limit; [fferr.ErrContention].
//
// Transaction: a constant number of statements; locks the policy at the gate, so that further admissions wait for the end of
// a caller's transaction. There, check several policies in the order of their ids, to avoid deadlocks. Safe to repeat.
func CheckAdmission(
	ctx context.Context, eng *engine.Engine, q id.QuotaPolicyID, x id.ExecutionID, spec AdmissionSpec,
) (AdmissionResult, error) {
	c := core.Of(eng)
	const op = "check admission"
	err := checkAdmission(c, q, x)
	if err == nil && spec.Jitter < 0 {
		err = core.Invalid("Jitter", "is negative")
	}
	if err != nil {
		return AdmissionResult{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, c, op, func(tx *core.Txn) (AdmissionResult, error) {
		a := admission{Core: c, policy: q, execution: x, jitter: spec.Jitter}
		if err := a.lock(ctx, tx); err != nil {
			return AdmissionResult{}, err
		}
		result, err := a.decide(ctx, tx)
		if err == nil && result.Outcome == Admitted {
			err = a.take(ctx, tx)
		}
		return result, err
	})
}

// ReleaseAdmission gives back the place taken by [CheckAdmission] for an execution. The start counts until its window is
// over. A later admission takes a new place and a new start.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. A missing place or policy is no error. Transaction: two statements;
// locks the policy at the gate. Safe to repeat.
func ReleaseAdmission(ctx context.Context, eng *engine.Engine, q id.QuotaPolicyID, x id.ExecutionID) error {
	c := core.Of(eng)
	const op = "release admission"
	if err := checkAdmission(c, q, x); err != nil {
		return core.Wrap(op, err)
	}
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (struct{}, error) {
		tx.Due.Gated()
		return struct{}{}, pgtx.InOneTrip(ctx, tx, func(conn db.DBTX) error {
			return c.Q.LockGate(ctx, conn, db.LockGateParams{PartitionKey: core.GatePartition(q), GateID: core.PgGate(q)})
		}, func(conn db.DBTX) error {
			_, err := c.Q.ReleaseCallerAdmission(ctx, conn, db.ReleaseCallerAdmissionParams{
				PartitionKey: core.GatePartition(q), GateID: core.PgGate(q), ExecutionID: core.PgUUID(x.UUID()),
			})
			return err
		})
	})
	return err
}

func checkAdmission(c *core.Core, q id.QuotaPolicyID, x id.ExecutionID) error {
	if q.IsZero() {
		return core.Invalid("quota policy id", "is empty")
	}
	return c.CheckExecution(x)
}

// admission is one call of [CheckAdmission].
type admission struct {
	*core.Core
	policy    id.QuotaPolicyID
	execution id.ExecutionID
	jitter    time.Duration

	found    db.GetCallerAdmissionRow
	limit    gate.Limit
	windowMs int64
}

// lock locks the policy at the gate, and reads in a later statement.
func (a *admission) lock(ctx context.Context, tx *core.Txn) error {
	partition, text := a.Core.Partitions.QuotaPartition(a.policy), a.policy.String()
	err := pgtx.InOneTrip(ctx, tx, lockQuota(ctx, a.Core, a.policy), func(conn db.DBTX) (err error) {
		a.found, err = a.Q.GetCallerAdmission(ctx, conn, db.GetCallerAdmissionParams{
			NowMs: a.NowMs(), GateID: core.PgGate(a.policy), PartitionKey: core.GatePartition(a.policy),
			ExecutionPartitionKey: a.execution.Partition(), ExecutionID: core.PgUUID(a.execution.UUID()),
			QuotaPartition: partition, QuotaPolicyID: text,
		})
		return err
	})
	switch f := &a.found; {
	case core.IsNoRow(err):
		return &fferr.NotFoundError{Entity: "quota policy", ID: text}
	case err != nil:
		return err
	case f.Concurrent < 0 || f.Starts < 0 || f.WindowSeconds < 0:
		return core.ErrNegativeQuota(a.policy)
	case !f.Found:
		return &fferr.NotFoundError{Entity: "execution", ID: a.execution.String()}
	case f.Ended:
		return a.ended(ctx, tx)
	case f.Named:
		return core.Invalid("execution", "names the quota policy, so the gate admits it")
	}
	return nil
}

// ended returns the error for an ended execution.
func (a *admission) ended(ctx context.Context, tx *core.Txn) error {
	row, err := a.Q.GetExecutionResult(ctx, tx, db.GetExecutionResultParams{
		PartitionKey: a.execution.Partition(), ExecutionID: a.execution.UUID(),
	})
	if err == nil {
		_, err = core.ResultOf(a.execution, &row)
	}
	if err == nil {
		err = &fferr.EndedError{Execution: a.execution, Outcome: state.OutcomeSuccess}
	}
	return err
}

// decide compares the policy's use with its limits. It counts the use only if the stored bounds reach a limit.
func (a *admission) decide(ctx context.Context, tx *core.Txn) (AdmissionResult, error) {
	f := &a.found
	a.limit = gate.Limit{Concurrent: gate.None, Starts: gate.None, Held: f.Held, Started: f.Started}
	if f.Concurrent > 0 && !a.holds() {
		a.limit.Concurrent = f.Concurrent
	}
	if f.Starts > 0 {
		a.limit.Starts, a.windowMs = f.Starts, min(f.WindowSeconds, math.MaxInt64/2000)*1000
	}
	if a.holds() && (f.Starts == 0 || f.NowMs-a.windowMs < f.AdmittedAtMs) {
		return AdmissionResult{Outcome: AlreadyAdmitted}, nil
	}
	if !a.limit.NeedsCount(1) {
		return AdmissionResult{Outcome: Admitted}, nil
	}
	rows, err := core.CountGates(ctx, a.Core, tx, core.WholeCount(gate.ID(a.policy), a.windowMs, a.NowMs()))
	if err != nil || len(rows) == 0 {
		return AdmissionResult{}, err
	}
	n := rows[0]
	a.limit.Held, a.limit.Started, a.limit.Counted = n.Held, n.Started, true
	switch {
	case a.limit.Starts != gate.None && n.Started >= a.limit.Starts:
		return AdmissionResult{Outcome: RateExceeded, RetryAfter: a.retryAfter(n.FirstStartMs)}, nil
	case a.limit.Full():
		return AdmissionResult{Outcome: ConcurrencyExceeded}, nil
	}
	return AdmissionResult{Outcome: Admitted}, nil
}

// holds reports whether the execution has a place.
func (a *admission) holds() bool { return a.found.AdmittedAtMs > 0 }

// retryAfter returns the time until the first start leaves the window, or a whole window if no admitted execution has
// started.
func (a *admission) retryAfter(firstStartMs int64) time.Duration {
	waitMs := a.windowMs
	if firstStartMs > 0 {
		waitMs = max(firstStartMs+a.windowMs-a.found.NowMs, 0)
	}
	wait := time.Duration(min(waitMs, math.MaxInt64/int64(2*time.Millisecond))) * time.Millisecond
	return wait + time.Duration(rand.Int64N(int64(min(a.jitter, math.MaxInt64/2))+1))
}

// take stores the admission.
func (a *admission) take(ctx context.Context, tx *core.Txn) error {
	if a.found.Concurrent == 0 && a.found.Starts == 0 {
		return nil // there is nothing to count
	}
	partitions, gates := []int16{core.GatePartition(a.policy)}, []pgtype.UUID{core.PgGate(a.policy)}
	uses := db.InsertGateUsesParams{
		NowMs: a.NowMs(), ByCaller: true, PartitionKeys: partitions, GateIDs: gates, Units: []int64{1},
		ExecutionPartitionKeys: []int16{a.execution.Partition()}, ExecutionIDs: []pgtype.UUID{core.PgUUID(a.execution.UUID())},
	}
	if a.windowMs > 0 {
		uses.WindowedGateIDs = gates
	}
	held := a.limit.Held
	if !a.holds() {
		held++
	}
	return pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error { return a.Q.InsertGateUses(ctx, conn, uses) },
		func(conn db.DBTX) error {
			return a.Q.RaiseGates(ctx, conn, db.RaiseGatesParams{
				NowMs: a.NowMs(), PartitionKeys: partitions, GateIDs: gates,
				Held: []int64{held}, Started: []int64{a.limit.Started + 1}, NextAtMs: []int64{0}, Used: []bool{true},
			})
		},
	)
}
