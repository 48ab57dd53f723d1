//go:build unix

package events

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// server is a Postgres server of a test's own, which survives crashes. If the test is root, it runs as user "nobody".
type server struct {
	bin, data string
	port      int
	as        *syscall.SysProcAttr
	process   *exec.Cmd
}

// newServer makes a cluster by the programs of an installed server.
func newServer(t *testing.T) *server {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		if len(found) == 0 {
			t.Skip("no initdb: a crash needs a server of the test's own")
		}
		initdb = found[len(found)-1]
	}
	if real, err := filepath.EvalSymlinks(initdb); err == nil { // which its other programs stand beside
		initdb = real
	}
	folder, err := os.MkdirTemp("", "crash")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	s := &server{bin: filepath.Dir(initdb), data: filepath.Join(folder, "data"), port: fixture.FreePort(t)}
	if os.Geteuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := os.Chown(folder, uid, gid); err != nil {
			t.Fatal(err)
		}
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	cmd := exec.Command(initdb, "-D", s.data, "-U", "postgres", "-A", "trust", "--no-sync", "--encoding=UTF8")
	cmd.SysProcAttr, cmd.Dir = s.as, folder
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, output)
	}
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

func (s *server) url() string {
	return (&url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "postgres",
		RawQuery: "sslmode=disable",
	}).String()
}

