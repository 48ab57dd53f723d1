package steps

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A fork runs the named step and those behind it, in one run, and nothing of what was copied: plain steps, turns, waits,
// calls and pauses. Its charge has another idempotency key.
func TestForkRunsOnlyTheStepsBehindTheCut(t *testing.T) {
	var done, keys []string
	step := func(ctx context.Context, job orderJob, name string) (string, error) {
		return worker.Step(ctx, job, name, func(ctx context.Context) (string, error) {
			done = append(done, name)
			if name == "charge" {
				keys = append(keys, worker.IdempotencyKey(ctx))
			}
			return name, nil
		})
	}
	o := ordering(t, func(ctx context.Context, job orderJob) (string, error) {
		done = append(done, "run")
		plain, err := step(ctx, job, "plain")
		if err != nil {
			return "", err
		}
		err = worker.Turn(ctx, job, "turn", func(ctx context.Context, _ pgx.Tx, x *worker.TurnTx) error {
			done = append(done, "turn")
			return x.Sleep(0)
		})
		if err != nil {
			return "", err
		}
		called, err := worker.Call(ctx, job, "shout", shout, "hey")
		if err != nil {
			return "", err
		}
		by, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		charge, err := step(ctx, job, "charge")
		if err != nil {
			return "", err
		}
		last, err := step(ctx, job, "last")
		return strings.Join([]string{plain, called, by, charge, last}, " "), err
	}, loud)
	x := o.Create(t, retrying)
	fftest.Send(o.Kit.Kit, x, approved, "ada")
	o.Drain()
	const want = "plain HEY ada charge last"
	o.wantResult(t, x, want)
	steps := stepNames(t, o.Engine, x)
	for _, tc := range []struct{ before, effects string }{
		{"charge", "run charge last"},
		{"last", "run last"},
		{"", "run"},
	} {
		done = nil
		fork, err := operator.Fork(t.Context(), o.Engine, x, operator.ForkSpec{Before: tc.before})
		if err != nil {
			t.Fatal(err)
		}
		o.Drain()
		o.wantResult(t, fork.ID, want)
		if got := strings.Join(done, " "); got != tc.effects {
			t.Errorf("fork before %q: %s, want %s", tc.before, got, tc.effects)
		}
		if got := stepNames(t, o.Engine, fork.ID); !slices.Equal(got, steps) {
			t.Errorf("fork before %q has the steps %q, want %q", tc.before, got, steps)
		}
		attempts, err := o.ListAttempts(t.Context(), fork.ID, "", 0)
		if err != nil || len(attempts.Items) != 1 || attempts.Items[0].Type != state.ReplayAttempt || attempts.Items[0].Index != 0 {
			t.Errorf("attempts %+v, error %v", attempts.Items, err)
		}
	}
	wantOnLane(t, o.Fixture, 5) // a fork calls none that were called
	if len(keys) != 2 || keys[0] == keys[1] {
		t.Errorf("keys %q", keys)
	}
}

// recordNow stores steps for the holder of a lease, in the order of their names.
func recordNow(t *testing.T, f *fixture.Fixture, l engine.Lease, names ...string) {
	t.Helper()
	for seq, name := range names {
		if _, err := f.RecordStep(t.Context(), engine.StepRecord{Lease: l, Name: name, Seq: seq, Result: []byte(name), Tries: 2, Error: "no"}); err != nil {
			t.Fatal(err)
		}
	}
}

// forkable is an execution with all that a fork takes over, and with keys, which it does not.
func forkable(s *engine.ExecutionSpec) {
	s.Payload, s.PayloadEncoding, s.Priority, s.Creator = []byte(`{"a": 1}`), "json", 7, "ada"
	s.Tags = map[string]string{"app.tenant": "acme"}
	s.IdempotencyKey, s.BusinessKey = "once", id.BusinessKey{Name: "order", Value: id.NewLeaseID().String()}
	s.Policy = &policy.Execution{Retry: policy.ImmediateRetries(3), Retention: 3 * 24 * time.Hour}
}

// An execution can be forked in any state, and nothing of it changes. The fork has its specification without keys.
func TestForkInAnyState(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(t *testing.T, f *fixture.Fixture, l engine.Lease)
	}{
		{"running", func(*testing.T, *fixture.Fixture, engine.Lease) {}},
		{"waiting", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SuspendAgain(t, l, engine.Received("approved"))
		}},
		{"completed", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CompleteExecution(t.Context(), l, []byte("done")); err != nil {
				t.Fatal(err)
			}
		}},
		{"cancelled", func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fixture.New(t)
			l := f.Start(t, forkable).Lease
			f.SetExecution(t, l.Execution, `raw_fields = jsonb_set(raw_fields, '{tags,`+engine.CallerTag+`}', '"another"')`) // as if it were called
			recordNow(t, f, l, "a", "b", "c")
			tc.then(t, f, l)
			before := f.Dump(t, l.Execution)
			fork, err := operator.Fork(t.Context(), f.Engine, l.Execution, operator.ForkSpec{Before: "c"})
			if err != nil || fork.State != state.PublicWaiting || fork.Duplicate {
				t.Fatalf("%+v, error %v", fork, err)
			}
			if after := f.Dump(t, l.Execution); after != before {
				t.Errorf("the origin was\n%s\nand is\n%s", before, after)
			}
			wantSteps(t, f.Engine, fork.ID, "a=a", "b=b")
			if got := storedSteps(t, f, fork.ID); got != "0 a 0 success 0, 1 b 0 success 0" {
				t.Errorf("steps %s", got)
			}
			wantFork(t, f, l.Execution, fork.ID)
			if work := f.ClaimOne(t); work.ID != fork.ID || work.Resumed || work.Lease.Attempt != 0 || work.Type != state.ReplayAttempt ||
				string(work.Payload) != `{"a": 1}` {
				t.Errorf("claimed %+v", work)
			}
		})
	}
}

