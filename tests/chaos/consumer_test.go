//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// The course of a consumer test: writers complete executions while the consumer's processes are killed, and frozen
// for longer than they may hold it.
const (
	consumerWriters   = 4
	consumerProcesses = 3
)

// The table that the handler wrote equals the events, row for row, after any kills of its processes.
func TestConsumerSurvivesRandomKills(t *testing.T) {
	t.Parallel()
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprintf("batches=%v", batches), func(t *testing.T) {
			t.Parallel()
			killConsumers(t, consumerOrders{Batches: batches})
		})
	}
}

// The same through a pooler that gives each transaction another connection.
func TestPgBouncerConsumerSurvivesRandomKills(t *testing.T) {
	t.Parallel()
	killConsumers(t, consumerOrders{Port: startBouncer(t)})
}

// consumers is the processes of a consumer.
type consumers struct {
	t      *testing.T
	orders consumerOrders
	as     string            // the flag of its processes; "": those of a consumer
	onLine func(line string) // is called for each line of their output; nil: no function
	alive  sync.WaitGroup

	mu      sync.Mutex
	harms   []harm // that are still to come, the next one first
	begun   int
	all     []*consumerProcess
	ended   bool
	calls   int
	kills   int
	freezes int
}

// A harm is done to the process whose handler is called then.
type harm struct {
	afterCalls int
	freeze     bool
}

// someHarms come at random moments, and all of them before the last quarter of the calls for so many events.
func someHarms(events, kills, freezes int) []harm {
	harms := make([]harm, kills+freezes)
	for i := range harms {
		harms[i] = harm{afterCalls: rand.N(events * 3 / 4), freeze: i < freezes}
	}
	slices.SortFunc(harms, func(a, b harm) int { return cmp.Compare(a.afterCalls, b.afterCalls) })
	return harms
}

// consumerProcess is one of them.
type consumerProcess struct {
	name   string
	cmd    *exec.Cmd
	input  io.WriteCloser
	stderr bytes.Buffer
	exited chan struct{} // closed when it has
	killed bool
	frozen bool
}

func killConsumers(t *testing.T, orders consumerOrders) {
	t.Helper()
	n := soak.Size(t, 1_000, 4_000)
	orders.DatabaseURL = pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), orders.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	makeNoted(t, pool)
	c := &consumers{t: t, orders: orders, harms: someHarms(n, soak.Size(t, 3, 8), soak.Size(t, 1, 2))}
	for range consumerProcesses {
		c.start()
	}
	var writers sync.WaitGroup
	for i := range consumerWriters {
		writers.Go(func() { complete(t, pool, id.LaneID(fmt.Sprintf("chaos-%d", i)), n/consumerWriters) })
	}
	writers.Wait()
	awaitNoted(t, pool, n)
	c.stop()
	by := texts(t, pool, "SELECT by || ': ' || count(*) FROM noted GROUP BY by ORDER BY count(*) DESC")
	t.Logf("%d calls of the handler for %d events, %d processes killed, %d frozen; %s", c.calls, n, c.kills, c.freezes, strings.Join(by, ", "))
	if len(by) < 2 || len(c.harms) > 0 {
		t.Error("that was too little chaos to prove anything")
	}
	wantNone(t, pool, "the events and what was noted of them differ", `
		SELECT n.*, c.event_id AS of_event FROM ff_completion_event AS c
		FULL JOIN noted AS n ON n.event_id = c.event_id
		WHERE (n.event_id, n.partition_key, n.execution_id, n.outcome, n.occurred_at_ms)
			IS DISTINCT FROM (c.event_id, c.partition_key::integer, c.execution_id::text, c.outcome, c.occurred_at_ms)`)
	wantNone(t, pool, "an event was noted twice", "SELECT event_id, array_agg(by) FROM noted GROUP BY event_id HAVING count(*) > 1")
	wantNone(t, pool, "an event is missing", "SELECT count(*) FROM noted HAVING count(*) <> $1", n)
	wantNone(t, pool, "an event was set aside", "SELECT * FROM ffx_outbox_set_aside")
}

func makeNoted(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `CREATE TABLE noted (event_id bigint, partition_key integer, execution_id text, outcome text,
		occurred_at_ms bigint, by text, at_ms bigint DEFAULT extract(epoch FROM clock_timestamp()) * 1000)`)
	if err != nil {
		t.Fatal(err)
	}
}

// complete creates n executions, claims and completes them, a few at a time.
func complete(t *testing.T, pool *pgxpool.Pool, lane id.LaneID, n int) {
	eng, err := engine.New(pool, engine.Config{NoListener: true})
	if err != nil {
		t.Error(err)
		return
	}
	for done := 0; done < n; {
		specs := make([]engine.ExecutionSpec, min(20, n-done))
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Lane: lane, Kind: "plain"}
		}
		if _, err := eng.CreateExecutions(t.Context(), specs); err != nil {
			t.Error(err)
			return
		}
		claimed, err := eng.Claim(t.Context(), engine.ClaimSpec{
			Lane: lane, Worker: "chaos", Instance: id.WorkerInstanceID(lane), LeaseTTL: time.Minute,
		}, len(specs))
		if err != nil || len(claimed) != len(specs) {
			t.Errorf("%d claimed, %v", len(claimed), err)
			return
		}
		for _, x := range claimed {
			if err := eng.CompleteExecution(t.Context(), x.Lease, nil); err != nil {
				t.Error(err)
				return
			}
		}
		done += len(specs)
		pause(t.Context(), rand.N(100*time.Millisecond))
	}
}

