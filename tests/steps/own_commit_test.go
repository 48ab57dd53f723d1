package steps

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A function that ends its transaction by a statement fails the execution for good, in one try: another would write again what
// it has committed. W15
func TestOwnCommitIsPermanent(t *testing.T) {
	failed := errors.New("failed behind it")
	for name, own := range map[string]struct {
		statement string
		err       error
		want      []string
	}{
		"commit":              {"COMMIT", nil, []string{"lamp"}},
		"commit, then fail":   {"COMMIT", failed, []string{"lamp"}},
		"commit alone":        {"", nil, nil},
		"roll back":           {"ROLLBACK", nil, nil},
		"roll back, and fail": {"ROLLBACK", failed, nil},
	} {
		for _, form := range []string{"StepTx", "Turn"} {
			t.Run(form+" "+name, func(t *testing.T) {
				c := newTurning(t)
				end := func(ctx context.Context, tx pgx.Tx) error {
					if own.statement == "" { // its first statement
						_, err := tx.Exec(ctx, "COMMIT")
						return err
					}
					if _, err := tx.Exec(ctx, "INSERT INTO booked VALUES ('lamp')"); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, own.statement)
					return errors.Join(err, own.err)
				}
				c.handle(func(ctx context.Context, job orderJob) (string, error) {
					if form == "Turn" {
						return "", worker.Turn(ctx, job, "book", func(ctx context.Context, tx pgx.Tx, _ *worker.TurnTx) error { return end(ctx, tx) },
							worker.Retry(*policy.ImmediateRetries(3)))
					}
					_, err := worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (int, error) { return 1, end(ctx, tx) },
						worker.Retry(*policy.ImmediateRetries(3)))
					return "", err
				})
				x := c.run(t, worker.Failed)
				fftest.RequireFailure(t, c.Kit.Kit, x, "a COMMIT or ROLLBACK among the statements of its function")
				if got := fixture.Texts(t, c.Pool, "SELECT item FROM booked"); !slices.Equal(got, own.want) {
					t.Errorf("%s booked %q, want %q", form, got, own.want)
				}
				wantSteps(t, c.Engine, x)
			})
		}
	}
}

// The same in a transaction of a program.
func TestOwnCommitInATransaction(t *testing.T) {
	f := booking(t)
	err := f.InTx(t.Context(), func(tx pgx.Tx, _ *engine.Engine) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO booked VALUES ('lamp'); COMMIT")
		return err
	})
	if !errors.Is(err, engine.ErrInvalidInput) {
		t.Error(err)
	}
	wantInBooked(t, f, "lamp")
}