// wantFork compares the specifications of an execution and its fork.
func wantFork(t *testing.T, f *fixture.Fixture, x, fork id.ExecutionID) {
	t.Helper()
	const query = `
		SELECT jsonb_build_object(
			'lane', lane_id, 'priority', priority, 'payload', encode(payload, 'hex'), 'policy', policy, 'capabilities', required_capabilities,
			'fields', raw_fields - '{tags,idempotency_key,ffx_business_key,last_mutation_at,total_attempt_count,terminal_outcome,cancellation_reason}'::text[]
				- 'cancelled_by' - 'last_failure_message',
			'namespace', ffx_namespace
		)::text
		FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2`
	origin := fixture.Texts(t, f.Pool, query, x.Partition(), x.UUID())
	if got := fixture.Texts(t, f.Pool, query, fork.Partition(), fork.UUID()); !slices.Equal(got, origin) {
		t.Errorf("the fork is %s, its origin %s", got, origin)
	}
	fields := fixture.Texts(t, f.Pool, "SELECT raw_fields::text FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", fork.Partition(), fork.UUID())
	var stored struct {
		Tags map[string]string
		Key  string         `json:"idempotency_key"`
		Of   id.BusinessKey `json:"ffx_business_key"`
	}
	if err := json.Unmarshal([]byte(fields[0]), &stored); err != nil {
		t.Fatal(err)
	}
	if len(stored.Tags) != 2 || stored.Tags["app.tenant"] != "acme" || stored.Tags[operator.ForkedFromTag] != x.String() ||
		stored.Key != "" || !stored.Of.IsZero() {
		t.Errorf("the fork has %s", fields)
	}
}

// A call whose results are not stored is not copied, and the ends of waits are, with their signals.
func TestForkOfCallsAndWaits(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	suspend(t, f, l, func(s *engine.SuspendSpec) { s.StepSeq = 0 })
	if err := approved.Send(t.Context(), f.Engine, l.Execution, "ada"); err != nil {
		t.Fatal(err)
	}
	l = f.ClaimOne(t).Lease
	for seq, name := range []string{"over", "under way"} {
		called := []engine.ExecutionSpec{{Kind: "called", Lane: f.Lane + ".called"}}
		if _, err := f.Call(t.Context(), engine.CallSpec{Lease: l, Name: name, Seq: seq + 1, Executions: called}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.RecordStep(t.Context(), engine.StepRecord{Lease: l, Name: "over", Seq: 1, Result: []byte("result")}); err != nil {
		t.Fatal(err)
	}
	fork, err := operator.Fork(t.Context(), f.Engine, l.Execution, operator.ForkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if got := stepNames(t, f.Engine, fork.ID); !slices.Equal(got, []string{"signal approved", "over"}) {
		t.Errorf("steps %q", got)
	}
	steps, err := f.StepResults(t.Context(), fork.ID)
	if err != nil {
		t.Fatal(err)
	}
	if by, ok, err := approved.Match(mustSignals(t, steps[0])...); by != "ada" || !ok || err != nil {
		t.Errorf("approved by %q, %v, %v", by, ok, err)
	}
}

func mustSignals(t *testing.T, step engine.Step) []engine.ReceivedSignal {
	t.Helper()
	signals, err := step.Signals()
	if err != nil {
		t.Fatal(err)
	}
	return signals
}

// A fork that is refused leaves nothing, also in the caller's transaction, which goes on.
func TestRefusedForks(t *testing.T) {
	f := fixture.NewFlows(t)
	x := f.Start(t).ID
	member := id.NewFlowID()
	f.NewFlowOf(t, engine.FlowSpec{ID: member, Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "test"}}}})
	for name, tc := range map[string]struct {
		x    id.ExecutionID
		spec operator.ForkSpec
		want error
		text string
	}{
		"an unknown execution": {f.NewExecutionID(f.Lane), operator.ForkSpec{}, fferr.ErrNotFound, "execution"},
		"an unknown step":      {x, operator.ForkSpec{Before: "charge"}, fferr.ErrNotFound, "charge"},
		"a member of a flow":   {f.NodeID(member, "a"), operator.ForkSpec{}, fferr.ErrInvalidInput, "member"},
		"no execution":         {id.ExecutionID{}, operator.ForkSpec{}, fferr.ErrInvalidInput, ""},
		"a name too long":      {x, operator.ForkSpec{Before: strings.Repeat("x", engine.MaxStepName+1)}, fferr.ErrInvalidInput, "before"},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := f.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			tc.spec.ID = f.NewExecutionID(f.Lane)
			if _, err := operator.Fork(t.Context(), f.WithTx(tx), tc.x, tc.spec); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v, want %v of %q", err, tc.want, tc.text)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := f.DescribeExecution(t.Context(), tc.spec.ID); !errors.Is(err, fferr.ErrNotFound) {
				t.Errorf("the fork: %v", err)
			}
		})
	}
}

// The repetition of a fork with an id is a duplicate, and copies nothing.
func TestRepeatedFork(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	recordNow(t, f, l, "a")
	spec := operator.ForkSpec{ID: f.NewExecutionID(f.Lane)}
	for _, duplicate := range []bool{false, true} {
		fork, err := operator.Fork(t.Context(), f.Engine, l.Execution, spec)
		if err != nil || fork.ID != spec.ID || fork.Duplicate != duplicate {
			t.Errorf("%+v, error %v", fork, err)
		}
		recordNow(t, f, l, "a", "b")
	}
	wantSteps(t, f.Engine, spec.ID, "a=a")
}
