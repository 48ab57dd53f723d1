package explain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// facts are an execution with its surroundings.
type facts struct {
	execution *engine.ExecutionSnapshot
	around    db.GetSurroundingsRow
	upstreams []awaited // unfinished ones; of a skipped execution all
	called    []awaited // unfinished ones
	open      int       // number of all unfinished upstreams or called executions
	total     int
	gate      []db.ListGateFactsRow // one for each holder; empty: it waits for no limit
	budget    *budgetFacts          // nil: it waits for no budget
	workers   []db.ListWorkersAroundRow
	now       int64
}

// awaited is an upstream or a called execution.
type awaited struct {
	id      id.ExecutionID
	name    string // its node or kind
	state   state.PublicState
	failure string
}

// budgetFacts are a budget and its account.
type budgetFacts struct {
	id      string
	account budgets.Account
	resetAt time.Time
}

// maxReads bounds the reads of an execution that changes between the first and the last statement.
const maxReads = 3

// read reads the facts of an execution in one round trip, and again if the execution has changed meanwhile: each statement
// has a snapshot of its own, and facts of two states would be no explanation.
//
// Errors: [fferr.ErrNotFound], with the time of the facts; [fferr.ErrCorruption].
func read(ctx context.Context, c *core.Core, x id.ExecutionID) (f *facts, err error) {
	for range maxReads {
		changed := false
		if f, changed, err = readOnce(ctx, c, x); err != nil || !changed {
			break
		}
	}
	return f, err
}

func readOnce(ctx context.Context, c *core.Core, x id.ExecutionID) (f *facts, changed bool, err error) {
	f = &facts{now: c.ProcessTime().UnixMilli()}
	partition, execution, now := x.Partition(), x.UUID(), c.NowMs()
	var row db.GetExecutionRow
	var awaited []db.ListHindrancesRow
	var budget db.GetBudgetWaitedForRow
	var missing, unlimited error
	err = c.Read(ctx,
		func(conn db.DBTX) (err error) {
			row, err = c.Q.GetExecution(ctx, conn, db.GetExecutionParams{PartitionKey: partition, ExecutionID: execution})
			return noRow(err, &missing)
		},
		func(conn db.DBTX) (err error) {
			awaited, err = c.Q.ListHindrances(ctx, conn, db.ListHindrancesParams{PartitionKey: partition, ExecutionID: execution})
			return err
		},
		func(conn db.DBTX) (err error) {
			f.gate, err = c.Q.ListGateFacts(ctx, conn, db.ListGateFactsParams{PartitionKey: partition, ExecutionID: execution})
			return err
		},
		func(conn db.DBTX) (err error) {
			budget, err = c.Q.GetBudgetWaitedFor(ctx, conn, db.GetBudgetWaitedForParams{PartitionKey: partition, ExecutionID: execution})
			return noRow(err, &unlimited)
		},
		func(conn db.DBTX) (err error) {
			f.workers, err = c.Q.ListWorkersAround(ctx, conn, db.ListWorkersAroundParams{
				PartitionKey: partition, ExecutionID: execution, NowMs: now,
			})
			return err
		},
		func(conn db.DBTX) (err error) {
			f.around, err = c.Q.GetSurroundings(ctx, conn, db.GetSurroundingsParams{
				PartitionKey: partition, ExecutionID: execution, NowMs: now,
			})
			return noRow(err, &missing)
		},
	)
	if err = errors.Join(err, missing); err != nil {
		return f, false, core.OrNotFound(err, x)
	}
	f.now = f.around.NowMs
	if f.execution, err = core.SnapshotOf[engine.ExecutionSnapshot](c, x, &row); err != nil {
		return f, false, err
	}
	changed = row.LifecyclePhase != f.around.LifecyclePhase || row.EligibilityState != f.around.EligibilityState ||
		core.Deref(row.FfxLastMutationAtMs) != core.Deref(f.around.LastMutationAtMs)
	if unlimited == nil {
		f.setBudget(&budget)
	}
	return f, changed, f.setAwaited(awaited)
}

// noRow sets missing for a statement without a row, and returns nil, so the next statements are read.
func noRow(err error, missing *error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		*missing = err
		return nil
	}
	return err
}

func (f *facts) setAwaited(rows []db.ListHindrancesRow) error {
	for i := range rows {
		row := &rows[i]
		a := awaited{
			id: id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)), name: row.Node, failure: row.Failure,
		}
		var err error
		if a.state, err = normalise.PublicState(row.PublicState); err != nil {
			return core.Corrupt("ff_exec_core.public_state", err)
		}
		if a.name == "" {
			a.name = row.Kind
		}
		f.open, f.total = int(row.Open), int(row.Total)
		switch {
		case a.state.Terminal() && f.execution.State.Public != state.PublicSkipped:
		case row.Relation == "called":
			f.called = append(f.called, a)
		default:
			f.upstreams = append(f.upstreams, a)
		}
	}
	return nil
}

func (f *facts) setBudget(row *db.GetBudgetWaitedForRow) {
	b := &budgetFacts{id: row.BudgetID, resetAt: core.OptionalTime(row.NextResetAtMs)}
	policy, err := budgets.Decode(row.Policy)
	if err != nil {
		policy = budgets.Policy{} // shown without its limits; reports on it return the error
	}
	b.account = budgets.Account{Policy: policy, Usage: byDimension(row.Dimensions, row.Amounts), Reserved: byDimension(row.ReservedDimensions, row.ReservedAmounts)}
	f.budget = b
}

func byDimension(dimensions []string, amounts []int64) map[string]int64 {
	of := make(map[string]int64, len(dimensions))
	for i, dimension := range dimensions {
		of[dimension] = amounts[i]
	}
	return of
}

func (f *facts) at() time.Time { return time.UnixMilli(f.now) }

func (f *facts) summary() engine.ExecutionSummary {
	e := f.execution
	return engine.ExecutionSummary{
		ID: e.ID, Flow: e.Flow, Node: e.Node, Namespace: e.Namespace, Lane: e.Lane, Kind: e.Kind, State: e.State.Public, Outcome: e.State.Outcome,
		Failure: core.ShownFailure(e.State.Public, e.FailureReason, ""), LeasesLost: e.LeasesLost, CreatedAt: e.CreatedAt, EndedAt: e.EndedAt,
	}
}

// holds reports whether a live process holds a background job.
func (f *facts) holds(job string) bool { return slices.Contains(f.around.HeldJobs, job) }

// worker returns a registered worker.
func (f *facts) worker(instance id.WorkerInstanceID) *db.ListWorkersAroundRow {
	for i := range f.workers {
		if f.workers[i].WorkerInstanceID == string(instance) {
			return &f.workers[i]
		}
	}
	return nil
}

// lacking returns the required capabilities a worker lacks.
func lacking(w *db.ListWorkersAroundRow, required id.Capabilities) (missing []string) {
	has := strings.Split(w.CapabilitiesCSV, ",")
	for _, capability := range required {
		if !slices.Contains(has, capability) {
			missing = append(missing, capability)
		}
	}
	return missing
}
