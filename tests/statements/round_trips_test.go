package statements

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Many are one statement, as one is: the reference takes a transaction, or several statements, for each.
func TestRoundTripsAreConstant_E30_E32(t *testing.T) {
	leases := func(claimed []engine.Claimed) []engine.Lease {
		all := make([]engine.Lease, len(claimed))
		for i := range claimed {
			all[i] = claimed[i].Lease
		}
		return all
	}
	specs := func(f *fixture.Fixture, n int, change func(*engine.ExecutionSpec)) []engine.ExecutionSpec {
		all := make([]engine.ExecutionSpec, n)
		for i := range all {
			all[i].Lane, all[i].Kind = f.Lane, "test"
			change(&all[i])
		}
		return all
	}
	plain := func(*engine.ExecutionSpec) {}
	for _, c := range []struct {
		name    string
		spec    func(*engine.ExecutionSpec) // of an execution created before; nil: there is none, unless it is started, too
		started bool
		do      func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, n int) error
		fast    string // the one statement it consists of; "" for those of several

		few, many int // 1 and 200 if zero
	}{
		{name: "create", fast: "InsertAlike", do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			_, err := f.CreateExecutions(ctx, specs(f, n, plain))
			return err
		}},
		{name: "create with tags", fast: "InsertAlike", do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			all := specs(f, n, plain)
			for i := range all {
				all[i].Tags = map[string]string{"app.n": strconv.Itoa(i)}
			}
			_, err := f.CreateExecutions(ctx, all)
			return err
		}},
		{name: "create of several kinds", few: 40, many: 400, do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			all := specs(f, n, plain)
			for i := range all {
				all[i].Kind = strconv.Itoa(i % 3)
			}
			_, err := f.CreateExecutions(ctx, all)
			return err
		}},
		{name: "create with a start", fast: "InsertExecutions", do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			_, err := f.CreateExecutions(ctx, specs(f, n, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Hour) }))
			return err
		}},
		{name: "create with keys", do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			all := specs(f, n, plain)
			for i := range all {
				all[i].IdempotencyKey = f.Key(strings.Repeat("k", i+1) + f.Time().String())
			}
			_, err := f.CreateExecutions(ctx, all)
			return err
		}},
		{name: "claim", spec: plain, fast: "ClaimFromHead", do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			claimed, err := f.Claim(ctx, f.Worker(), n)
			if err == nil && len(claimed) != n {
				return errors.New("claimed too few")
			}
			return err
		}},
		{name: "renew", started: true, fast: "RenewLeases", do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			renewals := make([]engine.Renewal, len(leases))
			for i, l := range leases {
				renewals[i].Lease = l
			}
			_, err := f.RenewLeases(ctx, renewals)
			return err
		}},
		{name: "record steps", started: true, fast: "RecordSteps", do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			steps := make([]engine.StepRecord, len(leases))
			for i, l := range leases {
				steps[i] = engine.StepRecord{Lease: l, Name: "step", Result: []byte("out")}
			}
			_, err := f.RecordSteps(ctx, steps)
			return err
		}},
		{name: "append frames", started: true, fast: "AppendFrames", do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			batches := make([]stream.Batch, len(leases))
			for i, l := range leases {
				batches[i] = stream.Batch{Lease: l, Frames: fixture.Frames[:1]}
			}
			_, err := stream.AppendEach(ctx, f.Engine, batches)
			return err
		}},
		{name: "complete one", started: true, fast: "CompleteOne", many: 1, do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			_, err := f.CompleteExecutions(ctx, []engine.Completion{{Lease: leases[0], Result: []byte("out")}})
			return err
		}},
		{name: "complete", started: true, fast: "CompleteExecutions", few: 2, do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			completions := make([]engine.Completion, len(leases))
			for i, l := range leases {
				completions[i] = engine.Completion{Lease: l, Result: []byte("out")}
			}
			_, err := f.CompleteExecutions(ctx, completions)
			return err
		}},
		{name: "fail", started: true, do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			failures := make([]engine.AttemptFailure, len(leases))
			for i, l := range leases {
				failures[i].Lease = l
			}
			_, err := f.FailExecutions(ctx, failures)
			return err
		}},
		{name: "fail for good", started: true, do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			failures := make([]engine.AttemptFailure, len(leases))
			for i, l := range leases {
				failures[i] = engine.AttemptFailure{Lease: l, Failure: engine.Failure{Class: policy.Permanent}}
			}
			_, err := f.FailExecutions(ctx, failures)
			return err
		}},
		{name: "release", started: true, do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			_, err := f.ReleaseLeases(ctx, leases)
			return err
		}},
		{name: "signal", started: true, do: func(ctx context.Context, f *fixture.Fixture, leases []engine.Lease, _ int) error {
			specs := make([]engine.SignalSpec, len(leases))
			for i, l := range leases {
				specs[i] = engine.SignalSpec{Execution: l.Execution, Name: "ready"}
			}
			_, err := f.SignalEach(ctx, specs)
			return err
		}},
		{name: "expire leases", started: true, do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			f.Advance(fixture.LeaseTTL)
			_, err := upkeep.Of(f.Engine).ExpireLeases(ctx, n)
			return err
		}},
		{name: "expire attempts", started: true, spec: func(spec *engine.ExecutionSpec) {
			spec.Policy = &policy.Execution{AttemptTimeout: time.Millisecond}
		}, do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			f.Advance(fixture.LeaseTTL)
			_, err := upkeep.Of(f.Engine).ExpireAttempts(ctx, n)
			return err
		}},
		{name: "expire deadlines", spec: func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Millisecond) }, do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			f.Advance(time.Second)
			_, err := upkeep.Of(f.Engine).ExpireDeadlines(ctx, n)
			return err
		}},
		{name: "promote", fast: "PromoteDelayed", spec: func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Hour) }, do: func(ctx context.Context, f *fixture.Fixture, _ []engine.Lease, n int) error {
			f.Advance(2 * time.Hour)
			_, err := upkeep.Of(f.Engine).PromoteDelayed(ctx, n)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared := fixture.NewCloned(t)
			log := new(fixture.RoundTripLog)
			pool := fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
			measure := func(n int) ([]string, int) {
				f := fixture.On(t, pool, shared.Url)
				f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(1000 * time.Hour) }) // the lane is known from now on
				spec := c.spec
				if spec == nil {
					spec = plain
				}
				var held []engine.Lease
				if c.spec != nil || c.started {
					if _, err := f.CreateExecutions(t.Context(), specs(f, n, spec)); err != nil {
						t.Fatal(err)
					}
				}
				if c.started {
					if held = leases(f.ClaimN(t, n)); len(held) != n {
						t.Fatalf("claimed %d, want %d", len(held), n)
					}
				}
				return log.Of(func() {
					if err := c.do(t.Context(), f, held, n); err != nil {
						t.Error(err)
					}
				})
			}
			few, many := cmp.Or(c.few, 1), cmp.Or(c.many, 200)
			one, trips := measure(few)
			all, tripsOfMany := measure(many)
			if !slices.Equal(one, all) || trips != tripsOfMany {
				t.Errorf("%d take %q in %d round trips, %d take %q in %d", few, one, trips, many, all, tripsOfMany)
			}
			// The engine's settings travel with the statement.
			if want := []string{"select", c.fast}; c.fast != "" && (!slices.Equal(one, want) || trips != 1) {
				t.Errorf("takes %q in %d round trips, want %q in one", one, trips, want)
			}
			t.Logf("%d round trips: %q", trips, one)
		})
	}
}

