package schema_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/schema"
)

// deployer is the operations on one of the forms of a database.
type deployer struct {
	migrate  func(context.Context, schema.Options) (schema.Result, error)
	plan     func(context.Context, schema.Options) (schema.Result, error)
	adopt    func(context.Context, schema.Options) (schema.Result, error)
	rollback func(context.Context, string, schema.Options) (schema.Result, error)
	status   func(context.Context, schema.Options) (schema.State, error)
}

func deployerOn[D schema.Database](database D) deployer {
	return deployer{
		migrate: func(ctx context.Context, opts schema.Options) (schema.Result, error) {
			return schema.Migrate(ctx, database, opts)
		},
		plan: func(ctx context.Context, opts schema.Options) (schema.Result, error) {
			return schema.Plan(ctx, database, opts)
		},
		adopt: func(ctx context.Context, opts schema.Options) (schema.Result, error) {
			return adoptAs(ctx, database, opts)
		},
		rollback: func(ctx context.Context, to string, opts schema.Options) (schema.Result, error) {
			return schema.Rollback(ctx, database, to, opts)
		},
		status: func(ctx context.Context, opts schema.Options) (schema.State, error) {
			return schema.Status(ctx, database, opts)
		},
	}
}

// poolOfOne has a single connection: a caller that takes two waits for ever.
func poolOfOne(t *testing.T, databaseURL string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

var forms = map[string]func(t *testing.T, databaseURL string) deployer{
	"pool": func(t *testing.T, databaseURL string) deployer { return deployerOn(poolOfOne(t, databaseURL)) },
	"connection of a pool": func(t *testing.T, databaseURL string) deployer {
		conn, err := poolOfOne(t, databaseURL).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
		return deployerOn(conn)
	},
	"connection": func(t *testing.T, databaseURL string) deployer { return deployerOn(connect(t, databaseURL)) },
	"URL":        func(_ *testing.T, databaseURL string) deployer { return deployerOn(databaseURL) },
}

func TestDatabaseFormsAreEquivalent(t *testing.T) {
	t.Parallel()
	for name, open := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databaseURL := pgtest.EmptyDatabase(t)
			d, conn := open(t, databaseURL), connect(t, databaseURL)
			for _, opts := range []schema.Options{{}, {Schema: `Second "one"`}} {
				plan, err := d.plan(t.Context(), opts)
				if err != nil || plan.To != schema.Version || len(plan.Applied) == 0 {
					t.Fatalf("plan: %+v, %v", plan, err)
				}
				if state, err := d.status(t.Context(), opts); err != nil || state.Origin != schema.OriginNone || !errors.Is(state.Err, fferr.ErrNotMigrated) {
					t.Fatalf("status after the plan: %+v, %v, want an empty schema", state, err)
				}
				result, err := d.migrate(t.Context(), opts)
				if err != nil || result.To != schema.Version || !slices.Equal(result.Applied, plan.Applied) {
					t.Fatalf("migrate: %+v, %v, planned was %+v", result, err, plan)
				}
				if err := schema.Check(t.Context(), conn, opts); err != nil {
					t.Error(err)
				}
				if plan, err := d.plan(t.Context(), opts); err != nil || len(plan.Applied) != 0 || plan.From != schema.Version {
					t.Errorf("a second plan: %+v, %v", plan, err)
				}
			}
			if _, err := d.rollback(t.Context(), "", schema.Options{}); err != nil {
				t.Fatal(err)
			}
			if left := catalog(t, conn); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
			if err := schema.Check(t.Context(), conn, schema.Options{Schema: `Second "one"`}); err != nil {
				t.Error(err)
			}
			if _, err := d.adopt(t.Context(), schema.Options{}); !errors.Is(err, fferr.ErrNotMigrated) {
				t.Errorf("adopt: %v, want ErrNotMigrated", err)
			}
		})
	}
}

// A pool's next user, and the user of a connection, find it as they left it.
func TestDatabaseConnectionIsRestored(t *testing.T) {
	t.Parallel()
	const sessionState = `
		SELECT concat_ws(
			' ', current_setting('search_path'), current_setting('lock_timeout'), current_setting('statement_timeout'),
			current_setting('citus.enable_ddl_propagation', true), pg_backend_pid(),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')
		)`
	for name, spoil := range map[string]string{
		"done":   "",
		"failed": "CREATE TABLE ffx_ready ()", // in the way of a migration
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databaseURL := pgtest.EmptyDatabase(t)
			exec(t, connect(t, databaseURL), "CREATE SCHEMA mine;"+spoil)
			pool := poolOfOne(t, databaseURL)
			exec(t, pool, "SET search_path = public, mine; SET lock_timeout = '7s'; SET statement_timeout = '70s'; SET citus.enable_ddl_propagation = on")
			before := scalar[string](t, pool, sessionState)
			if _, err := schema.Migrate(t.Context(), pool, schema.Options{}); (err != nil) != (spoil != "") {
				t.Fatal(err)
			}
			if _, err := schema.Rollback(t.Context(), pool, "20261101000004", schema.Options{}); err != nil {
				t.Fatal(err)
			}
			if _, err := schema.Status(t.Context(), pool, schema.Options{Schema: "mine"}); err != nil {
				t.Fatal(err)
			}
			if after := scalar[string](t, pool, sessionState); after != before {
				t.Errorf("the pool's connection is now %q, and was %q", after, before)
			}
			if n := pool.Stat().NewConnsCount(); n != 1 {
				t.Errorf("the pool opened %d connections", n)
			}
		})
	}
}

