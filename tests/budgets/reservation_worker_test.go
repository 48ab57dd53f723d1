package budgets

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler holds several reservations at once and settles each by itself, alone or with a turn. The worker gives back what
// the handler has left open before it ends the lease, however the handler ends.
func TestHandlersReserveAndSettle(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	own, user := create(t, c.Fixture, limits{"a": {Hard: 10}}), create(t, c.Fixture, limits{"a": {Hard: 12}})
	permanent := worker.Permanent(errors.New("no"))
	for name, last := range map[string]func(ctx context.Context, job worker.Job[struct{}], held *worker.Reservation) error{
		"settles": func(ctx context.Context, _ worker.Job[struct{}], held *worker.Reservation) error {
			got, err := held.Settle(ctx, amounts{"a": 1})
			wantResult(t, got, budget.Result{Outcome: budget.Ok, Left: amounts{"a": 8}})
			return err
		},
		"leaves it open": func(context.Context, worker.Job[struct{}], *worker.Reservation) error { return nil },
		"fails":          func(context.Context, worker.Job[struct{}], *worker.Reservation) error { return permanent },
		"completes by a turn": func(ctx context.Context, job worker.Job[struct{}], held *worker.Reservation) error {
			return worker.Turn(ctx, job, "ask", func(ctx context.Context, _ pgx.Tx, x *worker.TurnTx) error {
				_, err := held.SettleIn(ctx, x.Engine(), amounts{"a": 1})
				return errors.Join(err, x.Complete("done"))
			})
		},
	} {
		c.Exec(t, "DELETE FROM ff_budget_usage")
		kind := "kind: " + name
		stop := c.Work(t, worker.Config{}, func(w *worker.Worker) {
			fixture.HandleKind(w, kind, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
				first, err := job.Reserve(ctx, own, amounts{"a": 4}, user)
				if err != nil {
					return "", err
				}
				second, err := job.Reserve(ctx, own, amounts{"a": 6}, user)
				if err != nil {
					return "", err
				}
				third, err := job.Reserve(ctx, own, amounts{"a": 1}, user)
				if err != nil {
					return "", err
				}
				wantResult(t, third.Result, breach(own, "a", 0, 10, 10))
				if _, err := third.Settle(ctx, nil); err != nil {
					return "", err
				}
				if got, err := first.Settle(ctx, amounts{"a": 1}); err != nil {
					return "", err
				} else if got.Left["a"] != 3 {
					t.Errorf("%s: %+v", name, got)
				}
				return "done", last(ctx, job, second)
			})
		})
		c.Create(t, func(s *engine.ExecutionSpec) {
			s.Kind, s.Policy = kind, &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
		})
		settled := c.Next(t, 1)[0]
		stop()
		want := worker.Completed
		used := int64(1)
		switch name {
		case "fails":
			want = worker.Failed
		case "settles", "completes by a turn":
			used = 2
		}
		if settled.Settlement != want {
			t.Errorf("%s: %+v", name, settled)
		}
		for _, b := range of(own, user) {
			wantReserved(t, c.Fixture, b, amounts{})
			wantUsage(t, c.Fixture, b, amounts{"a": used})
		}
	}
}

// Within a turn a job's own reservation is refused: it would wait for the turn.
func TestTurnsRefuseReservationsOfTheJob(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	b := create(t, c.Fixture, nil)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
			return "", worker.Turn(ctx, job, "ask", func(ctx context.Context, _ pgx.Tx, _ *worker.TurnTx) error {
				_, err := job.Reserve(ctx, b, amounts{"a": 1})
				if !errors.Is(err, fferr.ErrInvalidInput) {
					t.Errorf("%v", err)
				}
				return nil
			})
		})
	})
	c.Create(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	})
	if settled := c.Next(t, 1)[0]; settled.Settlement != worker.Failed {
		t.Errorf("%+v", settled)
	}
	wantReserved(t, c.Fixture, b, amounts{})
}

// A job for a test reserves nothing.
func TestReservationsOfAJobForATest(t *testing.T) {
	held, err := worker.JobForTest("x").Reserve(t.Context(), id.NewBudgetID(), amounts{"a": 1})
	if err != nil || held.Outcome != budget.Ok {
		t.Fatalf("%+v, %v", held, err)
	}
	if got, err := held.Settle(t.Context(), amounts{"a": 1}); err != nil || got.Outcome != budget.Ok {
		t.Errorf("%+v, %v", got, err)
	}
}
