package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// racers are the connections of a race on a database of its own. Whatever they release or skip is written
// down by the database, and whatever the server aborts by the log.
type racers struct {
	*flowFixture
	rivals *rival
	log    statementLog
}

// newRacers returns racers with n connections.
func newRacers(t *testing.T, n int32) *racers {
	t.Helper()
	r := &racers{flowFixture: flowsOn(cloneFixture(t))}
	r.rivals = r.rival(t, func(config *pgxpool.Config) {
		config.MaxConns = n
		config.ConnConfig.Tracer = &r.log
	})
	r.exec(t, `
		CREATE TABLE moves (execution_id uuid, lifecycle_phase text, eligibility_state text);
		CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO moves VALUES (NEW.execution_id, NEW.lifecycle_phase, NEW.eligibility_state);
			RETURN NULL;
		END $$;
		CREATE TRIGGER note_move AFTER UPDATE ON ff_exec_core FOR EACH ROW
		WHEN (NEW.eligibility_state = 'eligible_now' OR NEW.public_state = 'skipped') EXECUTE FUNCTION note_move()`)
	return r
}

// wantMoves fails the test unless the executions that moved are these, each once.
func (r *racers) wantMoves(t *testing.T, flow id.FlowID, phase string, keys ...string) {
	t.Helper()
	type row struct {
		ExecutionID id.ExecutionUUID
		Moves       int
	}
	got, want := make(map[string]int), make(map[string]int)
	for _, m := range all[row](t, r.pool, `
		SELECT execution_id, count(*) AS moves FROM moves WHERE lifecycle_phase = $1 GROUP BY execution_id`, phase) {
		got[r.name(m.ExecutionID)] = m.Moves
	}
	for _, key := range keys {
		want[key] = 1
	}
	wantEqual(t, "moves to "+phase, got, want)
}

// wantNoAborts fails the test when the server had to abort a transaction for a deadlock or a conflict.
func (r *racers) wantNoAborts(t *testing.T) {
	t.Helper()
	states := slices.DeleteFunc(r.log.aborted(), func(state string) bool { return state == "55P03" })
	if len(states) > 0 {
		t.Errorf("the server aborted %q", states)
	}
}

// complete and fail end one node and say why they could not.
func (r *racers) complete(ctx context.Context, l engine.Lease) error {
	return r.rivals.CompleteExecution(ctx, l, nil)
}

func (r *racers) failed(ctx context.Context, l engine.Lease) error {
	_, err := r.rivals.FailExecution(ctx, l, forGood)
	return err
}

// holdGroup locks the group of a node, as one that counts for it does.
func (f *flowFixture) holdGroup(t *testing.T, flow id.FlowID, key string) pgx.Tx {
	t.Helper()
	tx := f.begin(t)
	execIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2 AND downstream_eid = $3 FOR UPDATE",
		partitionOf(flow), flow, f.NodeID(flow, key).UUID())
	return tx
}

// together runs operations at the same time and returns their errors joined.
func together(ctx context.Context, operations ...func(context.Context) error) error {
	errs := make([]error, len(operations))
	var group sync.WaitGroup
	ready := make(chan struct{})
	for i, operation := range operations {
		group.Go(func() {
			<-ready
			errs[i] = operation(ctx)
		})
	}
	close(ready)
	group.Wait()
	return errors.Join(errs...)
}

