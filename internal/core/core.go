// Package core has the parts shared by several packages of this library: transactions and the notifications after their
// commit, locks of flows, and the resolution of dependencies when an execution ends. Each engine has a [Core].
package core

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/observe"
)

const (
	// MaxStatementBytes is the approximate limit for caller data in one statement. A server accepts no message above a
	// gigabyte, and both sides buffer a message whole. A single item may be larger.
	MaxStatementBytes = 16 << 20

	// MaxBatch is the largest number of items of a batch, and of rows written by one statement of a background job.
	MaxBatch = 1_000

	// MaxFlowsPerTx limits the flows locked by one transaction. Each uses a slot of the server's lock table.
	MaxFlowsPerTx = 256
)

// Config is the core's part of an engine's configuration.
type Config struct {
	Partitions id.Partitions
	Namespace  id.Namespace
	Listener   *pgxpool.Config  // nil: as the pool
	NoListener bool             // without a connection
	Now        func() time.Time // nil: the database's clock
	Log        *slog.Logger

	Retention, OutboxRetention time.Duration
	Streams                    StreamLimits
	UnsignedResumeGrants       bool // accepted

	Observer observe.Observer // may be nil
}

// Core runs statements and transactions on a pool, or in a caller's transaction. Values bound to a transaction or to
// another pool share the caches and channels of the first.
type Core struct {
	Q          *db.Queries
	Pool       *pgxpool.Pool
	Tx         pgx.Tx      // nil on a pool
	Runner     pgtx.Runner // begins the transactions on the pool
	Partitions id.Partitions
	Namespace  id.Namespace // the default
	Log        *slog.Logger
	Now        func() time.Time // nil: the database's clock

	Retention, OutboxRetention time.Duration // defaults for executions and events
	Streams                    StreamLimits
	UnsignedResumeGrants       bool // accepts resume grants of other programs

	Observer observe.Observer // nil: nothing is observed

	*Notifying
	Keys     *KeyCache
	Leases   *LeaseMemory
	Written  *WrittenStreams
	Breaches *Breaches
	Limits   *KnownLimits

	memories *memories
	creator  func(*Core) any // a [Creator]
	snapshot func(id.ExecutionID, *db.GetExecutionRow) (any, error)
}

// New returns a core on a pool.
func New(pool *pgxpool.Pool, cfg Config) *Core {
	c := &Core{
		Q:                    db.New(),
		Pool:                 pool,
		Runner:               pgtx.NewRunner(pool),
		Partitions:           cfg.Partitions,
		Namespace:            cfg.Namespace,
		Log:                  cfg.Log,
		Now:                  cfg.Now,
		UnsignedResumeGrants: cfg.UnsignedResumeGrants,
		Observer:             cfg.Observer,
		Notifying:            newNotifying(pool, cfg),
		Keys:                 &KeyCache{},
		Leases:               &LeaseMemory{},
		Written:              &WrittenStreams{},
		Breaches:             &Breaches{},
		Limits:               &KnownLimits{},
		Retention:            cfg.Retention, OutboxRetention: cfg.OutboxRetention,
		Streams:  cfg.Streams,
		memories: &memories{},
	}
	c.memories.base = c
	return c
}

// WithTx returns the core bound to a caller's transaction, in which every operation is refused if tx is nil.
func (c *Core) WithTx(tx pgx.Tx) *Core {
	bound := *c
	if bound.Tx = tx; pgtx.IsNil(tx) {
		bound.Tx = pgtx.Refused(Invalid("WithTx", "got a nil transaction"))
	}
	return &bound
}

// WithPool returns the core bound to another pool on the same database. Every operation is refused if pool is nil.
func (c *Core) WithPool(pool *pgxpool.Pool) *Core {
	bound := *c
	bound.Pool, bound.Tx, bound.Runner = pool, nil, c.Runner.On(pool)
	if pool == nil {
		bound.Tx = pgtx.Refused(Invalid("WithPool", "got a nil pool"))
	}
	return &bound
}

// ShortWait returns c for transactions that must not wait. A lock held for longer than a concurrent commit takes ends a
// transaction with [fferr.ErrBusy], without a retry. For rows that are often locked, operations use statements that
// skip locked ones. In a caller's transaction, the caller's lock_timeout applies.
func (c *Core) ShortWait() *Core {
	shortWait := *c
	shortWait.Runner = c.Runner.ShortWait()
	return &shortWait
}

// NowMs returns the fixed time of a test, or nil for the database's clock.
func (c *Core) NowMs() *int64 {
	if c.Now == nil {
		return nil
	}
	return new(c.Now().UnixMilli())
}

// Reader returns the connection for statements without locks and writes. Reads need the engine's planner settings too:
// with statistics of other flows only, a partition looks empty and an index on the partition alone looks selective
// enough.
func (c *Core) Reader() db.DBTX {
	if c.Tx != nil {
		return pgtx.Callers(c.Tx)
	}
	return c.Runner.AtOnce()
}

// ProcessTime returns the time of this process, or the fixed time of a test. Use ProcessTime for the ages of cached
// entries.
func (c *Core) ProcessTime() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// Read runs several statements without locks and writes, in one round trip. See [Core.Reader].
func (c *Core) Read(ctx context.Context, steps ...Step) error {
	if c.Tx != nil {
		return pgtx.ReadInCallers(ctx, c.Tx, steps...)
	}
	return c.Runner.AllAtOnce(ctx, steps...)
}

// ReadAgain calls read and retries it if the connection was cut. All idle connections may have been cut, and each try
// meets one, so it tries once more often than the pool has connections.
func ReadAgain[T any](c *Core, read func() (T, error)) (T, error) {
	for left := c.Pool.Config().MaxConns; ; left-- {
		result, err := read()
		if left == 0 || !pgtx.IsCut(err) || fferr.Known(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return result, err
		}
	}
}

// PlannedAnew returns the connection for statements issued regularly, with or without work. Each statement is one
// message without transaction settings, and is planned every time for the present tables. With engine.Config.Now the
// tables are a test's and small, and statements are planned once.
func (c *Core) PlannedAnew() db.DBTX {
	if c.Now != nil && c.Tx == nil {
		return c.Runner.Plain()
	}
	if c.Tx != nil {
		return plannedAnew{c.Tx}
	}
	return plannedAnew{c.Runner.Plain()}
}

type plannedAnew struct{ db.DBTX }

func (c plannedAnew) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.DBTX.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}
