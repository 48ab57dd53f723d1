package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// held says which of the locks that an operation on a member takes somebody else holds: NOWAIT tells.
func (f *flowFixture) heldLocks(t *testing.T, flow id.FlowID, x, downstream id.ExecutionID) []string {
	t.Helper()
	tx := f.begin(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var held []string
	for _, lock := range []struct {
		name, sql string
		args      []any
	}{
		{"flow lock", "SELECT 1 / pg_try_advisory_xact_lock(ffx_flow_key($1))::integer", []any{flow}},
		{"flow", "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE NOWAIT", []any{partitionOf(flow), flow}},
		{"execution", "SELECT FROM ff_exec_core WHERE partition_key = $1::smallint AND execution_id = $2 FOR UPDATE NOWAIT", []any{x.Partition(), x.UUID()}},
		{"attempt", "SELECT FROM ff_attempt WHERE partition_key = $1::smallint AND execution_id = $2 FOR UPDATE NOWAIT", []any{x.Partition(), x.UUID()}},
		{"group", "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND downstream_eid = $2 FOR UPDATE NOWAIT", []any{downstream.Partition(), downstream.UUID()}},
		{"downstream", "SELECT FROM ff_exec_core WHERE partition_key = $1::smallint AND execution_id = $2 FOR UPDATE NOWAIT", []any{downstream.Partition(), downstream.UUID()}},
	} {
		err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), lock.sql, lock.args...)
			return err
		})
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == "55P03" || pgErr.Code == "22012") {
			held = append(held, lock.name)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return held
}

// batchOfOne calls the batch form of a call for one lease.
func batchOfOne(call func(context.Context, *engine.Engine, []engine.Lease) ([]error, error)) func(*testing.T, *engine.Engine, engine.Lease) error {
	return func(t *testing.T, e *engine.Engine, l engine.Lease) error {
		outcomes, err := call(t.Context(), e, []engine.Lease{l})
		return errors.Join(append(outcomes, err)...)
	}
}

// A refused call in a caller's transaction kept its locks until that ended: a holder from before cost its successor,
// whose settlements and renewals waited, every lease.
func TestA2_a_refusal_leaves_no_lock(t *testing.T) {
	calls := make(map[string]func(*testing.T, *engine.Engine, engine.Lease) error)
	for name, call := range holderCalls {
		calls[name] = call
	}
	for name, call := range batches {
		calls[name+", a batch"] = batchOfOne(call)
	}
	for name, call := range calls {
		for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
			t.Run(fmt.Sprintf("%s, %s", name, isolation), func(t *testing.T) {
				f := newFlowFixture(t)
				flow := f.draw(t, nil, "a>c", "b>c")
				stale := f.lease(t, flow, "a")
				stale.Epoch--
				tx := beginWith(t, f.pool, pgx.TxOptions{IsoLevel: isolation})
				wantLeaseError(t, call(t, f.WithTx(tx), stale), engine.ErrStaleLease)
				if held := f.heldLocks(t, flow, stale.Execution, f.NodeID(flow, "c")); len(held) > 0 {
					t.Errorf("the refusal holds %q", held)
				}
				execIn(t, tx, "SELECT 1") // it is still usable
				// The successor goes on.
				f.succeed(t, flow, "a")
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A batch keeps the locks of what it did, and no others.
func TestA2_a_batch_keeps_the_locks_of_what_it_did(t *testing.T) {
	for name, call := range batches {
		t.Run(name, func(t *testing.T) {
			f := newFlowFixture(t)
			done, refused := f.draw(t, nil, "a>c"), f.draw(t, nil, "a>c")
			good, stale := f.lease(t, done, "a"), f.lease(t, refused, "a")
			stale.Epoch--
			tx := f.begin(t)
			outcomes, err := call(t.Context(), f.WithTx(tx), []engine.Lease{stale, good, stale})
			if err != nil || outcomes[1] != nil {
				t.Fatal(outcomes, err)
			}
			wantLeaseError(t, outcomes[0], engine.ErrStaleLease)
			wantLeaseError(t, outcomes[2], engine.ErrStaleLease)
			if held := f.heldLocks(t, refused, stale.Execution, f.NodeID(refused, "c")); len(held) > 0 {
				t.Errorf("of what was refused it holds %q", held)
			}
			if held := f.heldLocks(t, done, good.Execution, f.NodeID(done, "c")); !slices.Contains(held, "attempt") {
				t.Errorf("of what was done it holds %q", held)
			}
			commit(t, tx)
			if name == "complete" {
				f.wantMembers(t, done, map[string]string{stateCompleted: "a", stateReady: "c"})
			}
		})
	}
}

// One waiting statement renewed all leases of a process, and one locked row lost them all.
func TestA3_a_renewal_waits_for_nobody(t *testing.T) {
	f := newFixture(t)
	claimed := f.startMany(t, 20)
	tx := f.begin(t)
	lockAttempt(t, tx, claimed[7].ID, 0)
	lockExecution(t, tx, claimed[3].ID) // a renewal only reads it
	f.advance(leaseTTL / 2)
	renewals := make([]engine.Renewal, len(claimed))
	for i, c := range claimed {
		renewals[i].Lease = c.Lease
	}
	log := new(statementLog)
	late := f.engineOn(t, log.open(t, f.url), engine.Config{})
	renew := func(held ...int) {
		t.Helper()
		results, err := late.RenewLeases(t.Context(), renewals)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			switch {
			case slices.Contains(held, i) && !errors.Is(r.Err, engine.ErrBusy):
				t.Errorf("lease %d, which is held: %+v", i, r)
			case !slices.Contains(held, i) && (r.Err != nil || !r.Value.Equal(f.now().Add(leaseTTL))):
				t.Errorf("lease %d: %+v", i, r)
			}
		}
	}
	renew(7)
	if _, err := late.RenewLease(t.Context(), claimed[7].Lease, 0); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("got %v, want that it is busy", err)
	}
	commit(t, tx)
	renew()
	if aborted := log.aborted(); len(aborted) > 0 {
		t.Errorf("the server gave up %q: something waited", aborted)
	}
}

// obstacles are the locks of others that an item of a batch may meet.
var obstacles = map[string]func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID){
	"execution": func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID) {
		lockExecution(t, tx, f.NodeID(flow, "a"))
	},
	"attempt": func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID) {
		lockAttempt(t, tx, f.NodeID(flow, "a"), 0)
	},
	"flow": func(t *testing.T, _ *flowFixture, tx pgx.Tx, flow id.FlowID) {
		execIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", flow)
	},
	"flow's row": func(t *testing.T, _ *flowFixture, tx pgx.Tx, flow id.FlowID) {
		execIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
	},
	"group": func(t *testing.T, _ *flowFixture, tx pgx.Tx, flow id.FlowID) {
		execIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
	},
	"downstream": func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID) {
		lockExecution(t, tx, f.NodeID(flow, "c"))
	},
}

