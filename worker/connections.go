package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/stream"
)

// A run has connections besides its engine's pool, so handlers that use up the pool cost time, not leases. The run
// opens them on first use.
const (
	// renewalConnections are for the heartbeat alone: a renewal never queues.
	renewalConnections = 1

	// settlementConnections are for the fetcher, the settlers, the recorder of steps and one call waiting for locks. No
	// other call waits for a lock, so the retrier, claims from several lanes at once and the appender of frames use
	// whichever is free.
	settlementConnections = 1 + 1 + memberSettlers + 1 + 1

	// lookConnections are for looking at work without a worker.
	lookConnections = 1
)

// idleTime is how long a run keeps an unused connection, so that a busy minute does not set the number for good.
const idleTime = time.Minute

// onEngine adapts an engine to operations.
type onEngine struct{ *engine.Engine }

func (e onEngine) NewClaimer(spec engine.ClaimSpec) (claimer, error) {
	return e.Engine.NewClaimer(spec)
}

func (e onEngine) completeIn(ctx context.Context, tx pgx.Tx, l engine.Lease, result []byte) error {
	bound := e.WithTx(tx)
	return bound.CompleteExecution(ctx, traced(ctx, bound, l), result)
}

func (e onEngine) traceContext(ctx context.Context) string {
	return core.Of(e.Engine).TraceContext(ctx)
}

// traced returns a lease with the trace context in ctx, to be stored with the end of the run.
func traced(ctx context.Context, eng *engine.Engine, l engine.Lease) engine.Lease {
	l.Trace = core.Of(eng).TraceContext(ctx)
	return l
}

func (e onEngine) ReportUsage(ctx context.Context, usage budget.Usage) (budget.Result, error) {
	return budget.Report(ctx, e.Engine, usage)
}

func (e onEngine) Reserve(ctx context.Context, f id.Fence, spec budget.ReserveSpec) (budget.Result, error) {
	return budget.Reserve(ctx, e.Engine, f, spec)
}

func (e onEngine) Settle(ctx context.Context, f id.Fence, spec budget.SettleSpec) (budget.Result, error) {
	return budget.Settle(ctx, e.Engine, f, spec)
}

func (e onEngine) inTx(tx pgx.Tx) frameAppender { return onEngine{e.WithTx(tx)} }

func (e onEngine) maxPayload() int { return core.Of(e.Engine).Streams.MaxPayload }

func (e onEngine) checkFrame(f *stream.FrameSpec) error { return stream.Check(e.Engine, f) }

func (e onEngine) appendBatch(ctx context.Context, b stream.Batch) (stream.Appended, error) {
	return stream.AppendBatch(ctx, e.Engine, b)
}

func (e onEngine) appendEach(ctx context.Context, batches []stream.Batch) ([]fferr.Outcome[stream.Appended], error) {
	return stream.AppendEach(ctx, e.Engine, batches)
}

func (e onEngine) countFrames(ctx context.Context, leases []engine.Lease) ([]int64, error) {
	return stream.Count(ctx, e.Engine, leases)
}

func (e onEngine) callEnded() { core.Remind(core.Of(e.Engine).CallEnded) }

func (e onEngine) sequenceEnded(lanes []id.LaneID) {
	names := make([]string, len(lanes))
	for i, lane := range lanes {
		names[i] = string(lane)
	}
	core.Of(e.Engine).SequenceEnded(names)
}

func (e onEngine) claimEach(ctx context.Context, claims []*laneClaim) {
	each := make([]engine.LaneClaim, len(claims))
	for i, c := range claims {
		each[i] = engine.LaneClaim{Claimer: c.lane.claimer.(*engine.Claimer), Limit: c.n}
	}
	outcomes, err := e.ClaimEach(ctx, each)
	for i, c := range claims {
		if c.err = err; err == nil {
			c.claimed, c.err = outcomes[i].Value, outcomes[i].Err
		}
	}
}

func (e onEngine) log() *slog.Logger { return core.Of(e.Engine).Log }

func (e onEngine) clock() func() time.Time { return core.Of(e.Engine).Now }

func (e onEngine) connections() int { return int(e.Pool().Config().MaxConns) }

// apart opens a pool like the engine's: the same address, roles, certificates and hooks.
func (e onEngine) apart(connections int32) (operations, func(), error) {
	cfg := e.Pool().Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = connections, 0, 0
	cfg.MaxConnIdleTime = min(cfg.MaxConnIdleTime, idleTime)
	setForSession(cfg)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, nil, err
	}
	return onEngine{e.WithPool(pool)}, pool.Close, nil
}

// setForSession makes new connections of a pool used only by this library have the settings of transactions for the
// session, unless a hook may change them later.
func setForSession(cfg *pgxpool.Config) {
	//lint:ignore SA1019 a program's pool may still have the deprecated hook
	if cfg.PrepareConn != nil || cfg.BeforeAcquire != nil || cfg.AfterRelease != nil {
		return
	}
	connected := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if connected != nil {
			if err := connected(ctx, conn); err != nil {
				return err
			}
		}
		return pgtx.SetForSession(ctx, conn)
	}
}

// connect opens the run's connections, or uses the engine's pool with SharePool.
func (r *run) connect() error {
	r.renewing, r.settling, r.disconnect = r.eng, r.eng, func() {}
	if r.cfg.SharePool {
		return nil
	}
	renewing, closeRenewing, err := r.eng.apart(renewalConnections)
	if err != nil {
		return err
	}
	settling, closeSettling, err := r.eng.apart(r.workingConnections())
	if err != nil {
		closeRenewing()
		return err
	}
	r.renewing, r.settling = renewing, settling
	r.disconnect = func() {
		closeRenewing()
		closeSettling()
	}
	return nil
}

// workingConnections returns the most connections that the run uses at once, beside the heartbeat's.
func (r *run) workingConnections() int32 {
	n := int32(settlementConnections + lookConnections)
	if r.reconcile != nil {
		n += reconcile.MaxConnections
	}
	return n
}

// warnOfPool logs if a shared pool is too small for the run.
func (r *run) warnOfPool() {
	if !r.cfg.SharePool {
		return // it only notifies by the pool
	}
	needed := renewalConnections + int(r.workingConnections()) + 1 // for notifications
	if has := r.eng.connections(); has < needed {
		r.cfg.Log.LogAttrs(r.base, slog.LevelWarn,
			"the pool is too small for the worker itself, so the worker and its handlers wait for each other: "+
				"raise its MaxConns, or pool_max_conns in its URL, to cover the worker and its handlers",
			slog.Int("connections", has), slog.Int("worker", needed))
	}
}
