package events

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestListenWakesOnWork(t *testing.T) {
	f := fixture.NewCloned(t)
	e := f.Rival(t).ListenTo(t, f.Lane)
	f.Create(t, fixture.Retrying(*policy.ImmediateRetries(0)))
	e.Want(t, f.Lane)
	c := f.ClaimOne(t)
	f.Fail(t, c.Lease, engine.Failure{})
	e.Want(t, f.Lane)
	c = f.ClaimOne(t)
	if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
		t.Fatal(err)
	}
	e.Want(t, f.Lane)
	f.ClaimOne(t)
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	e.Want(t, f.Lane)
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.Time().Add(time.Second) }) // no work yet
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	e.Want(t, f.Lane)
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want the context's error", err)
	}
	if len(e.Received) > 0 {
		t.Errorf("heard %q, too", <-e.Received)
	}
}

// A caller's transaction wakes no waiter: its caller does, once it has committed.
func TestWakeAfterTheCallersCommit(t *testing.T) {
	f := fixture.New(t)
	quiet := f.Lane
	loud := id.LaneID(f.Name + "-loud")
	e := f.Rival(t).ListenTo(t, quiet, loud)
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: quiet}); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	f.Wake(loud)
	e.Want(t, loud)
	f.Wake(quiet, loud, quiet)
	got := []id.LaneID{<-e.Received, <-e.Received}
	slices.Sort(got)
	if want := []id.LaneID{quiet, loud}; !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q once each", got, want)
	}
	f.Wake()
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Notifications of this engine's own work need no server, as long as there are listeners.
func TestListenWakesOnOwnWorkWithoutAConnection(t *testing.T) {
	f := fixture.New(t)
	pool := fixture.OpenPool(t, f.Url, nil)
	deaf := f.EngineOn(t, pool, engine.Config{NoListener: true})
	received := make(chan id.LaneID, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	end := fixture.Async(t, func(context.Context) error {
		return deaf.Listen(ctx, func(lane id.LaneID) {
			if lane == f.Lane && len(fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ffx_ready WHERE lane_id = $1", string(lane))) == 0 {
				t.Error("heard of work that nobody sees yet")
			}
			received <- lane
		})
	})
	fixture.Await(t, "the listener to hear", func() bool {
		deaf.Wake("begun")
		return len(received) > 0
	})
	for len(received) > 0 {
		<-received
	}
	if _, err := deaf.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane}); err != nil {
		t.Fatal(err)
	}
	if got := <-received; got != f.Lane {
		t.Errorf("heard %q, want %q", got, f.Lane)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deaf.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane}); err != nil {
		t.Fatal(err)
	}
	if len(received) > 0 {
		t.Errorf("heard %q before the commit", <-received)
	}
	fixture.Commit(t, tx)
	cancel()
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	deaf.Wake(f.Lane)
	if len(received) > 0 {
		t.Errorf("heard %q after the end", <-received)
	}
}

