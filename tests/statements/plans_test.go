package statements

import (
	"crypto/rand"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// A rule in a function of the schema costs as much as in the statement: the planner inlines it.
func TestPlansInlineSchemaFunctions(t *testing.T) {
	p := fixture.NewPlanner(t)
	functions := fixture.Texts(t, p.Pool, `SELECT proname FROM pg_proc AS f JOIN pg_language AS l ON l.oid = f.prolang
		WHERE f.proname ~ '^ffx_' AND f.prokind = 'f' AND l.lanname = 'sql' AND f.pronamespace = current_schema()::regnamespace`)
	called := 0
	e := p.Explainer(t)
	defer e.End(t)
	for name, text := range p.Texts {
		for _, function := range functions {
			calls := regexp.MustCompile(`[^']\b` + function + `\(`) // and does not merely name it
			if !calls.MatchString(text) {
				continue
			}
			called++
			if plan := string(e.ExplainAs(t, name, "VERBOSE, FORMAT JSON")); calls.MatchString(plan) {
				t.Errorf("%s calls %s:\n%s", name, function, plan)
			}
		}
	}
	if called == 0 {
		t.Error("no statement calls a function of the schema")
	}
}

// The plans of the statements do not depend on when, or whether, the tables were analysed, nor on how much was in them: a plan
// is kept while they grow.
func TestPlans(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.Fill(t, 40)
	p.Check(t, "never analysed, 40 executions")
	p.Analyze(t)
	p.Fill(t, 1000)
	p.Check(t, "analysed with 40 of 1,000 executions")
	p.Fill(t, 9_000)
	p.Forget(t)
	p.Check(t, "never analysed, 10,000 executions")
	p.Analyze(t)
	p.Check(t, "analysed with work under way")
	for _, s := range []struct{ situation, update string }{
		{"all had ended", endExecutions + "; UPDATE ff_attempt SET outcome = 'success', terminal_at_ms = 1, lease_expires_at_ms = NULL"},
		{"all was waiting", `UPDATE ff_exec_core SET lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
			attempt_state = 'pending_first_attempt', terminal_at_ms = NULL`},
		{"all but five had ended", endExecutions + " WHERE ctid NOT IN (SELECT ctid FROM ff_exec_core LIMIT 5)"},
		{"all were in a thousand lanes", "UPDATE ff_exec_core SET lane_id = 'lane ' || abs(hashtext(execution_id::text)) % 1000"},
	} {
		p.Exec(t, s.update)
		p.Exec(t, "ANALYZE ff_exec_core, ff_attempt, ffx_ready") // changed by the update and its triggers
		p.Check(t, "analysed when "+s.situation)
	}
}

// The same for the tables of all features.
func TestPlansOfAllFeatures(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.FillAll(t)
	p.Check(t, "never analysed, one of each")
	p.Analyze(t)
	p.Check(t, "analysed, one of each")
	p.CopyRows(t, 20)
	p.Check(t, "analysed, 1 of 21")
	p.Analyze(t)
	p.Check(t, "analysed, 21 of each")
}

const endExecutions = `UPDATE ff_exec_core SET lifecycle_phase = 'terminal', ownership_state = 'unowned', eligibility_state = 'not_applicable',
	public_state = 'completed', attempt_state = 'attempt_terminal', terminal_at_ms = 1`

// A worker begins on an empty database that has been analysed. The statements with which it waits are planned then,
// and the plans are kept while the tables fill: none may read a table from end to end.
func TestPlansOfPollsOnAnEmptyDatabase(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.Analyze(t)
	polls := slices.DeleteFunc(slices.Sorted(maps.Keys(fixture.Scanning)), func(name string) bool {
		return slices.Contains([]string{"ListLanes", "ListLaneStates", "ListEndedLanes"}, name) || // no polls: each walk ends after 10,000 rows
			name == "TakeJobs" || name == "GetNextSchedule" || name == "GetGated" || // take the first of each index
			name == "ListConsumers" || name == "GetOutboxEnds" || // take the last of each
			name == "ListStaleConsumers" // a row for a consumer
	})
	p.WantNoWalk(t, "without an execution", slices.DeleteFunc(slices.Clone(polls), func(name string) bool {
		return name == "ClaimAfterPositions" || name == "ClaimOneAfterPosition" // go on behind one
	}))
	p.Start(t)
	p.WantNoWalk(t, "with the first execution", polls)
	for range 5 {
		p.Create(t)
	}
	p.WantNoWalk(t, "with the first executions", polls)
}

// A count, and what a call reads of a policy, look up the admissions of that policy, whatever the others have.
func TestCountReadsTheAdmissionsOfItsPolicy_B42(t *testing.T) {
	p := fixture.NewPlanner(t)
	counts := []string{"CountGates", "PruneSettledUses", "GetCallerAdmission", "ReleaseCallerAdmission"}
	p.WantNoWalk(t, "without admissions", counts)
	p.Exec(t, `
		INSERT INTO ffx_gate_use (partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held)
		SELECT n % 3, md5((n % 3)::text)::uuid, gen_random_uuid(), n, 0, 1, true
		FROM generate_series(1, 3000) AS n`)
	p.WantNoWalk(t, "with many admissions", counts)
	p.Analyze(t)
	p.WantNoWalk(t, "analysed with many admissions of few policies", counts)
}

// A plan that was made when a table held a dozen rows is kept while a burst fills it, until the table is analysed
// again: a statement that names its rows looks them up even so.
func TestPlansOfNamedRowsInSmallTables(t *testing.T) {
	p := fixture.NewPlanner(t)
	add := func() {
		p.NewFlowOf(t, fixture.Layered(5, 7))
		specs := make([]engine.ExecutionSpec, 5)
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Kind: "test", Lane: p.Lane, IdempotencyKey: id.IdempotencyKey(rand.Text())}
		}
		if _, err := p.CreateExecutions(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
		claimed, err := p.Claim(t.Context(), p.Worker(), 3)
		if err != nil {
			t.Fatal(err)
		}
		spend(t, p.Fixture, claimed[0].Lease)
	}
	p.Analyze(t)
	add()
	p.FillAll(t)
	// Of the indexes of ff_edge all look alike then, as do the indexes of ff_cancel_backlog_member.
	p.WantNamed(t, "analysed when empty", "LockDownstreamGroups", "ResolveEdges", "PassResults", "EnqueueSiblingCancels", "ListUncountedEdges", "ListUnsoundGroups", "RecountGroups", "ListNeeded",
		"LockUnstartedDownstream", "ListDownstreamGroups", "ReopenEdges", "MarkCountedEdges", "ListEdgesInto", "ListEdgesFrom", "ListInbound",
		"ListSiblings", "ListEdgesBelow",
		"DropEmptyBacklogs", "DropBacklogMembersOf")
	for n := 20; n <= 60; n += 10 {
		add()
		p.Analyze(t)
		p.WantNamed(t, fmt.Sprintf("analysed with %d executions", n))
	}
}

