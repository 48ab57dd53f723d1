//go:build linux || darwin

package pgserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// newServer is an embedded server that only the test, and code that gets its name, can find.
func newServer(t *testing.T, purpose Purpose, name string) *embedded {
	t.Helper()
	e, err := newEmbedded(17, Options{Purpose: purpose, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	e.name = name
	t.Cleanup(func() {
		folders, _ := e.folders()
		for _, file := range append(folders, e.recordPath()) {
			if err := os.RemoveAll(file); err != nil {
				t.Error(err)
			}
		}
	})
	return e
}

// hung is when a server has hung, however slow the machine is.
const hung = 15 * time.Minute

func mustStart(t *testing.T, e *embedded) (s *Server, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	s, what, err := e.findOrStart(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s, what
}

// stopNow stops a server of any purpose and removes its data.
func stopNow(t *testing.T, s *Server) {
	t.Helper()
	s.purpose = Demo
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// observe returns a session that is no user of the server and a function that waits for the session's end by a
// shutdown.
func observe(t *testing.T, serverURL string) (conn *pgx.Conn, awaitShutdown func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), serverURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn, func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), hung)
		defer cancel()
		_, err := conn.WaitForNotification(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the server still runs after %v", hung)
		}
		if err == nil {
			t.Fatal("a notification came from nowhere")
		}
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// shuttingDown reports whether err is a server's last answer: it refuses the session, or ends before it answers.
func shuttingDown(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refusal.Code == "57P03" || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrUnexpectedEOF)
}

func TestEmbeddedIsSharedAndStoppedByTheLast(t *testing.T) {
	t.Parallel()
	e := newServer(t, Demo, "selftest-shared")

	servers := make([]*Server, 4)
	var started sync.WaitGroup
	for i := range servers {
		started.Go(func() {
			s, _, err := e.findOrStart(t.Context())
			if err != nil {
				t.Error(err)
			}
			servers[i] = s
		})
	}
	started.Wait()
	if t.Failed() {
		return
	}
	rec, _ := e.readRecord()
	for i, s := range servers {
		if s.URL() != servers[0].URL() {
			t.Fatalf("two servers, at %s and %s", servers[0].URL(), s.URL())
		}
		if i > 0 {
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	conn, awaitShutdown := observe(t, servers[0].URL())
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatalf("stopped while it was used: %v", err)
	}
	if err := servers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	awaitShutdown()
	_, err := pgx.Connect(t.Context(), rec.url())
	for shuttingDown(err) {
		_, err = pgx.Connect(t.Context(), rec.url())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to a stopped server: %v", err)
	}
	if exists(t, filepath.Join(rec.Folder, "data")) {
		t.Errorf("the data in %s was not removed", rec.Folder)
	}
}

// requireSettings fails unless the server has what its purpose asks for. Each purpose is checked on the server of another test,
// for a server takes seconds of processor time.
func requireSettings(t *testing.T, s *Server, want string) {
	t.Helper()
	var got string
	err := s.ref.QueryRow(t.Context(),
		`SELECT format('fsync=%s synchronous_commit=%s password=%s', current_setting('fsync'), current_setting('synchronous_commit'),
			(SELECT left(rolpassword, 3) FROM pg_authid WHERE rolname = current_user))`).Scan(&got)
	if err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestEmbeddedDevKeepsDataAndURL(t *testing.T) {
	t.Parallel()
	e := newServer(t, Dev, "selftest-dev")
	first, _ := mustStart(t, e)
	requireSettings(t, first, "fsync=on synchronous_commit=on password=SCR")
	if _, err := first.ref.Exec(t.Context(), "CREATE TABLE kept ()"); err != nil {
		t.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second, what := mustStart(t, e)
	t.Cleanup(func() { stopNow(t, second) })
	if second.URL() != first.URL() {
		t.Errorf("URL %s, was %s", second.URL(), first.URL())
	}
	if !strings.Contains(what, "started") {
		t.Errorf("%q, want a new start", what)
	}
	if _, err := second.ref.Exec(t.Context(), "TABLE kept"); err != nil {
		t.Error(err)
	}
}

// If the data of a server for development was deleted, it starts with an empty database at the same URL, and says so. Other
// folders, which may be copies, stay.
func TestEmbeddedDevStartsAfreshWithoutItsData(t *testing.T) {
	t.Parallel()
	e := newServer(t, Dev, "selftest-lost")
	var log strings.Builder
	e.Log = &log
	first, _ := mustStart(t, e)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	rec, _ := e.readRecord()
	kept := rec.Folder + ".copy"
	if err := os.Rename(rec.Folder, kept); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	second, _ := mustStart(t, e)
	t.Cleanup(func() { stopNow(t, second) })
	if want := "The data in " + rec.Folder + " is gone."; !strings.Contains(log.String(), want) {
		t.Errorf("says %q, want %q", log.String(), want)
	}
	if second.URL() != first.URL() || !exists(t, kept) {
		t.Errorf("URL %s, was %s; the copy exists: %t", second.URL(), first.URL(), exists(t, kept))
	}
}

func TestEmbeddedCanBeKept(t *testing.T) {
	t.Parallel()
	e := newServer(t, Demo, "selftest-keep")
	kept, _ := mustStart(t, e)
	requireSettings(t, kept, "fsync=on synchronous_commit=on password=SCR")
	conn, awaitShutdown := observe(t, kept.URL())
	kept.Keep()
	if err := kept.Stop(); err != nil {
		t.Fatal(err)
	}
	// No session is left that would end the server.
	_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1)", watchLock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock($1)", watchLock); err != nil {
		t.Fatal(err)
	}
	found, what := mustStart(t, e)
	if found.URL() != kept.URL() || !strings.Contains(what, "was running") {
		t.Errorf("%q, want the kept server", what)
	}
	if err := found.Stop(); err != nil {
		t.Fatal(err)
	}
	awaitShutdown()
}

// When a process is killed its reference ends, and so does the server.
func TestEmbeddedEndsAfterItsUserIsKilled(t *testing.T) {
	t.Parallel()
	const name = "selftest-killed"
	e := newServer(t, Demo, name)
	user := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUserProcess$", "-test.v")
	user.Env = append(os.Environ(), "PGSERVER_TEST_USER="+name)
	stdin, err := user.StdinPipe() // the process waits for its end
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := user.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	var serverURL string
	for lines := bufio.NewScanner(stdout); serverURL == "" && lines.Scan(); {
		serverURL, _ = strings.CutPrefix(lines.Text(), "serving ")
		if !strings.HasPrefix(serverURL, "postgres:") {
			serverURL = ""
		}
	}
	if serverURL == "" {
		t.Fatalf("the user process started no server: %v", user.Wait())
	}
	_, awaitShutdown := observe(t, serverURL)
	rec, _ := e.readRecord()
	if err := user.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = user.Wait()
	awaitShutdown()
	if exists(t, filepath.Join(rec.Folder, "data")) {
		t.Errorf("the data in %s was not removed", rec.Folder)
	}
}

// TestUserProcess is the process that TestEmbeddedEndsAfterItsUserIsKilled kills; otherwise it does nothing.
func TestUserProcess(t *testing.T) {
	name := os.Getenv("PGSERVER_TEST_USER")
	if name == "" {
		return
	}
	e, err := newEmbedded(17, Options{Purpose: Demo, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	e.name = name
	s, _ := mustStart(t, e)
	os.Stdout.WriteString("serving " + s.URL() + "\n")
	io.Copy(io.Discard, os.Stdin)
}

// A server that was killed, with its folder left behind, is replaced and the folder removed.
func TestEmbeddedReplacesAKilledServer(t *testing.T) {
	t.Parallel()
	e := newServer(t, Tests, "selftest-replaced")
	killed, _ := mustStart(t, e)
	requireSettings(t, killed, "fsync=off synchronous_commit=on password=md5")
	left, _ := e.readRecord()
	_, awaitShutdown := observe(t, killed.URL())
	var postmaster int
	err := killed.ref.QueryRow(t.Context(), `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::integer`).Scan(&postmaster)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(postmaster, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitShutdown()

	replaced, what := mustStart(t, e)
	t.Cleanup(func() { stopNow(t, replaced) })
	if !strings.Contains(what, "started") || replaced.URL() == killed.URL() {
		t.Errorf("%q, want a new server", what)
	}
	if exists(t, left.Folder) {
		t.Errorf("%s was not removed", left.Folder)
	}
}
