package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
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
		"begin again":         {"COMMIT; BEGIN; INSERT INTO booked VALUES ('chair')", nil, []string{"lamp"}},
		"begin and fail":      {"COMMIT; BEGIN; INSERT INTO booked VALUES ('chair')", failed, []string{"lamp"}},
		"begin and be wrong":  {"COMMIT; BEGIN; SELECT 1/0", nil, []string{"lamp"}},
		"chain":               {"COMMIT AND CHAIN", nil, []string{"lamp"}},
		"roll back and chain": {"ROLLBACK AND CHAIN", failed, nil},
		"commit alone":        {"", nil, nil},
		"roll back":           {"ROLLBACK", nil, nil},
		"roll back, and fail": {"ROLLBACK", failed, nil},
	} {
		for _, form := range []string{"StepTx", "Turn", "Turn with an end"} {
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
					if form != "StepTx" {
						return "", worker.Turn(ctx, job, "book", func(ctx context.Context, tx pgx.Tx, turn *worker.TurnTx) error {
							if form == "Turn with an end" {
								if err := turn.Complete("booked"); err != nil {
									return err
								}
							}
							return end(ctx, tx)
						}, worker.Retry(*policy.ImmediateRetries(3)))
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

// The same in a transaction of a program, and behind a savepoint in one.
func TestOwnCommitInATransaction(t *testing.T) {
	for _, statements := range []string{
		"INSERT INTO booked VALUES ('lamp'); COMMIT",
		"INSERT INTO booked VALUES ('lamp'); COMMIT; BEGIN; INSERT INTO booked VALUES ('chair')",
		"INSERT INTO booked VALUES ('lamp'); COMMIT; BEGIN; SELECT 1/0",
	} {
		for _, nested := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, nested %t", statements, nested), func(t *testing.T) {
				f := booking(t)
				e := f.Engine
				if nested {
					tx := f.BeginTx(t)
					e = f.WithTx(tx)
				}
				err := e.InTx(t.Context(), func(tx pgx.Tx, _ *engine.Engine) error {
					_, err := tx.Exec(t.Context(), statements)
					return err
				})
				if !errors.Is(err, fferr.ErrInvalidInput) {
					t.Error(err)
				}
				wantInBooked(t, f, "lamp")
			})
		}
	}
}

// A function that ignores the error of a statement fails its transaction, as it does without the savepoint, and its connection
// stays. Within a transaction of the caller only the function's statements are undone.
func TestIgnoredErrorRollsBack(t *testing.T) {
	for _, nested := range []bool{false, true} {
		t.Run(fmt.Sprintf("nested %t", nested), func(t *testing.T) {
			f := booking(t)
			e, kept := f.Engine, []string(nil)
			var outer pgx.Tx
			if nested {
				outer, kept = f.BeginTx(t), []string{"chair"}
				if _, err := outer.Exec(t.Context(), "INSERT INTO booked VALUES ('chair')"); err != nil {
					t.Fatal(err)
				}
				e = f.WithTx(outer)
			}
			var conn *pgx.Conn
			err := e.InTx(t.Context(), func(tx pgx.Tx, _ *engine.Engine) error {
				conn = tx.Conn()
				_, _ = tx.Exec(t.Context(), "INSERT INTO booked VALUES ('lamp'); SELECT 1/0")
				return nil
			})
			if !errors.Is(err, pgx.ErrTxCommitRollback) || conn.IsClosed() {
				t.Errorf("closed %t, error %v", conn.IsClosed(), err)
			}
			if nested {
				if err := outer.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			wantInBooked(t, f, kept...)
		})
	}
}
