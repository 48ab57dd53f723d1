package fftest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/worker"
)

func TestMain(m *testing.M) {
	fftest.Main(m, fftest.Migrate(func(ctx context.Context, databaseURL string) error {
		conn, err := pgx.Connect(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "CREATE TABLE of_the_application (id bigint PRIMARY KEY)")
		return err
	}))
}

// failing records the failure of a test instead of failing it.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *failing) Errorf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

// failure returns the failure of a test that fn is.
func failure(t *testing.T, fn func(t testing.TB)) string {
	t.Helper()
	f := &failing{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fn(f)
	}()
	<-ended
	return f.text
}

func requireText(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
}

func TestDrainReportsAHangingHandler(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	text := failure(t, func(t testing.TB) {
		kit := fftest.New(t, fftest.Patience(50*time.Millisecond))
		worker.Handle(kit.Worker, greet, func(context.Context, worker.Job[string]) (string, error) {
			<-release
			return "", nil
		})
		fftest.Create(kit, greet, "Ada")
		fftest.Create(kit, publish, "waits for its turn")
		kit.Drain()
	})
	requireText(t, text, "no progress for 50ms", `"greet": its handler has not returned (attempt 0)`, `"publish": waiting`)
}

func TestDrainReportsAnEndlessExecution(t *testing.T) {
	t.Parallel()
	text := failure(t, func(t testing.TB) {
		kit := fftest.New(t)
		worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
			return "", job.Delay(0)
		})
		fftest.Create(kit, greet, "Ada")
		kit.Drain()
	})
	requireText(t, text, `of the kind "greet" ran 1000 times and goes on`)
}

func TestDrainLeavesWorkWithoutAHandler(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	created := fftest.Create(kit, greet, "Ada")
	kit.Drain()
	text := failure(t, func(t testing.TB) { fftest.RequireResult(t, kit, greet, created.ID, "hello") })
	requireText(t, text, "has no result", "it is waiting")
}

// refuseWaits makes the server refuse waits, as often as a sequence in the database allows.
const refuseWaits = `CREATE SEQUENCE refused;
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('refused') <= TG_ARGV[0]::int THEN RAISE 'refused by a trigger'; END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER refuse BEFORE INSERT ON ff_suspension_current FOR EACH ROW EXECUTE FUNCTION refuse(%d)`

// A wait that the server refuses again and again fails its execution, as under a running worker, and Drain goes on with others.
// W2
func TestDrainFailsARefusedWait(t *testing.T) {
	t.Parallel()
	waits := func(ctx context.Context, job worker.Job[string]) (string, error) {
		return approved.Await(ctx, job, engine.Wait{})
	}
	for refusals, want := range map[int]state.PublicState{2: state.PublicSuspended, 3: state.PublicFailed} {
		kit := fftest.New(t, fftest.SQL(fmt.Sprintf(refuseWaits, refusals)))
		worker.Handle(kit.Worker, publish, waits)
		first := fftest.Create(kit, publish, "a").ID
		kit.Drain()
		second := fftest.Create(kit, publish, "b").ID
		kit.Drain()
		if want == state.PublicFailed {
			fftest.RequireFailure(t, kit, first, "refused again and again: ")
			fftest.RequireFailure(t, kit, first, "refused by a trigger")
		}
		for x, want := range map[id.ExecutionID]state.PublicState{first: want, second: state.PublicSuspended} {
			if d, err := kit.Engine.DescribeExecution(t.Context(), x); err != nil || d.State.Public != want || d.Attempts != 1 {
				t.Errorf("after %d refusals: %s in attempt %d, %v; want %s", refusals, d.State.Public, d.Attempts, err, want)
			}
		}
	}
}

func TestDrainRunsChildren(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		return "hello, " + job.Args, nil
	})
	worker.Handle(kit.Worker, publish, func(ctx context.Context, job worker.Job[string]) (string, error) {
		greeting, err := worker.Call(ctx, job, "greeting", greet, job.Args)
		return greeting + "!", err
	})
	created := fftest.Create(kit, publish, "Ada")
	kit.Drain()
	fftest.RequireResult(t, kit, publish, created.ID, "hello, Ada!")
	fftest.RequireCreated(t, kit, greet, fftest.Args("Ada"), fftest.Times(1))
}

func TestKilledWorkerKeepsItsLease(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	runs := 0
	worker.Handle(kit.Worker, greet, func(ctx context.Context, job worker.Job[string]) (string, error) {
		if runs++; runs == 1 {
			kit.KillWorker()
			if _, err := kit.Pool.Exec(ctx, "SELECT 1"); err == nil {
				t.Error("a dead process reached the database")
			}
		}
		return "hello, " + job.Args, nil
	})
	created := fftest.Create(kit, greet, "Ada")
	kit.Drain()
	kit.Advance(worker.DefaultLeaseTTL - time.Second)
	kit.Drain()
	if runs != 1 {
		t.Fatalf("%d runs during the lease", runs)
	}
	kit.Advance(time.Second)
	kit.Drain()
	fftest.RequireResult(t, kit, greet, created.ID, "hello, Ada")
	if s, err := kit.Engine.DescribeExecution(t.Context(), created.ID); err != nil || s.LeasesLost != 1 {
		t.Errorf("%d leases lost, %v", s.LeasesLost, err)
	}
}

