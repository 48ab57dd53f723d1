// Package pgtest gives tests a Postgres: one server for all test binaries of a run (see internal/pgserver), and
// databases with the library's schema.
//
// Most tests share one database and keep apart by fresh ids: [Pool], [URL]. A test of a whole database takes one of its
// own: [Clone], [CloneURL], or [EmptyDatabase] without the schema. A test without a server fails. With
// FF_TEST_REFERENCE the databases are converted from one FlowFabric made instead of migrated.
package pgtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Pools are small, because every test binary of a run has its own on the one server.
const (
	sharedPoolSize = 16
	clonePoolSize  = 10
)

// current is this test binary's part of the run, until the end of the process.
var current = sync.OnceValues(func() (*run, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // an image may have to be pulled
	defer cancel()
	return startRun(ctx)
})

func currentRun(t testing.TB) *run {
	t.Helper()
	r, err := current()
	if err != nil {
		t.Fatalf("no Postgres for the tests: %v", err)
	}
	r.announce.Do(func() { t.Log(r.server.Source()) })
	return r
}

// Pool returns the pool of the migrated database the tests of a run share; a test does not close it. The first test
// binary to use the database finds it empty.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return currentRun(t).pool
}

// URL returns the URL of the database of [Pool].
func URL(t testing.TB) string {
	t.Helper()
	return currentRun(t).databaseURL(currentRun(t).shared())
}

// Clone returns a pool on a new migrated database, which is dropped when t ends.
func Clone(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := newPool(t.Context(), CloneURL(t), clonePoolSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// CloneURL returns the URL of a new migrated database. The end of t drops the database and ends its sessions.
func CloneURL(t testing.TB) string {
	t.Helper()
	return currentRun(t).createDatabase(t, currentRun(t).template())
}

// EmptyDatabase returns the URL of a new database without a schema, which is dropped as one of [CloneURL] is.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return currentRun(t).createDatabase(t, "template0")
}

func (r *run) createDatabase(t testing.TB, template string) string {
	t.Helper()
	name, err := r.create(t.Context(), template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.drop(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return r.databaseURL(name)
}

func newPool(ctx context.Context, databaseURL string, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = size
	return pgxpool.NewWithConfig(ctx, config)
}
