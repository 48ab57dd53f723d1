package leases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// batchOfOne calls the batch form of a call for one lease.
func batchOfOne(call func(context.Context, *engine.Engine, []engine.Lease) ([]error, error)) func(*testing.T, *engine.Engine, engine.Lease) error {
	return func(t *testing.T, e *engine.Engine, l engine.Lease) error {
		outcomes, err := call(t.Context(), e, []engine.Lease{l})
		return errors.Join(append(outcomes, err)...)
	}
}

// A refused call in a caller's transaction kept its locks until that ended: a holder from before cost its successor,
// whose settlements and renewals waited, every lease.
func TestRefusalLeavesNoLock(t *testing.T) {
	calls := make(map[string]func(*testing.T, *engine.Engine, engine.Lease) error)
	for name, call := range fixture.HolderCalls {
		calls[name] = call
	}
	for name, call := range fixture.Batches {
		calls[name+", a batch"] = batchOfOne(call)
	}
	for name, call := range calls {
		for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
			t.Run(fmt.Sprintf("%s, %s", name, isolation), func(t *testing.T) {
				f := fixture.NewFlows(t)
				flow := f.Draw(t, nil, "a>c", "b>c")
				stale := f.Lease(t, flow, "a")
				stale.Epoch--
				tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: isolation})
				fixture.WantLeaseError(t, call(t, f.WithTx(tx), stale), fferr.ErrStaleLease)
				if held := f.HeldLocks(t, flow, stale.Execution, f.NodeID(flow, "c")); len(held) > 0 {
					t.Errorf("the refusal holds %q", held)
				}
				fixture.ExecIn(t, tx, "SELECT 1") // it is still usable
				// The successor goes on.
				f.Succeed(t, flow, "a")
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A batch keeps only the locks of its changes.
func TestBatchKeepsOnlyTheLocksOfItsChanges(t *testing.T) {
	for name, call := range fixture.Batches {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			done, refused := f.Draw(t, nil, "a>c"), f.Draw(t, nil, "a>c")
			good, stale := f.Lease(t, done, "a"), f.Lease(t, refused, "a")
			stale.Epoch--
			tx := f.BeginTx(t)
			outcomes, err := call(t.Context(), f.WithTx(tx), []engine.Lease{stale, good, stale})
			if err != nil || outcomes[1] != nil {
				t.Fatal(outcomes, err)
			}
			fixture.WantLeaseError(t, outcomes[0], fferr.ErrStaleLease)
			fixture.WantLeaseError(t, outcomes[2], fferr.ErrStaleLease)
			if held := f.HeldLocks(t, refused, stale.Execution, f.NodeID(refused, "c")); len(held) > 0 {
				t.Errorf("of what was refused it holds %q", held)
			}
			if held := f.HeldLocks(t, done, good.Execution, f.NodeID(done, "c")); !slices.Contains(held, "attempt") {
				t.Errorf("of what was done it holds %q", held)
			}
			fixture.Commit(t, tx)
			if name == "complete" {
				f.WantMembers(t, done, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "c"})
			}
		})
	}
}

// One waiting statement renewed all leases of a process, and one locked row lost them all.
func TestRenewalNeverWaits(t *testing.T) {
	f := fixture.New(t)
	claimed := f.StartMany(t, 20)
	tx := f.BeginTx(t)
	fixture.LockAttempt(t, tx, claimed[7].ID, 0)
	fixture.LockExecution(t, tx, claimed[3].ID) // a renewal only reads it
	f.Advance(fixture.LeaseTTL / 2)
	renewals := make([]engine.Renewal, len(claimed))
	for i, c := range claimed {
		renewals[i].Lease = c.Lease
	}
	log := new(fixture.StatementLog)
	late := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	renew := func(held ...int) {
		t.Helper()
		results, err := late.RenewLeases(t.Context(), renewals)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			switch {
			case slices.Contains(held, i) && !errors.Is(r.Err, fferr.ErrBusy):
				t.Errorf("lease %d, which is held: %+v", i, r)
			case !slices.Contains(held, i) && (r.Err != nil || !r.Value.Equal(f.Time().Add(fixture.LeaseTTL))):
				t.Errorf("lease %d: %+v", i, r)
			}
		}
	}
	renew(7)
	if _, err := late.RenewLease(t.Context(), claimed[7].Lease, 0); !errors.Is(err, fferr.ErrBusy) {
		t.Errorf("got %v, want that it is busy", err)
	}
	fixture.Commit(t, tx)
	renew()
	if aborted := log.Aborted(); len(aborted) > 0 {
		t.Errorf("the server gave up %q: something waited", aborted)
	}
}

