package flows

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// linkings are the ways in which a dependency is added to members: in one call, or staged before and applied now.
var linkings = map[string]func(t *testing.T, f *fixture.Flows, flow id.FlowID, edge string) func(context.Context, *engine.Engine) error{
	"grow": func(_ *testing.T, f *fixture.Flows, flow id.FlowID, edge string) func(context.Context, *engine.Engine) error {
		g := f.Growth(flow, nil, "", edge)
		return func(ctx context.Context, e *engine.Engine) error { _, err := e.GrowFlow(ctx, g); return err }
	},
	"stage and apply": func(_ *testing.T, f *fixture.Flows, flow id.FlowID, edge string) func(context.Context, *engine.Engine) error {
		s := f.Staged(flow, true, edge)
		return func(ctx context.Context, e *engine.Engine) error { _, err := e.StageEdges(ctx, s); return err }
	},
	"apply": func(t *testing.T, f *fixture.Flows, flow id.FlowID, edge string) func(context.Context, *engine.Engine) error {
		edges := f.StageAll(t, f.Staged(flow, false, edge))
		return func(ctx context.Context, e *engine.Engine) error {
			_, err := e.ApplyEdges(ctx, flow, edges)
			return err
		}
	},
}

// upstreamEnds are the ways in which an upstream ends.
var upstreamEnds = map[string]struct {
	do      func(ctx context.Context, e *engine.Engine, l engine.Lease) error
	counted fixture.StoredGroup
	state   string // of its dependent, and for another one that runs
}{
	"success":            {fixture.CompleteOne, fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2}, fixture.StateHeld},
	"success in a batch": {completeInBatch, fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2}, fixture.StateHeld},
	"failure": {
		func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.FailExecution(ctx, l, fixture.ForGood)
			return err
		},
		fixture.StoredGroup{Fail: 1, Running: 1, KTarget: 2},
		fixture.StateSkipped,
	},
	"cancel": {
		func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			return e.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution})
		},
		fixture.StoredGroup{Fail: 1, Running: 1, KTarget: 2},
		fixture.StateSkipped,
	},
}

// An edge that is added while its upstream ends is resolved once, in either order (F47, and test 5 of the flows).
func TestGrowthRacesAnEndingUpstream_F47(t *testing.T) {
	for linkName, link := range linkings {
		for endName, end := range upstreamEnds {
			for _, growsFirst := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, growth first %t", linkName, endName, growsFirst), func(t *testing.T) {
					f := fixture.NewFlows(t)
					flow := f.Draw(t, nil, "a>d", "b>x")
					other := f.Rival(t)
					l := f.Lease(t, flow, "b")
					grow := link(t, f, flow, "b>d")
					first, second := grow, func(ctx context.Context, e *engine.Engine) error { return end.do(ctx, e, l) }
					if !growsFirst {
						first, second = second, first
					}
					tx := f.BeginTx(t)
					if err := first(t.Context(), f.WithTx(tx)); err != nil {
						t.Fatal(err)
					}
					if !growsFirst || !strings.HasSuffix(endName, "batch") {
						wait := fixture.Async(t, func(ctx context.Context) error { return second(ctx, other.Engine) })
						other.AwaitBlocked(t, f.Fixture)
						fixture.Commit(t, tx)
						if err := wait(); err != nil {
							t.Fatal(err)
						}
					} else {
						if err := second(t.Context(), other.Engine); !errors.Is(err, fferr.ErrBusy) {
							t.Errorf("error %v, want %v", err, fferr.ErrBusy)
						}
						fixture.Commit(t, tx)
						if err := second(t.Context(), other.Engine); err != nil {
							t.Fatal(err)
						}
					}
					f.WantGroup(t, flow, "d", end.counted)
					f.WantState(t, f.NodeID(flow, "d"), end.state)
					f.Succeed(t, flow, "a")
					if end.state == fixture.StateHeld {
						f.WantState(t, f.NodeID(flow, "d"), fixture.StateReady)
					}
					all := end.counted
					all.Success, all.Running = all.Success+1, 0
					f.WantGroup(t, flow, "d", all)
				})
			}
		}
	}
}