// A call that creates no work wakes no waiter.
func TestListenIgnoresDuplicates(t *testing.T) {
	f := fixture.New(t)
	marker := id.LaneID(f.Name + "-marker")
	e := f.Rival(t).ListenTo(t, f.Lane, marker)
	x := f.Create(t)
	e.Want(t, f.Lane)
	if created, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: x, Lane: f.Lane}); err != nil || !created.Duplicate {
		t.Fatal(created, err)
	}
	f.Wake(marker)
	e.Want(t, marker)
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestListenReconnects(t *testing.T) {
	f := fixture.New(t)
	listener := f.Rival(t)
	e := listener.ListenTo(t, f.Lane)
	f.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", listener.Name)
	e.Want(t, "") // notifications in the meantime were lost
	f.Create(t)
	e.Want(t, f.Lane)
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A listener behind the same pool as everything else takes none of its connections.
func TestListenUsesNoPoolConnection(t *testing.T) {
	f := fixture.New(t)
	listener := f.Rival(t)
	e := listener.ListenTo(t, f.Lane)
	fixture.Await(t, "no connection of the pool to be taken", func() bool { return listener.Pool.Stat().AcquiredConns() == 0 })
	if err := pgx.BeginFunc(t.Context(), listener.Pool, func(pgx.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// passwordLater makes a pool whose password only BeforeConnect knows, and counts the requests for it.
func passwordLater(config *pgxpool.Config, asked *atomic.Int64) {
	password := config.ConnConfig.Password
	config.ConnConfig.Password = "wrong"
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		asked.Add(1)
		c.Password = password
		return nil
	}
}

func TestListenerConnectsLikeThePool(t *testing.T) {
	f := fixture.New(t)
	var asked, after, closed atomic.Int64
	listener := f.Rival(t, func(config *pgxpool.Config) {
		passwordLater(config, &asked)
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			after.Add(1)
			_, err := c.Exec(ctx, "SET application_name = 'named afterwards'")
			return err
		}
		config.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
	})
	e := listener.ListenTo(t, f.Lane)
	if asked.Load() != 1 || after.Load() != 1 {
		t.Errorf("BeforeConnect was called %d times, AfterConnect %d times, want once", asked.Load(), after.Load())
	}
	f.Create(t)
	e.Want(t, f.Lane)
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if closed.Load() != 1 {
		t.Errorf("BeforeClose was called %d times, want once", closed.Load())
	}
}

func TestListenerUsesItsOwnAddress(t *testing.T) {
	f := fixture.New(t)
	name := "listener-" + f.Name
	config, err := pgxpool.ParseConfig(f.Url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["application_name"] = name
	eng := f.EngineOn(t, fixture.OpenPool(t, f.Url, nil), engine.Config{Listener: config})
	config.ConnConfig.Host = "/nowhere" // it has been copied
	e := fixture.ListenBy(t, eng, f.Lane)
	e.Want(t, "")
	if got := f.Listening(t, name); got != 1 {
		t.Errorf("%d connections listen there, want 1", got)
	}
	f.Create(t)
	e.Want(t, f.Lane)
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestListenerCanBeTurnedOff(t *testing.T) {
	f := fixture.New(t)
	var asked atomic.Int64
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { passwordLater(config, &asked) })
	eng := f.EngineOn(t, pool, engine.Config{NoListener: true})
	e := fixture.ListenBy(t, eng, f.Lane)
	for len(e.Received) == 0 {
		eng.Wake(f.Lane) // until it listens
		runtime.Gosched()
	}
	e.Want(t, f.Lane)
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eng.Flush() // the pool counts a connection before it asks for its password
	if asked, opened := asked.Load(), pool.Stat().NewConnsCount(); asked != opened {
		t.Errorf("%d connections were opened, %d of them by the pool", asked, opened)
	}
}

func TestListenerReportsThatItCannotConnect(t *testing.T) {
	pool := fixture.OpenPool(t, pgtest.URL(t), nil)
	for field, cfg := range map[string]engine.Config{
		"Config.Listener":   {Listener: &pgxpool.Config{}},
		"Config.NoListener": {Listener: pool.Config(), NoListener: true},
	} {
		_, err := engine.New(pool, cfg)
		if invalid, ok := errors.AsType[*fferr.InputError](err); !ok || invalid.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

// All listeners of one engine share a connection, and it outlives the listener that made it.
func TestListenersShareAConnection(t *testing.T) {
	f := fixture.New(t)
	r := f.Rival(t)
	var all []fixture.LaneListener
	for range 3 {
		all = append(all, r.ListenTo(t, f.Lane)) // each is woken: any lane may have work
	}
	session := func() []string {
		return fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", r.Name)
	}
	first := session()
	if len(first) != 1 {
		t.Errorf("three listeners have the sessions %q, want one", first)
	}
	for len(all) > 0 {
		f.Create(t)
		for _, e := range all {
			e.Want(t, f.Lane)
		}
		if err := all[0].End(); !errors.Is(err, context.Canceled) { // it has been the one that waited
			t.Error(err)
		}
		if all = all[1:]; len(all) > 0 {
			if got := session(); !slices.Equal(got, first) {
				t.Errorf("the sessions are %q, want still %q", got, first)
			}
		}
	}
	fixture.Await(t, "the last listener's session to end", func() bool { return len(session()) == 0 })

	e := r.ListenTo(t, f.Lane)
	f.Create(t)
	e.Want(t, f.Lane)
	if err := e.End(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestListenersWakeOnANewConnection(t *testing.T) {
	f := fixture.New(t)
	r := f.Rival(t)
	first, second := r.ListenTo(t, f.Lane), r.ListenTo(t, f.Lane)
	f.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", r.Name)
	for _, e := range []fixture.LaneListener{first, second} {
		e.Want(t, "") // notifications in the meantime were lost
	}
	f.Create(t)
	for _, e := range []fixture.LaneListener{first, second} {
		e.Want(t, f.Lane)
		if err := e.End(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// Listeners that come and go at once leave no connection and no goroutine behind.
func TestListenersLeaveNothingBehind(t *testing.T) {
	f := fixture.New(t)
	r := f.Rival(t)
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
	fixture.Await(t, "all sessions to end", func() bool {
		return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", r.Name)) == 0
	})
}