// obstacles are the locks of others that an item of a batch may meet.
var obstacles = map[string]func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID){
	"execution": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
		fixture.LockExecution(t, tx, f.NodeID(flow, "a"))
	},
	"attempt": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
		fixture.LockAttempt(t, tx, f.NodeID(flow, "a"), 0)
	},
	"flow": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
		fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", flow)
	},
	"flow's row": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
		fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
	},
	"group": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
		fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
	},
	"downstream": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
		fixture.LockExecution(t, tx, f.NodeID(flow, "c"))
	},
}

// One locked row, or one locked flow, stalled every settlement of a process. Now the batch sets only locked rows
// aside.
func TestBatchSetsLockedRowsAside(t *testing.T) {
	meets := map[string][]string{
		"renew":              {"attempt"},
		"release":            {"execution", "attempt"},
		"append frames":      {"attempt"},
		"record steps":       {"attempt"},
		"suspend":            {"execution", "attempt"},
		"fail":               {"execution", "attempt"},
		"fail for good":      {"execution", "attempt", "flow", "flow's row", "group", "downstream"},
		"complete":           {"execution", "attempt", "flow", "group", "downstream"},
		"complete and claim": {"execution", "attempt", "flow", "group", "downstream"},
	}
	for name, call := range fixture.Batches {
		for _, members := range []int{21, 300} { // one transaction; more flows than one locks
			t.Run(fmt.Sprintf("%s, %d flows", name, members), func(t *testing.T) {
				f := fixture.NewFlows(t)
				var flows []id.FlowID
				var leases []engine.Lease
				for range members {
					flows = append(flows, f.Draw(t, nil, "a>c"))
				}
				for _, flow := range flows {
					leases = append(leases, f.Lease(t, flow, "a"))
				}
				tx := f.BeginTx(t)
				held := make(map[int]string)
				for i, what := range meets[name] {
					at := 2 + 3*i
					obstacles[what](t, f, tx, flows[at])
					held[at] = what
				}
				outcomes, err := call(t.Context(), f.Engine, leases)
				if err != nil {
					t.Fatal(err)
				}
				for i, err := range outcomes {
					if what, locked := held[i]; locked && !errors.Is(err, fferr.ErrBusy) {
						t.Errorf("item %d, whose %s is locked: %v", i, what, err)
					} else if !locked && err != nil {
						t.Errorf("item %d: %v", i, err)
					}
				}
				fixture.Commit(t, tx)
				outcomes, err = call(t.Context(), f.Engine, leases)
				if err := errors.Join(append(outcomes, err)...); err != nil {
					t.Error(err)
				}
				for _, flow := range flows {
					if events := f.CompletionEvents(t, flow); name == "complete" && !slices.Equal(events, []string{"a success"}) {
						t.Errorf("events %q", events)
					}
				}
			})
		}
	}
}

// An item that was busy when a batch was first tried and is free when it is halved has the outcome of the second try.
func TestBatchReportsTheLastTry(t *testing.T) {
	f := fixture.NewFlows(t)
	freed, held := f.Draw(t, nil, "a>c"), f.Draw(t, nil, "a>c")
	leases := []engine.Lease{f.Lease(t, freed, "a"), f.Lease(t, held, "a")}
	late := f.Rival(t)
	flow, group := f.BeginTx(t), f.BeginTx(t)
	obstacles["flow"](t, f, flow, freed)
	obstacles["group"](t, f, group, held)
	returned, wait := fixture.Watched(t, func(ctx context.Context) []error {
		outcomes, err := fixture.Batches["complete"](ctx, late.Engine, leases)
		if err != nil {
			t.Error(err)
		}
		return outcomes
	})
	fixture.Await(t, "the batch to meet the group", func() bool {
		return returned() || len(fixture.Texts(t, f.Pool, `SELECT 'waits' FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock' AND wait_event <> 'advisory'`, late.Name)) > 0
	})
	fixture.Commit(t, flow)
	outcomes := wait()
	if !errors.Is(outcomes[1], fferr.ErrBusy) {
		t.Errorf("got %v, want that the group is busy", outcomes[1])
	}
	want := map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "c"}
	if outcomes[0] != nil { // on a slow machine the flow was not free in time
		want = map[string]string{fixture.StateRunning: "a", fixture.StateHeld: "c"}
	}
	f.WantMembers(t, freed, want)
}