// One locked row, or one locked flow, stalled every settlement of a process. Now the batch sets aside what is locked,
// and nothing else.
func TestA4_a_batch_sets_aside_what_is_locked(t *testing.T) {
	meets := map[string][]string{
		"renew":              {"attempt"},
		"release":            {"execution", "attempt"},
		"fail":               {"execution", "attempt"},
		"fail for good":      {"execution", "attempt", "flow", "flow's row", "group", "downstream"},
		"complete":           {"execution", "attempt", "flow", "group", "downstream"},
		"complete and claim": {"execution", "attempt", "flow", "group", "downstream"},
	}
	for name, call := range batches {
		for _, members := range []int{21, 300} { // one transaction; more flows than one locks
			t.Run(fmt.Sprintf("%s, %d flows", name, members), func(t *testing.T) {
				f := newFlowFixture(t)
				var flows []id.FlowID
				var leases []engine.Lease
				for range members {
					flows = append(flows, f.draw(t, nil, "a>c"))
				}
				for _, flow := range flows {
					leases = append(leases, f.lease(t, flow, "a"))
				}
				tx := f.begin(t)
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
					if what, locked := held[i]; locked && !errors.Is(err, engine.ErrBusy) {
						t.Errorf("item %d, whose %s is locked: %v", i, what, err)
					} else if !locked && err != nil {
						t.Errorf("item %d: %v", i, err)
					}
				}
				commit(t, tx)
				outcomes, err = call(t.Context(), f.Engine, leases)
				if err := errors.Join(append(outcomes, err)...); err != nil {
					t.Error(err)
				}
				for _, flow := range flows {
					if events := f.completionEvents(t, flow); name == "complete" && !slices.Equal(events, []string{"a success"}) {
						t.Errorf("events %q", events)
					}
				}
			})
		}
	}
}

