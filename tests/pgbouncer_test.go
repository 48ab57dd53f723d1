package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// bouncer is a PgBouncer in transaction mode before the server of the tests. It gives all clients of a database four
// connections, fewer than each of them has of its own.
type bouncer struct {
	port  int
	modes []pgx.QueryExecMode // those that work through it
}

const bouncerSettings = `[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
`

func newBouncer(t *testing.T) *bouncer {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("these tests need a pgbouncer: apt-get install pgbouncer, or brew install pgbouncer; make test leaves them out without one")
		}
	}
	server, err := pgx.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &bouncer{port: freePort(t), modes: []pgx.QueryExecMode{pgx.QueryExecModeExec}}
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	settings := fmt.Sprintf(bouncerSettings, quote(server.Host), server.Port, quote(server.User), quote(server.Password), b.port)
	if keepsStatements(t, program) {
		settings += "max_prepared_statements = 200\n"
		b.modes = append(b.modes, pgx.QueryExecModeCacheStatement)
	}
	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Geteuid() == 0 {
		args = []string{"-u", "nobody", file} // it reads the file first
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", log.String())
		}
	})
	await(t, "pgbouncer to listen", func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)))
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	return b
}

// keepsStatements says whether a pgbouncer serves prepared statements in transaction mode: 1.21 and newer do.
func keepsStatements(t *testing.T, program string) bool {
	t.Helper()
	output, err := exec.Command(program, "--version").Output()
	version := regexp.MustCompile(`PgBouncer (\d+)\.(\d+)`).FindSubmatch(output)
	if err != nil || version == nil {
		t.Fatalf("%s --version: %v: %s", program, err, output)
	}
	major, _ := strconv.Atoi(string(version[1]))
	minor, _ := strconv.Atoi(string(version[2]))
	return major > 1 || minor >= 21
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// eachMode runs a test in each of the ways to send statements that work through a pgbouncer.
func eachMode(t *testing.T, test func(t *testing.T, open func(t *testing.T, url string) *pgxpool.Pool)) {
	t.Parallel()
	b := newBouncer(t)
	for _, mode := range b.modes {
		t.Run(mode.String(), func(t *testing.T) {
			test(t, func(t *testing.T, url string) *pgxpool.Pool {
				return openPool(t, url, func(config *pgxpool.Config) {
					config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", uint16(b.port)
					config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = nil, nil
					config.ConnConfig.DefaultQueryExecMode = mode
				})
			})
		})
	}
}

// throughBouncer is a fixture on a database of its own, which reads it directly; its engine goes through the pgbouncer.
func throughBouncer(t *testing.T, open func(*testing.T, string) *pgxpool.Pool, cfg engine.Config) (*fixture, *pgxpool.Pool) {
	t.Helper()
	f := newClone(t)
	pool := open(t, f.url)
	f.Engine = f.engineOn(t, pool, cfg)
	return f, pool
}

func TestPgBouncer_operations(t *testing.T) {
	eachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		for _, o := range operations() {
			t.Run(o.name, func(t *testing.T) {
				f, pool := throughBouncer(t, open, engine.Config{NoListener: true})
				l := o.arrange(t, f)
				before := f.dump(t, l.Execution)
				if err := o.refused(t.Context(), f, f.Engine, l); !errors.Is(err, o.reason) {
					t.Errorf("got %v, want %v", err, o.reason)
				}
				tx := beginWith(t, pool, pgx.TxOptions{})
				if err := o.refused(t.Context(), f, f.WithTx(tx), l); !errors.Is(err, o.reason) {
					t.Errorf("got %v, want %v", err, o.reason)
				}
				if err := o.do(t.Context(), f, f.WithTx(tx), l); err != nil {
					t.Fatal(err)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.wantUnchanged(t, l.Execution, before)
				if err := o.do(t.Context(), f, f.Engine, l); err != nil {
					t.Fatal(err)
				}
				o.wantDone(t, f, l, before)
			})
		}
	})
}

