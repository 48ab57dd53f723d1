package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/schema"
)

// exists reports whether the server has the database.
func (r *run) exists(t *testing.T, name string) bool {
	t.Helper()
	var exists bool
	err := r.admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil {
		t.Fatal(err)
	}
	return exists
}

func databaseOf(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var name string
	if err := pool.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPoolIsMigratedAndShared(t *testing.T) {
	t.Parallel()
	if err := schema.Check(t.Context(), Pool(t), schema.Options{}); err != nil {
		t.Error(err)
	}
	first := Pool(t)
	if second := Pool(t); second != first {
		t.Error("two pools")
	}
	conn, err := pgx.Connect(t.Context(), URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if got, want := conn.Config().Database, databaseOf(t, Pool(t)); got != want {
		t.Errorf("URL names database %s, the pool's is %s", got, want)
	}
}

func TestCloneIsMigratedOwnAndDropped(t *testing.T) {
	t.Parallel()
	var names []string
	t.Run("inner", func(t *testing.T) {
		for range 2 {
			pool := Clone(t)
			if err := schema.Check(t.Context(), pool, schema.Options{}); err != nil {
				t.Error(err)
			}
			if _, err := pool.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
				t.Error(err)
			}
			names = append(names, databaseOf(t, pool))
			if _, err := pgx.Connect(context.Background(), CloneURL(t)); err != nil { // left open
				t.Error(err)
			}
		}
	})
	for _, name := range names {
		if currentRun(t).exists(t, name) {
			t.Errorf("database %s was not dropped", name)
		}
	}
}

// A clone is copied from the template, which is faster than to migrate it: a copy has the numbers of the template's objects.
func TestCloneIsACopy(t *testing.T) {
	t.Parallel()
	number := func(pool *pgxpool.Pool) (oid uint32) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT 'ff_exec_core'::regclass::oid").Scan(&oid); err != nil {
			t.Fatal(err)
		}
		return oid
	}
	migrated := EmptyDatabase(t)
	if _, err := schema.Migrate(t.Context(), migrated, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	pool, err := newPool(t.Context(), migrated, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if first, second := number(Clone(t)), number(Clone(t)); first != second || first == number(pool) {
		t.Errorf("two clones have the table as %d and %d, a database that was migrated by itself as %d", first, second, number(pool))
	}
}

func TestEmptyDatabaseCanBeMigrated(t *testing.T) {
	t.Parallel()
	url := EmptyDatabase(t)
	if _, err := schema.Migrate(t.Context(), url, schema.Options{}); err != nil {
		t.Error(err)
	}
}

// Another test binary of the run finds this one's databases, and drops those of a killed one.
func TestStartRunBesideAnother(t *testing.T) {
	t.Parallel()
	r := currentRun(t)
	killed := r.databaseName(randomKey(), "1")
	if err := r.clone(t.Context(), killed, "template0"); err != nil {
		t.Fatal(err)
	}
	mine, err := r.create(t.Context(), r.template())
	if err != nil {
		t.Fatal(err)
	}

	other, err := startRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		other.pool.Close()
		other.admin.Close()
		other.locks.Close(context.Background())
	})
	if got, want := databaseOf(t, other.pool), databaseOf(t, r.pool); got != want {
		t.Errorf("the other binary shares database %s, this one %s", got, want)
	}
	if r.exists(t, killed) {
		t.Errorf("database %s, which nobody uses, was not dropped", killed)
	}
	if !r.exists(t, mine) {
		t.Errorf("database %s, which this binary uses, was dropped", mine)
	}
	if err := r.drop(t.Context(), mine); err != nil {
		t.Error(err)
	}
}
