package fftest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/worker"
)

// docs/testing.md: triggers, ffx_signal and other engines on kit.URL see the kit's clock. A signal that comes after the timeout
// of a wait doesn't end it, although no scan has seen the timeout yet. W10.
func TestSignalsOfOthersComeAtTheKitsTime(t *testing.T) {
	t.Parallel()
	ask := engine.Kind[string, string]{Name: "ask"}
	answered := engine.Signal[string]{Name: "answered"}
	for name, send := range map[string]func(kit *fftest.Kit, created engine.Created) error{
		"ffx_signal": func(kit *fftest.Kit, created engine.Created) error {
			_, err := kit.Pool.Exec(t.Context(), "SELECT ffx_signal($1, 'answered', '\"yes\"')", created.ID.String())
			return err
		},
		"another engine": func(kit *fftest.Kit, created engine.Created) error {
			pool, err := pgxpool.New(t.Context(), kit.URL)
			if err != nil {
				return err
			}
			defer pool.Close()
			eng, err := engine.New(pool, engine.Config{})
			if err != nil {
				return err
			}
			defer eng.Flush()
			return answered.Send(t.Context(), eng, created.ID, "yes")
		},
	} {
		for at, want := range map[time.Duration]string{59 * time.Minute: "yes", 61 * time.Minute: "late"} {
			t.Run(name+" after "+at.String(), func(t *testing.T) {
				t.Parallel()
				kit := fftest.New(t, fftest.StartAt(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)))
				worker.Handle(kit.Worker, ask, func(ctx context.Context, job worker.Job[string]) (string, error) {
					answer, err := answered.Await(ctx, job, engine.Wait{Timeout: time.Hour})
					if errors.Is(err, fferr.ErrWaitTimeout) {
						return "late", nil
					}
					return answer, err
				})
				created := fftest.Create(kit, ask, "?")
				kit.Drain()
				kit.Advance(at)
				if err := send(kit, created); err != nil {
					t.Fatal(err)
				}
				kit.Drain()
				fftest.RequireResult(t, kit, ask, created.ID, want)
			})
		}
	}
}

// The clock of the server is read by the functions that the kit replaces, and by no other, except for ids. W10.
func TestFunctionsReadTheKitsClock(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	rows, err := kit.Pool.Query(t.Context(), `
		SELECT p.proname
		FROM pg_proc AS p
		WHERE
			p.pronamespace = 'public'::regnamespace
			AND p.prosrc ~* '(clock_timestamp|statement_timestamp|transaction_timestamp|now) *[(][)]|current_timestamp|localtimestamp'
			AND p.proname <> 'ffx_new_id'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s reads the clock of the server", name)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
}
