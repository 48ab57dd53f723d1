//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// Third parties lock rows and flows at random, some for longer than leases live, while processes are killed.
func TestWorkersSurviveForeignLocks(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var flows []id.FlowID
	size := newLoad(t)
	for range 2 {
		flows = append(flows, createFlow(t, eng, size.width))
	}

	f := &fleet{t: t, pool: pool, url: url, dangers: manyDangers(t)}
	for range processes / 2 {
		f.start()
	}
	locking, stopLocking := context.WithCancel(t.Context())
	locks := make(chan int, len(thirdParties))
	for _, p := range thirdParties {
		go func() { locks <- f.lock(locking, p, func() {}) }()
	}
	f.awaitEnd()
	stopLocking()
	held := 0
	for range thirdParties {
		held += <-locks
	}
	f.stop()
	t.Logf("%d handlers started, %d processes killed, %d locks held, %d outcomes refused", f.started, f.kills, held, f.refused)
	if held < 50 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkEnds(t, pool, len(flows)*layers*size.width)
	checkFences(t, pool)
	for _, flow := range flows {
		checkOrder(t, pool, flow)
	}
}

// A thirdParty locks something that a statement chooses, again and again, each time for up to so long.
type thirdParty struct {
	sql  string
	most time.Duration
}

var thirdParties = []thirdParty{
	{`SELECT FROM ff_attempt WHERE outcome IS NULL AND random() < 0.2 LIMIT 3 FOR UPDATE SKIP LOCKED`, 2 * leaseTTL},
	{`SELECT FROM ff_exec_core WHERE lifecycle_phase = 'active' AND random() < 0.2 LIMIT 3 FOR UPDATE SKIP LOCKED`, 2 * leaseTTL},
	{`SELECT FROM ff_exec_core WHERE lifecycle_phase = 'runnable' AND random() < 0.1 LIMIT 3 FOR UPDATE SKIP LOCKED`, leaseTTL},
	{`SELECT FROM ff_edge_group WHERE random() < 0.01 LIMIT 3 FOR UPDATE SKIP LOCKED`, leaseTTL},
	{`SELECT FROM ff_flow_core WHERE random() < 0.5 LIMIT 1 FOR UPDATE SKIP LOCKED`, leaseTTL / 2},
	{`SELECT pg_advisory_xact_lock(ffx_flow_key(flow_id)) FROM (SELECT flow_id FROM ff_flow_core ORDER BY random() LIMIT 1) AS f`, leaseTTL / 2},
}

// lock holds locks until ctx ends, half of the time, and returns how many times it held some. It calls first with the first
// ones.
func (f *fleet) lock(ctx context.Context, p thirdParty, first func()) (held int) {
	conn, err := pgx.Connect(f.t.Context(), f.url)
	if err != nil {
		f.t.Error(err)
		return 0
	}
	defer conn.Close(f.t.Context())
	for ctx.Err() == nil {
		err := pgx.BeginFunc(f.t.Context(), conn, func(tx pgx.Tx) error {
			tag, err := tx.Exec(f.t.Context(), p.sql)
			if tag.RowsAffected() > 0 {
				if held++; held == 1 {
					first()
				}
				pause(ctx, rand.N(p.most))
			}
			return err
		})
		if err != nil {
			f.t.Errorf("%s: %v", p.sql, err)
		}
		pause(ctx, rand.N(p.most))
	}
	return held
}

// pause waits between two steps of the workers' work, or of their disturbance.
//
//pace:allow it makes a load uneven, and nothing depends on its length
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
