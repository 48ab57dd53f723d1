package dependencies

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

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// holdGroup locks the group of a node, as one that counts for it does.
func holdGroup(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) pgx.Tx {
	t.Helper()
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2 AND downstream_eid = $3 FOR UPDATE",
		fixture.PartitionOf(flow), flow, f.NodeID(flow, key).UUID())
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
func TestResolveTwoConcurrentUpstreams(t *testing.T) {
	t.Parallel()
	rounds := soak.Size(t, 20, 1000)
	// Every so often both are made to wait for the group, so that they meet there for certain.
	meetEvery := soak.Size(t, 4, 20)
	tests := []struct {
		name  string
		rule  policy.Group
		fanIn int
		want  fixture.StoredGroup
	}{
		{name: "all", rule: policy.AllOf(), fanIn: 2, want: fixture.StoredGroup{Success: 2, KTarget: 2}},
		{name: "any", rule: policy.AnyOf(policy.LetRun), fanIn: 2, want: fixture.StoredGroup{Success: 2, KTarget: 1}},
		{name: "quorum", rule: policy.Quorum(2, policy.LetRun), fanIn: 3, want: fixture.StoredGroup{Success: 2, Running: 1, KTarget: 2}},
		{
			name: "any_cancels_remaining", rule: policy.AnyOf(policy.CancelRemaining), fanIn: 3,
			want: fixture.StoredGroup{Success: 2, Running: 1, KTarget: 1, Flagged: true, Enqueued: true},
		},
		{
			name: "quorum_cancels_remaining", rule: policy.Quorum(2, policy.CancelRemaining), fanIn: 3,
			want: fixture.StoredGroup{Success: 2, Running: 1, KTarget: 2, Flagged: true, Enqueued: true},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := fixture.NewRacers(t, 2)
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
			flow := r.NewFlowOf(t, spec)
			r.ClaimAll(t)
			for round := range rounds {
				complete := func(i int) func(context.Context) error {
					l := r.Lease(t, flow, fmt.Sprintf("up%d/%d", round, i))
					return func(ctx context.Context) error { return r.Complete(ctx, l) }
				}
				first, second := complete(0), complete(1)
				var err error
				if round%meetEvery == 0 {
					gate := holdGroup(t, r.Flows, flow, downstream[round])
					wait := fixture.Async(t, func(ctx context.Context) error { return together(ctx, first, second) })
					r.Rivals.AwaitSessions(t, r.Fixture, 2)
					fixture.Commit(t, gate)
					err = wait()
				} else {
					err = together(t.Context(), first, second)
				}
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			r.WantMoves(t, flow, "runnable", downstream...)
			r.WantMoves(t, flow, "terminal")
			r.WantNoAborts(t)
			for key, got := range r.Groups(t, flow) {
				// The order decides whether the other was still listed.
				got.Siblings = ""
				if got != test.want {
					t.Errorf("group of %s: %+v, want %+v", key, got, test.want)
				}
			}
		})
	}
}

