package tests

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
)

// hearing is a listener that hears of the given lanes and of its own connections.
type hearing struct {
	heard chan id.LaneID
	end   func() error
}

func (r *rival) listen(t *testing.T, lanes ...id.LaneID) hearing {
	t.Helper()
	e := listenBy(t, r.Engine, lanes...)
	e.want(t, "") // any lane may have work by now
	return e
}

func listenBy(t *testing.T, eng *engine.Engine, lanes ...id.LaneID) hearing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan id.LaneID, 1000)
	wait := async(t, func(context.Context) error {
		return eng.Listen(ctx, func(lane id.LaneID) {
			if lane == "" || slices.Contains(lanes, lane) {
				heard <- lane
			}
		})
	})
	return hearing{heard: heard, end: func() error { cancel(); return wait() }}
}

// want waits for the next that is heard.
func (e hearing) want(t *testing.T, want id.LaneID) {
	t.Helper()
	if got := progress.Receive(t, fmt.Sprintf("%q to be heard", want), e.heard); got != want {
		t.Errorf("heard %q, want %q", got, want)
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
	run(t, f.Maintenance().ExpireLeases, 1)
	e.want(t, f.lane)
	f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.now().Add(time.Second) }) // no work yet
	f.advance(time.Second)
	run(t, f.Maintenance().PromoteDelayed, 1)
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
	if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: quiet}); err != nil {
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
	pool := openPool(t, f.url, nil)
	deaf := f.engineOn(t, pool, engine.Config{NoListener: true})
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
	if _, err := deaf.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.lane}); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != f.lane {
		t.Errorf("heard %q, want %q", got, f.lane)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deaf.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.lane}); err != nil {
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
	if created, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: x, Lane: f.lane}); err != nil || !created.Duplicate {
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
	await(t, "no connection of the pool to be taken", func() bool { return listener.pool.Stat().AcquiredConns() == 0 })
	if err := pgx.BeginFunc(t.Context(), listener.pool, func(pgx.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// passwordLater makes a pool whose password only BeforeConnect knows, and counts who asks it.
func passwordLater(config *pgxpool.Config, asked *atomic.Int64) {
	password := config.ConnConfig.Password
	config.ConnConfig.Password = "wrong"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		asked.Add(1)
		c.Password = password
		return nil
	}
}

func TestA12_listener_connects_as_the_pool_does(t *testing.T) {
	f := newFixture(t)
	var asked, after, closed atomic.Int64
	listener := f.rival(t, func(config *pgxpool.Config) {
		passwordLater(config, &asked)
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			after.Add(1)
			_, err := c.Exec(ctx, "SET application_name = 'named afterwards'")
			return err
		}
		config.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
	})
	e := listener.listen(t, f.lane)
	if asked.Load() != 1 || after.Load() != 1 {
		t.Errorf("BeforeConnect was called %d times, AfterConnect %d times, want once", asked.Load(), after.Load())
	}
	f.create(t)
	e.want(t, f.lane)
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if closed.Load() != 1 {
		t.Errorf("BeforeClose was called %d times, want once", closed.Load())
	}
}

func TestA12_listener_at_an_address_of_its_own(t *testing.T) {
	f := newFixture(t)
	name := "listener-" + f.name
	config, err := pgxpool.ParseConfig(f.url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = name
	eng := f.engineOn(t, openPool(t, f.url, nil), engine.Config{Listener: config})
	config.ConnConfig.Host = "/nowhere" // it has been copied
	e := listenBy(t, eng, f.lane)
	e.want(t, "")
	if got := f.listening(t, name); got != 1 {
		t.Errorf("%d connections listen there, want 1", got)
	}
	f.create(t)
	e.want(t, f.lane)
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// listening counts the sessions of a name that have asked to be notified.
func (f *fixture) listening(t *testing.T, name string) int {
	t.Helper()
	return len(texts(t, f.pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND query ILIKE 'listen%'", name))
}

func TestA12_listener_that_is_turned_off(t *testing.T) {
	f := newFixture(t)
	var asked atomic.Int64
	pool := openPool(t, f.url, func(config *pgxpool.Config) { passwordLater(config, &asked) })
	eng := f.engineOn(t, pool, engine.Config{NoListener: true})
	e := listenBy(t, eng, f.lane)
	for len(e.heard) == 0 {
		eng.Wake(f.lane) // until it listens
		runtime.Gosched()
	}
	e.want(t, f.lane)
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eng.Flush() // the pool counts a connection before it asks for its password
	if asked, opened := asked.Load(), pool.Stat().NewConnsCount(); asked != opened {
		t.Errorf("%d connections were opened, %d of them by the pool", asked, opened)
	}
}

func TestA12_a_listener_that_cannot_be(t *testing.T) {
	pool := openPool(t, pgtest.URL(t), nil)
	for field, cfg := range map[string]engine.Config{
		"Config.Listener":   {Listener: &pgxpool.Config{}},
		"Config.NoListener": {Listener: pool.Config(), NoListener: true},
	} {
		_, err := engine.New(pool, cfg)
		if invalid, ok := errors.AsType[*engine.InputError](err); !ok || invalid.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

// However many listen by one engine, they share a connection, and it outlives the one who made it.
func TestA12_listeners_share_a_connection(t *testing.T) {
	f := newFixture(t)
	r := f.rival(t)
	var all []hearing
	for range 3 {
		all = append(all, r.listen(t, f.lane)) // each is woken: any lane may have work
	}
	session := func() []string {
		return texts(t, f.pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", r.name)
	}
	first := session()
	if len(first) != 1 {
		t.Errorf("three listeners have the sessions %q, want one", first)
	}
	for len(all) > 0 {
		f.create(t)
		for _, e := range all {
			e.want(t, f.lane)
		}
		if err := all[0].end(); !errors.Is(err, context.Canceled) { // it has been the one that waited
			t.Error(err)
		}
		if all = all[1:]; len(all) > 0 {
			if got := session(); !slices.Equal(got, first) {
				t.Errorf("the sessions are %q, want still %q", got, first)
			}
		}
	}
	await(t, "the last listener's session to end", func() bool { return len(session()) == 0 })

	e := r.listen(t, f.lane)
	f.create(t)
	e.want(t, f.lane)
	if err := e.end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestA12_all_listeners_are_woken_by_a_new_connection(t *testing.T) {
	f := newFixture(t)
	r := f.rival(t)
	first, second := r.listen(t, f.lane), r.listen(t, f.lane)
	f.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", r.name)
	for _, e := range []hearing{first, second} {
		e.want(t, "") // what came meanwhile was not heard
	}
	f.create(t)
	for _, e := range []hearing{first, second} {
		e.want(t, f.lane)
		if err := e.end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// Listeners that come and go at once leave no connection and no goroutine behind.
func TestA12_listeners_that_come_and_go(t *testing.T) {
	f := newFixture(t)
	r := f.rival(t)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if err := r.Listen(ctx, func(id.LaneID) { cancel() }); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	await(t, "all sessions to end", func() bool {
		return len(texts(t, f.pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", r.name)) == 0
	})
}