// What was busy when a batch was first tried and is free when it is halved has the outcome of the second try.
func TestA4_an_outcome_is_that_of_the_last_try(t *testing.T) {
	f := newFlowFixture(t)
	freed, held := f.draw(t, nil, "a>c"), f.draw(t, nil, "a>c")
	leases := []engine.Lease{f.lease(t, freed, "a"), f.lease(t, held, "a")}
	late := f.rival(t)
	flow, group := f.begin(t), f.begin(t)
	obstacles["flow"](t, f, flow, freed)
	obstacles["group"](t, f, group, held)
	returned, wait := watched(t, func(ctx context.Context) []error {
		outcomes, err := batches["complete"](ctx, late.Engine, leases)
		if err != nil {
			t.Error(err)
		}
		return outcomes
	})
	await(t, "the batch to meet the group", func() bool {
		return returned() || len(texts(t, f.pool, `SELECT 'waits' FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock' AND wait_event <> 'advisory'`, late.name)) > 0
	})
	commit(t, flow)
	outcomes := wait()
	if !errors.Is(outcomes[1], engine.ErrBusy) {
		t.Errorf("got %v, want that the group is busy", outcomes[1])
	}
	want := map[string]string{stateCompleted: "a", stateReady: "c"}
	if outcomes[0] != nil { // on a slow machine the flow was not free in time
		want = map[string]string{stateRunning: "a", stateHeld: "c"}
	}
	f.wantMembers(t, freed, want)
}

// A claim passes over what is locked, attempts included, and takes what is behind it.
func TestA4_a_claim_waits_for_nobody(t *testing.T) {
	f := newFixture(t)
	returned := f.startMany(t, 3)
	leases := []engine.Lease{returned[0].Lease, returned[1].Lease, returned[2].Lease}
	if _, err := f.ReleaseLeases(t.Context(), leases); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(leases, func(a, b engine.Lease) int { return a.Execution.UUID().Compare(b.Execution.UUID()) })
	tx := f.begin(t)
	lockAttempt(t, tx, leases[0].Execution, 0)
	log := new(statementLog)
	late := f.engineOn(t, log.open(t, f.url), engine.Config{})
	claimed, err := late.Claim(t.Context(), f.worker(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := executionsOf(claimed), []id.ExecutionID{leases[1].Execution, leases[2].Execution}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	commit(t, tx)
	if c := f.claim(t); c.ID != leases[0].Execution || !c.Resumed {
		t.Errorf("claimed %+v, want %s", c, leases[0].Execution)
	}
	if aborted := log.aborted(); len(aborted) > 0 {
		t.Errorf("the server gave up %q", aborted)
	}
}

// In a caller's transaction, too, a batch asks for attempts without waiting, however long the caller would.
func TestA4_a_batch_in_a_transaction_waits_for_no_attempt(t *testing.T) {
	for _, call := range []string{"complete", "complete and claim", "fail", "fail for good", "release"} {
		t.Run(call, func(t *testing.T) {
			f := newFixture(t)
			l := f.start(t).Lease
			holder, tx := f.begin(t), f.begin(t)
			execIn(t, tx, "SET LOCAL lock_timeout = '5s'") // but not for ever
			lockAttempt(t, holder, l.Execution, 0)
			outcomes, err := batches[call](t.Context(), f.WithTx(tx), []engine.Lease{l})
			if err != nil || !errors.Is(outcomes[0], engine.ErrBusy) {
				t.Errorf("got %v, %v; want that it is busy", outcomes, err)
			}
			if !f.free(t, "ff_exec_core", l.Execution) {
				t.Error("the execution is locked")
			}
			commit(t, holder)
			if outcomes, err := batches[call](t.Context(), f.WithTx(tx), []engine.Lease{l}); err != nil || outcomes[0] != nil {
				t.Errorf("got %v, %v", outcomes, err)
			}
			commit(t, tx)
		})
	}
}

// An attempt that somebody holds counts too: of those that are free an older one would go on in its place.
func TestA4_a_claim_passes_over_what_is_held_in_part(t *testing.T) {
	f := newFixture(t)
	c := f.start(t)
	f.fail(t, c.Lease, engine.Failure{})
	again := f.claim(t)
	if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{again.Lease}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	before := f.dump(t, c.ID)
	tx := f.begin(t)
	lockAttempt(t, tx, c.ID, 1)
	if claimed, err := f.Claim(t.Context(), f.worker(), 1); err != nil || len(claimed) != 0 {
		t.Errorf("claimed %+v, %v; want nothing", claimed, err)
	}
	f.wantUnchanged(t, c.ID, before)
	commit(t, tx)
	if c := f.claim(t); c.Lease.Attempt != 1 || !c.Resumed {
		t.Errorf("claimed %+v, want the second attempt to go on", c)
	}
}

// A call that comes too late by a moment, in a caller's transaction, leaves nothing locked there.
func TestA2_a_call_that_loses_a_race_leaves_no_lock(t *testing.T) {
	for statement, do := range map[string]func(context.Context, *engine.Engine, engine.Lease) error{
		"RenewLeases": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.RenewLease(ctx, l, 0)
			return err
		},
		"CompleteOne": completeOne,
	} {
		t.Run(statement, func(t *testing.T) {
			f := cloneFixture(t)
			l := f.start(t).Lease
			held, release := f.holding(t, statement)
			tx := beginWith(t, held.pool, pgx.TxOptions{})
			wait := async(t, func(ctx context.Context) error { return do(ctx, held.WithTx(tx), l) })
			held.awaitBlocked(t, f)
			if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil || outcomes[0] != nil {
				t.Fatal(outcomes, err)
			}
			release()
			wantLeaseError(t, wait(), engine.ErrNotActive)
			if !f.free(t, "ff_attempt", l.Execution) || !f.free(t, "ff_exec_core", l.Execution) {
				t.Error("a row is locked")
			}
			commit(t, tx)
		})
	}
}

// A call for one execution queues for its locks, so that a flow whose members complete all the time cannot keep it
// away for ever, and says so when it has waited long enough.
func TestA4_a_call_for_one_queues(t *testing.T) {
	for _, what := range []string{"execution", "attempt", "flow", "group", "downstream"} {
		t.Run(what, func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, nil, "a>c")
			l := f.lease(t, flow, "a")
			late := f.rival(t)
			tx := f.begin(t)
			obstacles[what](t, f, tx, flow)
			wait := async(t, func(ctx context.Context) error { return late.CompleteExecution(ctx, l, nil) })
			late.awaitBlocked(t, f.fixture)
			commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateReady: "c"})
		})
	}
}

