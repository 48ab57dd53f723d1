package flows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// endsFlow are the ways in which a flow is cancelled with all its members.
var endsFlow = map[string]func(context.Context, *engine.Engine, id.FlowID) error{
	"cancel": func(ctx context.Context, e *engine.Engine, flow id.FlowID) error {
		_, err := e.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
		return err
	},
	"request": func(ctx context.Context, e *engine.Engine, flow id.FlowID) error {
		_, err := e.RequestFlowCancel(ctx, engine.FlowCancelRequest{ID: flow})
		return err
	},
}

// A cancel waits for uncommitted changes of members, and no member escapes: not one that is added, released, claimed,
// retried or replayed, nor one that ends by itself.
func TestCancelFlowWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		chart []string
		do    func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) error
		want  map[string]string
	}{
		{"added", []string{"a>b"}, func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) error {
			x := f.NodeID(flow, "new")
			f.Names[x.UUID()] = "new"
			_, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{ID: x, Lane: f.Lane, Kind: "test", Flow: &flow})
			return err
		}, map[string]string{fixture.StateCancelled: "a b new"}},
		{"released", []string{"a>b"}, func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) error {
			return f.WithTx(tx).CompleteExecution(t.Context(), f.Lease(t, flow, "a"), nil)
		}, map[string]string{fixture.StateCompleted: "a", fixture.StateCancelled: "b"}},
		{"skipped", []string{"a>b", "c"}, func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) error {
			_, err := f.WithTx(tx).FailExecution(t.Context(), f.Lease(t, flow, "a"), fixture.ForGood)
			return err
		}, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b", fixture.StateCancelled: "c"}},
		{"retried", []string{"a>b"}, func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) error {
			_, err := f.WithTx(tx).FailExecution(t.Context(), f.Lease(t, flow, "a"), engine.Failure{})
			return err
		}, map[string]string{fixture.StateCancelled: "a b"}},
		{"claimed", []string{"a>b"}, func(t *testing.T, f *fixture.Flows, tx pgx.Tx, _ id.FlowID) error {
			_, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 1)
			return err
		}, map[string]string{fixture.StateCancelled: "a b"}},
		{"replayed", []string{"a>b", "a>c"}, func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) error {
			f.Succeed(t, flow, "a")
			f.Succeed(t, flow, "b")
			_, err := operator.Replay(t.Context(), f.WithTx(tx), f.NodeID(flow, "a"), operator.ReplayCompleted)
			return err
		}, map[string]string{fixture.StateCompleted: "b", fixture.StateCancelled: "a c"}},
		{"ended by an operator", []string{"a>b", "c"}, func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) error {
			return f.WithTx(tx).CancelExecution(t.Context(), engine.CancelSpec{ID: f.NodeID(flow, "a"), Reason: "first"})
		}, map[string]string{fixture.StateCancelled: "a c", fixture.StateSkipped: "b"}},
	} {
		for way, end := range endsFlow {
			t.Run(c.name+"/"+way, func(t *testing.T) {
				f := fixture.NewFlows(t)
				flow := f.Draw(t, nil, c.chart...)
				late := f.Rival(t)
				tx := f.BeginTx(t)
				if err := c.do(t, f, tx, flow); err != nil {
					t.Fatal(err)
				}
				wait := fixture.Async(t, func(ctx context.Context) error { return end(ctx, late.Engine, flow) })
				late.AwaitBlocked(t, f.Fixture)
				fixture.Commit(t, tx)
				if err := wait(); err != nil {
					t.Fatal(err)
				}
				f.WantMembers(t, flow, c.want)
				ends := f.CompletionEvents(t, flow)
				slices.Sort(ends)
				if c.name != "replayed" && len(slices.Compact(slices.Clone(ends))) != len(f.Members(t, flow)) {
					t.Errorf("events %q", ends)
				}
			})
		}
	}
}