// Two upstreams succeed at the same instant, many times under each policy: the downstream is released exactly once, and
// both are counted. A thousand times, in a soak, by chance more of them meet elsewhere than in the group.
func TestResolve_two_upstreams_at_once(t *testing.T) {
	t.Parallel()
	rounds := soak.Size(t, 60, 1000)
	// Every so often both are made to wait for the group, so that they meet there for certain.
	meetEvery := soak.Size(t, 4, 20)
	tests := []struct {
		name  string
		rule  policy.Group
		fanIn int
		want  storedGroup
	}{
		{name: "all", rule: policy.AllOf(), fanIn: 2, want: storedGroup{Success: 2, KTarget: 2}},
		{name: "any", rule: policy.AnyOf(policy.LetRun), fanIn: 2, want: storedGroup{Success: 2, KTarget: 1}},
		{name: "quorum", rule: policy.Quorum(2, policy.LetRun), fanIn: 3, want: storedGroup{Success: 2, Running: 1, KTarget: 2}},
		{
			name: "any_cancels_remaining", rule: policy.AnyOf(policy.CancelRemaining), fanIn: 3,
			want: storedGroup{Success: 2, Running: 1, KTarget: 1, Flagged: true, Enqueued: true},
		},
		{
			name: "quorum_cancels_remaining", rule: policy.Quorum(2, policy.CancelRemaining), fanIn: 3,
			want: storedGroup{Success: 2, Running: 1, KTarget: 2, Flagged: true, Enqueued: true},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRacers(t, 2)
			spec := engine.FlowSpec{ID: id.NewFlowID()}
			var downstream []string
			for round := range rounds {
				to := fmt.Sprintf("down%d", round)
				downstream = append(downstream, to)
				spec.Nodes = append(spec.Nodes, engine.Node{Key: to, When: test.rule, Spec: engine.ExecutionSpec{Kind: "test"}})
				for i := range test.fanIn {
					from := fmt.Sprintf("up%d/%d", round, i)
					spec.Nodes = append(spec.Nodes, engine.Node{Key: from, Spec: engine.ExecutionSpec{Kind: "test"}})
					spec.Edges = append(spec.Edges, engine.Edge{From: from, To: to})
				}
			}
			flow := r.createFlow(t, spec)
			r.claimAll(t)
			for round := range rounds {
				complete := func(i int) func(context.Context) error {
					l := r.lease(t, flow, fmt.Sprintf("up%d/%d", round, i))
					return func(ctx context.Context) error { return r.complete(ctx, l) }
				}
				first, second := complete(0), complete(1)
				var err error
				if round%meetEvery == 0 {
					gate := r.holdGroup(t, flow, downstream[round])
					wait := async(t, func(ctx context.Context) error { return together(ctx, first, second) })
					r.rivals.awaitSessions(t, r.fixture, 2)
					commit(t, gate)
					err = wait()
				} else {
					err = together(t.Context(), first, second)
				}
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			r.wantMoves(t, flow, "runnable", downstream...)
			r.wantMoves(t, flow, "terminal")
			r.wantNoAborts(t)
			for key, got := range r.groups(t, flow) {
				// Who came first decides whether the other was still listed.
				got.Siblings = ""
				if got != test.want {
					t.Errorf("group of %s: %+v, want %+v", key, got, test.want)
				}
			}
		})
	}
}

// Many upstreams of one group end at the same instant, some of them failing: the group acts once, counts
// each edge, and nobody is aborted for another (F37).
func TestF37_many_upstreams_at_once(t *testing.T) {
	t.Parallel()
	const fanIn, connections = 64, 24
	rounds := soak.Size(t, 3, 100) // one for each number of failures
	for name, rule := range map[string]policy.Group{
		"all": policy.AllOf(), "any": policy.AnyOf(policy.LetRun), "quorum": policy.Quorum(fanIn/2, policy.LetRun),
		"any_cancels_remaining": policy.AnyOf(policy.CancelRemaining), "quorum_cancels_remaining": policy.Quorum(fanIn/2, policy.CancelRemaining),
		"on_failure": policy.OnFailure(), "always": policy.Always(),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRacers(t, connections)
			var released, skipped []string
			var flow id.FlowID
			for round := range rounds {
				down := fmt.Sprintf("down%d", round)
				spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: down, When: rule, Spec: engine.ExecutionSpec{Kind: "test"}}}}
				for i := range fanIn {
					from := fmt.Sprintf("up%d/%d", round, i)
					spec.Nodes = append(spec.Nodes, engine.Node{Key: from, Spec: engine.ExecutionSpec{Kind: "test"}})
					spec.Edges = append(spec.Edges, engine.Edge{From: from, To: down})
				}
				flow = r.createFlow(t, spec)
				r.claimAll(t)
				// No failures, a few, and more than a quorum can bear.
				failures := []int{0, 3, fanIn - 5}[round%3]
				var operations []func(context.Context) error
				for i := range fanIn {
					end, l := r.complete, r.lease(t, flow, fmt.Sprintf("up%d/%d", round, i))
					if i < failures {
						end = r.failed
					}
					operations = append(operations, func(ctx context.Context) error {
						for {
							if err := end(ctx, l); !errors.Is(err, engine.ErrContention) {
								return err
							}
							// The machine is too busy for so many that stand in line.
						}
					})
				}
				gate := r.holdGroup(t, flow, down)
				wait := async(t, func(ctx context.Context) error { return together(ctx, operations...) })
				r.rivals.awaitSessions(t, r.fixture, connections)
				commit(t, gate)
				if err := wait(); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				r.settleAll(t)
				want := storedGroup{
					Success: fanIn - failures, Fail: failures, KTarget: rule.Needs(fanIn),
					Flagged: rule.CancelsRemaining(), Enqueued: rule.CancelsRemaining(),
				}
				if rule.Needs(fanIn) == 0 {
					want = waitingFor(want)
				}
				got := r.groups(t, flow)[down]
				got.Siblings = "" // whoever had not ended at that moment
				if got != want {
					t.Errorf("round %d: group %+v, want %+v", round, got, want)
				}
				if fanIn-failures >= rule.Needs(fanIn) && (rule != policy.OnFailure() || failures > 0) {
					released = append(released, down)
				} else {
					skipped = append(skipped, down)
				}
				for edge, state := range r.edges(t, flow) {
					if state != "satisfied success" && state != "impossible failed" {
						t.Errorf("round %d: edge %s is %s", round, edge, state)
					}
				}
			}
			r.wantMoves(t, flow, "runnable", released...)
			r.wantMoves(t, flow, "terminal", skipped...)
			r.wantNoAborts(t)
		})
	}
}

