package limits

import (
	"context"
	"fmt"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// passing runs one pass of another process beside the test.
func passing(t *testing.T, e *engine.Engine) func() int {
	t.Helper()
	type result struct {
		n   int
		err error
	}
	wait := fixture.Async(t, func(ctx context.Context) result {
		n, err := upkeep.Of(e).AdmitWaiting(ctx, 100)
		return result{n, err}
	})
	return func() int {
		t.Helper()
		r := wait()
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.n
	}
}

// While one process admits at a limit, another one leaves it alone and looks again soon. Admissions of both together never
// exceed the limit.
func TestOneProcessAdmitsAtALimit_B20(t *testing.T) {
	for _, statement := range []string{"CountGates", "TakeWaiting", "AdmitExecutions"} {
		t.Run(statement, func(t *testing.T) {
			f := fixture.NewCloned(t)
			q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
			create(t, f, 6, under(q))
			running := wantClaimable(t, f, 2, "at first")
			complete(t, f, running[0])
			r := f.StoppedBefore(t, statement)
			pass := passing(t, r.Engine)
			r.AwaitStop(t)
			if n, err := upkeep.Of(f.Engine).AdmitWaiting(t.Context(), 100); err != nil || n != 0 {
				t.Errorf("beside another pass: %d, %v", n, err)
			}
			if upkeep.Of(f.Engine).NextAdmission().IsZero() {
				t.Error("does not look again soon")
			}
			complete(t, f, running[1]) // after the count, or before: fewer are in use than counted
			r.Resume()
			if n := pass(); n < 1 || n > 2 {
				t.Errorf("admitted %d", n)
			}
			wantClaimable(t, f, 2, "after both passes")
		})
	}
}

// A row that a stranger holds for long stalls only its limit, or only itself.
func TestLocksOfStrangersStallOneKey(t *testing.T) {
	f := fixture.NewCloned(t)
	held, free := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 5}), quota(t, f, interop.QuotaPolicySpec{MaxRunning: 5})
	first := create(t, f, 1, under(held))
	complete(t, f, wantClaimable(t, f, 1, "to make its row")...)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ffx_gate WHERE gate_id = $1 FOR UPDATE", held)
	create(t, f, 3, under(held))
	create(t, f, 3, under(free))
	running := wantClaimable(t, f, 3, "of the limit that is free")
	fixture.Commit(t, tx)
	running = append(running, wantClaimable(t, f, 3, "of the other one")...)
	complete(t, f, running...)

	ids := create(t, f, 3, under(held))
	tx = f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", ids[0].Partition(), ids[0].UUID())
	wantClaimable(t, f, 2, "beside a locked execution")
	fixture.Commit(t, tx)
	wantClaimable(t, f, 1, "the one that was locked")
	_ = first
}

// One tenant's limit does not hold back others (Oban forum 53388), and no place stays idle while work for it waits (75418),
// however many wait elsewhere.
func TestFullLimitsDontHoldBackOthers(t *testing.T) {
	f := fixture.NewCloned(t)
	busy, quiet := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1}), quota(t, f, interop.QuotaPolicySpec{MaxRunning: 3})
	create(t, f, 500, under(busy))
	create(t, f, 3, under(quiet))
	create(t, f, 2)
	wantClaimable(t, f, 6, "one of the busy tenant, all of the others")
}

// Many processes admit and claim at once: no more than the limit is ever leased, by the stored intervals.
func TestLimitsHoldInManyProcesses_B38(t *testing.T) {
	f := fixture.NewCloned(t)
	const limit, total, processes = 5, 200, 4
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: limit})
	create(t, f, total, under(q))
	var waits []func() error
	for n := range processes {
		r := f.Rival(t)
		waits = append(waits, fixture.Async(t, func(ctx context.Context) error {
			spec := f.Worker()
			spec.Instance = id.WorkerInstanceID(fmt.Sprint(f.Name, n))
			for ctx.Err() == nil {
				if _, err := upkeep.Of(r.Engine).AdmitWaiting(ctx, 100); err != nil {
					return err
				}
				claimed, err := r.Claim(ctx, spec, 3)
				if err != nil {
					return err
				}
				// While they run, the others look.
				var leased int
				if err := r.Pool.QueryRow(ctx, "SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase = 'active'").Scan(&leased); err != nil {
					return err
				}
				if leased > limit {
					return fmt.Errorf("%d are leased, limit %d", leased, limit)
				}
				for _, c := range claimed {
					if err := r.CompleteExecution(ctx, c.Lease, nil); err != nil {
						return err
					}
				}
				var left int
				if err := r.Pool.QueryRow(ctx, "SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase = 'runnable'").Scan(&left); err != nil || left == 0 {
					return err
				}
			}
			return ctx.Err()
		}))
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
}