// Operations after a cancel find a cancelled flow and ended members, even if they had begun before.
func TestOperationsWaitForCancelFlow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, late *engine.Engine, f *fixture.Flows, flow id.FlowID, l engine.Lease) error
		want error
	}{
		{"growth", func(ctx context.Context, late *engine.Engine, f *fixture.Flows, flow id.FlowID, _ engine.Lease) error {
			_, err := late.CreateExecution(ctx, engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Flow: &flow})
			return err
		}, fferr.ErrFlowTerminal},
		{"completion", func(ctx context.Context, late *engine.Engine, _ *fixture.Flows, _ id.FlowID, l engine.Lease) error {
			return late.CompleteExecution(ctx, l, nil)
		}, fferr.ErrStaleLease},
		{"failure", func(ctx context.Context, late *engine.Engine, _ *fixture.Flows, _ id.FlowID, l engine.Lease) error {
			_, err := late.FailExecution(ctx, l, fixture.ForGood)
			return err
		}, fferr.ErrStaleLease},
		{"replay", func(ctx context.Context, late *engine.Engine, f *fixture.Flows, flow id.FlowID, _ engine.Lease) error {
			_, err := operator.Replay(ctx, late, f.NodeID(flow, "done"), operator.ReplayCompleted)
			return err
		}, fferr.ErrFlowTerminal},
		{"cancel", func(ctx context.Context, late *engine.Engine, _ *fixture.Flows, flow id.FlowID, _ engine.Lease) error {
			got, err := late.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
			if err == nil && !got.Already {
				return errors.New("cancelled once more")
			}
			return err
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b", "done")
			l := f.Lease(t, flow, "a")
			f.Succeed(t, flow, "done")
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if _, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, func(ctx context.Context) error { return c.do(ctx, late.Engine, f, flow, l) })
			late.AwaitBlocked(t, f.Fixture)
			fixture.Commit(t, tx)
			if err := wait(); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b", fixture.StateCompleted: "done"})
			ends := f.CompletionEvents(t, flow)
			if slices.Sort(ends); !slices.Equal(ends, []string{"a cancelled", "b cancelled", "done success"}) {
				t.Errorf("events %q", ends)
			}
		})
	}
}

// A member that is claimed or given back during a milder cancel is in one of the two sets.
func TestCancelFlowPendingRacesAClaim(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	late := f.StoppedBefore(t, "LockMembers")
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := late.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: state.CancelPending})
		return err
	})
	late.AwaitStop(t)
	l := f.Lease(t, flow, "a")
	late.Resume()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a", fixture.StateCancelled: "b"})
	if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Error(err)
	}
}

// Locks on a flow and its members that last long are tried three times, and nothing is left behind.
func TestCancelFlowTriesThreeTimes_F37(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID){
		"a member": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.LockExecution(t, tx, f.NodeID(flow, "b"))
		},
		"its attempt": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.LockAttempt(t, tx, f.NodeID(flow, "a"), 0)
		},
		"the lock of it": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
		},
		"the row of it": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
		},
		"a group": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
		},
	} {
		for way, end := range endsFlow {
			t.Run(name+"/"+way, func(t *testing.T) {
				f := fixture.NewFlows(t)
				flow := f.Draw(t, nil, "a>b")
				f.Lease(t, flow, "a")
				before := f.DumpFlow(t, flow)
				tx := f.BeginTx(t)
				hold(t, f, tx, flow)
				late, log := f.ShortWaitRival(t)
				sent := fixture.Names(log.During(func() {
					if err := end(t.Context(), late.Engine, flow); !errors.Is(err, fferr.ErrContention) {
						t.Errorf("got %v, want contention", err)
					}
				}))
				if tries := fixture.CountTries(sent); tries != 3 {
					t.Errorf("%d tries: %q", tries, sent)
				}
				if after := f.DumpFlow(t, flow); after != before {
					t.Errorf("stored\n%s, was\n%s", after, before)
				}
				fixture.Commit(t, tx)
				sent = fixture.Names(log.During(func() {
					if err := end(t.Context(), late.Engine, flow); err != nil {
						t.Error(err)
					}
				}))
				if tries := fixture.CountTries(sent); tries != 1 {
					t.Errorf("%d tries: %q", tries, sent)
				}
				f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b"})
			})
		}
	}
}

