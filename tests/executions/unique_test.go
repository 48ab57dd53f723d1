package executions

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// uniqueSpec is a spec whose key is of its lane, which is the test's, and its payload.
func uniqueSpec(f *fixture.Fixture, payload string, change ...func(*engine.Unique)) engine.ExecutionSpec {
	u := &engine.Unique{ByLane: true, ByArgs: true}
	for _, c := range change {
		c(u)
	}
	return engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Payload: []byte(payload), Unique: u}
}

func byOrder(u *engine.Unique) { u.Fields = []string{"order"} }

func while(w engine.UniqueWhile) func(*engine.Unique) { return func(u *engine.Unique) { u.While = w } }

func ifTaken(p engine.UniquePolicy) func(*engine.Unique) {
	return func(u *engine.Unique) { u.IfTaken = p }
}

func create(t *testing.T, e *engine.Engine, spec engine.ExecutionSpec) engine.Created {
	t.Helper()
	created, err := e.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// wantNew wants a creation without a duplicate, and returns its execution.
func wantNew(t *testing.T, created engine.Created) id.ExecutionID {
	t.Helper()
	if created.Duplicate || created.Replaced || created.State == "" {
		t.Errorf("created %+v, want a new one", created)
	}
	return created.ID
}

func wantDuplicate(t *testing.T, created engine.Created, of id.ExecutionID) {
	t.Helper()
	if !created.Duplicate || created.ID != of || created.State != "" || !created.Cancelled.IsZero() {
		t.Errorf("created %+v, want a duplicate of %s", created, of)
	}
}

// uniqueKeys counts the keys of executions on the test's lane that are in force.
func uniqueKeys(t *testing.T, f *fixture.Fixture) int {
	t.Helper()
	return len(fixture.Texts(t, f.Pool, `
		SELECT u.key::text FROM ffx_unique AS u JOIN ff_exec_core AS e
		ON e.partition_key = u.holder_partition_key AND e.execution_id = u.execution_id AND e.ffx_unique_key = u.key
		WHERE e.lane_id = $1 AND CASE u.lasts
			WHEN 'waiting' THEN e.attempt_state = 'pending_first_attempt' AND e.lifecycle_phase = 'runnable'
			WHEN 'unfinished' THEN e.lifecycle_phase NOT IN ('terminal', 'cancelled')
			WHEN 'unfailed' THEN e.public_state NOT IN ('failed', 'expired', 'cancelled')
			ELSE true
		END`, f.Lane))
}

// Each part of a key makes another key, and equal parts the same one. The answer names the execution that has it.
func TestUniqueKeyHasItsParts(t *testing.T) {
	f := fixture.New(t)
	base := func() engine.ExecutionSpec { return uniqueSpec(f, `{"order":1,"by":"ada"}`, byOrder) }
	x := wantNew(t, create(t, f.Engine, base()))
	for name, c := range map[string]struct {
		change func(*engine.ExecutionSpec)
		other  bool
	}{
		"the same":     {func(*engine.ExecutionSpec) {}, false},
		"another form": {func(s *engine.ExecutionSpec) { s.Payload = []byte(`{"by":"bob", "order":1.0}`) }, false},
		"another policy": {func(s *engine.ExecutionSpec) {
			s.Unique.IfTaken, s.Unique.While = engine.KeepExisting, engine.WhileKept
		}, false},
		"another priority": {func(s *engine.ExecutionSpec) { s.Priority, s.Tags = 7, map[string]string{"app.by": "bob"} }, false},
		"another key":      {func(s *engine.ExecutionSpec) { s.IdempotencyKey = f.Key("1") }, false},
		"another order":    {func(s *engine.ExecutionSpec) { s.Payload = []byte(`{"order":2}`) }, true},
		"all args":         {func(s *engine.ExecutionSpec) { s.Unique.Fields = nil }, true},
		"another kind":     {func(s *engine.ExecutionSpec) { s.Kind = "other" }, true},
		"another lane":     {func(s *engine.ExecutionSpec) { s.Lane += "-other" }, true},
		"namespace":        {func(s *engine.ExecutionSpec) { s.Namespace = "other" }, true},
		"a period":         {func(s *engine.ExecutionSpec) { s.Unique.Period = time.Hour }, true},
		"not unique":       {func(s *engine.ExecutionSpec) { s.Unique = nil }, true},
	} {
		spec := base()
		c.change(&spec)
		if created := create(t, f.Engine, spec); c.other {
			if wantNew(t, created) == x {
				t.Errorf("%s: the same id", name)
			}
		} else {
			wantDuplicate(t, created, x)
		}
	}
	s, err := f.DescribeExecution(t.Context(), x)
	if text, key, _ := strings.Cut(s.Unique, ":"); err != nil || text != "unfinished" || len(key) != 32 {
		t.Errorf("described %q, %v", s.Unique, err)
	}
}

// A period counts by the due time, in UTC.
func TestUniquePeriod(t *testing.T) {
	f := fixture.New(t)
	now, err := f.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hourly := func(u *engine.Unique) { u.Period = time.Hour }
	at := func(due time.Time) engine.ExecutionSpec {
		spec := uniqueSpec(f, "{}", hourly)
		spec.DelayUntil = due
		return spec
	}
	x := wantNew(t, create(t, f.Engine, at(time.Time{})))
	next := now.Truncate(time.Hour).Add(time.Hour)
	y := wantNew(t, create(t, f.Engine, at(next)))
	wantDuplicate(t, create(t, f.Engine, at(next.Add(-time.Millisecond))), x)
	wantDuplicate(t, create(t, f.Engine, at(next.Add(time.Hour-time.Millisecond))), y)
	f.Advance(next.Sub(now))
	wantDuplicate(t, create(t, f.Engine, at(time.Time{})), y)
}

// An execution has its key while it waits, until it has ended, or until it is deleted. A retry and a wait don't free it.
func TestUniqueWhile(t *testing.T) {
	for _, c := range []struct {
		while            engine.UniqueWhile
		started, retried bool // whether it has the key then
		ended            bool
	}{
		{engine.WhileWaiting, false, false, false},
		{engine.WhileUnfinished, true, true, false},
		{"", true, true, false},
		{engine.WhileUnfailed, true, true, false},
		{engine.WhileKept, true, true, true},
	} {
		for _, end := range []string{"completed", "failed", "cancelled"} {
			t.Run(string(c.while)+" "+end, func(t *testing.T) {
				f := fixture.New(t)
				spec := uniqueSpec(f, `{"order":1}`, while(c.while))
				x := wantNew(t, create(t, f.Engine, spec))
				wantDuplicate(t, create(t, f.Engine, spec), x)
				has := func(when string, want bool) {
					t.Helper()
					if n := uniqueKeys(t, f); (n == 1) != want {
						t.Errorf("%s: %d keys, want it to have its key: %v", when, n, want)
					}
				}
				claimed := f.ClaimOne(t)
				has("started", c.started)
				if errs, err := f.ReleaseLeases(t.Context(), []engine.Lease{claimed.Lease}); errors.Join(err, errs[0]) != nil {
					t.Fatal(errs, err)
				}
				has("released", c.retried)
				var err error
				switch end {
				case "completed":
					err = f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil)
				case "failed":
					_, err = f.FailExecution(t.Context(), f.ClaimOne(t).Lease, engine.Failure{Message: "broken", Class: policy.Permanent})
				default:
					err = f.CancelExecution(t.Context(), engine.CancelSpec{ID: x})
				}
				if err != nil {
					t.Fatal(err)
				}
				keeps := c.ended || c.while == engine.WhileUnfailed && end == "completed"
				has("ended", keeps)
				if created := create(t, f.Engine, spec); keeps {
					wantDuplicate(t, created, x)
				} else {
					wantNew(t, created)
				}
			})
		}
	}
}