// In a transaction of the caller's whose snapshot is older than the growth, an end is refused by the server or comes
// after it, and never loses the edge; and growth with an old snapshot never counts an end twice.
func TestGrowthIsSeenByOldSnapshots_F47(t *testing.T) {
	aborted := func(err error) bool {
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		return ok && pgErr.Code == "40001"
	}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for linkName, link := range linkings {
			for endName, end := range upstreamEnds {
				for _, oldGrows := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s, %s, growth is old %t", level, linkName, endName, oldGrows), func(t *testing.T) {
						f := fixture.NewFlows(t)
						flow := f.Draw(t, nil, "a>d", "b>x")
						l := f.Lease(t, flow, "b")
						old, late := func(ctx context.Context, e *engine.Engine) error { return end.do(ctx, e, l) }, link(t, f, flow, "b>d")
						if oldGrows {
							old, late = late, old
						}
						tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
						fixture.ExecIn(t, tx, "SELECT count(*) FROM ff_edge") // the snapshot
						if err := late(t.Context(), f.Engine); err != nil {
							t.Fatal(err)
						}
						if err := old(t.Context(), f.WithTx(tx)); !aborted(err) {
							t.Errorf("error %v, want 40001", err)
						}
						if err := tx.Rollback(t.Context()); err != nil {
							t.Fatal(err)
						}
						if err := old(t.Context(), f.Engine); err != nil {
							t.Fatal(err)
						}
						f.WantGroup(t, flow, "d", end.counted)
						f.WantState(t, f.NodeID(flow, "d"), end.state)
					})
				}
			}
		}
	}
}

// An event that was dispatched since the snapshot of a growth is not taken for an undispatched one.
func TestGrowFlowWithASnapshotOlderThanTheDispatch(t *testing.T) {
	f := fixture.CloneFlowFixture(t)
	flow := f.Draw(t, nil, "a", "b")
	f.Succeed(t, flow, "a")
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = NULL WHERE flow_id = $1", flow)
	tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	fixture.ExecIn(t, tx, "SELECT count(*) FROM ff_edge")
	if n, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	_, err := f.WithTx(tx).GrowFlow(t.Context(), f.Growth(flow, nil, "n", "a>n"))
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40001" {
		t.Errorf("error %v, want 40001", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	grow(t, f, flow, nil, "n", "a>n")
	f.WantState(t, f.NodeID(flow, "n"), fixture.StateReady)
}

// A claim does not come between a growth's reads and writes: it skips the rows that the growth holds.
func TestGrowFlowRacesAClaim(t *testing.T) {
	t.Run("growth_first", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a", "d")
		tx := f.BeginTx(t)
		if _, err := f.WithTx(tx).GrowFlow(t.Context(), f.Growth(flow, nil, "n", "n>d")); err != nil {
			t.Fatal(err)
		}
		if claimed := f.ClaimN(t, 10); len(claimed) != 1 || claimed[0].ID != f.NodeID(flow, "a") {
			t.Errorf("claimed %d", len(claimed))
		}
		fixture.Commit(t, tx)
		f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a", fixture.StateReady: "n", fixture.StateHeld: "d"})
	})
	t.Run("claim_first", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "d")
		other := f.Rival(t)
		tx := f.BeginTx(t)
		if _, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 1); err != nil {
			t.Fatal(err)
		}
		g := f.Growth(flow, nil, "n", "n>d")
		wait := fixture.Async(t, func(ctx context.Context) error { _, err := other.GrowFlow(ctx, g); return err })
		other.AwaitBlocked(t, f.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); !errors.Is(err, fferr.ErrStarted) {
			t.Errorf("error %v, want %v", err, fferr.ErrStarted)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "d"})
	})
}

