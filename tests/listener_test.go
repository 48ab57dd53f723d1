package tests

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// ears is a listener that hears of the given lanes and of its own connections.
type ears struct {
	heard chan id.LaneID
	end   func() error
}

func (r *rival) listen(t *testing.T, lanes ...id.LaneID) ears {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan id.LaneID, 1000)
	wait := async(t, func(context.Context) error {
		return r.Listen(ctx, func(lane id.LaneID) {
			if lane == "" || slices.Contains(lanes, lane) {
				heard <- lane
			}
		})
	})
	e := ears{heard: heard, end: func() error { cancel(); return wait() }}
	e.want(t, "") // any lane may have work by now
	return e
}

// want waits for the next that is heard.
func (e ears) want(t *testing.T, want id.LaneID) {
	t.Helper()
	select {
	case got := <-e.heard:
		if got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("did not hear %q", want)
	}
}

func TestListen_hears_of_work(t *testing.T) {
	f := cloneFixture(t)
	e := f.rival(t).listen(t, f.lane)
	f.create(t)
	e.want(t, f.lane)
	c := f.claim(t)
	f.fail(t, c.Lease, engine.Failure{}) // retried at once
	e.want(t, f.lane)
	c = f.claim(t)
	if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
		t.Fatal(err)
	}
	e.want(t, f.lane)
	f.claim(t)
	f.advance(leaseTTL)
	run(t, f.ExpireLeases, 1)
	e.want(t, f.lane)
	f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.now().Add(time.Second) }) // no work yet
	f.advance(time.Second)
	run(t, f.PromoteDelayed, 1)
	e.want(t, f.lane)
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want the context's error", err)
	}
	if len(e.heard) > 0 {
		t.Errorf("heard %q, too", <-e.heard)
	}
}

// A caller's transaction wakes nobody: its caller does, once it has committed.
func TestWake_after_a_callers_transaction(t *testing.T) {
	f := newFixture(t)
	quiet := f.lane
	loud := id.LaneID(f.name + "-loud")
	e := f.rival(t).listen(t, quiet, loud)
	tx := f.begin(t)
	if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Lane: quiet}); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	f.Wake(loud)
	e.want(t, loud)
	f.Wake(quiet, loud, quiet)
	got := []id.LaneID{<-e.heard, <-e.heard}
	slices.Sort(got)
	if want := []id.LaneID{quiet, loud}; !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q once each", got, want)
	}
	f.Wake()
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Work that this engine makes is heard of without the server, as long as somebody listens.
func TestListen_hears_of_its_own_work_without_a_connection(t *testing.T) {
	f := newFixture(t)
	deaf := f.rival(t, func(config *pgxpool.Config) {
		// The pool finds the server; the listener does not.
		good := config.ConnConfig.Copy()
		config.ConnConfig.Host, config.ConnConfig.Fallbacks = "/nowhere", nil
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			*c = *good.Copy()
			return nil
		}
	})
	heard := make(chan id.LaneID, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	end := async(t, func(context.Context) error {
		return deaf.Listen(ctx, func(lane id.LaneID) {
			if lane == f.lane && len(texts(t, f.pool, "SELECT execution_id::text FROM ffx_ready WHERE lane_id = $1", string(lane))) == 0 {
				t.Error("heard of work that nobody sees yet")
			}
			heard <- lane
		})
	})
	await(t, "the listener to hear", func() bool {
		deaf.Wake("begun")
		return len(heard) > 0
	})
	for len(heard) > 0 {
		<-heard
	}
	if _, err := deaf.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.lane}); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != f.lane {
		t.Errorf("heard %q, want %q", got, f.lane)
	}
	tx, err := deaf.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deaf.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.lane}); err != nil {
		t.Fatal(err)
	}
	if len(heard) > 0 {
		t.Errorf("heard %q before the commit", <-heard)
	}
	commit(t, tx)
	cancel()
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	deaf.Wake(f.lane)
	if len(heard) > 0 {
		t.Errorf("heard %q after the end", <-heard)
	}
}

// What creates no work wakes nobody.
func TestListen_hears_nothing_of_duplicates(t *testing.T) {
	f := newFixture(t)
	marker := id.LaneID(f.name + "-marker")
	e := f.rival(t).listen(t, f.lane, marker)
	x := f.create(t)
	e.want(t, f.lane)
	if created, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{ID: x, Lane: f.lane}); err != nil || !created.Duplicate {
		t.Fatal(created, err)
	}
	f.Wake(marker)
	e.want(t, marker)
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestListen_comes_back_after_a_lost_connection(t *testing.T) {
	f := newFixture(t)
	listener := f.rival(t)
	e := listener.listen(t, f.lane)
	f.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", listener.name)
	e.want(t, "") // what came meanwhile was not heard
	f.create(t)
	e.want(t, f.lane)
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A listener behind the same pool as everything else takes none of its connections.
func TestListen_leaves_the_pool_alone(t *testing.T) {
	f := newFixture(t)
	listener := f.rival(t)
	e := listener.listen(t, f.lane)
	if got := listener.pool.Stat().AcquiredConns(); got != 0 {
		t.Errorf("%d connections of the pool are taken", got)
	}
	if err := pgx.BeginFunc(t.Context(), listener.pool, func(pgx.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