// spend uses a budget in all ways.
func spend(t *testing.T, f *fixture.Fixture, l engine.Lease) {
	t.Helper()
	created, err := budget.Create(t.Context(), f.Engine, budget.Spec{Limits: map[string]budget.Limit{"tokens": {Hard: 100}, "calls": {Hard: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	amounts := map[string]int64{"tokens": 1, "calls": 1}
	if _, err := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: created.ID, Amounts: amounts, Key: "report"}); err != nil {
		t.Fatal(err)
	}
	if _, err := budget.RecordSpend(t.Context(), f.Engine, budget.Spend{Budget: created.ID, Execution: l.Execution, Amounts: amounts, Key: "spend"}); err != nil {
		t.Fatal(err)
	}
	if _, err := budget.Reserve(t.Context(), f.Engine, l.Fence, budget.ReserveSpec{Budgets: []id.BudgetID{created.ID}, Amounts: amounts, Key: "reserve"}); err != nil {
		t.Fatal(err)
	}
}

// The table of steps may be analysed when it has those of one execution only: all others look alike, or like none.
func TestPlansOfStepsOfOneExecution(t *testing.T) {
	p := fixture.NewPlanner(t)
	c := p.Start(t)
	p.Exec(t, `INSERT INTO ffx_step (partition_key, execution_id, name, form, seq, attempt_index, outcome, tries, started_at_ms, ended_at_ms)
		SELECT $1, $2, 'step ' || i, 'step', i, 0, 'success', 1, 1, 1 FROM generate_series(0, 9999) AS i`, c.ID.Partition(), c.ID.UUID())
	p.Analyze(t)
	const one = "EndSkippedAttempts" // there is one attempt
	p.WantNamed(t, "analysed with the steps of one execution", one)
	p.WantNoWalk(t, "analysed with the steps of one execution", []string{"TakeEndedMembers"})
	p.Exec(t, "DELETE FROM ffx_step WHERE seq > 3")
	p.Maintain(t, "VACUUM ANALYZE")
	p.WantNamed(t, "analysed with its first steps", one)
}

// The first flow of a database may be a fan of a few edges, analysed before one of thousands is created. That all of these
// had one upstream says nothing about the next.
func TestPlansOfUniformEdges(t *testing.T) {
	p := fixture.NewPlanner(t)
	spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
	for i := range 40 {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: fmt.Sprint(i)})
	}
	p.NewFlowOf(t, spec)
	p.Analyze(t)
	const one = "LeaseTakenExecutions" // the queue has one entry
	p.WantNamed(t, "analysed with one fan", one)
	spec.ID = id.NewFlowID()
	p.NewFlowOf(t, spec)
	p.WantNamed(t, "analysed with one fan of two", one)
}

