package statements

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
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

// The plans of the statements do not depend on when, or whether, the tables were analysed, nor on how much
// was in them: a plan is kept while they grow.
func TestPlans(t *testing.T) {
	checkPlans(t, fixture.NewPlanner(t))
}

// After `ff migrate share` the tables have indexes of FlowFabric too. No statement finds its rows by them, with any
// statistics.
func TestPlansOfASharedDatabase(t *testing.T) {
	p := fixture.NewPlanner(t)
	if _, err := schema.Share(t.Context(), p.Url, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	checkPlans(t, p)
	for situation := range skewStatistics(t, p) {
		p.Check(t, situation)
	}
}

// skewStatistics yields while the statistics know the executions of p as all ended, as nearly all ended, as all waiting, and
// as spread over many lanes.
func skewStatistics(t *testing.T, p *fixture.Planner) iter.Seq[string] {
	const end = `UPDATE ff_exec_core SET lifecycle_phase = 'terminal', ownership_state = 'unowned', eligibility_state = 'not_applicable',
		public_state = 'completed', attempt_state = 'attempt_terminal', terminal_at_ms = 1`
	return func(yield func(string) bool) {
		for _, s := range []struct{ situation, update string }{
			{"all ended", end},
			{"waiting", `UPDATE ff_exec_core SET lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
				attempt_state = 'pending_first_attempt', terminal_at_ms = NULL`},
			{"all but five ended", end + " WHERE ctid NOT IN (SELECT ctid FROM ff_exec_core LIMIT 5)"},
			{"in a thousand lanes", "UPDATE ff_exec_core SET lane_id = 'lane ' || abs(hashtext(execution_id::text)) % 1000"},
		} {
			p.Exec(t, s.update)
			p.Exec(t, "ANALYZE")
			if !yield("analysed when " + s.situation) {
				return
			}
		}
	}
}

// checkPlans explains every statement while the tables fill and their statistics age.
func checkPlans(t *testing.T, p *fixture.Planner) {
	p.Fill(t, 40)
	p.Check(t, "never analysed, 40 executions")
	p.Exec(t, "ANALYZE")
	p.Fill(t, 1000)
	p.Check(t, "analysed with 40 of 1,000 executions")
	p.Fill(t, 19_000)
	p.Exec(t, "ANALYZE")
	p.Check(t, "analysed with work under way")
	p.Exec(t, `UPDATE ff_exec_core SET lifecycle_phase = 'terminal', ownership_state = 'unowned', eligibility_state = 'not_applicable',
		public_state = 'completed', attempt_state = 'attempt_terminal', terminal_at_ms = 1`)
	p.Exec(t, "UPDATE ff_attempt SET outcome = 'success', terminal_at_ms = 1, lease_expires_at_ms = NULL")
	p.Exec(t, "ANALYZE")
	p.Check(t, "analysed when all had ended")
	p.Exec(t, `UPDATE ff_exec_core SET lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
		attempt_state = 'pending_first_attempt', terminal_at_ms = NULL`)
	p.Exec(t, "ANALYZE")
	p.Check(t, "analysed when all was waiting")
}

// A worker begins on an empty database that was analysed. Its polling statements are planned then, and the plans are
// kept while the tables fill: none may read a table from end to end.
func TestPlansOfPollsOnAnEmptyDatabase(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.Exec(t, "ANALYZE")
	polls := slices.DeleteFunc(slices.Sorted(maps.Keys(fixture.Scanning)), func(name string) bool {
		return name == "ListLanes" || // no poll: each of its walks ends after 10,000 rows
			name == "TakeJobs" || // takes the first of each index, and is planned anew each time
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

// A plan that was made when a table had a dozen rows is kept while a burst fills it, until the table is analysed
// again: statements that name their rows look them up even so.
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
		if _, err := p.Claim(t.Context(), p.Worker(), 3); err != nil {
			t.Fatal(err)
		}
	}
	p.Exec(t, "ANALYZE")
	add()
	// Of the indexes of ff_edge all look alike then.
	p.WantNamed(t, "analysed when empty", "LockDownstreamGroups", "ResolveEdges", "PassResults", "EnqueueSiblingCancels", "ListUncountedEdges", "ListUnsoundGroups", "RecountGroups", "ListNeeded",
		"LockUnstartedDownstream", "ListDownstreamGroups", "ReopenEdges", "MarkCountedEdges", "ListEdgesInto", "ListEdgesFrom", "ListInbound",
		"ListSiblings", "ListEdgesBelow")
	for n := 20; n <= 60; n += 10 {
		add()
		p.Exec(t, "ANALYZE")
		p.WantNamed(t, fmt.Sprintf("analysed with %d executions", n))
	}
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
	p.Exec(t, "ANALYZE")
	const one = "LeaseTakenExecutions" // the queue has one entry
	p.WantNamed(t, "analysed with one fan", one)
	spec.ID = id.NewFlowID()
	p.NewFlowOf(t, spec)
	p.WantNamed(t, "analysed with one fan of two", one)
}

// A flow of thousands may be under creation when a table is vacuumed or analysed: rows in progress count as none, and
// the planner takes the table for nearly empty, or for one of many pages with a handful of rows, until it is analysed
// again. No index is better than another then, and a joined table may be read in full, for each row of the input.
func TestPlansMadeDuringAFlowCreation(t *testing.T) {
	const size = 2000
	for _, before := range []string{"", "ANALYZE", "none"} {
		for _, during := range []string{"ANALYZE", "VACUUM", "VACUUM ANALYZE"} {
			for shape, flow := range map[string]func(n int) engine.FlowSpec{
				"chain":        func(n int) engine.FlowSpec { return fixture.Layered(n, n-1) },
				"fan":          fanOut,
				"side by side": func(n int) engine.FlowSpec { return fixture.Wide(n/2, false) },
			} {
				situation := fmt.Sprintf("%s, %s before, %s during", shape, before, during)
				t.Run(situation, func(t *testing.T) {
					p := fixture.NewPlanner(t)
					if before != "none" {
						p.NewFlowOf(t, flow(10))
						p.ClaimAll(t)
						p.Exec(t, cmp.Or(before, "SELECT"))
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
					p.Exec(t, during)
					if err := tx.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
					if claimed, err := p.Claim(t.Context(), p.Worker(), 1); err != nil || len(claimed) != 1 {
						t.Fatalf("claimed %d, %v", len(claimed), err)
					}
					p.WantNamed(t, situation)
				})
			}
		}
	}
}

// fanOut is a flow of n nodes, one of which leads to all others.
func fanOut(n int) engine.FlowSpec {
	spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
	for i := range n - 1 {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: fmt.Sprint(i)})
	}
	return spec
}

func TestPlansWithoutStatistics(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.Fill(t, 20_000)
	p.Check(t, "never analysed, 20,000 executions")
}

// In a caller's transaction statements also find their rows by their keys, with any settings of the caller and any
// statistics.
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
		p.Exec(t, "ANALYZE")
	}
	p.WantNamed(t, "in a caller's transaction")
}