// In a caller's transaction the savepoint travels with the statement, and a creation that finds an existing row goes
// back to it.
func TestRoundTripsOfCreationsInATransaction(t *testing.T) {
	shared := fixture.NewCloned(t)
	log := new(fixture.RoundTripLog)
	f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
	existing := f.Create(t)
	tx := f.BeginTx(t)
	begin, end := []string{"savepoint ffx_operation", "-- keep the caller's planner settings"}, []string{"-- put the caller's planner settings back", "release savepoint ffx_operation"}
	between := func(names ...string) []string { return slices.Concat(begin, names, end) }
	for _, c := range []struct {
		name  string
		specs []engine.ExecutionSpec
		sent  []string
		trips int
	}{
		{"one", fixture.ManyLike(f, 1, fixture.WithTags), between("InsertAlike"), 1},
		{"many", fixture.ManyLike(f, 99, fixture.WithTags), between("InsertAlike"), 1},
		{"more than is sent in one go", fixture.ManyLike(f, 3000, func(_ int, spec *engine.ExecutionSpec) { spec.Payload = nil }), between("InsertAlike"), map[bool]int{true: 1, false: 3}[f.LimitsTransactions(t)]},
		{"a duplicate", []engine.ExecutionSpec{{ID: existing, Lane: f.Lane, Kind: "test"}}, slices.Concat(begin, []string{
			"InsertAlike", "rollback to savepoint ffx_operation; release savepoint ffx_operation",
		}, between("InsertExecutions")), 3},
	} {
		sent, trips := log.Of(func() {
			if _, err := f.WithTx(tx).CreateExecutions(t.Context(), c.specs); err != nil {
				t.Error(err)
			}
		})
		if !slices.Equal(sent, c.sent) || trips != c.trips {
			t.Errorf("%s takes %q in %d round trips, want %q in %d", c.name, sent, trips, c.sent, c.trips)
		}
	}
	fixture.Commit(t, tx)
	f.WantQueue(t, t, "committed")
}