// Where the first try runs into a lock that is gone at the second, the second succeeds.
func TestCancelFlowSucceedsAtTheSecondTry_F37(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	f.Lease(t, flow, "a")
	late, log := f.ShortWaitRival(t)
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, f.NodeID(flow, "b"))
	done := fixture.Async(t, func(ctx context.Context) error {
		_, err := late.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
		for errors.Is(err, fferr.ErrContention) { // on a slow machine all three may have failed
			_, err = late.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
		}
		return err
	})
	fixture.Await(t, "a try to be given up", func() bool { return len(log.Aborted()) > 0 })
	fixture.Commit(t, tx)
	if err := done(); err != nil {
		t.Fatal(err)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b"})
}

// A process of the reference locks attempts before executions. The server breaks the deadlock, and the cancel is repeated.
func TestCancelFlowSurvivesADeadlock_F41(t *testing.T) {
	f := fixture.NewFlows(t)
	log := new(fixture.StatementLog)
	ours := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
	for range 5 {
		flow := f.Draw(t, nil, "a>b")
		a := f.Lease(t, flow, "a").Execution
		tx := f.BeginTx(t)
		fixture.LockAttempt(t, tx, a, 0)
		wait := fixture.Async(t, func(ctx context.Context) error {
			_, err := ours.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
			return err
		})
		ours.AwaitBlocked(t, f.Fixture)
		_, err := tx.Exec(t.Context(), fixture.UpdateExecution("priority = 9"), a.Partition(), a.UUID())
		err = errors.Join(err, tx.Commit(t.Context()))
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b"})
		if err == nil {
			if !slices.Contains(log.Aborted(), "40P01") || f.Stored(t, a).Priority != 9 {
				t.Errorf("the server gave up %q; stored %+v", log.Aborted(), f.Stored(t, a))
			}
			return
		}
		t.Log(err) // the other one was aborted
	}
	t.Error("the server never aborted the cancel")
}

// The reference cancels at SERIALIZABLE, which a flow whose members complete all the time never lets happen. Here a cancel
// stands in line for the flow, and succeeds at once, as growth and staging do. It holds no lock that outlives its transaction.
func TestCancelFlowOfABusyFlow_F37(t *testing.T) {
	for _, workers := range []int{8, 32} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			f := fixture.NewFlows(t)
			others := f.Rival(t, func(config *pgxpool.Config) { config.MaxConns = 16 })
			log := new(fixture.StatementLog)
			late := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
			var took []time.Duration
			for goesOn := soak.For(t, 0); len(took) == 0 || goesOn(); { // once, or as often as a soak lasts
				took = append(took, cancelBusyFlow(t, f, others, late, log, workers))
			}
			if aborted := log.Aborted(); len(aborted) > 0 {
				t.Errorf("%d workers: the server gave up %q", workers, aborted)
			}
			if held := fixture.Texts(t, late.Pool, "SELECT locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"); len(held) > 0 {
				t.Errorf("left %q", held)
			}
			slices.Sort(took)
			t.Logf("%d flows cancelled while %d workers complete their members: p50 %v, p99 %v, at most %v",
				len(took), workers, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
		})
	}
}