func TestDatabaseRefusesAnOpenTransaction(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	conn := connect(t, databaseURL)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err == nil || !strings.Contains(err.Error(), "in a transaction") {
		t.Errorf("%v, want an error that says so", err)
	}
	if state, err := schema.Status(t.Context(), conn, schema.Options{}); err != nil || state.Err != nil {
		t.Errorf("Status: %v, %v", state.Err, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// The connection for the lock is made as the pool makes its own: where a password changes, it is the hook that knows.
func TestDatabaseConnectsLikeThePool(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	database := config.ConnConfig.Database
	config.ConnConfig.Database = "there_is_no_such_database"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.Database = database
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := schema.Migrate(t.Context(), pool, schema.Options{}); err != nil {
		t.Error(err)
	}
}

// M27: two concurrent deployers, with any options: the second waits for the first, and finds nothing left to do.
func TestSecondDeployerWaitsForTheFirst_M27(t *testing.T) {
	t.Parallel()
	type outcome struct {
		schema.Result
		error
	}
	names := slices.Sorted(maps.Keys(forms))
	for i, first := range names {
		for _, second := range []string{first, names[(i+1)%len(names)]} {
			openFirst, openSecond := forms[first], forms[second]
			t.Run(fmt.Sprintf("%s, then %s", first, second), func(t *testing.T) {
				t.Parallel()
				databaseURL := pgtest.CloneURL(t)
				observer := connect(t, databaseURL)
				state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
				if err != nil {
					t.Fatal(err)
				}
				last := state.Migrations[len(state.Migrations)-2:]
				if _, err := schema.Rollback(t.Context(), databaseURL, last[0].Version, schema.Options{}); err != nil {
					t.Fatal(err)
				}
				// The first one gets as far as the ledger, which is locked, and tries again.
				exec(t, observer, "BEGIN; LOCK TABLE ffx_schema_migrations IN SHARE MODE")
				start := func(d deployer, log *slog.Logger) <-chan outcome {
					done := make(chan outcome, 1)
					go func() {
						result, err := d.migrate(t.Context(), schema.Options{Log: log})
						done <- outcome{result, err}
					}()
					return done
				}
				tries := make(logged, 1)
				firstDone := start(openFirst(t, databaseURL), slog.New(tries))
				select {
				case <-tries:
				case o := <-firstDone:
					t.Fatalf("the first one did not come to the ledger: %+v", o)
				}
				// The lock over the whole call is the one that a starting FlowFabric server takes for its session.
				if scalar[bool](t, connect(t, databaseURL), "SELECT pg_try_advisory_lock($1)", flowFabricsLock(t, observer)) {
					t.Fatal("FlowFabric's migrator would not wait")
				}
				secondDone := start(openSecond(t, databaseURL), nil)
				waitFor(t, connect(t, databaseURL), migratorWaits)
				exec(t, observer, "COMMIT")
				a, b := <-firstDone, <-secondDone
				if a.error != nil || b.error != nil {
					t.Fatal(a.error, b.error)
				}
				if !slices.Equal(a.Applied, []string{last[1].Name}) || len(b.Applied) != 0 || b.To != schema.Version {
					t.Errorf("the first applied %q, the second %q", a.Applied, b.Applied)
				}
				// The server ends the locks with the connections, a moment after these said goodbye.
				waitFor(t, observer, "SELECT NOT EXISTS (SELECT FROM pg_locks JOIN pg_database AS d ON d.oid = database WHERE locktype = 'advisory' AND datname = current_database())")
			})
		}
	}
}

// Many callers on one small pool: a caller that waits for the lock holds no connection of the pool that the working
// one needs.
func TestDeployersShareAPoolOfOne_M27(t *testing.T) {
	t.Parallel()
	pool := poolOfOne(t, pgtest.EmptyDatabase(t))
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			_, err := schema.Migrate(t.Context(), pool, schema.Options{})
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := progress.Receive(t, "a deployer to end", errs); err != nil {
			t.Error(err)
		}
	}
}

// Whose lock is gone does not go on: another deployer may be at work.
func TestMigrateStopsWhenItsLockIsLost(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	observer := connect(t, databaseURL)
	if _, err := schema.Rollback(t.Context(), databaseURL, "20261125000012", schema.Options{}); err != nil {
		t.Fatal(err)
	}
	exec(t, observer, "BEGIN; LOCK TABLE ffx_schema_migrations IN SHARE MODE")
	tries := make(logged, 1)
	done := make(chan error, 1)
	go func() {
		_, err := schema.Migrate(t.Context(), databaseURL, schema.Options{Log: slog.New(tries)})
		done <- err
	}()
	<-tries
	cut := scalar[int](t, connect(t, databaseURL), `
		SELECT count(pg_terminate_backend(pid))
		FROM pg_locks JOIN pg_database AS d ON d.oid = database
		WHERE locktype = 'advisory' AND datname = current_database()`)
	// The observer keeps the table until Migrate has returned: a try that began before the lock was lost could succeed.
	err := progress.Receive(t, "Migrate to stop", done)
	exec(t, observer, "COMMIT")
	if cut != 1 || err == nil || !strings.Contains(err.Error(), "migration lock is lost") {
		t.Errorf("%d connections cut, and Migrate returned %v", cut, err)
	}
	if state, err := schema.Status(t.Context(), databaseURL, schema.Options{}); err != nil || state.Version != "20261125000012" {
		t.Errorf("it went on to %s, %v", state.Version, err)
	}
}