// racing are the ways in which a flow gets members, or members something to do, while it is cancelled. Each says
// how it is refused where the cancel comes first.
var racing = map[string]struct {
	do      func(ctx context.Context, f *fixture.Flows, e *engine.Engine, flow id.FlowID, x id.ExecutionID, staged []id.EdgeID) error
	refusal error
	ended   string // members that have ended before the cancel where it does not
}{
	"grow": {func(ctx context.Context, f *fixture.Flows, e *engine.Engine, flow id.FlowID, _ id.ExecutionID, _ []id.EdgeID) error {
		_, err := e.GrowFlow(ctx, f.Growth(flow, nil, "n m", "done>n", "a>m"))
		return err
	}, fferr.ErrFlowTerminal, "done"},
	"add": {func(ctx context.Context, _ *fixture.Flows, e *engine.Engine, flow id.FlowID, x id.ExecutionID, _ []id.EdgeID) error {
		_, err := e.AddMembers(ctx, flow, []id.ExecutionID{x})
		return err
	}, fferr.ErrFlowTerminal, "done"},
	"stage": {func(ctx context.Context, f *fixture.Flows, e *engine.Engine, flow id.FlowID, _ id.ExecutionID, _ []id.EdgeID) error {
		_, err := e.StageEdges(ctx, f.Staged(flow, true, "c>b"))
		return err
	}, fferr.ErrFlowTerminal, "done"},
	// The edge that it applies is resolved at once, and is all that another waits for.
	"apply": {func(ctx context.Context, _ *fixture.Flows, e *engine.Engine, flow id.FlowID, _ id.ExecutionID, staged []id.EdgeID) error {
		_, err := e.ApplyEdges(ctx, flow, staged)
		return err
	}, fferr.ErrFlowTerminal, "done"},
	"resolve": {func(ctx context.Context, f *fixture.Flows, e *engine.Engine, flow id.FlowID, _ id.ExecutionID, _ []id.EdgeID) error {
		return fixture.CompleteOne(ctx, e, f.Leases[f.NodeID(flow, "a")])
	}, fferr.ErrStaleLease, "done a"},
	"replay": {func(ctx context.Context, f *fixture.Flows, e *engine.Engine, flow id.FlowID, _ id.ExecutionID, _ []id.EdgeID) error {
		_, err := operator.Replay(ctx, e, f.NodeID(flow, "done"), operator.ReplayCompleted)
		return err
	}, fferr.ErrFlowTerminal, ""},
}

// Growth, operations that release a member, and a cancel of the flow exclude each other, in calls and in transactions
// of callers: an earlier change can be cancelled, and afterwards nothing is added, released or revived.
func TestGrowFlowRacesACancel(t *testing.T) {
	t.Parallel()
	for name, c := range racing {
		for way, end := range endsFlow {
			for _, cancelFirst := range []bool{true, false} {
				for _, inTransaction := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s, %s, cancel first %t, in a transaction %t", name, way, cancelFirst, inTransaction), func(t *testing.T) {
						f := fixture.NewFlows(t)
						flow := f.Draw(t, fixture.When{"b": policy.AnyOf(policy.LetRun)}, "a>b", "c", "done", "done>d", "a>d")
						f.Succeed(t, flow, "done") // a and c are claimed too
						staged := f.StageAll(t, f.Staged(flow, false, "done>b"))
						x, other := f.Standalone(t, flow, "x"), f.Rival(t)
						before := f.Members(t, flow)
						f.Growth(flow, nil, "n m") // names
						first := func(ctx context.Context, e *engine.Engine) error { return end(ctx, e, flow) }
						second := func(ctx context.Context, e *engine.Engine) error { return c.do(ctx, f, e, flow, x, staged) }
						if !cancelFirst {
							first, second = second, first
						}
						tx := f.BeginTx(t)
						if err := first(t.Context(), f.WithTx(tx)); err != nil {
							t.Fatal(err)
						}
						wait := fixture.Async(t, func(ctx context.Context) error {
							if !inTransaction {
								return second(ctx, other.Engine)
							}
							late, err := other.Pool.Begin(ctx)
							if err != nil {
								return err
							}
							// It goes on after a refusal.
							return errors.Join(second(ctx, other.WithTx(late)), late.Commit(ctx))
						})
						other.AwaitBlocked(t, f.Fixture)
						fixture.Commit(t, tx)
						refusal := error(nil)
						if cancelFirst {
							refusal = c.refusal
						}
						if err := wait(); !errors.Is(err, refusal) {
							t.Errorf("error %v, want %v", err, refusal)
						}
						after, ended := f.Members(t, flow), strings.Fields(c.ended)
						if cancelFirst {
							ended = []string{"done"}
						}
						for key, state := range after {
							want := fixture.StateCancelled
							if slices.Contains(ended, key) {
								want = fixture.StateCompleted
							}
							if state != want {
								t.Errorf("%s is %s, want %s", key, state, want)
							}
						}
						if grows := name == "grow" || name == "add"; (len(after) > len(before)) != (grows && !cancelFirst) {
							t.Errorf("members %v, before %v", after, before)
						}
						if claimed := f.ClaimN(t, 10); len(claimed) > 1 || len(claimed) == 1 && claimed[0].ID != x {
							t.Errorf("claimed %v", claimed)
						}
						wantCounted(t, f, flow)
					})
				}
			}
		}
	}
}

