package fftest

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Kit is a database of one test, with an engine and a worker on it. Nothing runs by itself: [Kit.Drain] runs handlers and
// background work on the test's goroutine, and only [Kit.Advance] moves the clock.
type Kit struct {
	// Pool is on the kit's database. Its connections belong to the worker's process, which dies with [Kit.KillWorker].
	Pool *pgxpool.Pool

	// Engine uses Pool and the kit's clock.
	Engine *engine.Engine

	// Worker takes the handlers, by worker.Handle. The kit drives the worker: don't call its Run.
	Worker *worker.Worker

	// URL is the database's address, for programs with their own connections.
	URL string

	t          testing.TB
	background *reconcile.Reconciler
	process    *process
	crashes    bool // of Crashes
	leaseTTL   time.Duration
	patience   time.Duration

	mu      sync.Mutex
	now     time.Time
	running *engine.Claimed // handled at present
	handled map[id.ExecutionID]int
	stop    context.CancelCauseFunc // ends the present run
	runs    atomic.Int64            // of handlers
}

// Option is an option of [New].
type Option func(*options)

type options struct {
	engine   engine.Config
	worker   worker.Config
	sql      []string
	at       time.Time
	patience time.Duration
	crashes  bool
	dies     point
}

// EngineConfig changes the configuration of the kit's engine. By default the engine keeps ended work forever, and has
// NoListener: it doesn't notify other programs on [Kit.URL] either, which find its work by polling.
func EngineConfig(change func(*engine.Config)) Option {
	return func(o *options) { change(&o.engine) }
}

// WorkerConfig changes the configuration of the kit's worker: its lanes, capabilities, lease and observer. The kit sets the rest.
func WorkerConfig(change func(*worker.Config)) Option {
	return func(o *options) { change(&o.worker) }
}

// SQL runs statements on the kit's new database, such as CREATE TABLE. See [Migrate] for statements needed by all
// tests.
func SQL(statements string) Option {
	return func(o *options) { o.sql = append(o.sql, statements) }
}

// StartAt sets the kit's clock at the beginning, for tests of dates. Default: the present.
func StartAt(at time.Time) Option {
	return func(o *options) { o.at = at }
}

// Patience is how long a handler may take, by the machine's clock, before [Kit.Drain] fails the test. Default 30 s.
func Patience(d time.Duration) Option {
	return func(o *options) { o.patience = d }
}

// poolSize covers the worker, an open transaction of the test and some handlers' own connections.
const poolSize = 10

// New returns a kit on a new database, which is dropped when t ends. Tests with a kit may run in parallel. The first kit of a
// process finds or starts the server.
func New(t testing.TB, option ...Option) *Kit {
	t.Helper()
	on, err := server()
	if err != nil {
		t.Fatalf("fftest: no Postgres for the tests: %v", err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	o := options{
		engine: engine.Config{
			Retention: policy.KeepForever, OutboxRetention: policy.KeepForever, NoListener: true, Log: log,
		},
		worker: worker.Config{LeaseTTL: worker.DefaultLeaseTTL},
		at:     time.Now(), patience: 30 * time.Second,
	}
	for _, option := range option {
		option(&o)
	}
	name, err := on.Create(t.Context(), on.template)
	if err != nil {
		t.Fatalf("fftest: %v", err)
	}
	k := &Kit{
		URL: on.URL(name), t: t, process: newProcess(), crashes: o.crashes, leaseTTL: cmp.Or(o.worker.LeaseTTL, worker.DefaultLeaseTTL), patience: o.patience,
		now: o.at.Truncate(time.Millisecond), handled: make(map[id.ExecutionID]int),
	}
	t.Cleanup(func() {
		k.close()
		if err := on.Drop(context.Background(), name); err != nil {
			t.Errorf("fftest: %v", err)
		}
	})
	if err := k.open(o); err != nil {
		t.Fatalf("fftest: %v", err)
	}
	return k
}

// open connects, sets the clock and makes the engine and the worker.
func (k *Kit) open(o options) error {
	cfg, err := pgxpool.ParseConfig(k.URL)
	if err != nil {
		return err
	}
	cfg.MaxConns = poolSize
	// A database of a few rows needs no plans of its own.
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	k.process.wrap(cfg)
	if k.Pool, err = pgxpool.NewWithConfig(k.t.Context(), cfg); err != nil {
		return err
	}
	if err := k.setClock(k.t.Context(), k.now); err != nil {
		return err
	}
	for _, statements := range o.sql {
		if _, err := k.Pool.Exec(k.t.Context(), statements); err != nil {
			return err
		}
	}
	k.process.fatal = o.dies
	o.engine.Now = k.Now
	if k.Engine, err = engine.New(k.Pool, o.engine); err != nil {
		return err
	}
	if o.engine.NoListener {
		// Nothing listens, and a notification would take a second connection.
		core.Of(k.Engine).Notifier.Silence()
	}
	o.worker.SharePool, o.worker.NoReconcile, o.worker.Concurrency, o.worker.FetchBatch, o.worker.SettleBatch = true, true, 1, 1, 1
	o.worker.Observer = &observer{kit: k, next: o.worker.Observer}
	if k.Worker, err = worker.New(k.Engine, o.worker); err != nil {
		return err
	}
	k.background, err = newBackground(k)
	return err
}

func newBackground(k *Kit) (*reconcile.Reconciler, error) {
	return reconcile.New(k.Engine, reconcile.Config{Instance: "fftest"})
}

func (k *Kit) close() {
	if k.Engine != nil {
		k.Engine.Flush()
	}
	k.process.kill()
	if k.Pool != nil && !k.busy() { // a hanging handler may hold a connection, and Close would wait for it
		k.Pool.Close()
	}
}

// busy reports whether a handler runs.
func (k *Kit) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running != nil
}

// observer notes which execution is handled.
type observer struct {
	kit  *Kit
	next worker.Observer
}

// BeginRun implements [worker.Observer].
func (h *observer) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	h.kit.began(work)
	if h.next == nil {
		return ctx, nil
	}
	return h.next.BeginRun(ctx, work)
}

// BeginPart implements [worker.Observer].
func (h *observer) BeginPart(ctx context.Context, part worker.Part) (context.Context, func(worker.PartReport)) {
	if h.next == nil {
		return ctx, nil
	}
	return h.next.BeginPart(ctx, part)
}
