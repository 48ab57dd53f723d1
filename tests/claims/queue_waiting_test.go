package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// knows is the fixture's worker with handlers for these kinds.
func knows(f *fixture.Fixture, kinds ...string) engine.ClaimSpec {
	spec := f.Worker()
	spec.Kinds = kinds
	return spec
}

// createKinds creates an execution of each kind, each a millisecond after the one before it.
func createKinds(t *testing.T, f *fixture.Fixture, kinds ...string) []id.ExecutionID {
	t.Helper()
	ids := make([]id.ExecutionID, len(kinds))
	for i, kind := range kinds {
		ids[i] = f.Create(t, func(spec *engine.ExecutionSpec) {
			spec.Kind, spec.CreatedAt = kind, fixture.Start.Add(time.Duration(i)*time.Millisecond)
		})
	}
	return ids
}

// A claim gets the kinds that it asks for, in the order of the lane, and everything if it asks for none; even if the
// queue does not have the kind.
func TestClaimFiltersByKind(t *testing.T) {
	type take func(f *fixture.Fixture, t *testing.T, spec engine.ClaimSpec, n int) []engine.Claimed
	byClaimer := func(call func(f *fixture.Fixture, t *testing.T, c *engine.Claimer, n int) ([]engine.Claimed, error)) take {
		return func(f *fixture.Fixture, t *testing.T, spec engine.ClaimSpec, n int) []engine.Claimed {
			claimer, err := f.NewClaimer(spec)
			if err != nil {
				t.Fatal(err)
			}
			var claimed []engine.Claimed
			for range n { // the first one is a full scan, the others begin where it ended
				more, err := call(f, t, claimer, 1)
				if err != nil {
					t.Fatal(err)
				}
				claimed = append(claimed, more...)
			}
			return claimed
		}
	}
	takes := map[string]take{
		"Claim": func(f *fixture.Fixture, t *testing.T, spec engine.ClaimSpec, n int) []engine.Claimed {
			claimed, err := f.Claim(t.Context(), spec, n)
			if err != nil {
				t.Fatal(err)
			}
			return claimed
		},
		"Claimer": byClaimer(func(_ *fixture.Fixture, t *testing.T, c *engine.Claimer, n int) ([]engine.Claimed, error) {
			return c.Claim(t.Context(), n)
		}),
		"ClaimEach": byClaimer(func(f *fixture.Fixture, t *testing.T, c *engine.Claimer, n int) ([]engine.Claimed, error) {
			beside, err := f.NewClaimer(f.WorkerOn("-beside"))
			if err != nil {
				return nil, err
			}
			outcomes, err := f.ClaimEach(t.Context(), []engine.LaneClaim{{Claimer: beside, Limit: 1}, {Claimer: c, Limit: n}})
			if err != nil {
				return nil, err
			}
			return outcomes[1].Value, errors.Join(outcomes[0].Err, outcomes[1].Err)
		}),
		"CompleteAndClaim": byClaimer(func(f *fixture.Fixture, t *testing.T, c *engine.Claimer, n int) ([]engine.Claimed, error) {
			other := fixture.Another(t)
			done := other.Start(t)
			outcomes, claimed, err := c.CompleteAndClaim(t.Context(), []engine.Completion{{Lease: done.Lease}}, n)
			if err == nil && outcomes[0] != nil {
				t.Error(outcomes[0])
			}
			return claimed, err
		}),
	}
	kinds := []string{"new", "old", "older", "new", "old", "oldest", "new", "old", "new"}
	for name, claim := range takes {
		for _, path := range []string{"fast", "slow"} {
			t.Run(fmt.Sprintf("%s, %s path", name, path), func(t *testing.T) {
				f := fixture.New(t)
				ids := createKinds(t, f, kinds...)
				if path == "slow" {
					f.SeedAttempt(t, ids[1], 0, nil) // stands in the way of the fast one
				}
				want := []id.ExecutionID{ids[1], ids[2], ids[4], ids[7]}
				if got := fixture.ExecutionsOf(claim(f, t, knows(f, "old", "older"), 6)); !slices.Equal(got, want) {
					t.Errorf("of the kinds old and older\n%v were claimed, want\n%v", got, want)
				}
				if got := f.ClaimNow(t, knows(f, "unheard of"), 9); len(got) > 0 {
					t.Errorf("of a kind that there is not %v were claimed", fixture.ExecutionsOf(got))
				}
				rest := []id.ExecutionID{ids[0], ids[3], ids[5], ids[6], ids[8]}
				if got := fixture.ExecutionsOf(claim(f, t, f.Worker(), 9)); !slices.Equal(got, rest) {
					t.Errorf("of any kind\n%v were claimed, want\n%v", got, rest)
				}
			})
		}
	}
}