// start starts a process. One that is killed is replaced.
func (c *consumers) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.begun++
	p := &consumerProcess{name: fmt.Sprintf("process %d", c.begun), exited: make(chan struct{})}
	program, err := os.Executable()
	if err != nil {
		c.t.Error(err)
		return
	}
	p.cmd = exec.CommandContext(c.t.Context(), program, cmp.Or(c.as, "-chaos.consumer"))
	p.cmd.Stderr = &p.stderr
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		c.t.Error(err)
		return
	}
	output, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		c.t.Error(err)
		return
	}
	orders := c.orders
	orders.Name = p.name
	if err := json.NewEncoder(p.input).Encode(orders); err != nil {
		c.t.Error(err)
	}
	c.all = append(c.all, p)
	c.alive.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if c.onLine != nil {
				c.onLine(lines.Text())
			}
			c.called(p)
		}
		err := p.cmd.Wait()
		close(p.exited)
		c.mu.Lock()
		killed := p.killed
		c.mu.Unlock()
		if err != nil && !killed {
			c.t.Errorf("%s ended by itself: %v: %s", p.name, err, p.stderr.String())
		}
		if killed {
			c.start()
		}
	})
}

// called decides whether to disturb a process whose handler was called: it may be killed in that transaction, in its
// commit or a little later, or be frozen.
func (c *consumers) called(p *consumerProcess) {
	c.mu.Lock()
	c.calls++
	kill, freeze := false, false
	if len(c.harms) > 0 && c.calls > c.harms[0].afterCalls && !c.ended && !p.killed && !p.frozen {
		freeze = c.harms[0].freeze
		kill = !freeze
		c.harms = c.harms[1:]
		if kill {
			c.kills++
		} else {
			c.freezes++
		}
	}
	c.mu.Unlock()
	if kill {
		pause(c.t.Context(), rand.N(20*time.Millisecond))
		c.kill(p)
	}
	if freeze {
		c.freeze(p)
	}
}

func (c *consumers) kill(p *consumerProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.killed = true
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
}

// freeze stops a process, which knows nothing of it when it goes on. Then its hold, and the time of its transaction, are over.
func (c *consumers) freeze(p *consumerProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.frozen = true
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	c.alive.Go(func() {
		pause(c.t.Context(), 6*time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		p.frozen = false
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	})
}

// stop lets the processes that are left finish.
func (c *consumers) stop() {
	c.mu.Lock()
	c.ended = true
	for _, p := range c.all {
		_ = p.input.Close()
	}
	c.mu.Unlock()
	c.alive.Wait()
}

// After the kill of the process at work another one goes on, once its hold is over. That is at most four seconds later.
func TestConsumerIsTakenOverAfterAKill(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	makeNoted(t, pool)
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := &consumers{t: t, orders: consumerOrders{DatabaseURL: url}}
	for range 2 {
		c.start()
	}
	// A hold is seen unless this process gets to look only when it is over.
	for seen, n := false, 0; !seen || n < 2*2; n += 2 {
		complete(t, pool, "chaos", 1)
		awaitNoted(t, pool, n+1)
		holder := awaitHolder(t, eng)
		at := c.at(holder)
		if at == nil {
			t.Fatalf("nobody is %s", holder)
		}
		c.kill(at)
		<-at.exited
		left := texts(t, pool, `SELECT (held_until_ms - (extract(epoch FROM clock_timestamp()) * 1000)::bigint)::text
			FROM ffx_outbox_consumer WHERE holder = $1`, holder)
		if len(left) > 0 {
			seen = true
			if ms, err := strconv.Atoi(left[0]); err != nil || ms > 4_000 {
				t.Errorf("a process that is dead holds the consumer for another %s ms, want at most 4000", left[0])
			}
		}
		complete(t, pool, "chaos", 1)
		awaitNoted(t, pool, n+2)
		if next := awaitHolder(t, eng); next == holder {
			t.Errorf("%s still holds the consumer", holder)
		}
	}
	c.stop()
}

// at returns the process that is a consumer's holder.
func (c *consumers) at(holder string) *consumerProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.all {
		if strings.Contains(holder, "/"+strconv.Itoa(p.cmd.Process.Pid)+"/") {
			return p
		}
	}
	return nil
}

func awaitHolder(t *testing.T, eng *engine.Engine) (holder string) {
	t.Helper()
	progress.Until(t, "a process to hold the consumer", func() bool {
		all, err := events.Consumers(t.Context(), eng)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 {
			holder = all[0].Holder
		}
		return holder != ""
	})
	return holder
}

// awaitNoted waits until so many events are noted.
func awaitNoted(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	progress.Equal(t, "events to be noted", strconv.Itoa(n), func() string {
		return texts(t, pool, "SELECT count(DISTINCT event_id)::text FROM noted")[0]
	})
}

func texts(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// startBouncer starts a PgBouncer in transaction mode before the server of the tests and returns its port.
func startBouncer(t *testing.T) uint16 {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("this test needs a pgbouncer: apt-get install pgbouncer, or brew install pgbouncer; make test leaves it out without one")
		}
	}
	server, err := pgx.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	settings := fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
`, quote(server.Host), server.Port, quote(server.User), quote(server.Password), port)
	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Geteuid() == 0 {
		args = []string{"-u", "nobody", file} // it reads the file first
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	progress.Until(t, "pgbouncer to listen", func() bool {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	return uint16(port)
}