// One lease, completed by two at once: counted once.
func TestF13_one_lease_completed_by_two(t *testing.T) {
	r := newRacers(t, 2)
	flow := r.draw(t, nil, "a>c", "b>c")
	l := r.lease(t, flow, "a")
	tx := r.begin(t)
	lockExecution(t, tx, l.Execution)
	complete := func(ctx context.Context) error { return r.complete(ctx, l) }
	wait := async(t, func(ctx context.Context) error { return together(ctx, complete, complete) })
	r.rivals.awaitSessions(t, r.fixture, 2)
	commit(t, tx)
	if err := wait(); err != nil {
		t.Error(err)
	}
	r.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
	r.wantCompletionEvents(t, flow, "a success")
}

// An upstream succeeds while another fails, whichever comes first.
func TestResolve_success_against_failure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		rule       policy.Group
		failsFirst bool
		want       string
		event      string
	}{
		{"all_success_first", policy.AllOf(), false, stateSkipped, "d skipped"},
		{"all_failure_first", policy.AllOf(), true, stateSkipped, "d skipped"},
		{"any_success_first", policy.AnyOf(policy.LetRun), false, stateReady, ""},
		{"any_failure_first", policy.AnyOf(policy.LetRun), true, stateReady, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newRacers(t, 1)
			flow := r.draw(t, when{"d": test.rule}, "good>d", "bad>d")
			good, bad := r.lease(t, flow, "good"), r.lease(t, flow, "bad")
			tx := r.begin(t)
			bound := r.WithTx(tx)
			var err error
			second := func(ctx context.Context) error { return r.failed(ctx, bad) }
			if test.failsFirst {
				_, err = bound.FailExecution(t.Context(), bad, forGood)
				second = func(ctx context.Context) error { return r.complete(ctx, good) }
			} else {
				err = bound.CompleteExecution(t.Context(), good, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			wait := async(t, second)
			r.rivals.awaitBlocked(t, r.fixture)
			commit(t, tx)
			if err := wait(); err != nil {
				t.Error(err)
			}
			r.wantMembers(t, flow, map[string]string{stateCompleted: "good", stateFailed: "bad", test.want: "d"})
			r.wantGroup(t, flow, "d", storedGroup{Success: 1, Fail: 1, KTarget: test.rule.Needs(2)})
			if events := r.completionEvents(t, flow); test.event != "" && !slices.Contains(events, test.event) || test.event == "" && len(events) != 2 {
				t.Errorf("events %q", events)
			}
			r.wantNoAborts(t)
		})
	}
}

