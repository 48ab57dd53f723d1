package events

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Every operation that ends executions writes one event for each end, with its namespace and tag, and likewise for
// leases and operators' calls: a filtered reader gets exactly the events of an unfiltered one. Each statement inserts
// the events of all its ends: a batch of many takes as many statements as one of few.
func TestEveryEndHasOneEvent_V5_V8(t *testing.T) {
	tenant := events.Filter{Namespace: "tenant", Tag: events.Tag{Key: events.InstanceTagKey, Value: "i-7"}}
	of := func(spec *engine.ExecutionSpec) {
		spec.Namespace, spec.Tags = "tenant", map[string]string{events.InstanceTagKey: "i-7"}
	}
	flowOf := func(t *testing.T, f *fixture.Flows, rules fixture.When, parts ...string) id.FlowID {
		spec := fixture.Chart(rules, parts...)
		spec.Namespace, spec.Tags = "tenant", map[string]string{events.InstanceTagKey: "i-7"}
		for i := range spec.Nodes {
			of(&spec.Nodes[i].Spec)
		}
		return f.NewFlowOf(t, spec)
	}
	for _, c := range []struct {
		name string
		want []state.CompletionOutcome
		end  func(t *testing.T, f *fixture.Flows)
	}{
		{"complete many", []state.CompletionOutcome{"success", "success", "success"}, func(t *testing.T, f *fixture.Flows) {
			for range 3 {
				f.Create(t, of)
			}
			claimed, err := f.Claim(t.Context(), f.Worker(), 3)
			if err != nil || len(claimed) != 3 {
				t.Fatal(claimed, err)
			}
			var completions []engine.Completion
			for _, c := range claimed {
				completions = append(completions, engine.Completion{Lease: c.Lease})
			}
			if _, err := f.RenewLeases(t.Context(), []engine.Renewal{{Lease: claimed[0].Lease}}); err != nil {
				t.Fatal(err)
			}
			if outcomes, err := f.CompleteExecutions(t.Context(), completions); err != nil || slices.ContainsFunc(outcomes, func(err error) bool { return err != nil }) {
				t.Fatal(outcomes, err)
			}
		}},
		{"fail, with what it skips", []state.CompletionOutcome{"failed", "skipped", "skipped"}, func(t *testing.T, f *fixture.Flows) {
			f.Fail(t, flowOf(t, f, nil, "a>b", "b>c"), "a")
		}},
		{"cancel what waits, runs and is delayed", []state.CompletionOutcome{"cancelled", "cancelled", "cancelled"}, func(t *testing.T, f *fixture.Flows) {
			running := f.Fixture.Start(t, of)
			specs := []engine.CancelSpec{{ID: running.ID}, {ID: f.Create(t, of)}, {ID: f.Create(t, of, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.Time().Add(time.Hour) })}}
			if outcomes, err := f.CancelExecutions(t.Context(), specs); err != nil || slices.ContainsFunc(outcomes, func(err error) bool { return err != nil }) {
				t.Fatal(outcomes, err)
			}
		}},
		{"revoke, and complete again", []state.CompletionOutcome{"success"}, func(t *testing.T, f *fixture.Flows) {
			running := f.Fixture.Start(t, of)
			if err := writers["revoke"](t.Context(), f.Engine, running.Lease); err != nil {
				t.Fatal(err)
			}
			if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
				t.Fatal(err)
			}
		}},
		{"replay, which ends it again", []state.CompletionOutcome{"failed", "success"}, func(t *testing.T, f *fixture.Flows) {
			running := f.Fixture.Start(t, of)
			if _, err := f.FailExecution(t.Context(), running.Lease, fixture.ForGood); err != nil {
				t.Fatal(err)
			}
			if _, err := operator.Replay(t.Context(), f.Fixture.Engine, running.ID, operator.ReplayCompleted); err != nil {
				t.Fatal(err)
			}
			if err := operator.Prioritize(t.Context(), f.Fixture.Engine, running.ID, 3); err != nil {
				t.Fatal(err)
			}
			if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
				t.Fatal(err)
			}
		}},
		{"cancel a flow", []state.CompletionOutcome{"cancelled", "cancelled", "cancelled"}, func(t *testing.T, f *fixture.Flows) {
			flow := flowOf(t, f, nil, "a>b", "b>c")
			f.Lease(t, flow, "a")
			if _, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
				t.Fatal(err)
			}
		}},
		{"cancel a flow with grace", []state.CompletionOutcome{"cancelled", "cancelled", "cancelled"}, func(t *testing.T, f *fixture.Flows) {
			flow := flowOf(t, f, nil, "a>b", "b>c")
			f.Lease(t, flow, "a")
			if _, err := f.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: flow, Grace: time.Minute}); err != nil {
				t.Fatal(err)
			}
			f.Advance(2 * time.Minute)
			if _, err := upkeep.Of(f.Engine).CancelFlows(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}},
		{"cancel what a group needs no longer", []state.CompletionOutcome{"success", "cancelled"}, func(t *testing.T, f *fixture.Flows) {
			flow := flowOf(t, f, fixture.When{"c": policy.AnyOf(policy.CancelRemaining)}, "a>c", "b>c")
			f.Succeed(t, flow, "a")
			fixture.Run(t, upkeep.Of(f.Engine).CancelSiblings, 1)
		}},
		{"deadline", []state.CompletionOutcome{"expired"}, func(t *testing.T, f *fixture.Flows) {
			f.Fixture.Start(t, of, func(spec *engine.ExecutionSpec) { spec.Deadline = f.Time().Add(time.Second) })
			f.Advance(2 * time.Second)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
		}},
		{"timeout of the attempt", []state.CompletionOutcome{"expired"}, func(t *testing.T, f *fixture.Flows) {
			f.Fixture.Start(t, of, func(spec *engine.ExecutionSpec) {
				spec.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}, AttemptTimeout: time.Second}
			})
			f.Advance(2 * time.Second)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
		}},
		{"lost too often", []state.CompletionOutcome{"failed"}, func(t *testing.T, f *fixture.Flows) {
			f.Fixture.Start(t, of, func(spec *engine.ExecutionSpec) { spec.Policy = &policy.Execution{MaxReclaims: 1} })
			for range 2 {
				f.Advance(2 * fixture.LeaseTTL)
				fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
				if _, err := f.Claim(t.Context(), f.Worker(), 1); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			c.end(t, f)
			completions := stored(t, f.Engine, f.Fixture, "completion", events.Completions(tenant))
			var outcomes []state.CompletionOutcome
			for _, e := range completions {
				outcomes = append(outcomes, e.Outcome)
			}
			if !slices.Equal(outcomes, c.want) {
				t.Errorf("told of the ends %q, want %q", outcomes, c.want)
			}
			stored(t, f.Engine, f.Fixture, "lease", events.Leases(tenant))
			stored(t, f.Engine, f.Fixture, "operator", events.OperatorCalls(tenant))
		})
	}
}

