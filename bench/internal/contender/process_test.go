package contender

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
)

// In processes of the test program, which also serve a [Fleet], these variables set where one of them dies and how.
const (
	dieFolder = "BENCH_TEST_FOLDER" // folder in which processes leave marks
	dieAt     = "BENCH_TEST_DIE_AT" // start, or the line that a process is about to write: ready, begun or counted
	dieHow    = "BENCH_TEST_DIE_HOW"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == ProcessArg {
		os.Exit(process())
	}
	os.Exit(m.Run())
}

// process runs one process of a fleet, and leaves a mark if it ends in order.
func process() int {
	out := mortal{os.Stdout}
	if err := out.perhapsDie("start"); err != nil {
		return 1
	}
	if err := RunProcess(context.Background(), os.Stdin, out, slog.New(slog.DiscardHandler)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Mkdir(filepath.Join(os.Getenv(dieFolder), fmt.Sprintf("ended-%d", os.Getpid())), 0o755) != nil {
		return 1
	}
	return 0
}

// mortal is the output of a process that may die instead of writing.
type mortal struct{ io.Writer }

func (m mortal) Write(line []byte) (int, error) {
	at := strings.TrimSpace(string(line))
	if at != readyLine && at != begunLine {
		at = "counted"
	}
	if err := m.perhapsDie(at); err != nil {
		return 0, err
	}
	return m.Writer.Write(line)
}

// perhapsDie dies if this is the place to die and no other process has died.
func (m mortal) perhapsDie(at string) error {
	if os.Getenv(dieAt) != at || os.Mkdir(filepath.Join(os.Getenv(dieFolder), "died"), 0o755) != nil {
		return nil
	}
	switch os.Getenv(dieHow) {
	case "killed":
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		_ = self.Kill()
		select {}
	case "nonsense":
		_, err := fmt.Fprintln(m.Writer, "seven")
		return err
	}
	os.Exit(3)
	return nil
}

// If one process of a fleet dies, at any point, the fleet reports it and ends the others, including those that still wait
// for all to be ready.
func TestFleetReportsAProcessThatDies(t *testing.T) {
	const processes = 3
	for _, test := range []struct{ at, how, want string }{
		{"start", "exit", "exit status 3"},
		{readyLine, "exit", "exit status 3"},
		{readyLine, "killed", "signal: killed"},
		{begunLine, "exit", "exit status 3"},
		{"counted", "killed", "signal: killed"},
		{"counted", "nonsense", `parsing "seven"`},
	} {
		t.Run(test.at+", "+test.how, func(t *testing.T) {
			folder := t.TempDir()
			t.Setenv(dieFolder, folder)
			t.Setenv(dieAt, test.at)
			t.Setenv(dieHow, test.how)
			ours, err := newOurs(t.Context(), pgtest.EmptyDatabase(t), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer ours.pool.Close()
			if err := ours.Insert(t.Context(), make([]Job, 500)); err != nil {
				t.Fatal(err)
			}
			fleet, err := NewFleet(&Worker{ours: ours}, processes, 4)
			if err != nil {
				t.Fatal(err)
			}
			reported := make(chan error, 1)
			go func() { reported <- fleet.Run(t.Context(), Work{}) }()
			err = progress.Receive(t, "the fleet to end", reported)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "before its time") {
				t.Errorf("the fleet says %v, want that one ended before its time, and %q", err, test.want)
			}
			ended, err := filepath.Glob(filepath.Join(folder, "ended-*"))
			if err != nil || len(ended) != processes-1 {
				t.Errorf("%d processes ended in order, want the %d others: %v", len(ended), processes-1, err)
			}
		})
	}
}
