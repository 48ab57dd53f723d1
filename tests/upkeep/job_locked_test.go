package upkeep

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// ending are the jobs that end executions, each with a cause that makes one due.
var ending = []struct {
	name    string
	spec    engine.ExecutionSpec
	started bool
	job     func(*engine.Engine) fixture.Job
	state   string
}{
	{
		"deadline",
		engine.ExecutionSpec{Kind: "test", Deadline: fixture.Start.Add(time.Second)},
		false,
		func(e *engine.Engine) fixture.Job { return upkeep.Of(e).ExpireDeadlines }, fixture.StateUnstarted,
	},
	{"attempt timeout", engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{
		Retry: &policy.Retry{MaxRetries: policy.NoRetries}, AttemptTimeout: time.Millisecond,
	}}, true, func(e *engine.Engine) fixture.Job { return upkeep.Of(e).ExpireAttempts }, fixture.StateExpired},
	{
		"lease lost too often",
		engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{MaxReclaims: policy.NoReclaims}},
		true,
		func(e *engine.Engine) fixture.Job { return upkeep.Of(e).ExpireLeases }, fixture.StateFailed,
	},
}

// While another transaction holds any locks of one flow, the members of the others end, and that one once it is free.
func TestJobsSkipLockedFlows(t *testing.T) {
	const others = 20
	for _, j := range ending {
		for _, c := range []struct {
			what string
			lock func(t *testing.T, tx pgx.Tx, flow id.FlowID, x, downstream id.ExecutionID)
		}{
			{"the flow's lock, shared", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1::uuid))", flow)
			}},
			{"the flow's lock", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1::uuid))", flow)
			}},
			{"the flow's row", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
			}},
			{"the execution", func(t *testing.T, tx pgx.Tx, _ id.FlowID, x, _ id.ExecutionID) { fixture.LockExecution(t, tx, x) }},
			{"its attempt", func(t *testing.T, tx pgx.Tx, _ id.FlowID, x, _ id.ExecutionID) { fixture.LockAttempt(t, tx, x, 0) }},
			{"the group of what depends on it", func(t *testing.T, tx pgx.Tx, flow id.FlowID, _, _ id.ExecutionID) {
				fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
			}},
			{"what depends on it", func(t *testing.T, tx pgx.Tx, _ id.FlowID, _, downstream id.ExecutionID) {
				fixture.LockExecution(t, tx, downstream)
			}},
			{"its grant", func(t *testing.T, tx pgx.Tx, _ id.FlowID, x, _ id.ExecutionID) {
				fixture.ExecIn(t, tx, "SELECT FROM ff_claim_grant WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", x.Partition(), x.UUID())
			}},
		} {
			if c.what == "its attempt" && !j.started {
				continue
			}
			t.Run(j.name+", "+c.what, func(t *testing.T) {
				f := fixture.FlowsOn(fixture.NewCloned(t))
				spec := fixture.Chart(nil, "a>b")
				spec.Nodes[0].Spec = j.spec
				flows := make([]id.FlowID, others+1)
				for i := range flows {
					spec.ID = id.NewFlowID()
					flows[i] = f.NewFlowOf(t, spec)
				}
				if j.started {
					f.ClaimAll(t)
				}
				held := flows[7] // not the first, not the last
				x, downstream := f.NodeID(held, "a"), f.NodeID(held, "b")
				f.SeedGrant(t, x)
				f.Advance(time.Hour)
				before := f.Dump(t, x)
				tx := f.BeginTx(t)
				c.lock(t, tx, held, x, downstream)
				if n, err := j.job(f.Engine)(t.Context(), 100); n != others || err != nil {
					t.Errorf("acted on %d, %v; want %d", n, err, others)
				}
				f.WantUnchanged(t, x, before)
				f.WantState(t, f.NodeID(flows[others], "b"), fixture.StateSkipped)
				fixture.Commit(t, tx)
				fixture.Run(t, j.job(f.Engine), 1)
				f.WantState(t, x, j.state)
				f.WantState(t, downstream, fixture.StateSkipped)
			})
		}
	}
}