// An upstream fails while the deadline of its blocked downstream passes, whichever comes first.
func TestResolve_failure_against_deadline(t *testing.T) {
	t.Parallel()
	newRace := func(t *testing.T) (*racers, id.FlowID, engine.Lease) {
		r := newRacers(t, 1)
		spec := chart(nil, "a>b", "b>c")
		spec.Nodes[1].Spec.Deadline = start.Add(5 * time.Second)
		flow := r.createFlow(t, spec)
		l := r.lease(t, flow, "a")
		r.advance(5 * time.Second) // the lease goes on
		return r, flow, l
	}
	t.Run("failure_first", func(t *testing.T) {
		r, flow, l := newRace(t)
		tx := r.begin(t)
		if _, err := r.WithTx(tx).FailExecution(t.Context(), l, forGood); err != nil {
			t.Fatal(err)
		}
		returned, wait := watched(t, func(ctx context.Context) error {
			n, err := r.rivals.Maintenance().ExpireDeadlines(ctx, 10)
			if err == nil && n != 0 {
				err = fmt.Errorf("%d expired", n)
			}
			return err
		})
		r.rivals.awaitBlockedOr(t, r.fixture, returned)
		commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		r.wantMembers(t, flow, map[string]string{stateFailed: "a", stateSkipped: "b c"})
		r.wantCompletionEvents(t, flow, "a failed", "b skipped", "c skipped")
		r.wantNoAborts(t)
	})
	t.Run("deadline_first", func(t *testing.T) {
		r, flow, l := newRace(t)
		tx := r.begin(t)
		if n, err := r.WithTx(tx).Maintenance().ExpireDeadlines(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("%d expired, error %v", n, err)
		}
		wait := async(t, func(ctx context.Context) error { return r.failed(ctx, l) })
		r.rivals.awaitBlocked(t, r.fixture)
		commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		r.wantMembers(t, flow, map[string]string{stateFailed: "a", stateUnstarted: "b", stateSkipped: "c"})
		r.wantGroup(t, flow, "b", storedGroup{Fail: 1, KTarget: 1})
		r.wantCompletionEvents(t, flow, "b expired", "c skipped", "a failed")
		r.wantNoAborts(t)
	})
	// Both wait for the flow at once.
	t.Run("together", func(t *testing.T) {
		r, flow, l := newRace(t)
		other := r.rival(t)
		tx := r.begin(t)
		execIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", flow)
		waitFail := async(t, func(ctx context.Context) error { return r.failed(ctx, l) })
		r.rivals.awaitBlocked(t, r.fixture)
		returned, waitExpire := watched(t, func(ctx context.Context) error { _, err := other.Maintenance().ExpireDeadlines(ctx, 10); return err })
		other.awaitBlockedOr(t, r.fixture, returned)
		commit(t, tx)
		if err := errors.Join(waitFail(), waitExpire()); err != nil {
			t.Error(err)
		}
		r.wantMembers(t, flow, map[string]string{stateFailed: "a", stateSkipped: "b c"})
		r.wantNoAborts(t)
	})
}