func (s *server) start(t *testing.T) {
	t.Helper()
	s.process = exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data, "-p", strconv.Itoa(s.port), "-k", "",
		"-c", "listen_addresses=127.0.0.1", "-c", "max_prepared_transactions=5", "-c", "wal_sync_method=fdatasync",
		"-c", "wal_writer_delay=10s", "-c", "autovacuum=off", "-c", "shared_buffers=16MB")
	s.process.SysProcAttr, s.process.Dir = s.as, filepath.Dir(s.data)
	s.process.Stderr = io.Discard // by a pipe, which its children have too
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	fixture.Await(t, "the server to start", func() bool {
		conn, err := pgx.Connect(t.Context(), s.url())
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
}

// kill ends the server with all its sessions at once, as a loss of power would.
func (s *server) kill(t *testing.T) {
	t.Helper()
	pid := s.process.Process.Pid
	all := []int{pid}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(children)) {
		n, _ := strconv.Atoi(child)
		all = append(all, n)
	}
	for _, p := range all {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
	_ = s.process.Wait() // and for the pipe, until the last child has ended: while one does, no server starts on the data
	_ = os.Remove(filepath.Join(s.data, "postmaster.pid"))
}

// onServer is a fixture on a server of its own.
func onServer(t *testing.T) (*server, *fixture.Fixture) {
	t.Helper()
	t.Parallel()
	s := newServer(t)
	pool := fixture.OpenPool(t, s.url(), nil)
	if _, err := schema.Migrate(t.Context(), pool, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	return s, fixture.On(t, pool, s.url())
}

// After a crash the sequence assigns ids again that only rolled-back transactions had used. Readers that had passed
// the hole, or had begun after it, get the events that have these ids then.
func TestOutboxSurvivesACrash(t *testing.T) {
	s, f := onServer(t)
	insertLeasesInto(t, f, 3)
	f.Exec(t, "CHECKPOINT")
	first := follow(t, f, outbox.Options{})
	hole := f.BeginTx(t)
	insertLease(t, f, hole)
	rollBack(t, hole)
	base := insertLeasesInto(t, f, 1)
	want(t, first, base) // it has passed a hole
	var rolled int64
	tx := f.BeginTx(t)
	for range 100 { // beyond the ids in the log
		rolled = insertLease(t, f, tx)
	}
	rollBack(t, tx)
	now := follow(t, f, outbox.Options{})
	s.kill(t)
	s.start(t)
	var again int64
	fixture.Await(t, "an event after the crash", func() bool {
		err := pgx.BeginFunc(t.Context(), f.Pool, func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
				VALUES (gen_random_uuid()::text, 'renewed', 1, 7) RETURNING event_id`).Scan(&again)
		})
		return err == nil
	})
	if again > rolled {
		t.Logf("the sequence went on at %d, behind %d: nothing was given out again", again, rolled)
	}
	late := f.BeginTx(t)
	a, b := insertLease(t, f, late), insertLeasesInto(t, f, 1)
	fixture.Commit(t, late)
	want(t, first, again, a, b)
	want(t, now, again, a, b)
}

// A prepared transaction has no process, and another name perhaps.
func TestOutboxWaitsForPreparedTransactions(t *testing.T) {
	s, f := onServer(t)
	sub := follow(t, f, outbox.Options{})
	long, err := pgx.Connect(t.Context(), s.url())
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close(t.Context())
	run := func(statement string) {
		t.Helper()
		if _, err := long.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run("BEGIN")
	run("SET LOCAL ffx.defer_notify = on") // a transaction that notifies cannot be prepared
	var a int64
	if err := long.QueryRow(t.Context(), `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
		VALUES (gen_random_uuid()::text, 'renewed', 1, 7) RETURNING event_id`).Scan(&a); err != nil {
		t.Fatal(err)
	}
	b := insertLeasesInto(t, f, 1)
	awaitHolding(t, f, outbox.Lease)
	run("PREPARE TRANSACTION 'later'")
	fixture.Await(t, "it to be seen as prepared", func() bool {
		stats := fixture.Outboxes(f.Engine).Stats()
		return len(stats) == 1 && slices.Equal(stats[0].Holders, []int32{0})
	})
	run("COMMIT PREPARED 'later'")
	want(t, sub, a, b)
}

// crash kills one session, for which the server ends all its processes and starts others.
func (s *server) crash(t *testing.T) {
	t.Helper()
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), s.url())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	victim, witness := connect(), connect()
	defer victim.Close(t.Context())
	defer witness.Close(t.Context())
	if err := syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The server ends the others once it has seen the death of one. Before that it still takes connections.
	fixture.Await(t, "the other sessions to be ended", func() bool { return witness.Ping(t.Context()) != nil })
	fixture.Await(t, "the server to take connections again", func() bool {
		conn, err := pgx.Connect(t.Context(), s.url())
		return err == nil && conn.Close(t.Context()) == nil
	})
}

// A crash of one process ends all sessions and gives ids out again, though the server's start stays the same. A grace period
// that began before it settles none of them, also for a reader that keeps no session of its own.
func TestOutboxRestartsAfterACrashOfOneProcess(t *testing.T) {
	s, f := onServer(t)
	insertLeasesInto(t, f, 3)
	f.Exec(t, "CHECKPOINT")
	clock, asked := fixture.Start, false
	var late pgx.Tx
	var a, b int64
	steps, err := fixture.Outboxes(keepingNoConnections(t, f)).Stepper(t.Context(), outbox.Lease, func() time.Time { return clock }, func(statement string) error {
		asked = asked || statement == "writers"
		if statement != "page" || !asked || late != nil { // it is the page behind the grace period
			return nil
		}
		s.crash(t)
		conn, err := pgx.Connect(t.Context(), s.url())
		if err != nil {
			return err
		}
		if late, err = conn.Begin(t.Context()); err != nil {
			return err
		}
		a, b = insertLease(t, f, late), insertLeasesInto(t, &fixture.Fixture{Engine: f.Engine, Pool: fixture.OpenPool(t, s.url(), nil)}, 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	hole := f.BeginTx(t)
	insertLease(t, f, hole)
	rollBack(t, hole)
	insertLeasesInto(t, f, 1)
	rolledBack := f.BeginTx(t)
	var last int64
	for range 100 { // beyond the ids in the log
		last = insertLease(t, f, rolledBack)
	}
	rollBack(t, rolledBack)
	for range 10 {
		if _, _, err := steps.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock = clock.Add(150 * time.Millisecond)
	}
	if a > last {
		t.Logf("the sequence went on at %d, behind %d: nothing was given out again", a, last)
	}
	if late == nil || steps.Low() >= a {
		t.Errorf("at %d, while %d is open before %d", steps.Low(), a, b)
	}
	fixture.Commit(t, late)
	fixture.Await(t, "both events", func() bool {
		if _, _, err := steps.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock = clock.Add(150 * time.Millisecond)
		return steps.Low() == b
	})
}