// Many upstreams of one group end at the same instant, some of them failing: the group acts once, counts each edge,
// and no transaction is aborted for another (F37). All policies share the connections, since the first statements of a
// connection take most of the processor time.
func TestResolveManyConcurrentUpstreams_F37(t *testing.T) {
	fanIn, connections := soak.Size(t, 24, 64), soak.Size(t, 12, 24)
	rounds := soak.Size(t, 3, 100) // one for each number of failures
	r := fixture.NewRacers(t, int32(connections))
	var released, skipped []string
	var flow id.FlowID
	for name, rule := range map[string]policy.Group{
		"all": policy.AllOf(), "any": policy.AnyOf(policy.LetRun), "quorum": policy.Quorum(fanIn/2, policy.LetRun),
		"any_cancels_remaining": policy.AnyOf(policy.CancelRemaining), "quorum_cancels_remaining": policy.Quorum(fanIn/2, policy.CancelRemaining),
		"on_failure": policy.OnFailure(), "always": policy.Always(),
	} {
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				down := fmt.Sprintf("%s%d", name, round)
				up := func(i int) string { return fmt.Sprintf("%s/up%d", down, i) }
				spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: down, When: rule, Spec: engine.ExecutionSpec{Kind: "test"}}}}
				for i := range fanIn {
					spec.Nodes = append(spec.Nodes, engine.Node{Key: up(i), Spec: engine.ExecutionSpec{Kind: "test"}})
					spec.Edges = append(spec.Edges, engine.Edge{From: up(i), To: down})
				}
				flow = r.NewFlowOf(t, spec)
				r.ClaimAll(t)
				// No failures, a few, and more than a quorum can bear.
				failures := []int{0, 3, fanIn - 5}[round%3]
				var operations []func(context.Context) error
				for i := range fanIn {
					end, l := r.Complete, r.Lease(t, flow, up(i))
					if i < failures {
						end = r.Failed
					}
					operations = append(operations, func(ctx context.Context) error {
						for {
							if err := end(ctx, l); !errors.Is(err, fferr.ErrContention) {
								return err
							}
							// The machine is too busy for so many that stand in line.
						}
					})
				}
				gate := holdGroup(t, r.Flows, flow, down)
				wait := fixture.Async(t, func(ctx context.Context) error { return together(ctx, operations...) })
				r.Rivals.AwaitSessions(t, r.Fixture, connections)
				fixture.Commit(t, gate)
				if err := wait(); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				settleAll(t, r.Flows)
				want := fixture.StoredGroup{
					Success: fanIn - failures, Fail: failures, KTarget: rule.Needs(fanIn),
					Flagged: rule.CancelsRemaining(), Enqueued: rule.CancelsRemaining(),
				}
				if rule.Needs(fanIn) == 0 {
					want = waitingFor(want)
				}
				got := r.Groups(t, flow)[down]
				got.Siblings = "" // the ones that had not ended at that moment
				if got != want {
					t.Errorf("round %d: group %+v, want %+v", round, got, want)
				}
				if fanIn-failures >= rule.Needs(fanIn) && (rule != policy.OnFailure() || failures > 0) {
					released = append(released, down)
				} else {
					skipped = append(skipped, down)
				}
				for edge, state := range r.Edges(t, flow) {
					if state != "satisfied success" && state != "impossible failed" {
						t.Errorf("round %d: edge %s is %s", round, edge, state)
					}
				}
			}
		})
	}
	r.WantMoves(t, flow, "runnable", released...)
	r.WantMoves(t, flow, "terminal", skipped...)
	r.WantNoAborts(t)
}

// One lease, completed by two at once: counted once.
func TestConcurrentCompletionsOfOneLeaseCountOnce_F13(t *testing.T) {
	r := fixture.NewRacers(t, 2)
	flow := r.Draw(t, nil, "a>c", "b>c")
	l := r.Lease(t, flow, "a")
	tx := r.BeginTx(t)
	fixture.LockExecution(t, tx, l.Execution)
	complete := func(ctx context.Context) error { return r.Complete(ctx, l) }
	wait := fixture.Async(t, func(ctx context.Context) error { return together(ctx, complete, complete) })
	r.Rivals.AwaitSessions(t, r.Fixture, 2)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Error(err)
	}
	r.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	r.WantCompletionEvents(t, flow, "a success")
}

// An upstream succeeds while another fails, whichever comes first.
func TestResolveConcurrentSuccessAndFailure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		rule       policy.Group
		failsFirst bool
		want       string
		event      string
	}{
		{"all_success_first", policy.AllOf(), false, fixture.StateSkipped, "d skipped"},
		{"all_failure_first", policy.AllOf(), true, fixture.StateSkipped, "d skipped"},
		{"any_success_first", policy.AnyOf(policy.LetRun), false, fixture.StateReady, ""},
		{"any_failure_first", policy.AnyOf(policy.LetRun), true, fixture.StateReady, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			flow := r.Draw(t, fixture.When{"d": test.rule}, "good>d", "bad>d")
			good, bad := r.Lease(t, flow, "good"), r.Lease(t, flow, "bad")
			tx := r.BeginTx(t)
			bound := r.WithTx(tx)
			var err error
			second := func(ctx context.Context) error { return r.Failed(ctx, bad) }
			if test.failsFirst {
				_, err = bound.FailExecution(t.Context(), bad, fixture.ForGood)
				second = func(ctx context.Context) error { return r.Complete(ctx, good) }
			} else {
				err = bound.CompleteExecution(t.Context(), good, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, second)
			r.Rivals.AwaitBlocked(t, r.Fixture)
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Error(err)
			}
			r.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "good", fixture.StateFailed: "bad", test.want: "d"})
			r.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Fail: 1, KTarget: test.rule.Needs(2)})
			if events := r.CompletionEvents(t, flow); test.event != "" && !slices.Contains(events, test.event) || test.event == "" && len(events) != 2 {
				t.Errorf("events %q", events)
			}
			r.WantNoAborts(t)
		})
	}
}