// Batches that name the same flows in opposite order do not deadlock, whatever ends in them.
func TestResolve_batches_in_opposite_order(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]bool{{false, false}, {true, true}, {false, true}} {
		for _, gate := range []string{"first", "last"} {
			t.Run(fmt.Sprintf("fails_%t_%t_gate_%s", pair[0], pair[1], gate), func(t *testing.T) {
				r := newRacers(t, 2)
				var flows []id.FlowID
				for range 4 {
					flows = append(flows, r.draw(t, when{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c"))
				}
				r.claimAll(t)
				ends := func(key string, fails, backwards bool) func(context.Context) error {
					var completions []engine.Completion
					var failures []engine.AttemptFailure
					for _, flow := range flows {
						l := r.lease(t, flow, key)
						completions = append(completions, engine.Completion{Lease: l})
						failures = append(failures, engine.AttemptFailure{Lease: l, Failure: forGood})
					}
					if backwards {
						slices.Reverse(completions)
						slices.Reverse(failures)
					}
					return func(ctx context.Context) error {
						if !fails {
							outcomes, err := r.rivals.CompleteExecutions(ctx, completions)
							return errors.Join(append(outcomes, err)...)
						}
						results, err := r.rivals.FailExecutions(ctx, failures)
						for _, result := range results {
							err = errors.Join(err, result.Err)
						}
						return err
					}
				}
				held := slices.MinFunc(flows, func(a, b id.FlowID) int { return a.Compare(b) })
				if gate == "last" {
					held = slices.MaxFunc(flows, func(a, b id.FlowID) int { return a.Compare(b) })
				}
				tx := r.holdGroup(t, held, "c")
				execIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", held)
				// Neither waits for the flow that is held; they come back to it, and to what the other held meanwhile.
				first, second := ends("a", pair[0], false), ends("b", pair[1], true)
				if err := together(t.Context(), first, second); !errors.Is(err, engine.ErrBusy) {
					t.Errorf("got %v, want that the flow is busy", err)
				}
				commit(t, tx)
				await(t, "both to end all", func() bool {
					err := together(t.Context(), first, second)
					if err != nil && !errors.Is(err, engine.ErrBusy) {
						t.Fatal(err)
					}
					return err == nil
				})
				want := stateReady
				if pair[0] && pair[1] {
					want = stateSkipped
				}
				for _, flow := range flows {
					if got := r.members(t, flow)["c"]; got != want {
						t.Errorf("c of %s is %s, want %s", flow, got, want)
					}
				}
				r.wantNoAborts(t)
			})
		}
	}
}

// F41: executions are locked before attempts. Whoever waits for an execution holds no attempt of it.
func TestF41_executions_before_attempts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*racers, context.Context, engine.Lease) error{
		"complete": (*racers).complete, "fail": (*racers).failed,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRacers(t, 1)
			flow := r.draw(t, nil, "a>b")
			l := r.lease(t, flow, "a")
			tx := r.begin(t)
			lockExecution(t, tx, l.Execution)
			wait := async(t, func(ctx context.Context) error { return end(r, ctx, l) })
			r.rivals.awaitBlocked(t, r.fixture)
			if _, err := tx.Exec(t.Context(), `
				SELECT FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE NOWAIT`,
				l.Execution.Partition(), l.Execution.UUID()); err != nil {
				t.Errorf("the attempt is held: %v", err)
			}
			commit(t, tx)
			if err := wait(); err != nil {
				t.Error(err)
			}
			r.wantNoAborts(t)
		})
	}
}

// stage adds an applied edge to a flow, as whoever grows one does: under the flow's exclusive lock, and
// writing the flow's row.
func (f *flowFixture) stage(t *testing.T, tx pgx.Tx, flow id.FlowID, from, to string) {
	t.Helper()
	execIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", flow)
	execIn(t, tx, `
		UPDATE ff_flow_core SET graph_revision = graph_revision + 1,
			raw_fields = raw_fields || jsonb_build_object('last_mutation_at_ms', $3::bigint)
		WHERE partition_key = $1 AND flow_id = $2`, partitionOf(flow), flow, f.now().UnixMilli())
	execIn(t, tx, `
		INSERT INTO ff_edge (partition_key, flow_id, edge_id, upstream_eid, downstream_eid, policy)
		VALUES ($1, $2, $3, $4, $5, '{"edge_state": "applied", "applied_at_ms": 1, "staged_at_ms": 1}')`,
		partitionOf(flow), flow, id.NewEdgeID(), f.NodeID(flow, from).UUID(), f.NodeID(flow, to).UUID())
	execIn(t, tx, `
		UPDATE ff_edge_group SET running_count = running_count + 1, k_target = k_target + 1
		WHERE partition_key = $1 AND flow_id = $2 AND downstream_eid = $3`,
		partitionOf(flow), flow, f.NodeID(flow, to).UUID())
}

// F47: a completion and a change of the structure exclude each other, so that an edge staged at that moment
// is either seen by the completion or staged after it.
func TestF47_completion_against_growth(t *testing.T) {
	t.Parallel()
	t.Run("growth_first", func(t *testing.T) {
		r := newRacers(t, 1)
		flow := r.draw(t, nil, "a>d", "b>x")
		l := r.lease(t, flow, "b")
		tx := r.begin(t)
		r.stage(t, tx, flow, "b", "d")
		wait := async(t, func(ctx context.Context) error { return r.complete(ctx, l) })
		r.rivals.awaitBlocked(t, r.fixture)
		commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		r.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 2})
		r.succeed(t, flow, "a")
		r.wantState(t, r.NodeID(flow, "d"), stateReady)
	})
	t.Run("completion_first", func(t *testing.T) {
		r := newRacers(t, 1)
		flow := r.draw(t, nil, "a>d")
		tx := r.begin(t)
		if err := r.WithTx(tx).CompleteExecution(t.Context(), r.lease(t, flow, "a"), nil); err != nil {
			t.Fatal(err)
		}
		wait := async(t, func(ctx context.Context) error {
			_, err := r.rivals.CreateExecution(ctx, engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: r.lane})
			return err
		})
		r.rivals.awaitBlocked(t, r.fixture)
		commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		if got := r.describe(t, flow); got.Nodes != 3 || got.Groups[0].Succeeded != 1 {
			t.Errorf("described %+v", got)
		}
	})
}