func TestPgBouncer_flows_and_reads(t *testing.T) {
	eachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		base, _ := throughBouncer(t, open, engine.Config{NoListener: true})
		f := flowsOn(base)
		flow := f.draw(t, when{"e": policy.AnyOf(policy.LetRun)}, "a>b", "b>c", "a>d", "b>e", "d>e")
		f.succeed(t, flow, "a")
		f.succeed(t, flow, "b", "d")
		f.succeed(t, flow, "c", "e")
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			f.wantState(t, f.NodeID(flow, key), stateCompleted)
		}
		lost := f.draw(t, nil, "a>b", "b>c")
		if _, err := f.FailExecution(t.Context(), f.lease(t, lost, "a"), forGood); err != nil {
			t.Fatal(err)
		}
		f.wantState(t, f.NodeID(lost, "c"), stateSkipped)

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
		if _, err := f.Maintenance().RepairQueue(t.Context(), 100); err != nil {
			t.Error(err)
		}
		f.startMany(t, 1_000)
	})
}

// workThroughBouncer lets a worker do what others create, directly on the server: executions, a retry, a flow, and one
// that a handler creates in a transaction of its own.
func workThroughBouncer(t *testing.T, c *crew, pool *pgxpool.Pool, poll time.Duration) {
	t.Helper()
	c.work(t, worker.Config{PollInterval: poll}, func(w *worker.Worker) {
		on(w, "area", area)
		on(w, "flaky", func(_ context.Context, job worker.Job[struct{}]) (int, error) {
			if job.Lease.Attempt == 0 {
				return 0, errors.New("once")
			}
			return job.Lease.Attempt, nil
		})
		on(w, "parent", func(ctx context.Context, _ worker.Job[struct{}]) (id.ExecutionID, error) {
			var created engine.Created
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
				created, err = c.eng.WithTx(tx).CreateExecution(ctx, engine.ExecutionSpec{Lane: c.lane, Kind: "area"})
				return err
			})
			c.eng.Wake(c.lane)
			return created.ID, err
		})
	})
	other := c.rival(t)
	create := func(kind string, n int) {
		for range n {
			spec := engine.ExecutionSpec{Lane: c.lane, Kind: kind, Payload: []byte(`{"Side": 3}`)}
			spec.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(10 * time.Millisecond)}}
			if _, err := other.CreateExecution(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("area", 50)
	c.next(t, 50)
	create("flaky", 5)
	c.next(t, 10)
	create("parent", 2)
	c.next(t, 4)
	flow := chart(nil, "a>b", "b>c", "a>d")
	for i := range flow.Nodes {
		flow.Nodes[i].Spec = engine.ExecutionSpec{Lane: c.lane, Kind: "area"}
	}
	if _, err := other.CreateFlow(t.Context(), flow); err != nil {
		t.Fatal(err)
	}
	c.next(t, 4)
	got := texts(t, c.pool, "SELECT count(*) || ' ' || public_state FROM ff_exec_core GROUP BY public_state")
	if len(got) != 1 || got[0] != "63 completed" {
		t.Errorf("got %q, want 63 completed", got)
	}
}

// crewBehind is workers whose engine goes through the pgbouncer.
func crewBehind(t *testing.T, open func(*testing.T, string) *pgxpool.Pool, configure func(url string) engine.Config) (*crew, *pgxpool.Pool) {
	t.Helper()
	f := newClone(t)
	pool := open(t, f.url)
	eng, err := engine.New(pool, configure(f.url))
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = eng
	return &crew{fixture: f, eng: eng, settled: make(chan settled, 1_000)}, pool
}

func TestPgBouncer_worker_without_a_listener(t *testing.T) {
	eachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		c, pool := crewBehind(t, open, func(string) engine.Config { return engine.Config{NoListener: true} })
		workThroughBouncer(t, c, pool, 20*time.Millisecond)
	})
}

// It looks once an hour: what others make, it hears of.
func TestPgBouncer_worker_with_a_listener_of_its_own(t *testing.T) {
	eachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
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
		if got := c.listening(t, name); got != 1 {
			t.Errorf("%d connections listen, want 1", got)
		}
	})
}
