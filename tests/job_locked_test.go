package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// ending are the jobs that end executions, each with what makes one due.
var ending = []struct {
	name    string
	spec    engine.ExecutionSpec
	started bool
	job     func(*engine.Engine) job
	state   string
}{
	{
		"deadline",
		engine.ExecutionSpec{Kind: "test", Deadline: start.Add(time.Second)},
		false,
		func(e *engine.Engine) job { return e.Maintenance().ExpireDeadlines }, stateUnstarted,
	},
	{"attempt timeout", engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{
		Retry: &policy.Retry{MaxRetries: policy.NoRetries}, AttemptTimeout: time.Millisecond,
	}}, true, func(e *engine.Engine) job { return e.Maintenance().ExpireAttempts }, stateExpired},
	{
		"lease lost too often",
		engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{MaxReclaims: policy.NoReclaims}},
		true,
		func(e *engine.Engine) job { return e.Maintenance().ExpireLeases }, stateFailed,
	},
}

// Whatever another transaction holds of one flow, the members of the others end meanwhile, and that one once it is free.
func TestA4_jobs_pass_over_what_is_locked(t *testing.T) {
	const others = 20
	for _, j := range ending {
		for _, c := range []struct {
			what string
			lock func(t *testing.T, tx pgx.Tx, flow id.FlowID, x, downstream id.ExecutionID)
		}{
			{"the flow's lock, shared", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1::uuid))", flow)
			}},
			{"the flow's lock", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				execIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1::uuid))", flow)
			}},
			{"the flow's row", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				execIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
			}},
			{"the execution", func(t *testing.T, tx pgx.Tx, _ id.FlowID, x, _ id.ExecutionID) { lockExecution(t, tx, x) }},
			{"its attempt", func(t *testing.T, tx pgx.Tx, _ id.FlowID, x, _ id.ExecutionID) { lockAttempt(t, tx, x, 0) }},
			{"the group of what depends on it", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				execIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
			}},
			{"what depends on it", func(t *testing.T, tx pgx.Tx, _ id.FlowID, _, downstream id.ExecutionID) {
				lockExecution(t, tx, downstream)
			}},
			{"its grant", func(t *testing.T, tx pgx.Tx, _ id.FlowID, x, _ id.ExecutionID) {
				execIn(t, tx, "SELECT FROM ff_claim_grant WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", x.Partition(), x.UUID())
			}},
		} {
			if c.what == "its attempt" && !j.started {
				continue
			}
			t.Run(j.name+", "+c.what, func(t *testing.T) {
				f := flowsOn(cloneFixture(t))
				spec := chart(nil, "a>b")
				spec.Nodes[0].Spec = j.spec
				flows := make([]id.FlowID, others+1)
				for i := range flows {
					spec.ID = id.NewFlowID()
					flows[i] = f.createFlow(t, spec)
				}
				if j.started {
					f.claimAll(t)
				}
				held := flows[7] // not the first, not the last
				x, downstream := f.NodeID(held, "a"), f.NodeID(held, "b")
				f.seedGrant(t, x)
				f.advance(time.Hour)
				before := f.dump(t, x)
				tx := f.begin(t)
				c.lock(t, tx, held, x, downstream)
				if n, err := j.job(f.Engine)(t.Context(), 100); n != others || err != nil {
					t.Errorf("acted on %d, %v; want %d", n, err, others)
				}
				f.wantUnchanged(t, x, before)
				f.wantState(t, f.NodeID(flows[others], "b"), stateSkipped)
				commit(t, tx)
				run(t, j.job(f.Engine), 1)
				f.wantState(t, x, j.state)
				f.wantState(t, downstream, stateSkipped)
			})
		}
	}
}

// A flow whose members complete one after the other is never free when it is asked for. It is stood in line for.
func TestA4_a_job_comes_back_to_a_flow_that_is_never_free(t *testing.T) {
	for _, j := range ending {
		t.Run(j.name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			spec := chart(nil, "a>b")
			spec.Nodes[0].Spec = j.spec
			flow := f.createFlow(t, spec)
			if j.started {
				f.claimAll(t)
			}
			f.advance(time.Hour)
			late := f.rival(t)
			share := func() pgx.Tx {
				tx := f.begin(t)
				execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1::uuid))", flow)
				return tx
			}
			for range 100 { // on a busy machine the holder may let go too late
				tx := share()
				returned, wait := watched(t, func(ctx context.Context) int {
					n, err := j.job(late.Engine)(ctx, 10)
					if err != nil {
						t.Error(err)
					}
					return n
				})
				late.awaitBlockedOr(t, f.fixture, returned)
				commit(t, tx)
				if wait() == 1 {
					break
				}
			}
			f.wantState(t, f.NodeID(flow, "a"), j.state)
		})
	}
}