func TestLostLeaseDiscardsTheOutcome(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	runs := 0
	worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		if runs++; runs == 1 {
			kit.LoseLease(job.ID)
		}
		return fmt.Sprintf("run %d", runs), nil
	})
	created := fftest.Create(kit, greet, "Ada")
	kit.Drain()
	fftest.RequireResult(t, kit, greet, created.ID, "run 2")
}

func TestRequirementsShowTheDifferenceAndFailures(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		if job.Args == "" {
			return "", worker.Permanent(errors.New("no name"))
		}
		return "hello, " + job.Args, nil
	})
	good, bad := fftest.Create(kit, greet, "Ada"), fftest.Create(kit, greet, "")
	kit.Drain()
	text := failure(t, func(t testing.TB) { fftest.RequireResult(t, kit, greet, good.ID, "hello, Bob") })
	requireText(t, text, "-want +got", "Ada", "Bob")
	text = failure(t, func(t testing.TB) { fftest.RequireResult(t, kit, greet, bad.ID, "hello") })
	requireText(t, text, "has no result", "attempt 0", "no name")
	fftest.RequireFailure(t, kit, bad.ID, "no name")
	waiting := fftest.Create(kit, publish, "no handler")
	for x, wants := range map[id.ExecutionID][]string{
		good.ID: {"has a result"}, bad.ID: {`failed with "no name", want "sold out" in it`, "attempt 0"}, waiting.ID: {"has not failed", "it is waiting"},
	} {
		requireText(t, failure(t, func(t testing.TB) { fftest.RequireFailure(t, kit, x, "sold out") }), wants...)
	}
}

func TestRequireCreatedInAnOpenTransaction(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	err := pgx.BeginFunc(t.Context(), kit.Pool, func(tx pgx.Tx) error {
		if _, err := greet.Create(t.Context(), kit.Engine.WithTx(tx), "Ada"); err != nil {
			return err
		}
		fftest.RequireCreated(t, kit, greet, fftest.Args("Ada"), fftest.In(tx))
		fftest.RequireCreated(t, kit, greet, fftest.Times(0))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	fftest.RequireCreated(t, kit, greet, fftest.Times(1))
	for _, c := range []struct {
		option fftest.CreatedOption
		wants  []string
	}{
		{fftest.Args("Bob"), []string{`no execution of "greet" was created`, "other arguments", "Ada", "Bob"}},
		{fftest.Times(2), []string{`1 executions of "greet" were created, want 2`}},
		{fftest.Args(7), []string{"Args is a int", "are string"}},
	} {
		requireText(t, failure(t, func(t testing.TB) { fftest.RequireCreated(t, kit, greet, c.option) }), c.wants...)
	}
}

func TestRunOneHandler(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t, fftest.SQL("CREATE TABLE drafts (title text)"))
	handler := func(ctx context.Context, job worker.Job[string]) (string, error) {
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return "", err
		}
		greeting, err := greet.ResultOf(upstreams[0])
		if err != nil {
			return "", err
		}
		if _, err := worker.Step(ctx, job, "step", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return "", err
		}
		return worker.StepTx(ctx, job, "store", func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "INSERT INTO drafts VALUES ($1)", job.Args)
			return greeting + ": " + job.Args, err
		})
	}
	got, err := fftest.Run(t, kit, publish, handler, "a draft", fftest.Upstream("greeting", greet, "hello"))
	if err != nil || got != "hello: a draft" {
		t.Errorf("%q, %v", got, err)
	}
	var stored int
	if err := kit.Pool.QueryRow(t.Context(), "SELECT count(*) FROM drafts").Scan(&stored); err != nil || stored != 0 {
		t.Errorf("%d drafts, %v: the run was not rolled back", stored, err)
	}
	fftest.RequireCreated(t, kit, publish, fftest.Times(0))

	_, err = fftest.Run(t, kit, publish, func(ctx context.Context, job worker.Job[string]) (string, error) {
		return approved.Await(ctx, job, engine.Wait{})
	}, "a draft")
	if !errors.Is(err, fferr.ErrAwaiting) {
		t.Errorf("a wait returned %v", err)
	}
}

func TestStartAtAndMigrations(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 2, 28, 23, 0, 0, 0, time.UTC)
	kit := fftest.New(t, fftest.StartAt(at))
	kit.Advance(time.Hour)
	now, err := kit.Engine.Now(t.Context())
	if want := at.Add(time.Hour); err != nil || !now.Equal(want) || !kit.Now().Equal(want) {
		t.Errorf("the engine's time is %v, the kit's %v, %v", now, kit.Now(), err)
	}
	var database int64
	if err := kit.Pool.QueryRow(t.Context(), "SELECT ffx_now_ms(NULL)").Scan(&database); err != nil || database != now.UnixMilli() {
		t.Errorf("the database's time is %d, %v", database, err)
	}
	if _, err := kit.Pool.Exec(t.Context(), "INSERT INTO of_the_application VALUES (1)"); err != nil {
		t.Error(err)
	}
	text := failure(t, func(t testing.TB) { fftest.New(t).Advance(-time.Second) })
	requireText(t, text, "never goes back")
}
