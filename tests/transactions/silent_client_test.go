//go:build unix

package transactions

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var asSilentClient = flag.Bool("silent.client", false, "be a process that stops in the middle of a call, told by its standard input")

// TestMain makes the test binary that process when a test starts it as one.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*asSilentClient {
		fixture.Main(m)
	}
	if err := beSilent(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// silentOrders are the parameters of such a process, as JSON.
type silentOrders struct {
	DatabaseURL string
	Parameters  map[string]string // of its connections
	Lane        id.LaneID
	Cut         cut
}

// A cut is where the process stops: with how much of the largest message sent.
type cut string

const beforeMessage cut = "between two statements"

const inMessage cut = "in the middle of a message"

const beforeSync cut = "in the middle of a round trip"

// The result it completes a member with: more than fits a connection's buffers.
const silentResult = 900 << 10

// stoppingConn stops the process while it sends a large message.
type stoppingConn struct {
	net.Conn
	cut cut
}

func (c *stoppingConn) Write(b []byte) (int, error) {
	if len(b) < silentResult || c.cut == "" {
		return c.Conn.Write(b)
	}
	n := map[cut]int{beforeMessage: 0, inMessage: len(b) / 2, beforeSync: len(b) - len("S\x00\x00\x00\x04")}[c.cut]
	c.cut = ""
	if _, err := c.Conn.Write(b[:n]); err != nil {
		return 0, err
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return 0, err
	}
	m, err := c.Conn.Write(b[n:])
	return n + m, err
}

func beSilent(input io.Reader, output io.Writer) error {
	var given silentOrders
	if err := json.NewDecoder(input).Decode(&given); err != nil {
		return err
	}
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(given.DatabaseURL)
	if err != nil {
		return err
	}
	config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = nil, nil // which sends in small pieces
	maps.Copy(config.ConnConfig.RuntimeParams, given.Parameters)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stoppingConn{Conn: conn, cut: given.Cut}, nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}
	claimed, err := eng.Claim(ctx, engine.ClaimSpec{Lane: given.Lane, Worker: "silent", Instance: "silent", LeaseTTL: fixture.LeaseTTL}, 1)
	if err != nil || len(claimed) != 1 {
		return fmt.Errorf("claimed %v, %w", claimed, err)
	}
	err = eng.CompleteExecution(ctx, claimed[0].Lease, make([]byte, silentResult))
	if !errors.Is(err, fferr.ErrTransport) {
		return fmt.Errorf("got %w, want a transport error", err)
	}
	_, err = fmt.Fprintln(output, err)
	return err
}

// A process that stops in the middle of a call keeps its locks for a limited time, at every point: its machine keeps
// answering for it, so the network never shows it.
func TestFrozenProcessReleasesItsLocks(t *testing.T) {
	limited := fixture.Another(t).LimitsTransactions(t)
	cuts := []cut{beforeMessage, inMessage}
	if limited {
		cuts = append(cuts, beforeSync) // before PostgreSQL 17 the server waits for the rest: docs/database.md
	}
	for _, where := range cuts {
		t.Run(string(where), func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			limits := map[string]string{"idle_in_transaction_session_timeout": "1s"} // smaller ones than the engine's are kept
			if limited {
				limits = map[string]string{"transaction_timeout": "1s"}
			}
			flow := f.Draw(t, nil, "a>b")
			name := "silent-" + f.Fixture.Name
			limits["application_name"] = name
			p := startSilent(t, silentOrders{DatabaseURL: f.Url, Parameters: limits, Lane: f.Lane, Cut: where})
			p.awaitStop(t)
			fixture.Await(t, "the server to let go of a stopped process", func() bool {
				return len(fixture.Texts(t, f.Pool, "SELECT state FROM pg_stat_activity WHERE application_name = $1 AND xact_start IS NOT NULL", name)) == 0
			})

			// Others go on while it stands still. By the fixture's clock its lease has run out.
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			f.Succeed(t, flow, "a")
			f.WantState(t, f.NodeID(flow, "b"), fixture.StateReady)
			p.goOn(t)
			f.WantState(t, f.NodeID(flow, "a"), fixture.StateCompleted)
		})
	}
}