// A waiting execution takes over the payload and the due time of a later creation, up to the limit. A started one
// doesn't, and is not in the way.
func TestReplaceWaiting(t *testing.T) {
	f := fixture.New(t)
	now, err := f.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := func(payload string, delay time.Duration) engine.ExecutionSpec {
		spec := uniqueSpec(f, payload, byOrder, ifTaken(engine.ReplaceWaiting), func(u *engine.Unique) { u.Within = time.Minute })
		if delay > 0 {
			spec.DelayUntil = now.Add(delay)
		}
		return spec
	}
	x := wantNew(t, create(t, f.Engine, at(`{"order":1,"n":1}`, 10*time.Second)))
	want := func(payload string, delay time.Duration, public state.PublicState) {
		t.Helper()
		s, err := f.DescribeExecution(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		due := time.Time{}
		if delay > 0 {
			due = now.Add(delay)
		}
		if !s.DelayUntil.Equal(due) || s.State.Public != public {
			t.Errorf("due at %v and %s, want %v and %s", s.DelayUntil, s.State.Public, due, public)
		}
		if got := fixture.Texts(t, f.Pool, "SELECT convert_from(payload, 'UTF8') FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID()); got[0] != payload {
			t.Errorf("payload %s, want %s", got, payload)
		}
	}
	replace := func(spec engine.ExecutionSpec) {
		t.Helper()
		created := create(t, f.Engine, spec)
		wantDuplicate(t, created, x)
		if !created.Replaced {
			t.Error("was not replaced")
		}
	}
	replace(at(`{"order":1,"n":2}`, 30*time.Second))
	want(`{"order":1,"n":2}`, 30*time.Second, state.PublicDelayed)
	replace(at(`{"order":1,"n":3}`, 90*time.Second))
	want(`{"order":1,"n":3}`, time.Minute, state.PublicDelayed)
	replace(at(`{"order":1,"n":4}`, 0))
	want(`{"order":1,"n":4}`, 0, state.PublicWaiting)
	replace(at(`{"order":1,"n":5}`, time.Second))
	want(`{"order":1,"n":5}`, time.Second, state.PublicDelayed)
	f.WantNothingClaimable(t)
	replace(at(`{"order":1,"n":6}`, 0))
	if claimed := f.ClaimOne(t); claimed.ID != x || string(claimed.Payload) != `{"order":1,"n":6}` {
		t.Errorf("claimed %+v", claimed)
	}
	wantNew(t, create(t, f.Engine, at(`{"order":1,"n":7}`, 0)))

	// One of another declaration that has started is in the way, and stays as it is.
	y := wantNew(t, create(t, f.Engine, uniqueSpec(f, `{"order":2,"n":1}`, byOrder)))
	created := create(t, f.Engine, at(`{"order":2,"n":2}`, 0))
	if wantDuplicate(t, created, y); !created.Replaced {
		t.Error("a waiting one of another declaration was not replaced")
	}
	f.ClaimN(t, 2)
	created = create(t, f.Engine, at(`{"order":2,"n":3}`, 0))
	if wantDuplicate(t, created, y); created.Replaced {
		t.Error("a started one was replaced")
	}
}

// A creation cancels the execution in the way, in one transaction, and its holder loses it. One that has ended and is
// kept stays in the way.
func TestCancelExisting(t *testing.T) {
	f := fixture.New(t)
	spec := uniqueSpec(f, `{"order":1}`, ifTaken(engine.CancelExisting))
	x := wantNew(t, create(t, f.Engine, spec))
	claimed := f.ClaimOne(t)
	created := create(t, f.Engine, spec)
	if y := wantNew(t, created); created.Cancelled != x || y == x {
		t.Errorf("created %+v, want %s to be cancelled", created, x)
	}
	if s, err := f.DescribeExecution(t.Context(), x); err != nil || s.State.Public != state.PublicCancelled {
		t.Errorf("described %+v, %v", s.State, err)
	}
	if err := f.CompleteExecution(t.Context(), claimed.Lease, nil); err == nil {
		t.Error("the cancelled execution was completed")
	}
	if n := uniqueKeys(t, f); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
	kept := uniqueSpec(f, `{"order":2}`, ifTaken(engine.CancelExisting), while(engine.WhileKept))
	first := create(t, f.Engine, kept)
	second := create(t, f.Engine, kept)
	if wantNew(t, second); second.Cancelled != first.ID {
		t.Errorf("created %+v, want %s to be cancelled", second, first.ID)
	}
	for _, c := range f.ClaimN(t, 2) {
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantDuplicate(t, create(t, f.Engine, kept), second.ID)
}

// A repetition by id or idempotency key, and a refusal by a business key, change nothing in the way.
func TestRepetitionsAreNotInTheirOwnWay(t *testing.T) {
	for _, policy := range []engine.UniquePolicy{engine.KeepExisting, engine.ReplaceWaiting, engine.CancelExisting} {
		t.Run(string(policy), func(t *testing.T) {
			f := fixture.New(t)
			spec := uniqueSpec(f, `{"order":1}`, ifTaken(policy))
			spec.ID = f.NewExecutionID(f.Lane)
			spec.BusinessKey = orders(f)("1")
			x := wantNew(t, create(t, f.Engine, spec))
			again := create(t, f.Engine, spec)
			if wantDuplicate(t, again, x); again.Replaced {
				t.Error("the repetition replaced itself")
			}
			// Another one has the key meanwhile.
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			keyed := uniqueSpec(f, `{"order":1}`, ifTaken(policy))
			keyed.IdempotencyKey = f.Key("1")
			y := wantNew(t, create(t, f.Engine, keyed))
			wantDuplicate(t, create(t, f.Engine, spec), x)
			wantDuplicate(t, create(t, f.Engine, keyed), y)
			refused := uniqueSpec(f, `{"order":1}`, ifTaken(policy))
			refused.BusinessKey = orders(f)("1")
			_, err := f.CreateExecution(t.Context(), refused)
			wantConflict(t, err, refused.BusinessKey, x)
			if s, err := f.DescribeExecution(t.Context(), y); err != nil || s.State.Public != state.PublicWaiting {
				t.Errorf("described %+v, %v", s.State, err)
			}
			if n := uniqueKeys(t, f); n != 1 {
				t.Errorf("%d keys, want 1", n)
			}
		})
	}
}

// The outcomes of a batch are those of single creations in its order.
func TestBatchOfUniqueCreations(t *testing.T) {
	f := fixture.New(t)
	keep := uniqueSpec(f, `{"order":1,"n":1}`, byOrder)
	taken := create(t, f.Engine, keep).ID
	replace := uniqueSpec(f, `{"order":2,"n":1}`, byOrder, ifTaken(engine.ReplaceWaiting))
	last := replace
	last.Payload = []byte(`{"order":2,"n":2}`)
	cancel := uniqueSpec(f, `{"order":3}`, byOrder, ifTaken(engine.CancelExisting))
	given := uniqueSpec(f, `{"order":4}`, byOrder)
	given.ID = f.Create(t)
	alone := uniqueSpec(f, `{"order":4}`, byOrder)
	invalid := uniqueSpec(f, `{}`, byOrder)
	outcomes, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{
		keep, replace, last, cancel, cancel, given, alone, alone, invalid, {Kind: "test", Lane: f.Lane},
	})
	if err != nil {
		t.Fatal(err)
	}
	of := func(i int) engine.Created {
		if err := outcomes[i].Err; err != nil {
			t.Errorf("%d: %v", i, err)
		}
		return outcomes[i].Value
	}
	wantDuplicate(t, of(0), taken)
	wantDuplicate(t, of(2), wantNew(t, of(1)))
	if !of(2).Replaced {
		t.Error("2: was not replaced")
	}
	third := wantNew(t, of(3))
	if wantNew(t, of(4)); of(4).Cancelled != third {
		t.Errorf("4: %+v, want %s to be cancelled", of(4), third)
	}
	wantDuplicate(t, of(5), given.ID)
	wantDuplicate(t, of(7), wantNew(t, of(6)))
	if !errors.Is(outcomes[8].Err, fferr.ErrInvalidInput) {
		t.Errorf("8: %+v", outcomes[8])
	}
	wantNew(t, of(9))
	if n := uniqueKeys(t, f); n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
	payloads := fixture.Texts(t, f.Pool, "SELECT convert_from(payload, 'UTF8') FROM ff_exec_core WHERE lane_id = $1 AND payload IS NOT NULL ORDER BY 1", f.Lane)
	if !slices.Contains(payloads, `{"order":2,"n":2}`) || slices.Contains(payloads, `{"order":2,"n":1}`) {
		t.Errorf("payloads %q", payloads)
	}
}

// A kind makes its executions unique, unless an option says otherwise. Flows and calls refuse unique
// work by its name, and schedules a wrong field.
func TestWhereWorkCanBeUnique(t *testing.T) {
	f := fixture.New(t)
	kind := engine.Kind[int, struct{}]{Name: "unique", Lane: f.Lane, Unique: &engine.Unique{ByLane: true, ByArgs: true}}
	x, err := kind.Create(t.Context(), f.Engine, 1)
	if err != nil {
		t.Fatal(err)
	}
	again, err := kind.Create(t.Context(), f.Engine, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantDuplicate(t, again, wantNew(t, x))
	other, err := kind.Create(t.Context(), f.Engine, 1, engine.WithUnique(engine.Unique{ByLane: true}))
	if err != nil {
		t.Fatal(err)
	}
	wantNew(t, other)
	wantField := func(field string, err error) {
		t.Helper()
		if input, ok := errors.AsType[*fferr.InputError](err); !ok || !strings.HasSuffix(input.Field, field) && !strings.Contains(input.Reason, field+":") {
			t.Errorf("got %v, want an error of %s", err, field)
		}
	}
	_, err = f.CreateFlow(t.Context(), engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: kind.Spec(1)}}})
	wantField("Unique", err)
	flow := id.NewFlowID()
	member := kind.Spec(1)
	member.Flow = &flow
	_, err = f.CreateExecution(t.Context(), member)
	wantField("Unique", err)
	wrong := kind.Spec(1)
	wrong.Unique = &engine.Unique{Fields: []string{"order"}}
	err = schedule.Put(t.Context(), f.Engine, schedule.Spec{Name: f.Name, Every: time.Hour, Execution: wrong})
	wantField("Unique.Fields", err)
	_, err = f.Call(t.Context(), engine.CallSpec{Lease: f.ClaimOne(t).Lease, Name: "call", Executions: []engine.ExecutionSpec{kind.Spec(1)}})
	wantField("executions", err)
	bad := kind
	bad.Unique = &engine.Unique{While: "running"}
	wantField("Unique.While", bad.Validate())
}
