package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// writeLeases inserts lease events in transactions of several statements and pauses, one in ten of which it rolls
// back, and returns the ids of those that it committed.
func writeLeases(ctx context.Context, pool *pgxpool.Pool, events int) (committed []int64, err error) {
	errBack := errors.New("rolled back")
	for left := events; left > 0; {
		var inserted []int64
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			for range 1 + rand.IntN(4) {
				rows, err := tx.Query(ctx, `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
					SELECT gen_random_uuid()::text, 'acquired', 1, 7 FROM generate_series(1, $1) RETURNING event_id`, min(left, 1+rand.IntN(12)))
				if err != nil {
					return err
				}
				more, err := pgx.CollectRows(rows, pgx.RowTo[int64])
				if err != nil {
					return err
				}
				inserted = append(inserted, more...)
				if left -= len(more); left == 0 {
					break
				}
				dawdle(4 * time.Millisecond)
			}
			if rand.IntN(40) == 0 {
				dawdle(200 * time.Millisecond) // longer than a reader is patient
			}
			if rand.IntN(10) == 0 {
				return errBack
			}
			return nil
		})
		switch {
		case err == nil:
			committed = append(committed, inserted...)
		case !errors.Is(err, errBack):
			return nil, err
		}
	}
	return committed, nil
}

// dawdle gives a writer, a reader or a killer of sessions its own pace: a random pause of at most so long.
func dawdle(most time.Duration) {
	time.Sleep(rand.N(most)) //pace:allow it makes a load uneven, and nothing depends on its length
}

// wantLossless runs many writers while eight subscriptions of eng read, with buffers from a few events on, and ends
// sessions of eng at random. Each of the subscriptions gets the committed events, once and in order.
func wantLossless(t *testing.T, f *fixture.Fixture, eng *engine.Engine, writers, events int) {
	t.Helper()
	const writing = "writing"
	pool := fixture.OpenPool(t, f.Url, func(c *pgxpool.Config) {
		c.MaxConns = int32(writers) + 1
		c.ConnConfig.RuntimeParams["application_name"] = writing
	})
	read := make([][]int64, 8)
	ctx, step, stop := progress.Context(t, "the next event")
	defer stop()
	var subscribed []*outbox.Subscription
	for i := range read {
		s, err := fixture.Outboxes(eng).Subscribe(t.Context(), outbox.Lease, outbox.Options{Buffer: 4 << i})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		subscribed = append(subscribed, s)
	}

	var writes, reads, kills sync.WaitGroup
	committed := make([][]int64, writers)
	for i := range committed {
		writes.Go(func() {
			var err error
			if committed[i], err = writeLeases(t.Context(), pool, events); err != nil {
				t.Error(err)
			}
		})
	}
	written, last := make(chan struct{}), int64(0)
	for i, s := range subscribed {
		reads.Go(func() {
			for {
				row, err := s.Next(ctx)
				if err != nil {
					t.Errorf("subscription %d, after %d events: %v", i, len(read[i]), err)
					return
				}
				read[i] = append(read[i], row.ID)
				step()
				select {
				case <-written:
					if row.ID >= last {
						return
					}
				default:
				}
			}
		})
	}
	killing, endKills := context.WithCancel(t.Context())
	defer endKills()
	kills.Go(func() {
		for killing.Err() == nil {
			_, _ = pool.Exec(killing, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name <> $1 AND backend_type = 'client backend'
					AND (query ILIKE 'listen%' OR random() < 0.1)`, writing)
			dawdle(200 * time.Millisecond)
		}
	})
	writes.Wait()
	endKills()
	kills.Wait()

	want := slices.Concat(committed...)
	slices.Sort(want)
	// An event that the readers stop at, despite all rollbacks.
	err := pool.QueryRow(t.Context(), `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
		VALUES (gen_random_uuid()::text, 'acquired', 1, 7) RETURNING event_id`).Scan(&last)
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, last)
	close(written)
	reads.Wait()
	for i, got := range read {
		if !slices.Equal(got, want) {
			t.Errorf("subscription %d was handed %d events, want %d: %s", i, len(got), len(want), difference(got, want))
		}
	}
	t.Logf("%d events, %v", len(want), fixture.Outboxes(eng).Stats())
}

// difference says where two lists begin to differ.
func difference(got, want []int64) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("at %d %d instead of %d", i, got[i], want[i])
		}
	}
	return "the shorter one begins the longer one"
}

// In a soak the readers fall behind and catch up again many times.
func TestOutboxManyWritersLoseNothing(t *testing.T) {
	f := fixture.NewCloned(t)
	wantLossless(t, f, f.Engine, 64, soak.Size(t, 100, 2_000))
}

// A pooler shares sessions between transactions and passes on no notification.
func TestPgBouncerOutboxManyWriters(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		f, _ := fixture.ThroughBouncer(t, open, engine.Config{NoListener: true})
		wantLossless(t, f, f.Engine, 32, soak.Size(t, 75, 500))
	})
}

// The listener goes past the pooler.
func TestPgBouncerOutboxWithItsOwnListener(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		f := fixture.Clone(t)
		config, err := pgxpool.ParseConfig(f.Url)
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.RuntimeParams["application_name"] = "listener-" + id.NewLeaseID().String()
		f.Engine = f.EngineOn(t, open(t, f.Url), engine.Config{Listener: config})
		wantLossless(t, f, f.Engine, 32, soak.Size(t, 75, 500))
	})
}