// A claim skips locked rows, attempts included, and takes those after them.
func TestClaimNeverWaitsForAttempts(t *testing.T) {
	f := fixture.New(t)
	returned := f.StartMany(t, 3)
	leases := []engine.Lease{returned[0].Lease, returned[1].Lease, returned[2].Lease}
	if _, err := f.ReleaseLeases(t.Context(), leases); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(leases, func(a, b engine.Lease) int { return a.Execution.UUID().Compare(b.Execution.UUID()) })
	tx := f.BeginTx(t)
	fixture.LockAttempt(t, tx, leases[0].Execution, 0)
	log := new(fixture.StatementLog)
	late := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	claimed, err := late.Claim(t.Context(), f.Worker(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fixture.ExecutionsOf(claimed), []id.ExecutionID{leases[1].Execution, leases[2].Execution}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	fixture.Commit(t, tx)
	if c := f.ClaimOne(t); c.ID != leases[0].Execution || !c.Resumed {
		t.Errorf("claimed %+v, want %s", c, leases[0].Execution)
	}
	if aborted := log.Aborted(); len(aborted) > 0 {
		t.Errorf("the server gave up %q", aborted)
	}
}

// In a caller's transaction, too, a batch asks for attempts without waiting, however long the caller would.
func TestBatchInATransactionNeverWaitsForAttempts(t *testing.T) {
	for _, call := range []string{"complete", "complete and claim", "fail", "fail for good", "release"} {
		t.Run(call, func(t *testing.T) {
			f := fixture.New(t)
			l := f.Start(t).Lease
			holder, tx := f.BeginTx(t), f.BeginTx(t)
			fixture.ExecIn(t, tx, "SET LOCAL lock_timeout = '5s'") // but not for ever
			fixture.LockAttempt(t, holder, l.Execution, 0)
			outcomes, err := fixture.Batches[call](t.Context(), f.WithTx(tx), []engine.Lease{l})
			if err != nil || !errors.Is(outcomes[0], fferr.ErrBusy) {
				t.Errorf("got %v, %v; want that it is busy", outcomes, err)
			}
			if !f.Free(t, "ff_exec_core", l.Execution) {
				t.Error("the execution is locked")
			}
			fixture.Commit(t, holder)
			if outcomes, err := fixture.Batches[call](t.Context(), f.WithTx(tx), []engine.Lease{l}); err != nil || outcomes[0] != nil {
				t.Errorf("got %v, %v", outcomes, err)
			}
			fixture.Commit(t, tx)
		})
	}
}

// A locked attempt counts too: of the unlocked ones an older one would go on in its place.
func TestClaimSkipsPartlyLockedExecutions(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t, fixture.Retrying(*policy.ImmediateRetries(0)))
	f.Fail(t, c.Lease, engine.Failure{})
	again := f.ClaimOne(t)
	if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{again.Lease}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	before := f.Dump(t, c.ID)
	tx := f.BeginTx(t)
	fixture.LockAttempt(t, tx, c.ID, 1)
	if claimed, err := f.Claim(t.Context(), f.Worker(), 1); err != nil || len(claimed) != 0 {
		t.Errorf("claimed %+v, %v; want nothing", claimed, err)
	}
	f.WantUnchanged(t, c.ID, before)
	fixture.Commit(t, tx)
	if c := f.ClaimOne(t); c.Lease.Attempt != 1 || !c.Resumed {
		t.Errorf("claimed %+v, want the second attempt to go on", c)
	}
}

// A call that comes too late by a moment, in a caller's transaction, leaves nothing locked there.
func TestLateCallLeavesNoLock(t *testing.T) {
	for statement, do := range map[string]func(context.Context, *engine.Engine, engine.Lease) error{
		"RenewLeases": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.RenewLease(ctx, l, 0)
			return err
		},
		"CompleteOne": fixture.CompleteOne,
	} {
		t.Run(statement, func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := f.Start(t).Lease
			held, release := f.Holding(t, statement)
			tx := fixture.BeginWith(t, held.Pool, pgx.TxOptions{})
			wait := fixture.Async(t, func(ctx context.Context) error { return do(ctx, held.WithTx(tx), l) })
			held.AwaitBlocked(t, f)
			if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil || outcomes[0] != nil {
				t.Fatal(outcomes, err)
			}
			release()
			fixture.WantLeaseError(t, wait(), fferr.ErrNotActive)
			if !f.Free(t, "ff_attempt", l.Execution) || !f.Free(t, "ff_exec_core", l.Execution) {
				t.Error("a row is locked")
			}
			fixture.Commit(t, tx)
		})
	}
}

