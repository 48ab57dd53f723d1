//go:build unix

package workers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// The environment of a worker process: its database and its lane.
const (
	processDatabase = "WORKERS_TEST_DATABASE"
	processLane     = "WORKERS_TEST_LANE"
)

func init() { processes = runProcess }

// runProcess runs a worker until signals end it, if the environment says so. It prints what happens.
func runProcess() bool {
	if os.Getenv(processDatabase) == "" {
		return false
	}
	if err := runWorkerProcess(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func runWorkerProcess(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv(processDatabase))
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}
	w, err := worker.New(eng, worker.Config{DrainTimeout: time.Hour, NoReconcile: true})
	if err != nil {
		return err
	}
	kind := engine.Kind[struct{}, struct{}]{Name: "test", Lane: id.LaneID(os.Getenv(processLane))}
	worker.Handle(w, kind, func(ctx context.Context, _ worker.Job[struct{}]) (struct{}, error) {
		fmt.Println("started")
		go func() {
			if progress.Poll("the worker to drain", func() (n int, done bool) {
				probe := httptest.NewRecorder()
				worker.Ready(w).ServeHTTP(probe, httptest.NewRequest(http.MethodGet, "/", nil))
				return probe.Code, probe.Code == http.StatusServiceUnavailable
			}) == nil {
				fmt.Println("drains, and the handler continues:", ctx.Err() == nil)
			}
		}()
		<-ctx.Done()
		fmt.Println("shutdown:", errors.Is(context.Cause(ctx), worker.ErrShutdown))
		return struct{}{}, ctx.Err()
	})
	return worker.RunUntilSignal(ctx, w)
}

// startProcess starts a worker process on the fixture's lane, and passes on the lines that it prints.
func startProcess(t *testing.T, f *fixture.Fixture, env ...string) (*exec.Cmd, <-chan string) {
	t.Helper()
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(append(os.Environ(), processDatabase+"="+f.Url, processLane+"="+string(f.Lane)), env...)
	process.Stderr = t.Output()
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return process, lines
}

// In a process of its own the first signal drains, and the second ends the handlers long before the drain's timeout. Their
// work returns to its lane.
func TestSecondSignalEndsTheHandlers(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	process, lines := startProcess(t, f)
	var got []string
	for _, next := range []struct {
		when  string
		sends os.Signal // after the line
	}{{"the handler to start", syscall.SIGTERM}, {"the worker to drain", os.Interrupt}, {"the handler to end", nil}} {
		got = append(got, progress.Receive(t, next.when, lines))
		if next.sends != nil {
			if err := process.Process.Signal(next.sends); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"started", "drains, and the handler continues: true", "shutdown: true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := process.Wait(); err != nil {
		t.Error(err)
	}
	if public, err := f.ExecutionState(t.Context(), x); err != nil || public != state.PublicWaiting {
		t.Errorf("the execution is %s, %v", public, err)
	}
}