// A staging and a policy for the same execution come one after the other (F23).
func TestGroupPolicyRacesStaging_F23(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "d")
	other := f.Rival(t)
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).StageEdges(t.Context(), f.Staged(flow, false, "a>d")); err != nil {
		t.Fatal(err)
	}
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := other.SetGroupPolicy(ctx, flow, f.NodeID(flow, "d"), policy.AnyOf(policy.LetRun))
		return err
	})
	other.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "already_fixed") {
		t.Errorf("error %v, want that the policy is fixed", err)
	}
}

// Two that make the same growth at once make it once.
func TestConcurrentGrowthHappensOnce(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a")
	other := f.Rival(t)
	g := f.Growth(flow, nil, "n m", "a>n", "n>m")
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).GrowFlow(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	wait := fixture.Async(t, func(ctx context.Context) error {
		grown, err := other.GrowFlow(ctx, g)
		if err == nil && (len(grown.Created) > 0 || grown.Revision != 5) {
			err = fmt.Errorf("grown by %+v", grown)
		}
		return err
	})
	other.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Error(err)
	}
	wantCounters(t, f, flow, 5, 3, 2)
}

// A caller's transaction holds all of a growth or nothing of it, and goes on after a refusal.
func TestGrowFlowInATransaction(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	l := f.Lease(t, flow, "a")
	before := f.DumpFlow(t, flow)
	tx := f.BeginTx(t)
	bound := f.WithTx(tx)
	if _, err := bound.GrowFlow(t.Context(), f.Growth(flow, nil, "n", "n>a")); !errors.Is(err, fferr.ErrStarted) {
		t.Errorf("error %v, want %v", err, fferr.ErrStarted)
	}
	if held := f.HeldLocks(t, flow, l.Execution, f.NodeID(flow, "b")); len(held) > 0 {
		t.Errorf("the refusal holds %q", held)
	}
	for _, g := range []engine.Growth{f.Growth(flow, nil, "n", "a>n"), f.Growth(flow, nil, "m", "n>m", "b>m")} {
		if _, err := bound.GrowFlow(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	if err := bound.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	if f.DumpFlow(t, flow) != before {
		t.Error("something was seen before the commit")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.DumpFlow(t, flow) != before {
		t.Error("something was left by a rollback")
	}
	tx = f.BeginTx(t)
	bound = f.WithTx(tx)
	if err := bound.LockFlows(t.Context(), flow); err != nil {
		t.Fatal(err)
	}
	if err := bound.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := bound.GrowFlow(t.Context(), f.Growth(flow, nil, "n m", "a>n", "n>m", "b>m")); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	delete(f.Leases, l.Execution)
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b n", fixture.StateHeld: "m"})
}

// Two transactions that complete and then grow the same flow come one after the other where both lock it before, and meet
// a deadlock where they do not.
func TestLockFlows(t *testing.T) {
	for _, locks := range []bool{true, false} {
		t.Run(fmt.Sprintf("locks %t", locks), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a", "b")
			a, b := f.Lease(t, flow, "a"), f.Lease(t, flow, "b")
			other := f.Rival(t)
			grow := func(ctx context.Context, e *engine.Engine, node string) error {
				_, err := e.GrowFlow(ctx, f.Growth(flow, nil, node))
				return err
			}
			f.Growth(flow, nil, "n m") // names
			first, second := f.BeginTx(t), fixture.BeginWith(t, other.Pool, pgx.TxOptions{})
			if locks {
				if err := f.WithTx(first).LockFlows(t.Context(), flow); err != nil {
					t.Fatal(err)
				}
				wait := fixture.Async(t, func(ctx context.Context) error {
					e := other.WithTx(second)
					if err := e.LockFlows(ctx, flow); err != nil {
						return err
					}
					return errors.Join(fixture.CompleteOne(ctx, e, b), grow(ctx, e, "m"), second.Commit(ctx))
				})
				other.AwaitBlocked(t, f.Fixture)
				if err := errors.Join(fixture.CompleteOne(t.Context(), f.WithTx(first), a), grow(t.Context(), f.WithTx(first), "n"), first.Commit(t.Context())); err != nil {
					t.Error(err)
				}
				if err := wait(); err != nil {
					t.Error(err)
				}
				wantCounters(t, f, flow, 4, 4, 0)
				return
			}
			if err := errors.Join(fixture.CompleteOne(t.Context(), f.WithTx(first), a), fixture.CompleteOne(t.Context(), other.WithTx(second), b)); err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, func(ctx context.Context) error { return grow(ctx, other.WithTx(second), "m") })
			other.AwaitBlocked(t, f.Fixture)
			err := errors.Join(grow(t.Context(), f.WithTx(first), "n"), func() error {
				_ = first.Rollback(t.Context())
				return wait()
			}())
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40P01" {
				t.Errorf("error %v, want a deadlock", err)
			}
			_ = second.Rollback(t.Context())
		})
	}
}