// The limits hold inside the engine's transactions, and smaller ones of the pool's are kept.
func TestTransactionTimeLimits(t *testing.T) {
	t.Parallel()
	shared := fixture.Clone(t)
	shared.Exec(t, "CREATE TABLE seen (application text, name text, setting text)")
	shared.AtCommit(t, `INSERT INTO seen SELECT DISTINCT current_setting('application_name'), name, current_setting(name)
		FROM pg_settings WHERE name IN ('transaction_timeout', 'idle_in_transaction_session_timeout', 'statement_timeout', 'lock_timeout')`)
	limits := []string{"idle_in_transaction_session_timeout", "statement_timeout"}
	if shared.LimitsTransactions(t) {
		limits = []string{"transaction_timeout"}
	}
	for _, c := range []struct{ pool, want, wantLocks string }{
		{"0", "30s", "2s"}, {"1h", "30s", "2s"}, {"700ms", "700ms", "700ms"}, {"10s", "10s", "2s"},
	} {
		t.Run(c.pool, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.On(t, shared.Pool, shared.Url))
			flow := f.Draw(t, nil, "a>b")
			l := f.Lease(t, flow, "a")
			r := f.Rival(t, func(config *pgxpool.Config) {
				for _, name := range append(limits, "lock_timeout") {
					config.ConnConfig.RuntimeParams[name] = c.pool
				}
			})
			if err := r.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
			for _, name := range append(limits, "lock_timeout") {
				want := c.want
				if name == "lock_timeout" {
					want = c.wantLocks
				}
				got := fixture.Texts(t, f.Pool, "SELECT DISTINCT setting FROM seen WHERE application = $1 AND name = $2", r.Name, name)
				if !slices.Equal(got, []string{want}) {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
}

// Before PostgreSQL 17 a message that may be cut is sent by itself. Small ones travel together everywhere.
func TestLargeResultsTakeOneRoundTrip(t *testing.T) {
	f := fixture.FlowsOn(fixture.New(t))
	log := new(fixture.RoundTripLog)
	e := f.WithPool(fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }))
	for size, want := range map[int]int{10: 3, silentResult: 5} {
		if f.LimitsTransactions(t) {
			want = 3
		}
		l := f.Lease(t, f.Draw(t, nil, "a"), "a")
		sent, trips := log.Of(func() {
			if err := e.CompleteExecution(t.Context(), l, make([]byte, size)); err != nil {
				t.Error(err)
			}
		})
		if trips != want {
			t.Errorf("%d bytes take %q in %d round trips, want %d", size, sent, trips, want)
		}
	}
}

// silentProcess is a process that stops in the middle of a call.
type silentProcess struct {
	cmd    *exec.Cmd
	output *bufio.Reader
	stderr bytes.Buffer
}

func startSilent(t *testing.T, orders silentOrders) *silentProcess {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	given, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	p := new(silentProcess)
	p.cmd = exec.CommandContext(t.Context(), program, "-silent.client")
	p.cmd.Stdin, p.cmd.Stderr = bytes.NewReader(given), &p.stderr
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.output = bufio.NewReader(output)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *silentProcess) awaitStop(t *testing.T) {
	t.Helper()
	fixture.Await(t, "the process to stop", func() bool {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if err != nil || pid != 0 && !status.Stopped() {
			t.Fatalf("it ended: %v %v: %s", status, err, p.stderr.String())
		}
		return pid != 0
	})
}

// goOn lets the process go on, whose call has failed.
func (p *silentProcess) goOn(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if line, err := p.output.ReadString('\n'); err != nil {
		t.Errorf("told %q, %v: %s", line, err, p.stderr.String())
	}
}