// A flow whose members complete one after the other is never free when it is asked for. It is stood in line for.
func TestJobWaitsForABusyFlow(t *testing.T) {
	for _, j := range ending {
		t.Run(j.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			spec := fixture.Chart(nil, "a>b")
			spec.Nodes[0].Spec = j.spec
			flow := f.NewFlowOf(t, spec)
			if j.started {
				f.ClaimAll(t)
			}
			f.Advance(time.Hour)
			late := f.Rival(t)
			share := func() pgx.Tx {
				tx := f.BeginTx(t)
				fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1::uuid))", flow)
				return tx
			}
			for range 100 { // on a busy machine the holder may let go too late
				tx := share()
				returned, wait := fixture.Watched(t, func(ctx context.Context) int {
					n, err := j.job(late.Engine)(ctx, 10)
					if err != nil {
						t.Error(err)
					}
					return n
				})
				late.AwaitBlockedOr(t, f.Fixture, returned)
				fixture.Commit(t, tx)
				if wait() == 1 {
					break
				}
			}
			f.WantState(t, f.NodeID(flow, "a"), j.state)
		})
	}
}

// Executions that another program ended, or leased again, are cleaned up in passing too.
func TestJobsCleanUpBesideLockedRows(t *testing.T) {
	f := fixture.NewCloned(t)
	var ended []id.ExecutionID
	for range 3 {
		x := f.Start(t, fixture.TimingOutAfter(time.Millisecond, nil), func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) })
		f.SetExecution(t, x.ID, fixture.ForeignCancel)
		ended = append(ended, x.ID)
	}
	f.Advance(time.Hour)
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, ended[1])
	fixture.LockAttempt(t, tx, ended[1], 0)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 2)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 2)
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
}

// In a caller's transaction a job skips locked rows, too.
func TestJobsInATransactionSkipLockedRows(t *testing.T) {
	for _, j := range ending {
		t.Run(j.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			spec := fixture.Chart(nil, "a>b")
			spec.Nodes[0].Spec = j.spec
			var flows [3]id.FlowID
			for i := range flows {
				spec.ID = id.NewFlowID()
				flows[i] = f.NewFlowOf(t, spec)
			}
			if j.started {
				f.ClaimAll(t)
			}
			f.Advance(time.Hour)
			holder, tx := f.BeginTx(t), f.BeginTx(t)
			fixture.ExecIn(t, holder, "SELECT pg_advisory_xact_lock(ffx_flow_key($1::uuid))", flows[0])
			fixture.LockExecution(t, holder, f.NodeID(flows[1], "a"))
			if n, err := j.job(f.WithTx(tx))(t.Context(), 10); n != 1 || err != nil {
				t.Errorf("acted on %d, %v; want 1", n, err)
			}
			fixture.Commit(t, tx)
			fixture.Commit(t, holder)
			f.WantState(t, f.NodeID(flows[2], "a"), j.state)
			fixture.Run(t, j.job(f.Engine), 2)
		})
	}
}

// So many flows as there are: a call takes the locks of 256 in each of its transactions.
func TestExpireDeadlinesOfManyFlows(t *testing.T) {
	const total, batch = 2000, 500
	f := fixture.NewCloned(t)
	seedOverdue(t, f, total)
	for call := range total / batch {
		if n, err := upkeep.Of(f.Engine).ExpireDeadlines(t.Context(), batch); n != batch || err != nil {
			t.Errorf("call %d acted on %d, %v; want a full batch", call, n, err)
		}
	}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 0)
	if left := fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ff_exec_core WHERE public_state <> 'expired'"); len(left) > 0 {
		t.Errorf("%d have not ended", len(left))
	}
}