// What another program ended, or leased again, is put away in passing too.
func TestA4_left_overs_are_put_away_beside_what_is_locked(t *testing.T) {
	f := cloneFixture(t)
	var ended []id.ExecutionID
	for range 3 {
		x := f.start(t, timingOutAfter(time.Millisecond, nil), func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) })
		f.setExecution(t, x.ID, foreignCancel)
		ended = append(ended, x.ID)
	}
	f.advance(time.Hour)
	tx := f.begin(t)
	lockExecution(t, tx, ended[1])
	lockAttempt(t, tx, ended[1], 0)
	run(t, f.Maintenance().ExpireDeadlines, 2)
	run(t, f.Maintenance().ExpireAttempts, 2)
	commit(t, tx)
	run(t, f.Maintenance().ExpireDeadlines, 1)
	run(t, f.Maintenance().ExpireAttempts, 1)
}

// In a caller's transaction a job passes over what is locked, too.
func TestA4_jobs_in_a_transaction(t *testing.T) {
	for _, j := range ending {
		t.Run(j.name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			spec := chart(nil, "a>b")
			spec.Nodes[0].Spec = j.spec
			var flows [3]id.FlowID
			for i := range flows {
				spec.ID = id.NewFlowID()
				flows[i] = f.createFlow(t, spec)
			}
			if j.started {
				f.claimAll(t)
			}
			f.advance(time.Hour)
			holder, tx := f.begin(t), f.begin(t)
			execIn(t, holder, "SELECT pg_advisory_xact_lock(ffx_flow_key($1::uuid))", flows[0])
			lockExecution(t, holder, f.NodeID(flows[1], "a"))
			if n, err := j.job(f.WithTx(tx))(t.Context(), 10); n != 1 || err != nil {
				t.Errorf("acted on %d, %v; want 1", n, err)
			}
			commit(t, tx)
			commit(t, holder)
			f.wantState(t, f.NodeID(flows[2], "a"), j.state)
			run(t, j.job(f.Engine), 2)
		})
	}
}

// So many flows as there are: a call takes the locks of 256 in each of its transactions.
func TestA9_deadlines_of_any_number_of_flows(t *testing.T) {
	const total, batch = 2000, 500
	f := cloneFixture(t)
	f.seedOverdue(t, total)
	for call := range total / batch {
		if n, err := f.Maintenance().ExpireDeadlines(t.Context(), batch); n != batch || err != nil {
			t.Errorf("call %d acted on %d, %v; want a full batch", call, n, err)
		}
	}
	run(t, f.Maintenance().ExpireDeadlines, 0)
	if left := texts(t, f.pool, "SELECT execution_id::text FROM ff_exec_core WHERE public_state <> 'expired'"); len(left) > 0 {
		t.Errorf("%d have not ended", len(left))
	}
}