// stored returns the stored events of an outbox that match a filter, by their own columns. The filter must match all
// of them.
func stored[E any](t *testing.T, eng *engine.Engine, f *fixture.Fixture, outbox string, src events.Source[E]) []E {
	t.Helper()
	sub := subscribe(t, eng, src, events.Options{After: events.Beginning})
	count := fixture.Texts(t, f.Pool, fmt.Sprintf("SELECT count(*)::text FROM ff_%s_event", outbox))[0]
	matching := fixture.Texts(t, f.Pool, fmt.Sprintf("SELECT count(*)::text FROM ff_%s_event WHERE namespace = 'tenant' AND instance_tag = 'i-7'", outbox))[0]
	if count != matching {
		t.Errorf("of %s %s events %s say whose they are", count, outbox, matching)
	}
	var all []E
	for fmt.Sprint(len(all)) != count {
		event, err := nextEvent(t, sub)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, event)
	}
	return all
}

// A batch writes the events of all its members by the statements of one.
func TestBatchWritesItsEventsInOneStatement_V5(t *testing.T) {
	f := fixture.NewCloned(t)
	log := new(fixture.StatementLog)
	eng := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	var few, many []string
	for _, n := range []int{4, 200} { // of one by itself the completion has another form
		var completions []engine.Completion
		var cancels []engine.CancelSpec
		for i, c := range f.StartMany(t, n) {
			if i%2 == 0 {
				completions = append(completions, engine.Completion{Lease: c.Lease})
			} else {
				cancels = append(cancels, engine.CancelSpec{ID: c.ID})
			}
		}
		sent := fixture.Names(log.During(func() {
			if _, err := eng.CompleteExecutions(context.WithoutCancel(t.Context()), completions); err != nil {
				t.Error(err)
			}
			if _, err := eng.CancelExecutions(context.WithoutCancel(t.Context()), cancels); err != nil {
				t.Error(err)
			}
		}))
		if n == 4 {
			few = sent
		} else {
			many = sent
		}
	}
	if !slices.Equal(few, many) {
		t.Errorf("four take %q, two hundred %q", few, many)
	}
}

// A renewal sends no notification in its transaction: the commit of one that notifies waits for that of every other.
func TestTransactionsNeverNotify_V14(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it notifies'; END $$`)
	for _, outbox := range []string{"completion", "lease", "operator"} {
		f.Exec(t, fmt.Sprintf(`CREATE TRIGGER refuse AFTER INSERT ON ff_%s_event FOR EACH STATEMENT
			WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION refuse()`, outbox))
	}
	for name, write := range writers {
		c := f.Start(t)
		if _, err := f.RenewLease(t.Context(), c.Lease, 0); err != nil {
			t.Fatal(err)
		}
		if name == "replay" {
			if _, err := f.FailExecution(t.Context(), c.Lease, fixture.ForGood); err != nil {
				t.Fatal(err)
			}
		}
		if err := write(t.Context(), f.Engine, c.Lease); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: c.ID}); err != nil && name != "complete" && name != "cancel" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