// In a caller's transaction the savepoint travels with the first statement. A call whose statements only the server can
// refuse is one round trip with the release. A refusal goes back to the savepoint, and locks first.
func TestRoundTripsInACallersTransaction(t *testing.T) {
	shared := fixture.NewCloned(t)
	log := new(fixture.RoundTripLog)
	f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
	ended := f.Start(t)
	if err := f.CompleteExecution(t.Context(), ended.Lease, nil); err != nil {
		t.Fatal(err)
	}
	stale := ended.Lease
	stale.Epoch++
	waiting := f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Hour) })
	type call = func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error
	complete := func(ctx context.Context, e *engine.Engine, leases ...engine.Lease) ([]error, error) {
		completions := make([]engine.Completion, len(leases))
		for i, l := range leases {
			completions[i].Lease = l
		}
		return e.CompleteExecutions(ctx, completions)
	}
	for _, c := range []struct {
		name  string
		trips int
		do    call
		err   error
	}{
		{name: "complete", trips: 1, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			return e.CompleteExecution(ctx, c.Lease, nil)
		}},
		{name: "complete a list of one", trips: 1, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			outcomes, err := complete(ctx, e, c.Lease)
			return errors.Join(append(outcomes, err)...)
		}},
		// The statement, back to the savepoint, with locks, back to the savepoint, and the others with locks.
		{name: "complete two, one of them stale", trips: 9, err: fferr.ErrStaleLease, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			outcomes, err := complete(ctx, e, c.Lease, stale)
			return errors.Join(append(outcomes, err)...)
		}},
		{name: "complete a stale one", trips: 5, err: fferr.ErrStaleLease, do: func(ctx context.Context, e *engine.Engine, _ *engine.Claimed) error {
			return e.CompleteExecution(ctx, stale, nil)
		}},
		{name: "cancel one that waits", trips: 1, do: func(ctx context.Context, e *engine.Engine, _ *engine.Claimed) error {
			return e.CancelExecution(ctx, engine.CancelSpec{ID: waiting})
		}},
		{name: "cancel a leased one", trips: 1, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			return e.CancelExecution(ctx, engine.CancelSpec{ID: c.ID})
		}},
		{name: "cancel an ended one", trips: 5, err: fferr.ErrEnded, do: func(ctx context.Context, e *engine.Engine, _ *engine.Claimed) error {
			return e.CancelExecution(ctx, engine.CancelSpec{ID: ended.ID})
		}},
		{name: "signal", trips: 2, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			_, err := e.Signal(ctx, engine.SignalSpec{Execution: c.ID, Name: "ready"})
			return err
		}},
		{name: "signal a list of two", trips: 1, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			_, err := e.SignalEach(ctx, []engine.SignalSpec{{Execution: c.ID, Name: "ready"}, {Execution: c.ID, Name: "ready"}})
			return err
		}},
		{name: "renew", trips: 2, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			_, err := e.RenewLease(ctx, c.Lease, 0)
			return err
		}},
		{name: "fail", trips: 3, do: func(ctx context.Context, e *engine.Engine, c *engine.Claimed) error {
			_, err := e.FailExecution(ctx, c.Lease, engine.Failure{})
			return err
		}},
	} {
		claimed := f.Start(t)
		tx := f.BeginTx(t)
		sent, trips := log.Of(func() {
			if err := c.do(t.Context(), f.WithTx(tx), &claimed); !errors.Is(err, c.err) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.err)
			}
		})
		if trips != c.trips {
			t.Errorf("%s takes %q in %d round trips, want %d", c.name, sent, trips, c.trips)
		}
		fixture.Commit(t, tx)
	}
}