// A call for one execution queues for its locks, so that a flow whose members complete all the time cannot keep it
// away for ever, and says so when it has waited long enough.
func TestSingleCallQueuesForItsLocks(t *testing.T) {
	for _, what := range []string{"execution", "attempt", "flow", "group", "downstream"} {
		t.Run(what, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>c")
			l := f.Lease(t, flow, "a")
			late := f.Rival(t)
			tx := f.BeginTx(t)
			obstacles[what](t, f, tx, flow)
			wait := fixture.Async(t, func(ctx context.Context) error { return late.CompleteExecution(ctx, l, nil) })
			late.AwaitBlocked(t, f.Fixture)
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "c"})
		})
	}
}

// A stale member's completion in a caller's transaction took the group before the execution: 64 deadlocks in 150 rounds.
func TestStaleCompletionKeepsTheLockOrder(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c")
	stale := f.Lease(t, flow, "a")
	stale.Epoch--
	rival := f.Rival(t)
	held := f.BeginTx(t)
	fixture.LockExecution(t, held, stale.Execution)
	tx := fixture.BeginWith(t, rival.Pool, pgx.TxOptions{})
	wait := fixture.Async(t, func(ctx context.Context) error { return rival.WithTx(tx).CompleteExecution(ctx, stale, nil) })
	rival.AwaitBlocked(t, f.Fixture)
	if locks := f.HeldLocks(t, flow, f.NodeID(flow, "b"), f.NodeID(flow, "c")); slices.Contains(locks, "group") {
		t.Errorf("it waits for the execution and holds %q", locks)
	}
	fixture.Commit(t, held)
	fixture.WantLeaseError(t, wait(), fferr.ErrStaleLease)
}

// Lease events took the id of the lease from the caller's handle: a zero one wrote the nil uuid.
func TestLeaseEventsNameTheStoredLease(t *testing.T) {
	for name, call := range fixture.HolderCalls {
		for _, beside := range []bool{false, true} { // the pointer, so that the fast path does not serve it
			t.Run(fmt.Sprintf("%s, pointer beside %t", name, beside), func(t *testing.T) {
				f := fixture.New(t)
				l := f.Start(t).Lease
				want := l.ID.String()
				if beside {
					f.SetExecution(t, l.Execution, "attempt_index = 1")
				}
				l.ID = id.LeaseID{}
				if err := call(t, f.Engine, l); err != nil {
					t.Fatal(err)
				}
				for _, event := range fixture.Texts(t, f.Pool, `SELECT concat_ws(' ', lease_id, ffx_worker_instance_id) FROM ff_lease_event
					WHERE partition_key = $1::smallint AND execution_id = ($2::uuid)::text`, l.Execution.Partition(), l.Execution.UUID()) {
					if event != want+" "+f.Name {
						t.Errorf("an event names %q, want %q", event, want+" "+f.Name)
					}
				}
			})
		}
	}
	for _, pointer := range []int{0, 1} {
		t.Run(fmt.Sprintf("a lease of another program, pointer at %d", pointer), func(t *testing.T) {
			f := fixture.New(t)
			l := f.Start(t).Lease
			other := id.NewLeaseID().String()
			f.SetAttempt(t, l.Execution, 0, fmt.Sprintf(`lease_epoch = 2, raw_fields = '{"lease_id":"%s"}'`, other))
			f.SetExecution(t, l.Execution, fmt.Sprintf("attempt_index = %d", pointer))
			l.Epoch = 2
			if _, err := f.RenewLease(t.Context(), l, time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
			got := fixture.Texts(t, f.Pool, `SELECT lease_id FROM ff_lease_event WHERE partition_key = $1::smallint
			AND execution_id = ($2::uuid)::text AND event_type <> 'acquired'`, l.Execution.Partition(), l.Execution.UUID())
			if !slices.Equal(got, []string{other, other}) {
				t.Errorf("events name %q, want %q", got, other)
			}
		})
	}
}
