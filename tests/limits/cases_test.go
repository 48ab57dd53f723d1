package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	gosync "sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// Case 5: four gates and 16 workers; some die with their work. By the rows no more are ever leased than run at once, no
// more start within a window than may, and all places are free at the end.
func TestCapAndRateHoldAmongCrashes(t *testing.T) {
	f := fixture.NewCloned(t)
	const limit, rate, total = 5, 20, 200
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: limit, MaxStarts: rate, Window: time.Minute})
	create(t, f, total, under(q))

	// The clock advances only between the calls, as the database's does between statements.
	var clock gosync.RWMutex
	during := func(call func() error) error {
		clock.RLock()
		defer clock.RUnlock()
		return call()
	}
	count := func(condition string) (n int) {
		if err := f.Pool.QueryRow(t.Context(), "SELECT count(*) FROM ff_exec_core WHERE "+condition).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var processes gosync.WaitGroup
	process := func(call func() error) {
		processes.Go(func() {
			for ctx.Err() == nil {
				// Two gates may make the row of a new key at once.
				if err := during(call); err != nil && ctx.Err() == nil && !errors.Is(err, fferr.ErrBusy) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 4 {
		gate := f.Rival(t)
		process(func() error {
			_, err := upkeep.Of(gate.Engine).AdmitWaiting(ctx, 100)
			return err
		})
		for n := range 4 {
			spec := f.Worker()
			spec.Instance = id.WorkerInstanceID(fmt.Sprint(gate.Name, n))
			process(func() error {
				claimed, err := gate.Claim(ctx, spec, 2)
				for _, c := range claimed {
					if rand.IntN(8) > 0 { // otherwise it dies, and the lease is lost
						if err := gate.CompleteExecution(ctx, c.Lease, nil); err != nil {
							return err
						}
					}
				}
				return err
			})
		}
	}
	progress.Wait(t, "all executions to end", func() (string, bool) {
		clock.Lock()
		defer clock.Unlock()
		if leased := count("lifecycle_phase = 'active'"); leased > limit {
			t.Errorf("%d are leased, limit %d", leased, limit)
		}
		left := count("lifecycle_phase <> 'terminal'")
		if _, err := upkeep.Of(f.Engine).ExpireLeases(ctx, 100); err != nil {
			t.Error(err)
		}
		f.Advance(time.Duration(rand.IntN(4000)) * time.Millisecond)
		return fmt.Sprint(left, f.Time()), left == 0 || t.Failed()
	})
	stop()
	processes.Wait()
	most := fixture.One[struct{ N int }](t, f.Pool, `
		SELECT max(n) AS n FROM (
			SELECT count(*) OVER (ORDER BY started_at_ms RANGE BETWEEN 59999 PRECEDING AND CURRENT ROW)::integer AS n FROM ff_attempt
		) AS w`).N
	lost := len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_lease_event WHERE event_type = 'expired'"))
	if t.Logf("at most %d started within a minute, %d leases were lost", most, lost); most > rate || lost == 0 {
		t.Errorf("%d started within a minute, limit %d; %d leases were lost", most, rate, lost)
	}
	f.Advance(time.Minute)
	create(t, f, limit, under(q))
	wantClaimable(t, f, limit, "when all have ended")
}

// Case 6: however many wait for an exhausted budget, a pass reads none of them but the first, other work is admitted and
// claimed, and after a reset all run.
func TestExhaustedBudgetCostsNothing(t *testing.T) {
	f := fixture.NewCloned(t)
	waiting := soak.Size(t, 2_000, 100_000)
	b, q := budgetOf(t, f, 10), quota(t, f, interop.QuotaPolicySpec{MaxRunning: 3})
	spend(t, f, b, 10)
	for left := waiting; left > 0; left -= 1_000 {
		create(t, f, 1_000, within(b))
	}
	create(t, f, 5, under(q))
	create(t, f, 2)
	f.Exec(t, "ANALYZE")

	tx := f.BeginTx(t)
	read := func() int64 {
		return fixture.One[struct{ N int64 }](t, tx, "SELECT seq_tup_read + idx_tup_fetch AS n FROM pg_stat_xact_user_tables WHERE relname = 'ff_exec_core'").N
	}
	first := pass(t, f, tx, read)
	again := pass(t, f, tx, read)
	fixture.Commit(t, tx)
	if t.Logf("with %d waiting a pass reads %d rows, and then %d", waiting, first, again); first > 100 || again > 20 {
		t.Errorf("with %d waiting a pass reads %d rows, and then %d", waiting, first, again)
	}
	complete(t, f, wantClaimable(t, f, 5, "beside those that wait")...)
	complete(t, f, wantClaimable(t, f, 2, "the last of the others")...)

	if _, err := budget.Reset(t.Context(), f.Engine, b); err != nil {
		t.Fatal(err)
	}
	for left := waiting; left > 0; {
		if _, err := upkeep.Of(f.Engine).AdmitWaiting(t.Context(), 1_000); err != nil {
			t.Fatal(err)
		}
		claimed := claim(t, f, 1_000)
		if len(claimed) == 0 {
			t.Fatalf("%d still wait after the reset", left)
		}
		ends := make([]engine.Completion, len(claimed))
		for i, c := range claimed {
			ends[i].Lease = c.Lease
		}
		if _, err := f.CompleteExecutions(t.Context(), ends); err != nil {
			t.Fatal(err)
		}
		left -= len(claimed)
	}
}

// pass runs the gate in a transaction, and returns how many rows of executions it has read.
func pass(t *testing.T, f *fixture.Fixture, tx pgx.Tx, read func() int64) int64 {
	t.Helper()
	before := read()
	if _, err := upkeep.Of(f.WithTx(tx)).AdmitWaiting(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	return read() - before
}

// Case 7: whatever wakes an execution up that gave its place back, it queues again, and starts once there is room. Its start
// counts anew.
func TestWokenWorkQueuesAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		away func(f *fixture.Fixture, l engine.Lease) error
		wake func(mt *upkeep.Upkeep) fixture.Job
	}{
		{"delay", func(f *fixture.Fixture, l engine.Lease) error {
			return f.DelayExecution(t.Context(), l, f.Time().Add(time.Second))
		}, func(mt *upkeep.Upkeep) fixture.Job { return mt.PromoteDelayed }},
		{"retry", func(f *fixture.Fixture, l engine.Lease) error {
			_, err := f.FailExecution(t.Context(), l, engine.Failure{})
			return err
		}, func(mt *upkeep.Upkeep) fixture.Job { return mt.PromoteDelayed }},
		{"suspend", func(f *fixture.Fixture, l engine.Lease) error {
			_, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: l, Condition: engine.Received("go"), Timeout: time.Second})
			return err
		}, func(mt *upkeep.Upkeep) fixture.Job { return mt.ExpireWaits }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1, MaxStarts: 3, Window: window})
			create(t, f, 1, under(q))
			first := wantClaimable(t, f, 1, "at first")[0]
			if err := c.away(f, first.Lease); err != nil {
				t.Fatal(err)
			}
			create(t, f, 2, under(q))
			second := wantClaimable(t, f, 1, "while the first is away")[0]
			f.Advance(2 * time.Second)
			if n := f.Once(t, c.wake(upkeep.Of(f.Engine))); n != 1 {
				t.Fatalf("woke %d", n)
			}
			wantClaimable(t, f, 0, "while the second runs")
			if got := f.Stored(t, first.ID).State; !strings.Contains(got, "rate_limited") {
				t.Errorf("the first is stored as %s", got)
			}
			complete(t, f, second)
			again := wantClaimable(t, f, 1, "after the second has ended")[0]
			if again.ID != first.ID {
				t.Errorf("claimed %s, want %s", again.ID, first.ID)
			}
			complete(t, f, again)
			wantClaimable(t, f, 0, "after three starts") // the first execution has started twice
			f.Advance(window)
			wantClaimable(t, f, 1, "in the next window")
		})
	}
}