// An upstream fails while the deadline of its blocked downstream passes, whichever comes first.
func TestResolveConcurrentFailureAndDeadline(t *testing.T) {
	t.Parallel()
	newRace := func(t *testing.T) (*fixture.Racers, id.FlowID, engine.Lease) {
		r := fixture.NewRacers(t, 1)
		spec := fixture.Chart(nil, "a>b", "b>c")
		spec.Nodes[1].Spec.Deadline = fixture.Start.Add(5 * time.Second)
		flow := r.NewFlowOf(t, spec)
		l := r.Lease(t, flow, "a")
		r.Advance(5 * time.Second) // the lease goes on
		return r, flow, l
	}
	t.Run("failure_first", func(t *testing.T) {
		r, flow, l := newRace(t)
		tx := r.BeginTx(t)
		if _, err := r.WithTx(tx).FailExecution(t.Context(), l, fixture.ForGood); err != nil {
			t.Fatal(err)
		}
		returned, wait := fixture.Watched(t, func(ctx context.Context) error {
			n, err := upkeep.Of(r.Rivals.Engine).ExpireDeadlines(ctx, 10)
			if err == nil && n != 0 {
				err = fmt.Errorf("%d expired", n)
			}
			return err
		})
		r.Rivals.AwaitBlockedOr(t, r.Fixture, returned)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		r.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c"})
		r.WantCompletionEvents(t, flow, "a failed", "b skipped", "c skipped")
		r.WantNoAborts(t)
	})
	t.Run("deadline_first", func(t *testing.T) {
		r, flow, l := newRace(t)
		tx := r.BeginTx(t)
		if n, err := upkeep.Of(r.WithTx(tx)).ExpireDeadlines(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("%d expired, error %v", n, err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error { return r.Failed(ctx, l) })
		r.Rivals.AwaitBlocked(t, r.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		r.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateUnstarted: "b", fixture.StateSkipped: "c"})
		r.WantGroup(t, flow, "b", fixture.StoredGroup{Fail: 1, KTarget: 1})
		r.WantCompletionEvents(t, flow, "b expired", "c skipped", "a failed")
		r.WantNoAborts(t)
	})
	// Both wait for the flow at once.
	t.Run("together", func(t *testing.T) {
		r, flow, l := newRace(t)
		other := r.Rival(t)
		tx := r.BeginTx(t)
		fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", flow)
		waitFail := fixture.Async(t, func(ctx context.Context) error { return r.Failed(ctx, l) })
		r.Rivals.AwaitBlocked(t, r.Fixture)
		returned, waitExpire := fixture.Watched(t, func(ctx context.Context) error {
			_, err := upkeep.Of(other.Engine).ExpireDeadlines(ctx, 10)
			return err
		})
		other.AwaitBlockedOr(t, r.Fixture, returned)
		fixture.Commit(t, tx)
		if err := errors.Join(waitFail(), waitExpire()); err != nil {
			t.Error(err)
		}
		r.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c"})
		r.WantNoAborts(t)
	})
}

