package steps

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// If the answer to the commit of a turn is lost, or the commit, the turn has happened once, with its end.
func TestTurnCommitIsLost(t *testing.T) {
	for _, e := range turnEnds {
		for name, loss := range map[string]fixture.Loss{"answer": fixture.LosesAnswer, "commit": fixture.LosesCommit} {
			t.Run(e.name+", losing the "+name, func(t *testing.T) {
				f := fixture.NewCloned(t)
				pool := fixture.OpenPool(t, f.Url, fixture.Lossy)
				c := fixture.CrewOn(t, fixture.On(t, pool, f.Url), engine.Config{})
				p := newParts(t, c.Fixture)
				var calls atomic.Int32
				handleOrders(t, c, func(ctx context.Context, job orderJob) (string, error) {
					err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
						if err := p.write(ctx, tx, x, "lamp"); err != nil {
							return err
						}
						if calls.Add(1) == 1 {
							fixture.Lose(tx, loss)
						}
						return e.end(x)
					})
					return afterTurn(ctx, job, err, e.settled)
				})
				wantDone(t, c, p, c.Create(t, retrying), e.settled)
				p.wantParts(t, "lamp")
				// If the commit took effect, the worker may hear of the end of its lease before it calls again.
				if n := calls.Load(); n > 2 || n < 2 && loss == fixture.LosesCommit {
					t.Errorf("%d calls", n)
				}
			})
		}
	}
}