// A stale member's completion in a caller's transaction took the group before the execution: 64 deadlocks in 150 rounds.
func TestA6_a_stale_completion_keeps_the_order(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>c", "b>c")
	stale := f.lease(t, flow, "a")
	stale.Epoch--
	rival := f.rival(t)
	held := f.begin(t)
	lockExecution(t, held, stale.Execution)
	tx := beginWith(t, rival.pool, pgx.TxOptions{})
	wait := async(t, func(ctx context.Context) error { return rival.WithTx(tx).CompleteExecution(ctx, stale, nil) })
	rival.awaitBlocked(t, f.fixture)
	if locks := f.heldLocks(t, flow, f.NodeID(flow, "b"), f.NodeID(flow, "c")); slices.Contains(locks, "group") {
		t.Errorf("it waits for the execution and holds %q", locks)
	}
	commit(t, held)
	wantLeaseError(t, wait(), engine.ErrStaleLease)
}

// Lease events took the id of the lease from the caller's handle: a zero one wrote the nil uuid.
func TestA16_events_name_the_lease_of_the_attempt(t *testing.T) {
	for name, call := range holderCalls {
		for _, beside := range []bool{false, true} { // the pointer, so that the fast path does not serve it
			t.Run(fmt.Sprintf("%s, pointer beside %t", name, beside), func(t *testing.T) {
				f := newFixture(t)
				l := f.start(t).Lease
				want := l.ID.String()
				if beside {
					f.setExecution(t, l.Execution, "attempt_index = 1")
				}
				l.ID = id.LeaseID{}
				if err := call(t, f.Engine, l); err != nil {
					t.Fatal(err)
				}
				for _, event := range texts(t, f.pool, `SELECT concat_ws(' ', lease_id, ffx_worker_instance_id) FROM ff_lease_event
					WHERE partition_key = $1::smallint AND execution_id = ($2::uuid)::text`, l.Execution.Partition(), l.Execution.UUID()) {
					if event != want+" "+f.name {
						t.Errorf("an event names %q, want %q", event, want+" "+f.name)
					}
				}
			})
		}
	}
	for _, pointer := range []int{0, 1} {
		t.Run(fmt.Sprintf("a lease of another program, pointer at %d", pointer), func(t *testing.T) {
			f := newFixture(t)
			l := f.start(t).Lease
			other := id.NewLeaseID().String()
			f.setAttempt(t, l.Execution, 0, fmt.Sprintf(`lease_epoch = 2, raw_fields = '{"lease_id":"%s"}'`, other))
			f.setExecution(t, l.Execution, fmt.Sprintf("attempt_index = %d", pointer))
			l.Epoch = 2
			if _, err := f.RenewLease(t.Context(), l, time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
			got := texts(t, f.pool, `SELECT lease_id FROM ff_lease_event WHERE partition_key = $1::smallint
			AND execution_id = ($2::uuid)::text AND event_type <> 'acquired'`, l.Execution.Partition(), l.Execution.UUID())
			if !slices.Equal(got, []string{other, other}) {
				t.Errorf("events name %q, want %q", got, other)
			}
		})
	}
}
