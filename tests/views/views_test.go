package views

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// views compares all rows of the three views with the reads of eng, on one snapshot of the database.
type views struct {
	t   *testing.T
	tx  pgx.Tx
	eng *engine.Engine

	executions, attempts, flows int // compared
	corrupt, corruptFlows       int // those that the reads refuse
	states                      map[string]int
}

// compareViews compares up to limit rows of each view.
func compareViews(t *testing.T, f *fixture.Fixture, limit int) *views {
	t.Helper()
	tx, err := f.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	v := &views{t: t, tx: tx, eng: f.WithTx(tx), states: make(map[string]int)}
	attempts := make(map[string][]db.FfxAttempt)
	for _, a := range fixture.All[db.FfxAttempt](t, tx, "SELECT * FROM ffx_attempt ORDER BY partition_key, execution_id, attempt") {
		attempts[a.Execution] = append(attempts[a.Execution], a)
	}
	for _, row := range fixture.All[db.FfxExecution](t, tx, "SELECT * FROM ffx_execution ORDER BY created_at DESC LIMIT $1", limit) {
		v.compareExecution(&row, attempts[row.ID])
	}
	for _, row := range fixture.All[db.FfxFlow](t, tx, "SELECT * FROM ffx_flow ORDER BY created_at DESC LIMIT $1", limit) {
		v.compareFlow(&row)
	}
	t.Logf("%d executions, %d attempts, %d flows; the reads refuse %d executions and %d flows; %v",
		v.executions, v.attempts, v.flows, v.corrupt, v.corruptFlows, v.states)
	return v
}

func (v *views) compareExecution(row *db.FfxExecution, attempts []db.FfxAttempt) {
	v.t.Helper()
	v.executions++
	v.states[or(row.State)]++
	x, err := id.ParseExecutionID(row.ID)
	if err != nil || x.Partition() != row.PartitionKey || x.UUID() != row.ExecutionID {
		v.t.Fatalf("id %q of (%d, %s): %v", row.ID, row.PartitionKey, row.ExecutionID, err)
	}
	snapshot, err := v.eng.DescribeExecution(v.t.Context(), x)
	if got, want := or(row.Corruption), corrupted(v.t, err); got != want {
		v.t.Errorf("%s: the view says corruption %q, the read %q", x, got, want)
		return
	}
	if snapshot == nil {
		v.corrupt++
	} else {
		wantSameLines(v.t, row.ID, viewLines(v.t, row), readLines(snapshot))
	}
	for i := range attempts {
		v.compareAttempt(&attempts[i], row, snapshot)
	}
}

// compareAttempt compares an attempt with its row and, where it is the current one, with its execution.
func (v *views) compareAttempt(a *db.FfxAttempt, x *db.FfxExecution, snapshot *engine.ExecutionSnapshot) {
	v.t.Helper()
	v.attempts++
	what := fmt.Sprintf("attempt %d of %s", a.Attempt, a.Execution)
	stored := fixture.One[struct {
		Outcome, Worker, Instance string
		StartedAtMs, TerminalAtMs *int64
	}](v.t, v.tx, `SELECT coalesce(outcome, '') AS outcome, coalesce(worker_id, '') AS worker, coalesce(worker_instance_id, '') AS instance,
			started_at_ms, terminal_at_ms
		FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2 AND attempt_index = $3`, a.PartitionKey, a.ExecutionID, a.Attempt)
	outcome, err := normalise.AttemptOutcome(stored.Outcome)
	if (err != nil) != (or(a.Corruption) == "ff_attempt.outcome") {
		v.t.Errorf("%s: outcome %q, corruption %q", what, stored.Outcome, or(a.Corruption))
	}
	var want, got lines
	want.add("outcome", outcome)
	got.add("outcome", or(a.Outcome))
	want.add("worker", stored.Worker+" "+stored.Instance)
	got.add("worker", or(a.WorkerID)+" "+or(a.WorkerInstanceID))
	var started, ended time.Time
	if stored.StartedAtMs != nil {
		started = time.UnixMilli(*stored.StartedAtMs)
	}
	if stored.TerminalAtMs != nil && outcome.Finished(true) {
		ended = time.UnixMilli(*stored.TerminalAtMs)
	}
	want.instant("started", started)
	got.instant("started", at(a.StartedAt))
	want.instant("ended", ended)
	got.instant("ended", at(a.EndedAt))
	isCurrent := x.Attempt != nil && *x.Attempt == a.Attempt
	switch {
	case isCurrent && snapshot != nil:
		lease := or(snapshot.Lease)
		want.add("id", snapshot.Attempt.ID)
		got.add("id", or(a.AttemptID))
		want.add("lease", fmt.Sprint(lease.ID, lease.Epoch))
		got.add("lease", fmt.Sprint(or(a.LeaseID), or(a.LeaseEpoch)))
		want.instant("lease expires", lease.ExpiresAt)
		got.instant("lease expires", at(a.LeaseExpiresAt))
	case !isCurrent && (a.LeaseID != nil || a.LeaseEpoch != nil || a.LeaseExpiresAt != nil || a.TimeoutAt != nil):
		v.t.Errorf("%s is not the current one and has a lease: %+v", what, a)
	}
	wantSameLines(v.t, what, got, want)
}

