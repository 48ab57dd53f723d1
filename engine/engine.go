package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// Config configures an [Engine]. The zero value of every field selects its documented default.
type Config struct {
	// Partitions are the logical partition counts: 256 for flows and executions, which are part of every id, and 32 for
	// budgets and quotas. A database keeps the counts it started with: [Engine.Prepare] refuses others.
	Partitions id.Partitions

	// Namespace applies to executions and flows that name none. Default "default".
	Namespace id.Namespace

	// MaxPayload is the largest payload or result in bytes. Default 1 MiB.
	MaxPayload int

	// Retention is how long ended executions are kept unless their policy or lane says otherwise, and flows after their
	// last change. At least [policy.MinRetention], or [policy.KeepForever]. Default 168 h, a week. The job retain
	// and the job purge_flows apply it: use the same value in every process of a database.
	Retention time.Duration

	// OutboxRetention is how long events are kept, including those of deleted executions. A reader of events that was
	// away for longer has missed those up to the floor that [operator.Retention] returns. At least
	// [policy.MinRetention], or [policy.KeepForever]. Default 168 h, a week. The job trim_outboxes applies it.
	OutboxRetention time.Duration

	// Listener configures the connection of [Engine.Listen], as a pool's connection. If the pool connects to a
	// transaction pooler, use the server's own address here. Default nil: as the engine's pool.
	Listener *pgxpool.Config

	// NoListener limits [Engine.Listen] to notifications from this engine, without a connection.
	NoListener bool

	// UnsignedResumeGrants makes [interop.ClaimFromResumeGrant] accept grants whose keys this library did not make and
	// can't verify. Any program that reaches the engine can then forge one. It is for FlowFabric schedulers that issue
	// such grants. Default: they are refused.
	UnsignedResumeGrants bool

	// Middleware sees each execution before it is created, in this order, and may change or refuse it: single ones, many,
	// nodes of flows, and those that steps call. It runs once for each, before the engine's transaction; a repeated call
	// runs it again. Default: none.
	Middleware []Middleware

	// Streams configures the output streams of handlers.
	Streams StreamConfig

	// Log receives failures that no call can return: notifications that could not be sent, a listener that reconnects,
	// a database newer than the engine. Workers, background work and event readers log here too. A repeated failure is
	// logged at Warn at most once a minute, otherwise at Debug. Payloads are never logged. Default: [slog.Default] at
	// the time of [New]. slog.New(slog.DiscardHandler) logs nothing.
	Log *slog.Logger

	// Now replaces the database's clock in tests. Default nil: all time is the database's.
	Now func() time.Time
}

// Defaults of [Config].
const (
	DefaultNamespace       id.Namespace = "default"
	DefaultMaxPayload                   = 1 << 20
	DefaultRetention                    = 7 * 24 * time.Hour
	DefaultOutboxRetention              = 7 * 24 * time.Hour
)

// Largest number of executions to create, and of leases to claim, renew or settle, in one transaction. Larger slices
// are split into consecutive transactions, as are those with more than about 16 MiB of payloads, results or messages. A
// larger claim is refused.
const (
	MaxCreate = 10_000
	MaxBatch  = 1_000
)

// Engine runs durable operations on one Postgres database. Every method is one transaction, or a part of the caller's
// on a value from [Engine.WithTx]. An Engine is safe for concurrent use, but a value bound to a transaction is not.
type Engine struct {
	handle
	c   *core.Core // the database, and the transaction that e is bound to
	cfg Config

	*shared
}

// handle gives the packages of this library the core of an engine: see [core.Of].
type handle = core.Handle

// shared is the state that an engine and the values bound to transactions have in common: the memories of the families.
type shared struct {
	outboxes *outbox.Hub
	creationMemory
	awaiting *awaiting
}

// WithTx returns the engine bound to the caller's transaction. Its operations become part of tx, each behind a
// savepoint, so that a refusal leaves tx usable. They run at tx's isolation level, are never retried and wake no
// worker: call [Engine.Wake] after the commit for the lanes with new work, or workers find it at their next poll.
// [Engine.InTx] begins and commits a transaction itself, and wakes workers.
//
// An open transaction holds back the event readers of every outbox it wrote to. If tx is nil, every operation of the
// returned engine is refused with [fferr.ErrInvalidInput], and nothing runs on the pool.
func (e *Engine) WithTx(tx pgx.Tx) *Engine { return e.on(e.c.WithTx(tx)) }

// Pool returns the engine's pool.
func (e *Engine) Pool() *pgxpool.Pool { return e.c.Pool }

// WithPool returns the engine bound to another pool on the same database, which the caller opens and closes. Use it for
// operations that must not wait for other users of a pool: a worker renews leases on its own connection. The engines
// share their in-memory state. Notifications are still sent on the pool given to [New], and received as
// [Config.Listener] says.
//
// If pool is nil, every operation of the returned engine is refused with [fferr.ErrInvalidInput].
func (e *Engine) WithPool(pool *pgxpool.Pool) *Engine { return e.on(e.c.WithPool(pool)) }

// impatient returns e for transactions that must not wait: see [core.Core.Impatient].
func (e *Engine) impatient() *Engine { return e.on(e.c.Impatient()) }

func (e *Engine) on(c *core.Core) *Engine {
	bound := *e
	bound.handle, bound.c = core.NewHandle(c), c
	return &bound
}

// Now returns the database's time, which the engine's operations use.
func (e *Engine) Now(ctx context.Context) (time.Time, error) {
	ms, err := e.c.Q.GetNow(ctx, e.c.Reader(), e.c.NowMs())
	if err != nil {
		return time.Time{}, core.Wrap("read clock", err)
	}
	return time.UnixMilli(ms), nil
}