// However an execution returns to its lane, the queue knows its kind: after a retry, a lease given back or lost, the
// end of a delay, an upstream's success.
func TestReturnedWorkKeepsItsKind(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	begun := f.StartMany(t, 3)
	f.Exec(t, `UPDATE ff_exec_core SET raw_fields = raw_fields || '{"execution_kind": "new"}' WHERE flow_id IS NULL`)
	flow := fixture.Chart(nil, "first>second")
	flow.Nodes[0].Spec.Kind, flow.Nodes[1].Spec.Kind = "old", "new"
	f.NewFlowOf(t, flow)
	f.Succeed(t, flow.ID, "first")

	failed, err := f.FailExecution(t.Context(), begun[0].Lease, engine.Failure{Message: "once"})
	if err != nil || !failed.Retry {
		t.Fatal(failed, err)
	}
	if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{begun[1].Lease}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	delayed := f.Create(t, func(s *engine.ExecutionSpec) { s.Kind, s.DelayUntil = "new", f.Time().Add(time.Second) })
	f.Advance(time.Hour)
	background(t, f.Fixture)
	f.WantQueue(t, t, "afterwards")

	for _, spec := range []engine.ClaimSpec{knows(f.Fixture, "old"), knows(f.Fixture, "old", "test")} {
		if got := f.ClaimNow(t, spec, 10); len(got) > 0 {
			t.Errorf("who knows %q claims %v", spec.Kinds, got)
		}
	}
	want := map[id.ExecutionID]struct {
		attempt int
		resumed bool
	}{
		f.NodeID(flow.ID, "second"): {0, false},
		begun[0].ID:                 {1, false},
		begun[1].ID:                 {0, true},
		begun[2].ID:                 {0, true},
		delayed:                     {0, false},
	}
	got := f.ClaimNow(t, knows(f.Fixture, "new"), 10)
	for _, c := range got {
		if w, ok := want[c.ID]; !ok || c.Lease.Attempt != w.attempt || c.Resumed != w.resumed {
			t.Errorf("claimed %+v, want %+v", c, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("claimed %d, want %d", len(got), len(want))
	}
}

func TestClaimRefusesBadKinds(t *testing.T) {
	f := fixture.New(t)
	for _, kind := range []string{"", "a\x00b", "a\xffb", strings.Repeat("k", 256)} {
		_, err := f.Claim(t.Context(), knows(f, "good", kind), 1)
		fixture.WantInputError(t, err, "kinds")
		_, err = f.NewClaimer(knows(f, kind))
		fixture.WantInputError(t, err, "kinds")
	}
}

// An old and a new worker share a lane: kinds that the old one does not know go to the new one, in their first
// attempt.
func TestRollingDeployLeavesNewKindsToNewWorkers(t *testing.T) {
	for name, run := range map[string]struct {
		cfg worker.Config
		n   int
	}{
		"in batches": {n: 2000},
		"one by one": {worker.Config{FetchBatch: 1, SettleBatch: 1, Concurrency: 4}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			c := fixture.NewLoneCrew(t)
			n, cfg := run.n, run.cfg
			specs := make([]engine.ExecutionSpec, n)
			for i := range specs {
				specs[i] = engine.ExecutionSpec{Lane: c.Lane, Kind: []string{"old", "new"}[i%2]}
			}
			nothing := func(context.Context, worker.Job[struct{}]) (struct{}, error) { return struct{}{}, nil }
			c.Work(t, cfg, func(w *worker.Worker) { fixture.HandleKind(w, "old", nothing) })
			if _, err := c.CreateExecutions(t.Context(), specs[:n/2]); err != nil {
				t.Fatal(err)
			}
			settled := c.Next(t, n/4) // the old kind's half, while no worker knows the other
			c.Work(t, cfg, func(w *worker.Worker) {
				fixture.HandleKind(w, "old", nothing)
				fixture.HandleKind(w, "new", nothing)
			})
			if _, err := c.CreateExecutions(t.Context(), specs[n/2:]); err != nil {
				t.Fatal(err)
			}
			settled = append(settled, c.Next(t, n-len(settled))...)
			for _, s := range settled {
				if s.Settlement != worker.Completed || s.Lease.Attempt != 0 || s.Retries != 0 || s.Resumed {
					t.Errorf("%s of the kind %s: attempt %d after %d retries, resumed %t, is %v",
						s.ID, s.Kind, s.Lease.Attempt, s.Retries, s.Resumed, s.Report)
				}
			}
			type count struct {
				State, Outcome string
				Epoch, Many    int64
			}
			got := fixture.All[count](t, c.Pool, `SELECT public_state AS state, a.outcome, a.lease_epoch AS epoch, count(*) AS many
				FROM ff_exec_core JOIN ff_attempt AS a USING (partition_key, execution_id) GROUP BY 1, 2, 3`)
			if want := []count{{"completed", "success", 1, int64(n)}}; !slices.Equal(got, want) {
				t.Errorf("attempts %+v, want %+v", got, want)
			}
		})
	}
}

// fillLane creates n executions of a kind, one a millisecond from that time on.
func fillLane(t *testing.T, f *fixture.Fixture, n int, kind string, from time.Time) {
	t.Helper()
	f.Exec(t, `
		INSERT INTO ff_exec_core (
			partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
			blocking_reason, created_at_ms, raw_fields
		)
		SELECT
			i % 256, gen_random_uuid(), $1, 'runnable', 'unowned', 'eligible_now', 'waiting', 'pending_first_attempt',
			'waiting_for_worker', $4::bigint + i, jsonb_build_object('execution_kind', $2::text)
		FROM generate_series(1, $3::integer) AS i`,
		string(f.Lane), kind, n, from.UnixMilli())
}

// A lane whose head is full of unknown work serves known work, and so does one that fills with it later. The claims
// between two full scans do not read the unknown again, however often the claimer is woken.
func TestClaimPassesALaneFullOfUnknownKinds(t *testing.T) {
	f := fixture.NewCloned(t)
	const unknown, rounds = 50_000, 50
	fillLane(t, f, unknown, "unheard of", fixture.Start.Add(-time.Hour))
	f.Exec(t, "ANALYZE")
	first := f.Create(t)
	if got := fixture.ExecutionsOf(f.ClaimNow(t, knows(f, "test"), 10)); !slices.Equal(got, []id.ExecutionID{first}) {
		t.Fatalf("a claim from the head takes %v, want %s", got, first)
	}

	tx := f.BeginTx(t)
	// As in the engine's own transactions.
	fixture.ExecIn(t, tx, "SET LOCAL plan_cache_mode = force_generic_plan")
	for _, setting := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"} {
		fixture.ExecIn(t, tx, "SET LOCAL "+setting+" = off")
	}
	e := f.WithTx(tx)
	claimer, err := e.NewClaimer(knows(f, "test"))
	if err != nil {
		t.Fatal(err)
	}
	claim := func() []id.ExecutionID {
		t.Helper()
		claimer.Wake()
		claimed, err := claimer.Claim(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		return fixture.ExecutionsOf(claimed)
	}
	read := func() int {
		return fixture.One[struct{ N int }](t, tx, "SELECT idx_tup_fetch::integer AS n FROM pg_stat_xact_user_tables WHERE relname = 'ffx_ready'").N
	}
	for _, situation := range []string{"in front", "behind"} {
		before := read()
		for range rounds {
			if got := claim(); len(got) > 0 {
				t.Fatalf("claimed %v", got)
			}
		}
		times := float64(read()-before) / unknown
		t.Logf("%d claims with unknown work %s read the lane %.1f times", rounds, situation, times)
		if times > rounds/2 {
			t.Errorf("%d claims with unknown work %s read the lane %.1f times", rounds, situation, times)
		}
		f.Advance(time.Hour)
		x := f.Create(t)
		if got := claim(); !slices.Equal(got, []id.ExecutionID{x}) {
			t.Errorf("claimed %v, want %s", got, x)
		}
		if situation == "in front" {
			fillLane(t, f, unknown, "unheard of", f.Time())
			f.Advance(time.Hour)
		}
	}
}

// The operator of a database sees which kinds wait, since when, and how many executions of each there are.
func TestWaitingKinds(t *testing.T) {
	f := fixture.NewCloned(t)
	list := func(filter engine.WaitingFilter) []string {
		t.Helper()
		waiting, err := f.WaitingKinds(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range waiting {
			lane := strings.TrimPrefix(string(w.Lane), string(f.Lane))
			got = append(got, fmt.Sprintf("%s %s: %d, %t, %v", lane, w.Kind, w.Waiting, w.AtLeast, f.Time().Sub(w.Since)))
		}
		return got
	}
	want := func(filter engine.WaitingFilter, want ...string) {
		t.Helper()
		if got := list(filter); !slices.Equal(got, want) {
			t.Errorf("%+v:\n%q, want\n%q", filter, got, want)
		}
	}
	want(engine.WaitingFilter{})
	on := func(suffix string) func(*engine.ExecutionSpec) {
		return func(s *engine.ExecutionSpec) { s.Lane += id.LaneID(suffix) }
	}
	kind := func(kind string) func(*engine.ExecutionSpec) { return func(s *engine.ExecutionSpec) { s.Kind = kind } }
	for range 3 {
		f.Create(t, kind("resize"), on("-a"))
	}
	f.Create(t, kind("mail"), on("-a"))
	f.Create(t, kind("mail"), on("-b"))
	f.Create(t, kind("report"), on("-b"), func(s *engine.ExecutionSpec) { s.DelayUntil = fixture.Start.Add(40 * time.Second) })
	f.Advance(50 * time.Second)
	background(t, f)
	f.Create(t, kind("new"), on("-b"))

	want(engine.WaitingFilter{},
		"-a mail: 1, false, 50s", "-a resize: 3, false, 50s", "-b mail: 1, false, 50s", "-b new: 1, false, 0s", "-b report: 1, false, 0s")
	want(engine.WaitingFilter{Longer: time.Second}, "-a mail: 1, false, 50s", "-a resize: 3, false, 50s", "-b mail: 1, false, 50s")
	want(engine.WaitingFilter{Longer: time.Minute})
	f.Advance(20 * time.Second)
	want(engine.WaitingFilter{Longer: time.Minute, Except: []string{"mail", "else"}}, "-a resize: 3, false, 1m10s")
	want(engine.WaitingFilter{Lanes: []id.LaneID{f.Lane + "-b", f.Lane + "-b"}, Longer: time.Minute}, "-b mail: 1, false, 1m10s")

	// After a claim of some, another one is the next.
	before, err := f.WaitingKinds(t.Context(), engine.WaitingFilter{Longer: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	taken := claimOn(t, f, f.Lane+"-a", "resize")
	after, err := f.WaitingKinds(t.Context(), engine.WaitingFilter{Longer: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if mail, resize := before[0], before[1]; after[0].Next != mail.Next || after[1].Next == resize.Next || taken[0].ID != resize.Next {
		t.Errorf("%v was taken, and the next ones are %+v, before %+v", fixture.ExecutionsOf(taken), after, before)
	}

	// Beyond the first 20,000 of a lane nothing is read.
	fillLane(t, f, 19_999, "unheard of", fixture.Start.Add(-time.Hour))
	f.Create(t, kind("last"))
	f.Create(t, kind("hidden"))
	f.Advance(time.Hour)
	got := list(engine.WaitingFilter{Lanes: []id.LaneID{f.Lane}, Longer: time.Minute})
	if len(got) != 2 || got[0] != " last: 1, true, 1h0m0s" || !strings.HasPrefix(got[1], " unheard of: 19999, true, ") {
		t.Errorf("of a long lane: %q", got)
	}

	_, err = f.WaitingKinds(t.Context(), engine.WaitingFilter{Longer: -1})
	fixture.WantInputError(t, err, "longer")
	_, err = f.WaitingKinds(t.Context(), engine.WaitingFilter{Lanes: []id.LaneID{"größe"}})
	fixture.WantInputError(t, err, "lane")
}

func claimOn(t *testing.T, f *fixture.Fixture, lane id.LaneID, kind string) []engine.Claimed {
	t.Helper()
	spec := knows(f, kind)
	spec.Lane = lane
	return f.ClaimNow(t, spec, 1)
}

// The poll of an idle worker each minute is one statement.
func TestWaitingKindsTakeOneStatement(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	sent := log.During(func() {
		if _, err := f.WaitingKinds(t.Context(), engine.WaitingFilter{Lanes: []id.LaneID{f.Lane}, Except: []string{"test"}}); err != nil {
			t.Error(err)
		}
	})
	// The engine's settings travel with it, in one round trip.
	if got := fixture.Names(sent); !slices.Equal(got, []string{"select", "ListWaitingKinds"}) {
		t.Errorf("sent %q", got)
	}
}
