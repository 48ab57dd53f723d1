package workers

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// aside calls fn with an engine without a clock of its own, in a process whose clock is years behind the database's, and
// as much later as is given.
func aside(t *testing.T, url string, later time.Duration, fn func(t *testing.T, eng *engine.Engine)) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	// Outside of the bubble, since look-ups are shared by the goroutines of a process.
	addresses, err := net.DefaultResolver.LookupHost(t.Context(), config.ConnConfig.Host)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		config.ConnConfig.LookupFunc = func(ctx context.Context, host string) ([]string, error) { return addresses, nil }
		time.Sleep(later) // no time passes for the database
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		eng, err := engine.New(pool, engine.Config{NoListener: true})
		if err != nil {
			t.Fatal(err)
		}
		fn(t, eng)
		eng.Flush()
	})
}

// Only the database's clock decides which workers are live: processes whose clocks differ from it by years, and from each
// other by an hour, agree with each other and with the database.
func TestProcessesWithOtherClocksAgreeOnLiveWorkers_B30(t *testing.T) {
	f := fixture.NewCloned(t)
	registration := f.Registration()
	state := func() []string {
		t.Helper()
		return fixture.Texts(t, f.Pool, `SELECT (ffx_now_ms(NULL) - w.last_heartbeat_ms BETWEEN 0 AND w.liveness_ttl_ms - 1)::text
			FROM ff_worker_registry AS w`)
	}
	registration.TTL = engine.MaxWorkerTTL // longer than the test, and than the hour
	clocks := []time.Duration{0, time.Hour, 48 * time.Hour}
	for _, later := range clocks {
		aside(t, f.Url, later, func(t *testing.T, eng *engine.Engine) {
			now, err := eng.RegisterWorker(t.Context(), registration)
			if err != nil || now.Fresh != (later == 0) {
				t.Errorf("%v later: %+v, %v", later, now, err)
			}
			beat, err := eng.HeartbeatWorker(t.Context(), f.Beat(1))
			if err != nil || beat.ExpiresAt.Before(now.ExpiresAt) {
				t.Errorf("%v later: heartbeat %+v, %v, after %v", later, beat, err, now.ExpiresAt)
			}
			clock, err := eng.Now(t.Context())
			if left := beat.ExpiresAt.Sub(clock); err != nil || left <= 0 || left > engine.MaxWorkerTTL {
				t.Errorf("%v later: it is %v, %v, and the presence ends at %v", later, clock, err, beat.ExpiresAt)
			}
			if n, err := upkeep.Of(eng).SweepWorkers(t.Context(), 10); err != nil || n != 0 {
				t.Errorf("%v later: swept %d, %v", later, n, err)
			}
		})
		if got := state(); !slices.Equal(got, []string{"true"}) {
			t.Errorf("%v later: live by the database's clock: %v", later, got)
		}
	}
	// The TTL passes by the database's clock, and for all of them.
	f.Exec(t, "UPDATE ff_worker_registry SET last_heartbeat_ms = ffx_now_ms(NULL) - liveness_ttl_ms")
	for i, later := range clocks {
		aside(t, f.Url, later, func(t *testing.T, eng *engine.Engine) {
			if _, err := eng.HeartbeatWorker(t.Context(), f.Beat(1)); !errors.Is(err, fferr.ErrNotFound) {
				t.Errorf("%v later: heartbeat %v", later, err)
			}
			for w, err := range eng.Workers(t.Context(), engine.WorkerFilter{Gone: true}) {
				if err != nil || w.Live {
					t.Errorf("%v later: %+v, %v", later, w, err)
				}
			}
			if i < len(clocks)-1 {
				return
			}
			if n, err := upkeep.Of(eng).SweepWorkers(t.Context(), 10); err != nil || n != 1 {
				t.Errorf("%v later: swept %d, %v", later, n, err)
			}
		})
	}
}