// Several flows are locked in one order, however they are sorted, and a nil transaction is refused.
func TestLockFlowsInOneOrder(t *testing.T) {
	f := fixture.NewFlows(t)
	flows := []id.FlowID{f.Draw(t, nil, "a"), f.Draw(t, nil, "a"), id.NewFlowID()}
	if err := f.LockFlows(t.Context(), flows...); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("outside a transaction: error %v, want %v", err, fferr.ErrInvalidInput)
	}
	many := make([]id.FlowID, 257)
	for i := range many {
		many[i] = id.NewFlowID()
	}
	tx := f.BeginTx(t)
	if err := f.WithTx(tx).LockFlows(t.Context(), many...); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "limit 256") {
		t.Errorf("error %v, want the limit", err)
	}
	if err := f.WithTx(tx).LockFlows(t.Context(), flows...); err != nil {
		t.Fatal(err)
	}
	for _, flow := range flows {
		free := fixture.Texts(t, f.Pool, "SELECT pg_try_advisory_xact_lock_shared(ffx_flow_key($1))::text", flow)[0]
		if free != "false" {
			t.Errorf("flow %s is not locked", flow)
		}
	}
	// A call that names them in the reverse order waits for the first of them, and holds none.
	other := f.Rival(t)
	backwards := slices.Clone(flows)
	slices.Reverse(backwards)
	wait := fixture.Async(t, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, other.Pool, func(tx pgx.Tx) error { return other.WithTx(tx).LockFlows(ctx, backwards...) })
	})
	other.AwaitBlocked(t, f.Fixture)
	if held := fixture.Texts(t, f.Pool, `SELECT l.objid::text FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
		WHERE a.application_name = $1 AND l.locktype = 'advisory' AND l.granted`, other.Name); len(held) > 0 {
		t.Errorf("it holds %q", held)
	}
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// Edges are added to members while their upstreams end, all at once: each is resolved once, every downstream moves
// once, as its group says, and there is no deadlock (test 5 of the flows).
func TestGrowFlowEdgesWhileUpstreamsEnd(t *testing.T) {
	for round := range 5 {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) { addEdgesWhileUpstreamsEnd(t, round) })
	}
}

