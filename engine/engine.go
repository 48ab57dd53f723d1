package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/observe"
)

// Config configures an [Engine]. The zero value of every field selects the default.
type Config struct {
	// Partitions are the logical partition counts. Default: 256 for flows and executions, 32 for budgets and quotas. A
	// database keeps its first counts: [Engine.Prepare] refuses others.
	Partitions id.Partitions

	// Namespace applies to executions and flows without a namespace. Default "default".
	Namespace id.Namespace

	// MaxPayload is the largest payload or result in bytes. Default 1 MiB.
	MaxPayload int

	// Retention is how long ended executions are kept, unless their policy or lane says otherwise, and flows after their
	// last change. At least [policy.MinRetention], or [policy.KeepForever]. Default 168 h, a week. Use the same value in
	// every process of a database.
	Retention time.Duration

	// OutboxRetention is how long events are kept, including those of deleted executions. A reader absent for longer misses
	// the events up to the floor in [operator.Retention]. At least [policy.MinRetention], or [policy.KeepForever]. Default
	// 168 h, a week.
	OutboxRetention time.Duration

	// Listener configures the connection of [Engine.Listen]. If the pool connects to a transaction pooler, use the
	// server's own address here. Default nil: as the engine's pool.
	Listener *pgxpool.Config

	// NoListener limits [Engine.Listen] to notifications from this engine, without a connection.
	NoListener bool

	// UnsignedResumeGrants makes [interop.ClaimFromResumeGrant] accept unsigned grants, as some FlowFabric schedulers issue.
	// Any program with access to the engine can then forge one. Default: unsigned grants are refused.
	UnsignedResumeGrants bool

	// Middleware may change or refuse each execution before its creation, also a flow's node or a called execution, and
	// runs in this order. A repeated call runs the middleware again. Default: none.
	Middleware []Middleware

	// Streams configures the output streams of handlers.
	Streams StreamConfig

	// Observer observes creations, signals, claims, renewals and background jobs, for telemetry. A panic of it is logged.
	// Default nil: nothing is observed, at no cost.
	Observer observe.Observer

	// Log receives failures that no call can return, also from workers, background work and event readers. A repeated
	// failure is logged at Warn at most once a minute, otherwise at Debug. Payloads are never logged. Default:
	// [slog.Default] at the time of [New].
	Log *slog.Logger

	// Now replaces the database's clock in tests. Default nil.
	Now func() time.Time
}

// Defaults of [Config].
const (
	DefaultNamespace       id.Namespace = "default"
	DefaultMaxPayload                   = 1 << 20
	DefaultRetention                    = 7 * 24 * time.Hour
	DefaultOutboxRetention              = 7 * 24 * time.Hour
)

// Largest number of executions to create, and of leases to claim, renew or settle, in one transaction. Larger slices, or
// more than about 16 MiB of payloads, results or messages, are split into consecutive transactions. A larger claim is
// refused.
const (
	MaxCreate = 10_000
	MaxBatch  = 1_000
)

// Engine runs durable operations on one Postgres database. Every method is one transaction, or a part of the caller's on
// a value from [Engine.WithTx]. An Engine is safe for concurrent use unless bound to a transaction.
type Engine struct {
	handle
	c   *core.Core // the database, and the caller's transaction if there is one
	cfg Config

	*shared
}

// handle gives the packages of this library the core of an engine: see [core.Of].
type handle = core.Handle

// shared is the state common to an engine and the values bound to transactions.
type shared struct {
	creationMemory
	awaiting *awaiting
}

// WithTx returns the engine bound to the caller's transaction. Operations become part of tx, each behind a savepoint, so
// a refusal leaves tx usable. Operations run at tx's isolation level, are never retried and don't notify workers: call
// [Engine.Wake] after the commit, or workers find new work at their next poll. [Engine.InTx] also commits and notifies.
//
// An open transaction delays the event readers of every outbox it wrote to. If tx is nil, every operation of the returned
// engine is refused with [fferr.ErrInvalidInput].
func (e *Engine) WithTx(tx pgx.Tx) *Engine { return e.on(e.c.WithTx(tx)) }

// Pool returns the engine's pool.
func (e *Engine) Pool() *pgxpool.Pool { return e.c.Pool }

// WithPool returns the engine bound to another pool on the same database, for operations that must not wait for other
// users of a pool. The caller opens and closes the pool. Notifications are still sent on the pool given to [New].
//
// If pool is nil, every operation of the returned engine is refused with [fferr.ErrInvalidInput].
func (e *Engine) WithPool(pool *pgxpool.Pool) *Engine { return e.on(e.c.WithPool(pool)) }

// shortWait returns e for transactions that must not wait: see [core.Core.ShortWait].
func (e *Engine) shortWait() *Engine { return e.on(e.c.ShortWait()) }

func (e *Engine) on(c *core.Core) *Engine {
	bound := *e
	bound.handle, bound.c = core.NewHandle(c), c
	return &bound
}

// Now returns the database's time.
func (e *Engine) Now(ctx context.Context) (time.Time, error) {
	ms, err := e.c.Q.GetNow(ctx, e.c.Reader(), e.c.NowMs())
	if err != nil {
		return time.Time{}, core.Wrap("read clock", err)
	}
	return time.UnixMilli(ms), nil
}
