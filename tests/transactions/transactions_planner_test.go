package transactions

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// spoil gives a caller's transaction planner settings that no statement of the engine could do with.
func spoil(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), fixture.BadSettings, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// plannerSettings are those of a transaction that the engine may change.
func plannerSettings(t *testing.T, tx pgx.Tx) string {
	t.Helper()
	return fixture.Texts(t, tx, `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) || ' ' || coalesce(current_setting('ffx.callers_settings', true), '')
		FROM pg_settings
		WHERE name LIKE 'enable_%' OR name IN ('plan_cache_mode', 'jit', 'lock_timeout', 'statement_timeout', 'synchronous_commit', 'transaction_isolation')`)[0]
}

// In a caller's transaction the engine's statements run with the engine's planner settings, however the caller has set them,
// and the caller's hold again afterwards: after a success, a refusal, an error of the server, and a read.
func TestWithTxPlansByTheEnginesSettings(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			f := fixture.NewCloned(t)
			locked := f.Start(t)
			f.Exec(t, "CREATE TABLE seen (settings text)")
			f.Exec(t, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO seen SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
				WHERE name IN ('enable_nestloop', 'enable_indexscan', 'enable_indexonlyscan', 'enable_seqscan', 'enable_hashjoin',
					'enable_mergejoin', 'enable_bitmapscan', 'plan_cache_mode', 'jit');
				RETURN NULL;
			END $$`)
			f.Exec(t, "CREATE TRIGGER see AFTER INSERT OR UPDATE ON ff_exec_core FOR EACH STATEMENT EXECUTE FUNCTION see()")
			const want = "enable_bitmapscan=off enable_hashjoin=off enable_indexonlyscan=on enable_indexscan=on enable_mergejoin=off " +
				"enable_nestloop=on enable_seqscan=off jit=off plan_cache_mode=force_generic_plan"

			config := f.Pool.Config().ConnConfig
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.WithoutCancel(t.Context()))
			tx, err := conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, tx)
			before, bound := plannerSettings(t, tx), f.WithTx(tx)
			check := func(what string, err error, reason error) {
				t.Helper()
				if !errors.Is(err, reason) {
					t.Errorf("%s: got %v, want %v", what, err, reason)
				}
				if now := plannerSettings(t, tx); now != before {
					t.Errorf("%s: the caller's settings are %s, were %s", what, now, before)
				}
			}
			created, err := bound.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane})
			check("create", err, nil)
			claimed, err := bound.Claim(t.Context(), f.Worker(), 1)
			check("claim", err, nil)
			_, err = bound.DescribeExecution(t.Context(), created.ID)
			check("read", err, nil)
			_, err = bound.DescribeExecution(t.Context(), id.NewExecutionID(f.Lane, id.Partitions{}))
			check("read of nothing", err, fferr.ErrNotFound)
			for range bound.Executions(t.Context(), engine.ExecutionFilter{}) {
				break // before the listing has been read to its end
			}
			check("listing", nil, nil)
			stale := claimed[0].Lease
			stale.Epoch++
			check("refusal", bound.CompleteExecution(t.Context(), stale, nil), fferr.ErrStaleLease)
			check("completion", bound.CompleteExecution(t.Context(), claimed[0].Lease, nil), nil)

			// A batch waits for a moment, and the next call as long as the caller has set.
			holder := f.BeginTx(t)
			fixture.LockExecution(t, holder, locked.ID)
			outcomes, err := bound.CompleteExecutions(t.Context(), []engine.Completion{{Lease: locked.Lease}})
			check("completion of a locked one", errors.Join(append(outcomes, err)...), fferr.ErrBusy)
			outcomes, err = bound.CancelExecutions(t.Context(), []engine.CancelSpec{{ID: locked.ID}})
			check("cancel of a locked one", errors.Join(append(outcomes, err)...), fferr.ErrBusy)
			fixture.Commit(t, holder)
			outcomes, err = bound.CancelExecutions(t.Context(), []engine.CancelSpec{{ID: locked.ID}})
			check("cancel", errors.Join(append(outcomes, err)...), nil)

			seen := fixture.Texts(t, tx, "SELECT DISTINCT settings FROM seen")
			if len(seen) != 1 || seen[0] != want {
				t.Errorf("statements ran with %q, want %q", seen, want)
			}
			fixture.ExecIn(t, tx, "ALTER TABLE ff_lane_registry RENAME TO elsewhere")
			_, err = bound.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: "another", IdempotencyKey: "k"})
			if err == nil {
				t.Error("created without a registry of lanes")
			}
			check("error of the server", nil, nil)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