func addEdgesWhileUpstreamsEnd(t *testing.T, round int) {
	const upstreams, downstreams = 40, 8
	r := fixture.NewRacers(t, 6)
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	for i := range upstreams {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprintf("up%d", i), Spec: engine.ExecutionSpec{Kind: "test"}})
	}
	rules := make(map[string]policy.Group)
	for i := range downstreams {
		key := fmt.Sprintf("down%d", i)
		rules[key] = []policy.Group{policy.AllOf(), policy.AnyOf(policy.LetRun), policy.Quorum(2, policy.LetRun), policy.Always()}[i%4]
		spec.Nodes = append(spec.Nodes, engine.Node{Key: key, When: rules[key], Spec: engine.ExecutionSpec{Kind: "test"}})
		// The gate holds it until the end.
		spec.Nodes = append(spec.Nodes, engine.Node{Key: "gate" + key, Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: "gate" + key, To: key})
		if rules[key] == policy.Quorum(2, policy.LetRun) {
			spec.Nodes = append(spec.Nodes, engine.Node{Key: "gate2" + key, Spec: engine.ExecutionSpec{Kind: "test"}})
			spec.Edges = append(spec.Edges, engine.Edge{From: "gate2" + key, To: key})
		}
	}
	flow := r.NewFlowOf(t, spec)
	r.ClaimAll(t)
	chance := rand.New(rand.NewPCG(uint64(round), 1))
	fails := make([]bool, upstreams)
	var edges []string
	for i := range upstreams {
		fails[i] = chance.IntN(8) == 0
		for j := range downstreams {
			if chance.IntN(3) == 0 {
				edges = append(edges, fmt.Sprintf("up%d>down%d", i, j))
			}
		}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	report := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	for w := range 3 {
		group.Go(func() {
			for i := w; i < upstreams; i += 3 {
				l := r.Leases[r.NodeID(flow, fmt.Sprintf("up%d", i))]
				if fails[i] {
					report(r.Failed(t.Context(), l))
				} else {
					report(r.Complete(t.Context(), l))
				}
			}
		})
		group.Go(func() {
			for i := w; i < len(edges); i += 3 {
				var err error
				switch i % 3 {
				case 0:
					_, err = r.Rivals.GrowFlow(t.Context(), r.Growth(flow, nil, "", edges[i]))
				case 1:
					_, err = r.Rivals.StageEdges(t.Context(), r.Staged(flow, true, edges[i]))
				default:
					var staged engine.StagedEdges
					if staged, err = r.Rivals.StageEdges(t.Context(), r.Staged(flow, false, edges[i])); err == nil {
						_, err = r.Rivals.ApplyEdges(t.Context(), flow, staged.Edges)
					}
				}
				// A downstream may be decided by then.
				if errors.Is(err, fferr.ErrEnded) || errors.Is(err, fferr.ErrStarted) {
					err = nil
				}
				report(err)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	r.WantNoAborts(t)
	wantCounted(t, r.Flows, flow)
}

// wantCounted compares the counters of every group with its edges, and each edge with its upstream.
func wantCounted(t *testing.T, f *fixture.Flows, flow id.FlowID) {
	t.Helper()
	wrong := fixture.Texts(t, f.Pool, `
		WITH counted AS (
			SELECT
				d.downstream_eid,
				count(*) FILTER (WHERE d.policy ->> 'resolved_outcome' = 'success') AS success,
				count(*) FILTER (WHERE d.policy ->> 'resolved_outcome' = 'skipped') AS skip,
				count(*) FILTER (WHERE d.policy ->> 'resolved_outcome' NOT IN ('success', 'skipped')) AS fail,
				count(*) FILTER (WHERE NOT d.policy ? 'resolved_at_ms' AND d.policy -> 'applied_at_ms' <> 'null') AS running,
				count(*) FILTER (WHERE (d.policy ? 'resolved_at_ms') <> (u.terminal_at_ms IS NOT NULL) AND d.policy -> 'applied_at_ms' <> 'null') AS wrong
			FROM ff_edge AS d
			JOIN ff_exec_core AS u ON u.partition_key = d.partition_key AND u.execution_id = d.upstream_eid
			WHERE d.partition_key = $1::smallint AND d.flow_id = $2::uuid
			GROUP BY d.downstream_eid
		)
		SELECT concat_ws(' ', g.downstream_eid, 'has', g.success_count, g.fail_count, g.skip_count, g.running_count % 1000000000,
			'and edges', c.success, c.fail, c.skip, c.running, 'of which are wrong', c.wrong)
		FROM ff_edge_group AS g JOIN counted AS c USING (downstream_eid)
		WHERE g.partition_key = $1::smallint AND g.flow_id = $2::uuid
			AND ((g.success_count, g.fail_count, g.skip_count, g.running_count % 1000000000) <> (c.success, c.fail, c.skip, c.running) OR c.wrong > 0)`,
		fixture.PartitionOf(flow), flow)
	if len(wrong) > 0 {
		t.Errorf("groups that count wrongly:\n%s", strings.Join(wrong, "\n"))
	}
}