// cancelBusyFlow cancels a flow whose members so many workers complete, and returns how long that took.
func cancelBusyFlow(t *testing.T, f *fixture.Flows, others, late *fixture.Rival, log *fixture.StatementLog, workers int) time.Duration {
	t.Helper()
	const members = 1000
	flow := f.NewFlowOf(t, fixture.Wide(members, true))
	var completed atomic.Int64
	var crew sync.WaitGroup
	for range workers {
		crew.Go(func() {
			for {
				claimed, err := others.Claim(t.Context(), f.Worker(), 1)
				if err != nil {
					t.Error(err)
				}
				if len(claimed) == 0 {
					return
				}
				err = others.CompleteExecution(t.Context(), claimed[0].Lease, nil)
				for errors.Is(err, fferr.ErrContention) { // on a slow machine the others in line take longer than it waits
					err = others.CompleteExecution(t.Context(), claimed[0].Lease, nil)
				}
				switch {
				case err == nil:
					completed.Add(1)
				case !errors.Is(err, fferr.ErrStaleLease):
					t.Error(err)
					return
				}
			}
		})
	}
	fixture.Await(t, "completions", func() bool { return completed.Load() >= int64(workers) })
	// In a transaction of a caller's nothing is tried again, and on a machine that has too much to do the completions that
	// are before it may take longer together than the engine waits for a lock.
	patiently := func(do func(*engine.Engine) error) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), late.Pool, func(tx pgx.Tx) error {
			fixture.ExecIn(t, tx, "SET LOCAL lock_timeout = 0")
			return do(late.WithTx(tx))
		})
		if err != nil {
			t.Error(err)
		}
	}
	patiently(func(e *engine.Engine) error {
		_, err := e.GrowFlow(t.Context(), f.Growth(flow, nil, "more"))
		return err
	})
	patiently(func(e *engine.Engine) error {
		_, err := e.StageEdges(t.Context(), f.Staged(flow, false, "more>end"))
		return err
	})
	var got engine.CancelledFlow
	began := time.Now()
	sent := fixture.Names(log.During(func() {
		patiently(func(e *engine.Engine) (err error) {
			got, err = e.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow})
			return err
		})
	}))
	took := time.Since(began)
	crew.Wait()
	if tries := len(slices.DeleteFunc(slices.Clone(sent), func(name string) bool { return name != "LockFlowsExclusive" })); tries != 1 {
		t.Errorf("%d workers: %d tries: %q", workers, tries, sent)
	}
	done := int(completed.Load())
	if done+len(got.Members) != members+2 || len(got.Members) < 2 {
		t.Errorf("%d completed, %d cancelled", done, len(got.Members))
	}
	counts := make(map[string]int)
	ended := f.Members(t, flow)
	for _, state := range ended {
		counts[state]++
	}
	fixture.WantEqual(t, "members", counts, map[string]int{fixture.StateCompleted: done, fixture.StateCancelled: len(got.Members)})
	if ended["more"] == fixture.StateCompleted {
		done-- // its edge is not applied, and counts for nothing
	}
	f.WantGroup(t, flow, "end", fixture.StoredGroup{Success: done, Fail: members - done, KTarget: members})
	return took
}

// A member fails while the deadline of its dependent passes: whichever comes first, the other one waits, and there is
// no deadlock.
func TestFailureRacesTheDependentsDeadline_F41(t *testing.T) {
	overdue := func(t *testing.T, f *fixture.Flows) id.FlowID {
		spec := fixture.Chart(nil, "a>b")
		spec.Nodes[1].Spec.Deadline = f.Time().Add(time.Second)
		flow := f.NewFlowOf(t, spec)
		f.ClaimAll(t)
		f.Advance(2 * time.Second)
		return flow
	}
	t.Run("the failure is first", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := overdue(t, f)
		log := new(fixture.StatementLog)
		late := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
		tx := f.BeginTx(t)
		if _, err := f.WithTx(tx).FailExecution(t.Context(), f.Lease(t, flow, "a"), fixture.ForGood); err != nil {
			t.Fatal(err)
		}
		if n, err := upkeep.Of(late.Engine).ExpireDeadlines(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("expired %d, %v", n, err)
		}
		fixture.Commit(t, tx)
		if _, err := upkeep.Of(late.Engine).ExpireDeadlines(t.Context(), 10); err != nil {
			t.Error(err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b"})
		if aborted := log.Aborted(); slices.Contains(aborted, "40P01") {
			t.Errorf("the server gave up %q", aborted)
		}
	})
	t.Run("the deadline is first", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := overdue(t, f)
		log := new(fixture.StatementLog)
		late := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
		tx := f.BeginTx(t)
		if n, err := upkeep.Of(f.WithTx(tx)).ExpireDeadlines(t.Context(), 10); n != 1 || err != nil {
			t.Fatalf("expired %d, %v", n, err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error {
			_, err := late.FailExecution(ctx, f.Leases[f.NodeID(flow, "a")], fixture.ForGood)
			return err
		})
		late.AwaitBlocked(t, f.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Error(err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateUnstarted: "b"})
		f.WantGroup(t, flow, "b", fixture.StoredGroup{Fail: 1, KTarget: 1})
		if aborted := log.Aborted(); len(aborted) > 0 {
			t.Errorf("the server gave up %q", aborted)
		}
	})
}