// In a transaction of the caller's whose snapshot is older than a change of the structure, a completion is
// refused by the server, and never loses the new edge.
func TestF47_completion_in_an_old_snapshot(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		conflicts := func(err error) bool {
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			return ok && pgErr.Code == "40001"
		}
		open := func(t *testing.T, r *racers) pgx.Tx {
			tx := beginWith(t, r.pool, pgx.TxOptions{IsoLevel: level})
			execIn(t, tx, "SELECT count(*) FROM ff_edge") // the snapshot
			return tx
		}
		t.Run(fmt.Sprintf("%s/growth_committed", level), func(t *testing.T) {
			r := newRacers(t, 1)
			flow := r.draw(t, nil, "a>d", "b>x")
			l := r.lease(t, flow, "b")
			tx := open(t, r)
			growth := r.begin(t)
			r.stage(t, growth, flow, "b", "d")
			commit(t, growth)
			if err := r.WithTx(tx).CompleteExecution(t.Context(), l, nil); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantMembers(t, flow, map[string]string{stateRunning: "a b", stateHeld: "d x"})
			r.succeed(t, flow, "b")
			r.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 2})
		})
		t.Run(fmt.Sprintf("%s/growth_under_way", level), func(t *testing.T) {
			r := newRacers(t, 1)
			flow := r.draw(t, nil, "a>d", "b>x")
			l := r.lease(t, flow, "b")
			growth := r.begin(t)
			r.stage(t, growth, flow, "b", "d")
			wait := async(t, func(ctx context.Context) error {
				return pgx.BeginTxFunc(ctx, r.rivals.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					return r.rivals.WithTx(tx).CompleteExecution(ctx, l, nil)
				})
			})
			r.rivals.awaitBlocked(t, r.fixture)
			commit(t, growth)
			if err := wait(); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
			r.succeed(t, flow, "b")
			r.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 2})
		})
		t.Run(fmt.Sprintf("%s/member_added", level), func(t *testing.T) {
			r := newRacers(t, 1)
			flow := r.draw(t, nil, "a>b")
			l := r.lease(t, flow, "a")
			tx := open(t, r)
			if _, err := r.rivals.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: "elsewhere"}); err != nil {
				t.Fatal(err)
			}
			if err := r.WithTx(tx).CompleteExecution(t.Context(), l, nil); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
		})
		t.Run(fmt.Sprintf("%s/nothing_changed", level), func(t *testing.T) {
			r := newRacers(t, 1)
			flow := r.draw(t, nil, "a>b", "x>y")
			a, x := r.lease(t, flow, "a"), r.lease(t, flow, "x")
			tx := open(t, r)
			if err := r.WithTx(tx).CompleteExecution(t.Context(), a, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := r.WithTx(tx).FailExecution(t.Context(), x, forGood); err != nil {
				t.Fatal(err)
			}
			commit(t, tx)
			r.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateReady: "b", stateFailed: "x", stateSkipped: "y"})
		})
		// Of two that count for one group the second would overwrite the first.
		t.Run(fmt.Sprintf("%s/other_upstream", level), func(t *testing.T) {
			r := newRacers(t, 1)
			flow := r.draw(t, nil, "a>c", "b>c")
			l := r.lease(t, flow, "b")
			tx := open(t, r)
			r.succeed(t, flow, "a")
			if err := r.WithTx(tx).CompleteExecution(t.Context(), l, nil); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
			r.succeed(t, flow, "b")
			r.wantState(t, r.NodeID(flow, "c"), stateReady)
		})
	}
}
