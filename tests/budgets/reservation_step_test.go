package budgets

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A try of a step that fails gives back the amounts that it has reserved and not settled, and no others: neither those that the
// handler has reserved before, nor more than the try holds. So the next try has the room that the first one had. L9
func TestFailedTriesGiveBackTheirReservations(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name string
		// try reserves 6 of 10, beside 4 that the handler holds.
		try          func(ctx context.Context, c *fixture.Crew, tx pgx.Tx, held *worker.Reservation) error
		used         int64 // by all tries
		inTx, failed bool
	}{
		{"a try that leaves it open", func(context.Context, *fixture.Crew, pgx.Tx, *worker.Reservation) error { return nil }, 0, false, false},
		{"the last try too", func(context.Context, *fixture.Crew, pgx.Tx, *worker.Reservation) error { return broken }, 0, false, true},
		{"a try that has settled", func(ctx context.Context, _ *fixture.Crew, _ pgx.Tx, held *worker.Reservation) error {
			_, err := held.Settle(ctx, nil)
			return err
		}, 0, false, false},
		{"a try whose settlement was refused", func(ctx context.Context, _ *fixture.Crew, _ pgx.Tx, held *worker.Reservation) error {
			got, err := held.Settle(ctx, amounts{"a": 11})
			if got.Outcome != budget.HardBreach {
				return worker.Permanent(errors.Join(errors.New("was settled"), err))
			}
			return err
		}, 0, false, false},
		{"a transaction that leaves it open", func(context.Context, *fixture.Crew, pgx.Tx, *worker.Reservation) error { return nil }, 0, true, false},
		{"a transaction that has settled", func(ctx context.Context, c *fixture.Crew, tx pgx.Tx, held *worker.Reservation) error {
			_, err := held.SettleIn(ctx, c.WithTx(tx), amounts{"a": 1})
			return err
		}, 1, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fixture.NewLoneCrew(t)
			b := create(t, c.Fixture, limits{"a": {Hard: 10}})
			tries := 0
			try := func(ctx context.Context, job worker.Job[struct{}], tx pgx.Tx) (string, error) {
				tries++
				held, err := job.Reserve(ctx, b, amounts{"a": 6})
				if err != nil {
					return "", err
				}
				if held.Outcome != budget.Ok {
					return "", worker.Permanent(errors.New("no room"))
				}
				if err := test.try(ctx, c, tx, held); err != nil || tries == 3 {
					return "done", err
				}
				return "", broken
			}
			c.Work(t, worker.Config{}, func(w *worker.Worker) {
				fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
					if _, err := job.Reserve(ctx, b, amounts{"a": 4}); err != nil {
						return "", err
					}
					retry := worker.Retry(*policy.ImmediateRetries(2))
					var out string
					var err error
					if test.inTx {
						out, err = worker.StepTx(ctx, job, "ask", func(ctx context.Context, tx pgx.Tx) (string, error) { return try(ctx, job, tx) }, retry)
					} else {
						out, err = worker.Step(ctx, job, "ask", func(ctx context.Context) (string, error) { return try(ctx, job, nil) }, retry)
					}
					want := int64(10) // the successful try has left it open
					if test.failed || test.name == "a try that has settled" || test.used > 0 {
						want = 4
					}
					wantReserved(t, c.Fixture, b, amounts{"a": want})
					return out, err
				})
			})
			c.Create(t, func(s *engine.ExecutionSpec) {
				s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
			})
			want := worker.Completed
			if test.failed {
				want = worker.Failed
			}
			if settled := c.Next(t, 1)[0]; settled.Settlement != want || tries != 3 {
				t.Errorf("%d tries: %+v", tries, settled)
			}
			wantReserved(t, c.Fixture, b, amounts{})
			if test.used > 0 {
				wantUsage(t, c.Fixture, b, amounts{"a": test.used})
			}
		})
	}
}