// Batches that name the same flows in opposite order do not deadlock, with any ends in them.
func TestResolveBatchesInOppositeOrder(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]bool{{false, false}, {true, true}, {false, true}} {
		for _, gate := range []string{"first", "last"} {
			t.Run(fmt.Sprintf("fails_%t_%t_gate_%s", pair[0], pair[1], gate), func(t *testing.T) {
				r := fixture.NewRacers(t, 2)
				var flows []id.FlowID
				for range 4 {
					flows = append(flows, r.Draw(t, fixture.When{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c"))
				}
				r.ClaimAll(t)
				ends := func(key string, fails, backwards bool) func(context.Context) error {
					var completions []engine.Completion
					var failures []engine.AttemptFailure
					for _, flow := range flows {
						l := r.Lease(t, flow, key)
						completions = append(completions, engine.Completion{Lease: l})
						failures = append(failures, engine.AttemptFailure{Lease: l, Failure: fixture.ForGood})
					}
					if backwards {
						slices.Reverse(completions)
						slices.Reverse(failures)
					}
					return func(ctx context.Context) error {
						if !fails {
							outcomes, err := r.Rivals.CompleteExecutions(ctx, completions)
							return errors.Join(append(outcomes, err)...)
						}
						results, err := r.Rivals.FailExecutions(ctx, failures)
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
				tx := holdGroup(t, r.Flows, held, "c")
				fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", held)
				// Neither waits for the locked flow; they come back to it, and to the flow that the other locked.
				first, second := ends("a", pair[0], false), ends("b", pair[1], true)
				if err := together(t.Context(), first, second); !errors.Is(err, fferr.ErrBusy) {
					t.Errorf("got %v, want that the flow is busy", err)
				}
				fixture.Commit(t, tx)
				fixture.Await(t, "both to end all", func() bool {
					err := together(t.Context(), first, second)
					if err != nil && !errors.Is(err, fferr.ErrBusy) {
						t.Fatal(err)
					}
					return err == nil
				})
				want := fixture.StateReady
				if pair[0] && pair[1] {
					want = fixture.StateSkipped
				}
				for _, flow := range flows {
					if got := r.Members(t, flow)["c"]; got != want {
						t.Errorf("c of %s is %s, want %s", flow, got, want)
					}
				}
				r.WantNoAborts(t)
			})
		}
	}
}

// F41: executions are locked before attempts. A transaction that waits for an execution holds no attempt of it.
func TestExecutionsLockBeforeAttempts_F41(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture.Racers, context.Context, engine.Lease) error{
		"complete": (*fixture.Racers).Complete, "fail": (*fixture.Racers).Failed,
	} {
		t.Run(name, func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			flow := r.Draw(t, nil, "a>b")
			l := r.Lease(t, flow, "a")
			tx := r.BeginTx(t)
			fixture.LockExecution(t, tx, l.Execution)
			wait := fixture.Async(t, func(ctx context.Context) error { return end(r, ctx, l) })
			r.Rivals.AwaitBlocked(t, r.Fixture)
			if _, err := tx.Exec(t.Context(), `
				SELECT FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE NOWAIT`,
				l.Execution.Partition(), l.Execution.UUID()); err != nil {
				t.Errorf("the attempt is held: %v", err)
			}
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Error(err)
			}
			r.WantNoAborts(t)
		})
	}
}

// stage adds an applied edge to a flow in the same way as a growth: under the flow's exclusive lock, and writing the
// flow's row.
func stage(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID, from, to string) {
	t.Helper()
	fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", flow)
	fixture.ExecIn(t, tx, `
		UPDATE ff_flow_core SET graph_revision = graph_revision + 1,
			raw_fields = raw_fields || jsonb_build_object('last_mutation_at_ms', $3::bigint)
		WHERE partition_key = $1 AND flow_id = $2`, fixture.PartitionOf(flow), flow, f.Time().UnixMilli())
	fixture.ExecIn(t, tx, `
		INSERT INTO ff_edge (partition_key, flow_id, edge_id, upstream_eid, downstream_eid, policy)
		VALUES ($1, $2, $3, $4, $5, '{"edge_state": "applied", "applied_at_ms": 1, "staged_at_ms": 1}')`,
		fixture.PartitionOf(flow), flow, id.NewEdgeID(), f.NodeID(flow, from).UUID(), f.NodeID(flow, to).UUID())
	fixture.ExecIn(t, tx, `
		UPDATE ff_edge_group SET running_count = running_count + 1, k_target = k_target + 1
		WHERE partition_key = $1 AND flow_id = $2 AND downstream_eid = $3`,
		fixture.PartitionOf(flow), flow, f.NodeID(flow, to).UUID())
}

// F47: a completion and a change of the structure exclude each other, so that an edge staged at that moment
// is either seen by the completion or staged after it.
func TestCompletionAndGrowthExcludeEachOther_F47(t *testing.T) {
	t.Parallel()
	t.Run("growth_first", func(t *testing.T) {
		r := fixture.NewRacers(t, 1)
		flow := r.Draw(t, nil, "a>d", "b>x")
		l := r.Lease(t, flow, "b")
		tx := r.BeginTx(t)
		stage(t, r.Flows, tx, flow, "b", "d")
		wait := fixture.Async(t, func(ctx context.Context) error { return r.Complete(ctx, l) })
		r.Rivals.AwaitBlocked(t, r.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		r.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		r.Succeed(t, flow, "a")
		r.WantState(t, r.NodeID(flow, "d"), fixture.StateReady)
	})
	t.Run("completion_first", func(t *testing.T) {
		r := fixture.NewRacers(t, 1)
		flow := r.Draw(t, nil, "a>d")
		tx := r.BeginTx(t)
		if err := r.WithTx(tx).CompleteExecution(t.Context(), r.Lease(t, flow, "a"), nil); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error {
			_, err := r.Rivals.CreateExecution(ctx, engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: r.Lane})
			return err
		})
		r.Rivals.AwaitBlocked(t, r.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		if got := r.Describe(t, flow); got.Nodes != 3 || got.Groups[0].Succeeded != 1 {
			t.Errorf("described %+v", got)
		}
	})
}

// In a transaction of the caller's whose snapshot is older than a change of the structure, a completion is
// refused by the server, and never loses the new edge.
func TestCompletionInAnOldSnapshotIsRefused_F47(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		conflicts := func(err error) bool {
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			return ok && pgErr.Code == "40001"
		}
		open := func(t *testing.T, r *fixture.Racers) pgx.Tx {
			tx := fixture.BeginWith(t, r.Pool, pgx.TxOptions{IsoLevel: level})
			fixture.ExecIn(t, tx, "SELECT count(*) FROM ff_edge") // the snapshot
			return tx
		}
		t.Run(fmt.Sprintf("%s/growth_committed", level), func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			flow := r.Draw(t, nil, "a>d", "b>x")
			l := r.Lease(t, flow, "b")
			tx := open(t, r)
			growth := r.BeginTx(t)
			stage(t, r.Flows, growth, flow, "b", "d")
			fixture.Commit(t, growth)
			if err := r.WithTx(tx).CompleteExecution(t.Context(), l, nil); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a b", fixture.StateHeld: "d x"})
			r.Succeed(t, flow, "b")
			r.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		})
		t.Run(fmt.Sprintf("%s/growth_under_way", level), func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			flow := r.Draw(t, nil, "a>d", "b>x")
			l := r.Lease(t, flow, "b")
			growth := r.BeginTx(t)
			stage(t, r.Flows, growth, flow, "b", "d")
			wait := fixture.Async(t, func(ctx context.Context) error {
				return pgx.BeginTxFunc(ctx, r.Rivals.Pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					return r.Rivals.WithTx(tx).CompleteExecution(ctx, l, nil)
				})
			})
			r.Rivals.AwaitBlocked(t, r.Fixture)
			fixture.Commit(t, growth)
			if err := wait(); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
			r.Succeed(t, flow, "b")
			r.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		})
		t.Run(fmt.Sprintf("%s/member_added", level), func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			flow := r.Draw(t, nil, "a>b")
			l := r.Lease(t, flow, "a")
			tx := open(t, r)
			if _, err := r.Rivals.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: "elsewhere"}); err != nil {
				t.Fatal(err)
			}
			if err := r.WithTx(tx).CompleteExecution(t.Context(), l, nil); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
		})
		t.Run(fmt.Sprintf("%s/nothing_changed", level), func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			flow := r.Draw(t, nil, "a>b", "x>y")
			a, x := r.Lease(t, flow, "a"), r.Lease(t, flow, "x")
			tx := open(t, r)
			if err := r.WithTx(tx).CompleteExecution(t.Context(), a, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := r.WithTx(tx).FailExecution(t.Context(), x, fixture.ForGood); err != nil {
				t.Fatal(err)
			}
			fixture.Commit(t, tx)
			r.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b", fixture.StateFailed: "x", fixture.StateSkipped: "y"})
		})
		// Of two that count for one group the second would overwrite the first.
		t.Run(fmt.Sprintf("%s/other_upstream", level), func(t *testing.T) {
			r := fixture.NewRacers(t, 1)
			flow := r.Draw(t, nil, "a>c", "b>c")
			l := r.Lease(t, flow, "b")
			tx := open(t, r)
			r.Succeed(t, flow, "a")
			if err := r.WithTx(tx).CompleteExecution(t.Context(), l, nil); !conflicts(err) {
				t.Errorf("error %v, want 40001", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
			r.Succeed(t, flow, "b")
			r.WantState(t, r.NodeID(flow, "c"), fixture.StateReady)
		})
	}
}
