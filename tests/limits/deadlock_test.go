package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// crowd is what several processes work on at once, each in an order of its own.
type crowd struct {
	lane    id.LaneID
	limits  []string
	budgets []id.BudgetID
	quotas  []id.QuotaPolicyID
}

// turn is one random call of a process, with its objects in a random order. It passes over what another process holds.
func (c *crowd) turn(ctx context.Context, f *fixture.Fixture, e *engine.Engine) error {
	limits, budgets := slices.Clone(c.limits), slices.Clone(c.budgets)
	rand.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
	rand.Shuffle(len(budgets), func(i, j int) { budgets[i], budgets[j] = budgets[j], budgets[i] })
	switch rand.IntN(10) {
	case 0, 1:
		_, err := upkeep.Of(e).AdmitWaiting(ctx, 20)
		return err
	case 2, 3:
		specs := make([]engine.ExecutionSpec, 5)
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Lane: c.lane, Kind: "test", Budgets: budgets[:rand.IntN(len(budgets))]}
			for _, name := range limits[:rand.IntN(len(limits)+1)] {
				specs[i].Limits = append(specs[i].Limits, engine.LimitKey{Name: name, Key: fmt.Sprint(rand.IntN(3))})
			}
			if rand.IntN(2) == 0 {
				specs[i].QuotaPolicy = &c.quotas[rand.IntN(len(c.quotas))]
			}
		}
		_, err := e.CreateExecutions(ctx, specs)
		return err
	case 4:
		return c.cancel(ctx, f, e)
	case 5:
		return limit.Set(ctx, e, limit.Name{Name: limits[0]}, limit.Setting{Units: rand.IntN(4)})
	case 6:
		_, err := upkeep.Of(e).ForgetLimitKeys(ctx, 100)
		return err
	case 7:
		for _, b := range budgets {
			if _, err := budget.Report(ctx, e, budget.Usage{Budget: b, Amounts: map[string]int64{"n": 1}}); err != nil {
				return err
			}
		}
		_, err := budget.Reset(ctx, e, budgets[0])
		return err
	}
	return c.work(ctx, f, e, budgets)
}

func (c *crowd) cancel(ctx context.Context, f *fixture.Fixture, e *engine.Engine) error {
	rows, err := f.Pool.Query(ctx, "SELECT partition_key, execution_id FROM ff_exec_core WHERE lifecycle_phase = 'runnable' ORDER BY random() LIMIT 3")
	if err != nil {
		return err
	}
	defer rows.Close()
	var specs []engine.CancelSpec
	for rows.Next() {
		var partition int16
		var x id.ExecutionUUID
		if err := rows.Scan(&partition, &x); err != nil {
			return err
		}
		specs = append(specs, engine.CancelSpec{ID: id.ExecutionIDFromRow(partition, x)})
	}
	if rows.Close(); len(specs) == 0 {
		return rows.Err()
	}
	_, err = e.CancelExecutions(ctx, specs)
	return err
}

// work claims, reserves from both budgets, and ends some of the claimed executions.
func (c *crowd) work(ctx context.Context, f *fixture.Fixture, e *engine.Engine, budgets []id.BudgetID) error {
	claimed, err := e.Claim(ctx, f.Worker(), 3)
	if err != nil {
		return err
	}
	var ends []engine.Completion
	for _, x := range claimed {
		_, err := budget.Reserve(ctx, e, x.Lease.Fence, budget.ReserveSpec{Budgets: budgets, Amounts: map[string]int64{"n": 1}})
		if err != nil && !isLost(err) {
			return err
		}
		ends = append(ends, engine.Completion{Lease: x.Lease})
	}
	if slices.Reverse(ends); len(ends) == 0 {
		return nil
	}
	_, err = e.CompleteExecutions(ctx, ends)
	return err
}

// isLost reports whether another process has cancelled the execution.
func isLost(err error) bool {
	return errors.Is(err, fferr.ErrStaleLease) || errors.Is(err, fferr.ErrNotActive) || errors.Is(err, fferr.ErrLeaseExpired)
}

