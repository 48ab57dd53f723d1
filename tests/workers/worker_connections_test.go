package workers

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// smallPoolCrew has a database of its own, whose pool has few connections with a name.
func smallPoolCrew(t *testing.T, connections int32, change ...func(*pgxpool.Config)) (c *fixture.Crew, name string) {
	t.Helper()
	t.Parallel()
	url := pgtest.CloneURL(t)
	name = "small-pool-" + id.NewLeaseID().String()
	pool := fixture.OpenPool(t, url, func(cfg *pgxpool.Config) {
		cfg.MaxConns = connections
		cfg.ConnConfig.RuntimeParams["application_name"] = name
		for _, c := range change {
			c(cfg)
		}
	})
	return fixture.CrewOn(t, fixture.On(t, pool, url), engine.Config{}), name
}

// Handlers that hold the whole pool, many times longer than a lease lives, cost time, not leases.
func TestHandlersHoldingThePoolLoseNoLease(t *testing.T) {
	for _, way := range []struct {
		name string
		cfg  worker.Config
	}{
		{"in batches", worker.Config{LeaseTTL: 2 * time.Second}},
		{"one by one", worker.Config{LeaseTTL: 2 * time.Second, FetchBatch: 1}},
	} {
		t.Run(way.name, func(t *testing.T) {
			c, _ := smallPoolCrew(t, 4)
			const n = 200
			specs := make([]engine.ExecutionSpec, n)
			for i := range specs {
				specs[i] = engine.ExecutionSpec{Lane: c.Lane, Kind: "test"}
			}
			if _, err := c.Eng.CreateExecutions(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			runs := make(map[id.ExecutionID]int)
			c.Work(t, way.cfg, func(w *worker.Worker) {
				fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
					mu.Lock()
					runs[job.ID]++
					mu.Unlock()
					return "", pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
						_, err := tx.Exec(ctx, "SELECT pg_sleep(0.2)")
						return err
					})
				})
			})
			for settledSoFar := 0; settledSoFar < n; settledSoFar += 20 {
				for _, s := range c.Next(t, 20) {
					if s.Settlement != worker.Completed {
						t.Errorf("%s settled as %v", s.ID, s.Report)
					}
				}
			}
			for x, count := range runs {
				if count != 1 {
					t.Errorf("%s ran %d times", x, count)
				}
			}
			if got := fixture.Texts(t, c.Pool, `SELECT count(*) || ' completed, ' || sum(lease_reclaim_count) || ' leases lost'
				FROM ff_exec_core WHERE public_state = 'completed'`)[0]; got != fmt.Sprintf("%d completed, 0 leases lost", n) {
				t.Error(got)
			}
		})
	}
}

// The worker's own connections are made as the pool's are, are few, and end with the run.
func TestWorkerConnectsLikeThePool(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name string
		cfg  worker.Config
		most int // beside the pool's and the listener's
	}{
		{"own", worker.Config{LeaseTTL: 300 * time.Millisecond, NoReconcile: true}, 6},
		{"one by one", worker.Config{LeaseTTL: 300 * time.Millisecond, NoReconcile: true, FetchBatch: 1}, 6},
		{"with background work", worker.Config{LeaseTTL: 300 * time.Millisecond}, 14},
		{"shared", worker.Config{NoReconcile: true, SharePool: true}, 0},
	} {
		t.Run(way.name, func(t *testing.T) {
			const role = "-by-hook"
			c, name := smallPoolCrew(t, 2, func(cfg *pgxpool.Config) {
				cfg.MinConns = 2
				cfg.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
					conn.RuntimeParams["application_name"] += role
					return nil
				}
			})
			sessions := func() int {
				return len(fixture.Texts(t, c.Pool, `SELECT pid::text FROM pg_stat_activity
					WHERE application_name = $1 AND query NOT ILIKE 'listen %'`, name+role))
			}
			f := fixture.FlowsOn(c.Fixture)
			spec := engine.FlowSpec{ID: id.NewFlowID()}
			for i := range 50 {
				spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
			}
			f.NewFlowOf(t, spec)
			for range 50 {
				c.Create(t)
			}
			before := c.Pool.Config().MaxConns
			started := make(chan struct{}, 100)
			free := make(chan struct{})
			stop := c.Work(t, way.cfg, func(w *worker.Worker) {
				fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) {
					started <- struct{}{}
					<-free
					return "", nil
				})
			})
			for range 100 {
				<-started
			}
			close(free)
			c.Next(t, 100)
			if n := sessions() - int(before); way.most > 0 && n < 2 {
				t.Errorf("%d connections beside the pool", n)
			}
			// One that was closed and replaced may still be listed.
			fixture.Await(t, fmt.Sprintf("at most %d connections beside the pool", way.most), func() bool { return sessions()-int(before) <= way.most })
			stop()
			fixture.Await(t, "the worker's connections to end", func() bool { return sessions() <= int(before) })
		})
	}
}

// A worker warns once that its pool is too small for its own work.
func TestWorkerWarnsOnceOfASmallPool(t *testing.T) {
	for _, way := range []struct {
		name        string
		connections int32
		cfg         worker.Config
		warned      bool
	}{
		{"own connections", 1, worker.Config{}, false}, // F3: as small a pool as pgx opens by default is enough
		{"without background work", 1, worker.Config{NoReconcile: true}, false},
		{"shared with background work", 14, worker.Config{SharePool: true}, true},
		{"shared with background work and enough", 15, worker.Config{SharePool: true}, false},
		{"shared", 8, worker.Config{NoReconcile: true, SharePool: true}, true},
		{"shared and enough", 9, worker.Config{NoReconcile: true, SharePool: true}, false},
	} {
		t.Run(way.name, func(t *testing.T) {
			c, _ := smallPoolCrew(t, way.connections)
			log := new(fixture.LockedBuffer)
			way.cfg.Lanes, way.cfg.Observer, way.cfg.Log = []worker.Lane{{Name: c.Lane}}, c, slog.New(slog.NewTextHandler(log, nil))
			w := fixture.NewWorker(t, c.Eng, way.cfg)
			fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) { return "", nil })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ran := fixture.Async(t, func(context.Context) error { return w.Run(ctx) })
			for range 3 {
				c.Create(t)
				c.Next(t, 1)
			}
			cancel()
			if err := ran(); err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "the pool is too small"); n > 1 || (n == 1) != way.warned {
				t.Errorf("told %d times:\n%s", n, log.String())
			}
		})
	}
}

// Claims and completions of a worker begin without the settings of a transaction, which its connections have for the
// session, unless a hook of the pool may change settings.
func TestWorkerConnectionsHaveTheSettings(t *testing.T) {
	for name, hook := range map[string]func(*pgx.Conn) bool{"no hook": nil, "a hook": func(*pgx.Conn) bool { return true }} {
		t.Run(name, func(t *testing.T) {
			log := new(fixture.StatementLog)
			c, _ := smallPoolCrew(t, 4, func(cfg *pgxpool.Config) {
				cfg.AfterRelease, cfg.ConnConfig.Tracer = hook, log
			})
			c.Create(t)
			log.During(func() {
				c.Work(t, worker.Config{NoReconcile: true}, func(w *worker.Worker) {
					fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) { return "", nil })
				})
				c.Next(t, 1)
			})
			set, claims := log.Count("plan_cache_mode"), log.Count("-- name: Claim")+log.Count("-- name: Complete")
			if claims < 2 || set > 0 != (hook != nil) {
				t.Errorf("%d settings beside %d claims and completions", set, claims)
			}
		})
	}
}