// seedOverdue creates executions whose deadline has passed, each in a flow of its own.
func (f *fixture) seedOverdue(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{
			Nodes: []engine.Node{{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Lane: f.lane, Kind: "test", Deadline: start.Add(time.Second)}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.advance(time.Minute)
}

// However much is locked at the front of what is due, what stands behind it is acted on, by one call.
func TestA10_locked_rows_hide_nothing(t *testing.T) {
	const locked, free = 4100, 10
	started := func(t *testing.T, f *fixture, n int) {
		for range (n + 499) / 500 {
			if got := len(f.claimN(t, min(n, 500))); got == 0 {
				t.Fatal("nothing is claimable")
			}
		}
	}
	plain := func(*testing.T, *fixture, int) {}
	attempts := "SELECT FROM ff_attempt FOR UPDATE"
	executions := "SELECT FROM ff_exec_core FOR UPDATE"
	for _, c := range []struct {
		name string
		spec func(f *fixture, i int, spec *engine.ExecutionSpec)
		then func(t *testing.T, f *fixture, n int)
		lock string
		job  func(*fixture) job
	}{
		{
			"leases, of locked executions", func(*fixture, int, *engine.ExecutionSpec) {}, started, executions,
			func(f *fixture) job { return f.Maintenance().ExpireLeases },
		},
		{
			"leases, of locked attempts", func(*fixture, int, *engine.ExecutionSpec) {}, started, attempts,
			func(f *fixture) job { return f.Maintenance().ExpireLeases },
		},
		{
			"attempts", func(_ *fixture, _ int, spec *engine.ExecutionSpec) { timingOutAfter(time.Millisecond, nil)(spec) }, started,
			attempts, func(f *fixture) job { return f.Maintenance().ExpireAttempts },
		},
		{
			"deadlines", func(f *fixture, _ int, spec *engine.ExecutionSpec) { spec.Deadline = f.now().Add(time.Second) }, plain,
			executions, func(f *fixture) job { return f.Maintenance().ExpireDeadlines },
		},
		{
			"delays", func(f *fixture, _ int, spec *engine.ExecutionSpec) { spec.DelayUntil = f.now().Add(time.Second) }, plain,
			executions, func(f *fixture) job { return f.Maintenance().PromoteDelayed },
		},
		{"creation keys", func(f *fixture, i int, spec *engine.ExecutionSpec) {
			spec.IdempotencyKey, spec.Policy = f.key(fmt.Sprint(f.now(), i)), &policy.Execution{DedupWindow: time.Millisecond}
		}, plain, "SELECT FROM ffx_create_dedup FOR UPDATE", func(f *fixture) job { return f.Maintenance().PruneCreationKeys }},
		{"routes", func(*fixture, int, *engine.ExecutionSpec) {}, func(t *testing.T, f *fixture, _ int) {
			f.exec(t, `UPDATE ff_exec_core SET eligibility_state = 'blocked_by_route', blocking_reason = 'waiting_for_capable_worker'
				WHERE eligibility_state = 'eligible_now'`)
			f.registered(t, fmt.Sprint(f.now()), "", 2*time.Hour, f.lane)
		}, executions, func(f *fixture) job { return f.Maintenance().UnblockRoutes }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			seed := func(n int) {
				for i := 0; i < n; i += 500 {
					specs := make([]engine.ExecutionSpec, min(500, n-i))
					for at := range specs {
						specs[at].Lane, specs[at].Kind = f.lane, "test"
						c.spec(f, i+at, &specs[at])
					}
					if _, err := f.CreateExecutions(t.Context(), specs); err != nil {
						t.Fatal(err)
					}
				}
				c.then(t, f, n)
				f.advance(time.Second)
			}
			seed(locked)
			tx := f.begin(t)
			execIn(t, tx, c.lock)
			seed(free)
			f.advance(time.Hour)
			for _, want := range []int{free, 0} {
				if n, err := c.job(f)(t.Context(), 500); n != want || err != nil {
					t.Errorf("acted on %d, %v; want %d", n, err, want)
				}
			}
			commit(t, tx)
			if n, err := c.job(f)(t.Context(), 500); n != 500 || err != nil {
				t.Errorf("acted on %d, %v, once they are free", n, err)
			}
		})
	}
}

// Two processes that look at the same locked leases do not hand them to each other for ever.
func TestA10_looks_that_cross(t *testing.T) {
	f := cloneFixture(t)
	f.startMany(t, 10)
	f.advance(leaseTTL)
	tx := f.begin(t)
	execIn(t, tx, "SELECT FROM ff_exec_core FOR UPDATE")
	held, release := f.holding(t, "TakeExpiredLeases")
	wait := async(t, func(ctx context.Context) error {
		n, err := held.Maintenance().ExpireLeases(ctx, 5)
		if n != 0 {
			err = errors.Join(err, fmt.Errorf("acted on %d", n))
		}
		return err
	})
	held.awaitBlocked(t, f)
	for range 3 {
		if n, err := f.Maintenance().ExpireLeases(t.Context(), 5); n != 0 || err != nil {
			t.Errorf("acted on %d, %v", n, err)
		}
	}
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	f.wantTimer(t, t, "looks")
	commit(t, tx)
	run(t, f.Maintenance().ExpireLeases, 10)
}
