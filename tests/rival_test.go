package tests

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
)

// rival is another process on the fixture's database, whose statements can be seen waiting.
type rival struct {
	*engine.Engine
	name string
	pool *pgxpool.Pool
}

func (f *fixture) rival(t *testing.T, change ...func(*pgxpool.Config)) *rival {
	t.Helper()
	name := "rival-" + id.NewLeaseID().String()
	pool := openPool(t, f.url, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["application_name"] = name
		for _, c := range change {
			c(config)
		}
	})
	return &rival{Engine: f.engineOn(t, pool, engine.Config{}), name: name, pool: pool}
}

// awaitBlocked returns once a statement of the rival's waits for a lock.
func (r *rival) awaitBlocked(t *testing.T, f *fixture) {
	t.Helper()
	r.awaitSessions(t, f, 1)
}

// awaitBlockedOr returns once a statement of the rival's waits for a lock, or the operation has returned: one that waits
// for 50 ms has given up before a busy machine looks.
func (r *rival) awaitBlockedOr(t *testing.T, f *fixture, returned func() bool) {
	t.Helper()
	await(t, r.name+" to wait for a lock or to return", func() bool { return returned() || r.blocked(t, f) == 1 })
}

// awaitSessions returns once n sessions of the rival's wait for locks.
func (r *rival) awaitSessions(t *testing.T, f *fixture, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d sessions of %s to wait for a lock", n, r.name), func() bool { return r.blocked(t, f) == n })
}

// blocked is how many sessions of the rival's wait for locks.
func (r *rival) blocked(t *testing.T, f *fixture) int {
	t.Helper()
	return len(texts(t, f.pool, `
		SELECT pid::text FROM pg_stat_activity
		WHERE application_name = $1 AND wait_event_type = 'Lock'`, r.name))
}

// kill ends the rival's connections that wait for a lock.
func (r *rival) kill(t *testing.T, f *fixture) {
	t.Helper()
	f.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = $1 AND wait_event_type = 'Lock'`, r.name)
}

// await polls until happened. What takes many steps is awaited by [progress.Wait].
func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	progress.Until(t, what, happened)
}

// async runs an operation beside the test and returns a function that waits for its result.
func async[T any](t *testing.T, operation func(context.Context) T) func() T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- operation(t.Context()) }()
	return func() T {
		t.Helper()
		return progress.Receive(t, "an operation to end", done)
	}
}

// watched is [async] with a function that says whether the operation has returned.
func watched[T any](t *testing.T, operation func(context.Context) T) (returned func() bool, wait func() T) {
	t.Helper()
	var over atomic.Bool
	return over.Load, async(t, func(ctx context.Context) T {
		defer over.Store(true)
		return operation(ctx)
	})
}

// begin starts a transaction that ends with the test at the latest.
func (f *fixture) begin(t *testing.T) pgx.Tx {
	t.Helper()
	return beginWith(t, f.pool, pgx.TxOptions{})
}

func beginWith(t *testing.T, pool *pgxpool.Pool, options pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lockExecution and lockAttempt hold a row, as any program that is about to change it does.
func lockExecution(t *testing.T, tx pgx.Tx, x id.ExecutionID) {
	t.Helper()
	execIn(t, tx, "SELECT FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", x.Partition(), x.UUID())
}

func lockAttempt(t *testing.T, tx pgx.Tx, x id.ExecutionID, index int32) {
	t.Helper()
	execIn(t, tx, "SELECT FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2 AND attempt_index = $3 FOR UPDATE",
		x.Partition(), x.UUID(), index)
}

func execIn(t *testing.T, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	handmade.note(tx.Conn().Config().Database, sql, args)
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
