package transactions

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

func TestPgBouncerOperations(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		jobs, others := fixture.Clone(t), fixture.Clone(t)
		pools := map[string]*pgxpool.Pool{jobs.Url: open(t, jobs.Url), others.Url: open(t, others.Url)}
		for _, o := range fixture.Operations() {
			t.Run(o.Name, func(t *testing.T) {
				f := o.Fixture(t, fixture.Clone, jobs, others)
				pool := pools[f.Url]
				if pool == nil {
					pool = open(t, f.Url)
				}
				f.Engine = f.EngineOn(t, pool, engine.Config{NoListener: true})
				l := o.Arrange(t, f)
				before := f.Dump(t, l.Execution)
				if err := o.Refused(t.Context(), f, f.Engine, l); !errors.Is(err, o.Reason) {
					t.Errorf("got %v, want %v", err, o.Reason)
				}
				tx := fixture.BeginWith(t, pool, pgx.TxOptions{})
				if err := o.Refused(t.Context(), f, f.WithTx(tx), l); !errors.Is(err, o.Reason) {
					t.Errorf("got %v, want %v", err, o.Reason)
				}
				if err := o.Do(t.Context(), f, f.WithTx(tx), l); err != nil {
					t.Fatal(err)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.WantUnchanged(t, l.Execution, before)
				if err := o.Do(t.Context(), f, f.Engine, l); err != nil {
					t.Fatal(err)
				}
				o.WantDone(t, f, l, before)
			})
		}
	})
}

func TestPgBouncerFlowsAndReads(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		base, _ := fixture.ThroughBouncer(t, open, engine.Config{NoListener: true})
		f := fixture.FlowsOn(base)
		flow := f.Draw(t, fixture.When{"e": policy.AnyOf(policy.LetRun)}, "a>b", "b>c", "a>d", "b>e", "d>e")
		f.Succeed(t, flow, "a")
		f.Succeed(t, flow, "b", "d")
		f.Succeed(t, flow, "c", "e")
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			f.WantState(t, f.NodeID(flow, key), fixture.StateCompleted)
		}
		lost := f.Draw(t, nil, "a>b", "b>c")
		if _, err := f.FailExecution(t.Context(), f.Lease(t, lost, "a"), fixture.ForGood); err != nil {
			t.Fatal(err)
		}
		f.WantState(t, f.NodeID(lost, "c"), fixture.StateSkipped)

		if err := f.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := f.DescribeFlow(t.Context(), flow); err != nil || got == nil {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "e")); err != nil || len(got) != 2 {
			t.Errorf("got %v, %v; want two results", got, err)
		}
		if got, err := f.DescribeExecution(t.Context(), f.NodeID(flow, "e")); err != nil || got == nil {
			t.Errorf("got %v, %v", got, err)
		}
		if _, err := upkeep.Of(f.Engine).RepairQueue(t.Context(), 100); err != nil {
			t.Error(err)
		}
		f.StartMany(t, 1_000)
	})
}

// workThroughBouncer lets a worker run executions that others create, directly on the server: executions, a retry, a
// flow, and one that a handler creates in a transaction of its own.
func workThroughBouncer(t *testing.T, c *fixture.Crew, pool *pgxpool.Pool, poll time.Duration) {
	t.Helper()
	c.Work(t, worker.Config{PollInterval: poll}, func(w *worker.Worker) {
		fixture.HandleKind(w, "area", fixture.Area)
		fixture.HandleKind(w, "flaky", func(_ context.Context, job worker.Job[struct{}]) (int, error) {
			if job.Lease.Attempt == 0 {
				return 0, errors.New("once")
			}
			return job.Lease.Attempt, nil
		})
		fixture.HandleKind(w, "parent", func(ctx context.Context, _ worker.Job[struct{}]) (id.ExecutionID, error) {
			var created engine.Created
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
				created, err = c.Eng.WithTx(tx).CreateExecution(ctx, engine.ExecutionSpec{Lane: c.Lane, Kind: "area"})
				return err
			})
			c.Eng.Wake(c.Lane)
			return created.ID, err
		})
	})
	other := c.Rival(t)
	create := func(kind string, n int) {
		for range n {
			spec := engine.ExecutionSpec{Lane: c.Lane, Kind: kind, Payload: []byte(`{"Side": 3}`)}
			spec.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(10 * time.Millisecond)}}
			if _, err := other.CreateExecution(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("area", 50)
	c.Next(t, 50)
	create("flaky", 5)
	c.Next(t, 10)
	create("parent", 2)
	c.Next(t, 4)
	flow := fixture.Chart(nil, "a>b", "b>c", "a>d")
	for i := range flow.Nodes {
		flow.Nodes[i].Spec = engine.ExecutionSpec{Lane: c.Lane, Kind: "area"}
	}
	if _, err := other.CreateFlow(t.Context(), flow); err != nil {
		t.Fatal(err)
	}
	c.Next(t, 4)
	got := fixture.Texts(t, c.Pool, "SELECT count(*) || ' ' || public_state FROM ff_exec_core GROUP BY public_state")
	if len(got) != 1 || got[0] != "63 completed" {
		t.Errorf("got %q, want 63 completed", got)
	}
}

// crewBehind is workers whose engine goes through the pgbouncer.
func crewBehind(t *testing.T, open func(*testing.T, string) *pgxpool.Pool, configure func(url string) engine.Config) (*fixture.Crew, *pgxpool.Pool) {
	t.Helper()
	f := fixture.Clone(t)
	pool := open(t, f.Url)
	eng, err := engine.New(pool, configure(f.Url))
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = eng
	return &fixture.Crew{Fixture: f, Eng: eng, Settled: make(chan fixture.Settled, 1_000)}, pool
}

func TestPgBouncerWorkerWithoutAListener(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		c, pool := crewBehind(t, open, func(string) engine.Config { return engine.Config{NoListener: true} })
		workThroughBouncer(t, c, pool, 20*time.Millisecond)
	})
}

// It polls once an hour, and is notified of others' work.
func TestPgBouncerWorkerWithItsOwnListener(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		name := "listener-" + id.NewLeaseID().String()
		c, pool := crewBehind(t, open, func(url string) engine.Config {
			config, err := pgxpool.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.RuntimeParams["application_name"] = name
			return engine.Config{Listener: config}
		})
		workThroughBouncer(t, c, pool, time.Hour)
		if got := c.Listening(t, name); got != 1 {
			t.Errorf("%d connections listen, want 1", got)
		}
	})
}
