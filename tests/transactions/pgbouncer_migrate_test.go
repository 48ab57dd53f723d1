package transactions

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// More deployers at once than the pooler has connections: those that wait for the lock leave some to the one that has
// it, and no lock stays with a connection of the pooler's.
func TestPgBouncerMigrations(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		url := pgtest.EmptyDatabase(t)
		const deployers = 6
		type outcome struct {
			schema.Result
			error
		}
		done := make(chan outcome, deployers)
		for range deployers {
			pool := open(t, url)
			go func() {
				result, err := schema.Migrate(t.Context(), pool, schema.Options{Schema: "own"})
				done <- outcome{result, err}
			}()
		}
		applied := 0
		for range deployers {
			o := progress.Receive(t, "a deployer to end", done)
			if o.error != nil {
				t.Fatal(o.error)
			}
			if len(o.Applied) > 0 {
				applied++
			}
		}
		if applied != 1 {
			t.Errorf("%d of %d deployers applied migrations, want one", applied, deployers)
		}
		direct := fixture.OpenPool(t, url, nil)
		fixture.Await(t, "the locks to end", func() bool {
			var held int
			err := direct.QueryRow(t.Context(), `
				SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database
				WHERE locktype = 'advisory' AND datname = current_database()`).Scan(&held)
			return err == nil && held == 0
		})
		// Settings of a migration are not left on the pooler's connections.
		pool := open(t, url)
		for range 8 {
			var path string
			if err := pool.QueryRow(t.Context(), "SHOW search_path").Scan(&path); err != nil {
				t.Fatal(err)
			}
			if path != `"$user", public` {
				t.Errorf("a connection of the pooler's was left at the search_path %s", path)
			}
		}
		if _, err := schema.Rollback(t.Context(), pool, "", schema.Options{Schema: "own"}); err != nil {
			t.Error(err)
		}
	})
}