func (v *views) compareFlow(row *db.FfxFlow) {
	v.t.Helper()
	if row.PartitionKey != (id.Partitions{}).FlowPartition(row.FlowID) {
		return // no read finds it
	}
	v.flows++
	snapshot, err := v.eng.DescribeFlow(v.t.Context(), row.FlowID)
	if corruption, want := or(row.Corruption), corrupted(v.t, err); corruption != want && want != "ff_edge_group.policy" {
		v.t.Errorf("flow %s: the view says corruption %q, the read %q", row.FlowID, corruption, want)
	}
	if snapshot == nil {
		v.corruptFlows++
		return
	}
	render := func(kind string, namespace id.Namespace, state string, tags map[string]string, revision, nodes, edges int64,
		created, mutated, cancelled time.Time, reason, policy string,
	) (l lines) {
		l.add("kind", kind)
		l.add("namespace", namespace)
		l.add("state", state)
		l.tags(tags)
		l.add("counts", fmt.Sprint(revision, nodes, edges))
		l.instant("created", created)
		l.instant("last mutation", mutated)
		l.instant("cancelled", cancelled)
		l.add("cancelled by", reason+" "+policy)
		return l
	}
	// The view has the flow's own state, and counts no members: the read derives the state of an open one.
	read := snapshot.State
	if row.State == string(state.FlowOpen) && read != state.FlowCancelled {
		read = state.FlowOpen
	}
	wantSameLines(v.t, "flow "+row.FlowID.String(),
		render(row.Kind, id.Namespace(row.Namespace), row.State, decoded(v.t, row.Tags), row.Revision, row.Nodes, row.Edges,
			row.CreatedAt, row.LastMutationAt, at(row.CancelledAt), or(row.CancelReason), or(row.CancellationPolicy)),
		render(snapshot.Kind, snapshot.Namespace, string(read), snapshot.Tags, snapshot.Revision, int64(snapshot.Nodes), int64(snapshot.Edges),
			snapshot.CreatedAt, snapshot.LastMutationAt, snapshot.CancelledAt, snapshot.CancelReason, string(snapshot.CancelPolicy)))
}

// The rows that tests of the reads are about, and every literal of every column beside each of the others.
func TestViewsEqualTheReads(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, row := range fixture.ReferenceRows() {
		x := f.Seed(t, row.Execution)
		for i, attempt := range row.Attempts {
			f.SeedAttempt(t, x, int32(i), attempt)
		}
	}
	f.Exec(t, `
		INSERT INTO ff_exec_core (
			partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state, created_at_ms
		)
		SELECT 7, gen_random_uuid(), 'lane', phase, 'unowned', eligibility, public, 'none', 1800000000000
		FROM
			unnest($1::text[]) AS phase,
			unnest($2::text[]) AS eligibility,
			unnest($3::text[]) AS public
		WHERE phase IN ('runnable', 'terminal') OR public IN ('waiting', 'running', 'resumable', 'who knows')`,
		phaseLiterals, eligibilityLiterals, publicLiterals)
	v := compareViews(t, f, math.MaxInt32)
	for _, public := range state.PublicStates() {
		if v.states[string(public)] == 0 {
			t.Errorf("no execution was %s", public)
		}
	}
	if v.executions < 500 || v.corrupt == 0 {
		t.Errorf("%d executions, %d corrupt", v.executions, v.corrupt)
	}
}

// The rows of this library, in every state that it writes.
func TestViewsEqualTheReadsAfterAMixedWorkload(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.Fill(t, 400)
	p.FailSome(t)
	v := compareViews(t, p.Flows.Fixture, math.MaxInt32)
	for _, public := range []state.PublicState{
		state.PublicWaiting, state.PublicDelayed, state.PublicWaitingChildren, state.PublicActive, state.PublicCompleted, state.PublicFailed, state.PublicExpired,
	} {
		if v.states[string(public)] == 0 {
			t.Errorf("no execution is %s", public)
		}
	}
	if v.corrupt+v.corruptFlows > 0 {
		t.Errorf("%d executions and %d flows of this library's own cannot be read", v.corrupt, v.corruptFlows)
	}
	// A failure stands with its attempt and, when it ended the execution, with both.
	failures := fixture.One[struct{ Retried, Ended int }](t, p.Pool, `
		SELECT
			count(*) FILTER (WHERE a.outcome = 'retry' AND a.failure_reason = 'boom' AND x.failure_reason IS NULL) AS retried,
			count(*) FILTER (WHERE a.outcome = 'failed' AND a.failure_reason = 'boom' AND x.failure_reason = 'boom' AND x.failure_category = 'permanent') AS ended
		FROM ffx_attempt AS a
		JOIN ffx_execution AS x USING (partition_key, execution_id)`)
	if failures.Retried == 0 || failures.Ended == 0 {
		t.Errorf("%d failures that were retried, %d that ended an execution", failures.Retried, failures.Ended)
	}
}

// The rows of the other tests.
func TestViewsEqualTheReadsInTheSharedDatabase(t *testing.T) {
	compareViews(t, fixture.New(t), 1000)
}