// seedOverdue creates executions whose deadline has passed, each in a flow of its own.
func seedOverdue(t *testing.T, f *fixture.Fixture, n int) {
	t.Helper()
	for i := range n {
		if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{
			Nodes: []engine.Node{{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Deadline: fixture.Start.Add(time.Second)}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	f.Advance(time.Minute)
}

// However many due rows at the front are locked, one call acts on those after them.
func TestLockedRowsHideNoDueRows(t *testing.T) {
	const locked, free = 4100, 10
	started := func(t *testing.T, f *fixture.Fixture, n int) {
		for range (n + 499) / 500 {
			if got := len(f.ClaimN(t, min(n, 500))); got == 0 {
				t.Fatal("nothing is claimable")
			}
		}
	}
	plain := func(*testing.T, *fixture.Fixture, int) {}
	attempts := "SELECT FROM ff_attempt FOR UPDATE"
	executions := "SELECT FROM ff_exec_core FOR UPDATE"
	for _, c := range []struct {
		name string
		spec func(f *fixture.Fixture, i int, spec *engine.ExecutionSpec)
		then func(t *testing.T, f *fixture.Fixture, n int)
		lock string
		job  func(*fixture.Fixture) fixture.Job
	}{
		{
			"leases, of locked executions", func(*fixture.Fixture, int, *engine.ExecutionSpec) {}, started, executions,
			func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).ExpireLeases },
		},
		{
			"leases, of locked attempts", func(*fixture.Fixture, int, *engine.ExecutionSpec) {}, started, attempts,
			func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).ExpireLeases },
		},
		{
			"attempts", func(_ *fixture.Fixture, _ int, spec *engine.ExecutionSpec) {
				fixture.TimingOutAfter(time.Millisecond, nil)(spec)
			}, started,
			attempts, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).ExpireAttempts },
		},
		{
			"deadlines", func(f *fixture.Fixture, _ int, spec *engine.ExecutionSpec) { spec.Deadline = f.Time().Add(time.Second) }, plain,
			executions, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).ExpireDeadlines },
		},
		{
			"delays", func(f *fixture.Fixture, _ int, spec *engine.ExecutionSpec) {
				spec.DelayUntil = f.Time().Add(time.Second)
			}, plain,
			executions, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).PromoteDelayed },
		},
		{"creation keys", func(f *fixture.Fixture, i int, spec *engine.ExecutionSpec) {
			spec.IdempotencyKey, spec.Policy = f.Key(fmt.Sprint(f.Time(), i)), &policy.Execution{DedupWindow: time.Millisecond}
		}, plain, "SELECT FROM ffx_create_dedup FOR UPDATE", func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).PruneCreationKeys }},
		{"routes", func(*fixture.Fixture, int, *engine.ExecutionSpec) {}, func(t *testing.T, f *fixture.Fixture, _ int) {
			f.Exec(t, `UPDATE ff_exec_core SET eligibility_state = 'blocked_by_route', blocking_reason = 'waiting_for_capable_worker'
				WHERE eligibility_state = 'eligible_now'`)
			f.Registered(t, fmt.Sprint(f.Time()), "", 2*time.Hour, f.Lane)
		}, executions, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).UnblockRoutes }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			seed := func(n int) {
				for i := 0; i < n; i += 500 {
					specs := make([]engine.ExecutionSpec, min(500, n-i))
					for at := range specs {
						specs[at].Lane, specs[at].Kind = f.Lane, "test"
						c.spec(f, i+at, &specs[at])
					}
					if _, err := f.CreateExecutions(t.Context(), specs); err != nil {
						t.Fatal(err)
					}
				}
				c.then(t, f, n)
				f.Advance(time.Second)
			}
			seed(locked)
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, c.lock)
			seed(free)
			f.Advance(time.Hour)
			for _, want := range []int{free, 0} {
				if n, err := c.job(f)(t.Context(), 500); n != want || err != nil {
					t.Errorf("acted on %d, %v; want %d", n, err, want)
				}
			}
			fixture.Commit(t, tx)
			if n, err := c.job(f)(t.Context(), 500); n != 500 || err != nil {
				t.Errorf("acted on %d, %v, once they are free", n, err)
			}
		})
	}
}

// Two processes that look at the same locked leases do not hand them to each other for ever.
func TestConcurrentLooksAtLockedLeasesEnd(t *testing.T) {
	f := fixture.NewCloned(t)
	f.StartMany(t, 10)
	f.Advance(fixture.LeaseTTL)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_exec_core FOR UPDATE")
	held, release := f.Holding(t, "TakeExpiredLeases")
	wait := fixture.Async(t, func(ctx context.Context) error {
		n, err := upkeep.Of(held.Engine).ExpireLeases(ctx, 5)
		if n != 0 {
			err = errors.Join(err, fmt.Errorf("acted on %d", n))
		}
		return err
	})
	held.AwaitBlocked(t, f)
	for range 3 {
		if n, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 5); n != 0 || err != nil {
			t.Errorf("acted on %d, %v", n, err)
		}
	}
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	f.WantTimer(t, t, "looks")
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 10)
}
