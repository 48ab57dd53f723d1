package workers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler that completes its execution together with its effects has them once: its later return value is ignored,
// and the commit wakes the worker of the executions that the completion releases.
func TestJobCompletesInTheHandlersTransaction(t *testing.T) {
	c := fixture.NewCrew(t)
	cfg := fixture.Alone
	cfg.PollInterval = time.Hour                      // it is notified of the second one, or not at all
	c.Exec(t, "CREATE SCHEMA IF NOT EXISTS handlers") // other tests compare the tables of the library's schema
	c.Exec(t, "CREATE TABLE IF NOT EXISTS handlers.completed_by_handlers (execution uuid, mistake text)")
	c.Work(t, cfg, func(w *worker.Worker) {
		fixture.HandleKind(w, "area", func(ctx context.Context, job worker.Job[fixture.SideArgs]) (fixture.AreaResult, error) {
			out := fixture.AreaResult{Area: job.Args.Side * job.Args.Side}
			return fixture.AreaResult{Area: -1}, c.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
				mistake := job.Complete(ctx, tx, "49")
				if _, err := tx.Exec(ctx, "INSERT INTO handlers.completed_by_handlers VALUES ($1, $2)", job.ID.UUID(), mistake.Error()); err != nil {
					return err
				}
				if job.Args.Side == 7 {
					next := engine.ExecutionSpec{Kind: "area", Lane: c.Lane, Payload: []byte(`{"Side": 2}`)}
					if _, err := eng.CreateExecution(ctx, next); err != nil {
						return err
					}
				}
				return job.Complete(ctx, tx, out)
			})
		})
	})
	x := c.Create(t, func(s *engine.ExecutionSpec) { s.Kind, s.Payload = "area", []byte(`{"Side": 7}`) })
	first, second := c.Next(t, 1)[0], c.Next(t, 1)[0]
	if first.ID != x || first.Settlement != worker.Completed || second.Settlement != worker.Completed {
		t.Errorf("settled as %+v and %+v", first, second)
	}
	for x, want := range map[id.ExecutionID]string{x: `{"Area":49}`, second.ID: `{"Area":4}`} {
		if result := c.Stored(t, x).Result; string(result) != want {
			t.Errorf("result %s, want %s", result, want)
		}
	}
	c.WantEvents(t, x, "lease acquired", "lease revoked backend", "completion success")
	mistakes := fixture.Texts(t, c.Pool, "SELECT mistake FROM handlers.completed_by_handlers WHERE execution = $1", x.UUID())
	const want = "complete execution: invalid input: out: is a string, but results of area have the type fixture.AreaResult"
	if len(mistakes) != 1 || mistakes[0] != want {
		t.Errorf("effects %q, want one with the refusal %q", mistakes, want)
	}
	var none worker.Job[string]
	if err := none.Complete(t.Context(), nil, ""); err == nil || errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a job that no worker made: %v", err)
	}
}
