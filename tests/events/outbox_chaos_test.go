package events

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// write has writers insert lease events, each in transactions of one to ten, and returns the committed ids. One
// transaction in ten is rolled back; some wait before they end.
func write(t *testing.T, f *fixture.Fixture, writers, inserts int) []int64 {
	t.Helper()
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.MaxConns = int32(writers) })
	var mu sync.Mutex
	var committed []int64
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for left := inserts; left > 0; {
				n := min(1+rand.IntN(10), left)
				left -= n
				ids, err := writeOnce(t.Context(), pool, n)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				committed = append(committed, ids...)
				mu.Unlock()
			}
		})
	}
	writing.Wait()
	slices.Sort(committed)
	return committed
}

func writeOnce(ctx context.Context, pool *pgxpool.Pool, n int) (ids []int64, err error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	var batch pgx.Batch
	for range n {
		batch.Queue(`INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
			VALUES (gen_random_uuid()::text, 'renewed', 1, 7) RETURNING event_id`).QueryRow(func(row pgx.Row) error {
			var event int64
			err := row.Scan(&event)
			ids = append(ids, event)
			return err
		})
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	if rand.IntN(5) == 0 {
		dawdle(40 * time.Millisecond)
	}
	if rand.IntN(10) == 0 {
		return nil, nil
	}
	return ids, tx.Commit(ctx)
}

// wantWritten checks that each of the subscriptions gets the events that write commits, once and in order.
func wantWritten(t *testing.T, f *fixture.Fixture, subs []*outbox.Subscription, writers, inserts int, meanwhile func(ctx context.Context)) {
	t.Helper()
	handed := make([][]int64, len(subs))
	ctx, step, stop := progress.Context(t, "the next events")
	defer stop()
	var reading sync.WaitGroup
	for i, s := range subs {
		reading.Go(func() {
			for {
				rows, err := s.Batch(ctx, 1+rand.IntN(300))
				if err != nil {
					t.Error(err)
					return
				}
				step()
				for _, row := range rows {
					if row.Kind == "revoked" { // the last one
						return
					}
					handed[i] = append(handed[i], row.ID)
				}
				if i%2 == 1 && rand.IntN(20) == 0 {
					dawdle(10 * time.Millisecond)
				}
			}
		})
	}
	disturbing, calm := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { meanwhile(disturbing) })
	committed := write(t, f, writers, inserts)
	calm()
	others.Wait()
	f.Exec(t, `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
		VALUES (gen_random_uuid()::text, 'revoked', 1, 7)`)
	reading.Wait()
	for i := range handed {
		if !slices.Equal(handed[i], committed) {
			t.Errorf("%d was handed %d events, in order: %v; %d were committed", i, len(handed[i]), slices.IsSorted(handed[i]), len(committed))
		}
	}
}

// Many writers, and readers whose sessions are killed at random, the listening one among them. In a soak the readers fall
// further behind.
func TestOutboxSurvivesKilledSessions(t *testing.T) {
	f := fixture.NewCloned(t)
	began := time.Now()
	const name = "reader"
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["application_name"] = name })
	f.Engine = f.EngineOn(t, pool, engine.Config{})
	direct := fixture.OpenPool(t, f.Url, nil)
	var subs []*outbox.Subscription
	for i := range 8 {
		subs = append(subs, follow(t, f, outbox.Options{Buffer: []int{1, 64, 1024, 65536}[i%4]}))
	}
	killed := 0
	wantWritten(t, f, subs, 64, soak.Size(t, 100, 2000), func(ctx context.Context) {
		for (ctx.Err() == nil || killed == 0) && t.Context().Err() == nil {
			_ = direct.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) + $2::int FROM (SELECT pid FROM pg_stat_activity
				WHERE application_name = $1 AND (query ILIKE 'listen%' OR random() < 0.1)) AS victims`, name, killed).Scan(&killed)
			dawdle(200 * time.Millisecond)
		}
	})
	t.Logf("%d sessions were killed; %v", killed, time.Since(began).Round(time.Millisecond))
}

func TestPgBouncerOutbox(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		for name, cfg := range map[string]engine.Config{"listening for nothing": {}, "no listener": {NoListener: true}} {
			t.Run(name, func(t *testing.T) {
				f, _ := fixture.ThroughBouncer(t, open, cfg)
				subs := []*outbox.Subscription{follow(t, f, outbox.Options{}), follow(t, f, outbox.Options{Buffer: 10})}
				wantWritten(t, f, subs, 8, 200, func(context.Context) {})
			})
		}
	})
}
