package worker

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
)

// The connections of a run beside the pool of its engine, so that handlers which hold the whole pool cost time, not
// leases. They are made when they are first needed.
const (
	// renewalConnections serve the heartbeat alone: a renewal queues behind nothing.
	renewalConnections = 1

	// settlementConnections serve the fetcher, the settlers, and whoever queues for what others have locked. All
	// other calls wait for nobody, so that what was set aside needs none of its own, nor do claims from several lanes
	// at once: they take what is free.
	settlementConnections = 1 + 1 + memberSettlers + 1

	ownConnections = renewalConnections + settlementConnections
)

// onEngine makes an engine's claimers the interface.
type onEngine struct{ *engine.Engine }

func (e onEngine) NewClaimer(spec engine.ClaimSpec) (claimer, error) {
	return e.Engine.NewClaimer(spec)
}

func (e onEngine) completeIn(ctx context.Context, tx pgx.Tx, l engine.Lease, result []byte) error {
	return e.WithTx(tx).CompleteExecution(ctx, l, result)
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

func (e onEngine) connections() int { return int(e.Pool().Config().MaxConns) }

// apart makes a pool as the engine's is made: the same address, roles, certificates and hooks.
func (e onEngine) apart(connections int32) (operations, func(), error) {
	cfg := e.Pool().Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = connections, 0, 0
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, nil, err
	}
	return onEngine{e.WithPool(pool)}, pool.Close, nil
}

// connect gives a run its connections, or those of the pool when it is told to share it.
func (r *run) connect() error {
	r.renewing, r.settling, r.disconnect = r.eng, r.eng, func() {}
	needed := r.poolConnections
	if r.cfg.SharePool {
		needed += ownConnections
	} else {
		renewing, closeRenewing, err := r.eng.apart(renewalConnections)
		if err != nil {
			return err
		}
		settling, closeSettling, err := r.eng.apart(settlementConnections)
		if err != nil {
			closeRenewing()
			return err
		}
		r.renewing, r.settling = renewing, settling
		r.disconnect = func() {
			closeRenewing()
			closeSettling()
		}
	}
	if has := r.eng.connections(); has < needed {
		r.cfg.Log.LogAttrs(r.base, slog.LevelWarn,
			"the pool is smaller than what the worker itself may use of it at once, beside its handlers, so that they wait for each other: "+
				"raise its MaxConns, or pool_max_conns in its URL, to what the worker needs and handlers hold",
			slog.Int("connections", has), slog.Int("worker", needed))
	}
	return nil
}
