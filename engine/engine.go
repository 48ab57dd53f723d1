package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/notify"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Config holds what an [Engine] can be told. Its zero value is the documented default of every field.
type Config struct {
	// Partitions are the logical partition counts: 256 for flows and executions. They are part of every id:
	// a database keeps the counts it was begun with. Those of budgets and quotas, 32, have no effect yet,
	// and others are refused.
	Partitions id.Partitions

	// Namespace is given to executions and flows that name none. Default "default".
	Namespace id.Namespace

	// MaxPayload is the largest payload or result in bytes. Default 1 MiB.
	MaxPayload int

	// Retention is how long executions are kept that have ended, where neither their policy nor their lane says
	// otherwise, and flows after their last change. At least [policy.MinRetention], or [policy.KeepForever].
	// Default 168 h, a week. [Maintenance.Retain] and [Maintenance.PurgeFlows] go by it: give it to every process of a database.
	Retention time.Duration

	// OutboxRetention is how long events are kept, those of executions that are gone included. A reader of events that
	// was away for longer has missed some: those up to the floor that [Operator.Retention] tells. At least
	// [policy.MinRetention], or [policy.KeepForever]. Default 168 h, a week. [Maintenance.TrimOutboxes] goes by it.
	OutboxRetention time.Duration

	// Listener is where [Engine.Listen] connects, as a pool of this configuration would: behind a transaction pooler,
	// to the server itself. Default nil: as the engine's pool does.
	Listener *pgxpool.Config

	// NoListener makes [Engine.Listen] hear only of what this engine makes, and open no connection.
	NoListener bool

	// UnsignedResumeGrants makes [Grants.ClaimFromResumeGrant] take grants whose key this library did not make, and which
	// it cannot verify: whoever reaches the engine can make one up. For schedulers of FlowFabric that hand out such.
	// Default: they are refused.
	UnsignedResumeGrants bool

	// Log receives failures that no call can return: notifications that could not be sent, a listener that reconnects,
	// a database newer than the engine. Workers, background work and readers of events log here too. A failure that
	// repeats is logged at Warn at most once a minute, and at Debug in between. Payloads are never logged.
	// Default: [slog.Default], as it is when [New] is called. slog.New(slog.DiscardHandler) logs nothing.
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

// How much goes into one transaction: executions that are created, and leases that are claimed, renewed or settled. Larger
// slices are split into consecutive transactions, and so are those with more than some 16 MiB of payloads, results or
// messages; a larger claim is refused.
const (
	MaxCreate = 10_000
	MaxBatch  = 1_000
)

const (
	// maxStatementBytes is about how much one statement is sent of what callers give: a server takes no message
	// above a gigabyte, and a large one fills the memory of both sides. A single item may be larger.
	maxStatementBytes = 16 << 20

	// maxFlowsPerTx bounds the flows locked by one transaction: a slot of the server's lock table each.
	maxFlowsPerTx = 256
)

// Engine runs durable operations on one Postgres database. Every method is one transaction, or, on the
// value that [Engine.WithTx] returns, a part of the caller's. An Engine is safe for concurrent use; a
// value bound to a transaction is as safe as that transaction, which is not at all.
type Engine struct {
	q    *db.Queries
	pool *pgxpool.Pool
	tx   pgx.Tx // nil on a pool
	cfg  Config

	runner pgtx.Runner // begins the transactions on the pool
	*shared
}

// shared is what an engine and the values bound to transactions have in common.
type shared struct {
	lanes  knownLanes
	leases leaseMemory

	notifier     *notify.Notifier
	listener     *notify.Listener
	undispatched chan struct{} // has room for one
	delayed      chan struct{} // as that
	unneeded     chan struct{} // as that
	awaiting     *awaiting
	outboxes     *outbox.Hub

	stalled    stalledEvents
	repair     repairPosition
	groups     groupPosition
	summarised flowPosition
	trimmed    trimPositions
	purge      flowPosition
	noted      notedFlows
	periods    shortestPeriod

	staleConsumers staleConsumers

	deleting chan struct{} // has room for the one that deletes
}

// New returns an engine on a pool that the caller opens and closes. It does not touch the database:
// [Engine.Prepare] tells whether the database is fit to be used.
//
// Errors: [ErrInvalidInput] naming the field of cfg that is out of its bounds.
func New(pool *pgxpool.Pool, cfg Config) (*Engine, error) {
	if pool == nil {
		return nil, invalid("pool", "is nil")
	}
	if err := cfg.Partitions.Validate(); err != nil {
		return nil, invalidBecause("Config.Partitions", err)
	}
	for name, count := range map[string]uint16{"Budget": cfg.Partitions.Budget, "Quota": cfg.Partitions.Quota} {
		if count != 0 && count != id.DefaultBudgetPartitions {
			return nil, invalid("Config.Partitions."+name, "has no effect in this version: leave it at its default")
		}
	}
	if cfg.Namespace == "" {
		cfg.Namespace = DefaultNamespace
	}
	if err := cfg.Namespace.Validate(); err != nil {
		return nil, invalidBecause("Config.Namespace", err)
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	if cfg.MaxPayload < 0 {
		return nil, invalid("Config.MaxPayload", "is negative")
	}
	cfg.Retention = cmp.Or(cfg.Retention, DefaultRetention)
	if err := checkRetention("Config.Retention", cfg.Retention); err != nil {
		return nil, err
	}
	cfg.OutboxRetention = cmp.Or(cfg.OutboxRetention, DefaultOutboxRetention)
	if err := checkRetention("Config.OutboxRetention", cfg.OutboxRetention); err != nil {
		return nil, err
	}
	switch {
	case cfg.Listener != nil && cfg.NoListener:
		return nil, invalid("Config.NoListener", "excludes Listener")
	case cfg.Listener != nil && cfg.Listener.ConnConfig == nil:
		return nil, invalid("Config.Listener", "was not made by pgxpool.ParseConfig")
	case cfg.Listener != nil:
		cfg.Listener = cfg.Listener.Copy()
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	listener := newListener(pool, cfg)
	return &Engine{
		q:      db.New(),
		pool:   pool,
		cfg:    cfg,
		runner: pgtx.NewRunner(pool),
		shared: &shared{
			notifier:     notify.NewNotifier(pool, listener, cfg.Log),
			listener:     listener,
			undispatched: make(chan struct{}, 1),
			deleting:     make(chan struct{}, 1),
			delayed:      make(chan struct{}, 1),
			unneeded:     make(chan struct{}, 1),
			awaiting:     newAwaiting(),
			outboxes:     outbox.NewHub(pgtx.NewRunner(pool), listener, cfg.Log),
		},
	}, nil
}

// WithTx returns the engine bound to a transaction of the caller's: its operations become part of tx,
// each behind a savepoint, so that a refusal leaves tx usable. They run at tx's isolation level, are
// never retried, and wake nobody: after the commit the caller may call [Engine.Wake] for the lanes it
// created work on; without that a worker finds the work at its next poll. [Engine.InTx] begins and commits a transaction
// itself, and wakes.
//
// A transaction that stays open holds back the event readers of every outbox it wrote to.
//
// If tx is nil, every operation of the returned engine is refused with [ErrInvalidInput], and nothing runs on the pool.
func (e *Engine) WithTx(tx pgx.Tx) *Engine {
	bound := *e
	if bound.tx = tx; pgtx.IsNil(tx) {
		bound.tx = pgtx.Refused(invalid("WithTx", "got a nil transaction"))
	}
	return &bound
}

// Pool returns the pool that the engine works on.
func (e *Engine) Pool() *pgxpool.Pool { return e.pool }

// WithPool returns the engine bound to another pool on the same database, which the caller opens and closes: its
// operations take their connections there, and what they do is the same. It shares with e what the engine remembers.
// Notifications are still sent on the pool of [New], and heard as it connects. For operations that must not wait for the other users of a pool:
// a worker renews leases by a connection of its own.
//
// If pool is nil, every operation of the returned engine is refused with [ErrInvalidInput].
func (e *Engine) WithPool(pool *pgxpool.Pool) *Engine {
	bound := *e
	bound.pool, bound.tx, bound.runner = pool, nil, e.runner.On(pool)
	if pool == nil {
		bound.tx = pgtx.Refused(invalid("WithPool", "got a nil pool"))
	}
	return &bound
}

// nowMs is the fixed instant of a test, nil in production: the database's clock.
func (e *Engine) nowMs() *int64 {
	if e.cfg.Now == nil {
		return nil
	}
	return new(e.cfg.Now().UnixMilli())
}

// reader is where statements run that lock and write nothing. They too need the engine's planner
// settings: statistics that know other flows only make one partition look empty, and an index that
// leads with it look like enough of a key.
func (e *Engine) reader() db.DBTX {
	if e.tx != nil {
		return pgtx.Callers(e.tx)
	}
	return e.runner.AtOnce()
}

// Now returns the time that the engine's operations go by: the database's.
func (e *Engine) Now(ctx context.Context) (time.Time, error) {
	ms, err := e.q.GetNow(ctx, e.reader(), e.nowMs())
	if err != nil {
		return time.Time{}, wrap("read clock", err)
	}
	return time.UnixMilli(ms), nil
}

// checkExecution refuses an execution id that no row of this database can have.
func (e *Engine) checkExecution(x id.ExecutionID) error {
	if x.IsZero() {
		return invalid("execution id", "is empty")
	}
	if err := e.cfg.Partitions.CheckExecution(x); err != nil {
		return invalidBecause("execution id", err)
	}
	return nil
}