// A flow of thousands may be under creation when a table is vacuumed or analysed: rows in progress count as none, and the
// planner takes the table for nearly empty, or for one of many pages with a handful of rows, until it is analysed again.
// No index is better than another then, and a joined table may as well be read whole for each row of the input.
//
// Each pair of a shape, an earlier and a concurrent operation meets in a subtest; in a soak each triple does.
func TestPlansMadeDuringAFlowCreation(t *testing.T) {
	all := soak.On(t)
	for i, shape := range []struct {
		name string
		flow func(n int) engine.FlowSpec
	}{
		{"chain", func(n int) engine.FlowSpec { return fixture.Layered(n, n-1) }},
		{"fan", fanOut},
		{"side by side", func(n int) engine.FlowSpec { return fixture.Wide(n/2, false) }},
	} {
		for j, before := range []string{"nothing", "a flow", "ANALYZE"} {
			for k, during := range []string{"ANALYZE", "VACUUM", "VACUUM ANALYZE"} {
				if (i+j+k)%3 == 0 || all {
					situation := fmt.Sprintf("%s, %s before, %s during", shape.name, before, during)
					t.Run(situation, func(t *testing.T) { checkPlansMadeDuring(t, situation, shape.flow, before, during) })
				}
			}
		}
	}
}

func checkPlansMadeDuring(t *testing.T, situation string, flow func(n int) engine.FlowSpec, before, during string) {
	const size = 2000
	p := fixture.NewPlanner(t)
	if before != "nothing" {
		p.NewFlowOf(t, flow(10))
		p.ClaimAll(t)
	}
	if before == "ANALYZE" {
		p.Analyze(t)
	}
	tx, err := p.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer pgtx.Rollback(tx)
	spec := flow(size)
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Lane = p.Lane
	}
	if _, err := p.WithTx(tx).CreateFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	p.Maintain(t, during)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if claimed, err := p.Claim(t.Context(), p.Worker(), 1); err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	p.WantNamed(t, situation)
}

// fanOut is a flow of n nodes of which one leads to all others.
func fanOut(n int) engine.FlowSpec {
	spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
	for i := range n - 1 {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: fmt.Sprint(i)})
	}
	return spec
}

// In a caller's transaction statements find their rows by their keys too, whatever the caller has set and whatever the
// statistics say.
func TestPlansInACallersTransaction(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.InCallers(t, fixture.BadSettings)
	for n := 10; n <= 30; n += 10 {
		p.NewFlowOf(t, fixture.Layered(5, 7))
		specs := make([]engine.ExecutionSpec, 5)
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Kind: "test", Lane: p.Lane, IdempotencyKey: id.IdempotencyKey(rand.Text())}
		}
		if _, err := p.CreateExecutions(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Claim(t.Context(), p.Worker(), 3); err != nil {
			t.Fatal(err)
		}
		p.Analyze(t)
	}
	p.WantNamed(t, "in a caller's transaction")
}