func TestRoundTripsOfSingleCalls(t *testing.T) {
	shared := fixture.NewCloned(t)
	log := new(fixture.RoundTripLog)
	f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
	c := f.Start(t)
	claimer := f.Claimer(t)
	for _, call := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"describe", func(ctx context.Context) error { _, err := f.DescribeExecution(ctx, c.ID); return err }},
		{"state", func(ctx context.Context) error { _, err := f.ExecutionState(ctx, c.ID); return err }},
		{"input", func(ctx context.Context) error { _, err := f.ExecutionInput(ctx, c.ID); return err }},
		{"list", func(ctx context.Context) error {
			_, err := f.ListExecutions(ctx, engine.ExecutionFilter{}, "", 1)
			return err
		}},
		{"record an action", func(ctx context.Context) error {
			return operator.RecordAction(ctx, f.Engine, operator.Action{By: "ada", Name: "execution.cancel", Execution: c.ID})
		}},
		{"list the log", func(ctx context.Context) error {
			_, err := operator.ListLog(ctx, f.Engine, operator.LogFilter{By: "ada"}, "", 0)
			return err
		}},
		{"set a tag", func(ctx context.Context) error { return f.SetExecutionTag(ctx, c.ID, "app.set", "v") }},
		{"create", func(ctx context.Context) error {
			_, err := f.CreateExecution(ctx, engine.ExecutionSpec{Kind: "test", Lane: f.Lane})
			return err
		}},
		{"claim", func(ctx context.Context) error { _, err := claimer.Claim(ctx, 1); return err }},
		{"claim of nothing", func(ctx context.Context) error { _, err := f.Claim(ctx, f.Worker(), 1); return err }},
		{"renew", func(ctx context.Context) error { _, err := f.RenewLease(ctx, c.Lease, 0); return err }},
		{"complete", func(ctx context.Context) error { return f.CompleteExecution(ctx, c.Lease, nil) }},
	} {
		sent, trips := log.Of(func() {
			if err := call.do(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if trips != 1 || len(sent) != 2 && len(sent) != 1 {
			t.Errorf("%s takes %q in %d round trips, want one statement in one", call.name, sent, trips)
		}
	}
	sent, trips := log.Of(func() {
		if _, err := f.ListLanes(t.Context(), engine.LaneFilter{}, "", 1); err != nil {
			t.Error(err)
		}
	})
	if trips != 1 {
		t.Errorf("a page of lanes takes %q in %d round trips, want one", sent, trips)
	}
}

// Members on which nothing depends are completed in one round trip between those that begin and end the transaction.
func TestRoundTripsOfMembers(t *testing.T) {
	shared := fixture.NewCloned(t)
	log := new(fixture.RoundTripLog)
	f := fixture.FlowsOn(fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url))
	for _, parts := range [][]string{{"a", "b", "c"}, {"a>b", "b>c"}} {
		f.Draw(t, nil, parts...)
		var completions []engine.Completion
		for _, c := range f.ClaimN(t, 10) {
			completions = append(completions, engine.Completion{Lease: c.Lease})
		}
		complete := "CompleteExecutions"
		if len(completions) == 1 {
			complete = "CompleteOne"
		}
		want, wantTrips := []string{"begin isolation level read committed;select", "LockFlowsShared", complete, "LockDownstreamGroups"}, 3
		if len(parts) == 2 {
			want, wantTrips = append(want, "ResolveEdges", "ReleaseDownstream"), 5
		}
		sent, trips := log.Of(func() {
			if outcomes, err := f.CompleteExecutions(t.Context(), completions); err != nil || errors.Join(outcomes...) != nil {
				t.Error(outcomes, err)
			}
		})
		if want = append(want, "commit"); !slices.Equal(sent, want) || trips != wantTrips {
			t.Errorf("%d members of %q take %q in %d round trips, want %q in %d", len(completions), parts, sent, trips, want, wantTrips)
		}
	}
}