// Passes of the gate, creations, ends, cancels, changes of limits, forgotten keys, reports and reservations of several
// processes never deadlock, in whatever order they name their objects.
func TestLimitsNeverDeadlock(t *testing.T) {
	f := fixture.NewCloned(t)
	c := &crowd{lane: f.Lane, limits: []string{"x", "y", "z"}}
	for _, name := range c.limits {
		spec := limit.Spec{Name: name, Units: 3}
		if name == "z" {
			spec.Window = window
		}
		if err := limit.Declare(t.Context(), f.Engine, spec); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		c.budgets = append(c.budgets, budgetOf(t, f, 50))
		c.quotas = append(c.quotas, quota(t, f, interop.QuotaPolicySpec{MaxRunning: 4, MaxStarts: 20, Window: window}))
	}
	const processes = 6
	turns := soak.Size(t, 60, 3_000)
	logs, waits := make([]fixture.StatementLog, processes), make([]func() error, processes)
	deadlocks := "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()"
	before := fixture.Texts(t, f.Pool, deadlocks)
	for n := range processes {
		e := f.EngineOn(t, logs[n].Open(t, f.Url), engine.Config{NoListener: true})
		waits[n] = fixture.Async(t, func(ctx context.Context) error {
			for turn := range turns {
				if err := c.turn(ctx, f, e); err != nil && !errors.Is(err, fferr.ErrBusy) && !errors.Is(err, fferr.ErrContention) {
					return err
				}
				if turn%20 == 0 {
					f.Advance(minute) // windows pass, leases are lost, and keys become idle
				}
			}
			return nil
		})
	}
	for n, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
		if states := logs[n].Aborted(); slices.Contains(states, "40P01") {
			t.Errorf("aborted by %v", states)
		}
	}
	if after := fixture.Texts(t, f.Pool, deadlocks); !slices.Equal(before, after) {
		t.Errorf("deadlocks %s, then %s", before, after)
	}
}

// Whatever row another transaction holds for long, work that does not need it is created, admitted and claimed, and its limits
// change. None of these calls waits, or the test would never end.
func TestHeldRowsStallNoOtherKey(t *testing.T) {
	for _, c := range []struct{ name, lock string }{
		{"a key", "SELECT FROM ffx_gate WHERE key = 'held' FOR UPDATE"},
		{"executions that wait", "SELECT FROM ff_exec_core WHERE ffx_gate_id IS NOT NULL FOR UPDATE"},
		{"executions that run", "SELECT FROM ff_exec_core WHERE lifecycle_phase = 'active' FOR UPDATE"},
		{"budgets", "SELECT FROM ff_budget_policy FOR UPDATE"},
		{"usage", "SELECT FROM ff_budget_usage FOR UPDATE"},
		{"another limit", "SELECT FROM ffx_limit WHERE name = 'other' FOR UPDATE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			b := budgetOf(t, f, 100)
			spend(t, f, b, 1)
			if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "places", Units: 2}, limit.Spec{Name: "other", Units: 2}); err != nil {
				t.Fatal(err)
			}
			at := func(key string) func(*engine.ExecutionSpec) {
				return func(s *engine.ExecutionSpec) {
					s.Limits = []engine.LimitKey{{Name: "places", Key: key}}
					s.Budgets = []id.BudgetID{b}
				}
			}
			create(t, f, 3, at("held"))
			wantClaimable(t, f, 2, "of the key that is held later")
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, c.lock)
			create(t, f, 3, at("free"))
			running := wantClaimable(t, f, 2, "of the other key")
			complete(t, f, running...)
			complete(t, f, wantClaimable(t, f, 1, "the last of the other key")...)
			if err := limit.Set(t.Context(), f.Engine, limit.Name{Name: "places"}, limit.Setting{Units: 1}); err != nil {
				t.Error(err)
			}
			create(t, f, 2, at("new"))
			wantClaimable(t, f, 1, "of a new key")
		})
	}
}
