package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// beWorker is the environment variable that makes the test binary a worker process: "work" or "break".
const beWorker = "FF_DEMO_TEST_WORKER"

func TestMain(m *testing.M) {
	switch os.Getenv(beWorker) {
	case "":
		m.Run()
	case "break":
		fmt.Fprintln(os.Stderr, "out of luck")
		os.Exit(3)
	default:
		if err := RunWorker(context.Background(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func testOptions(t *testing.T, job string) Options {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		DatabaseURL: pgtest.URL(t),
		Workers:     3,
		Command: func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, program)
			cmd.Env = append(os.Environ(), beWorker+"="+job)
			return cmd
		},
		Progress: func(Progress) {},
		Event:    func(sentence string) { t.Log(sentence) },
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	graph, err := Load(t.Context(), "sort")
	if err != nil {
		t.Fatal(err)
	}
	var killed atomic.Int32
	opts := testOptions(t, "work")
	opts.Event = func(sentence string) {
		t.Log(sentence)
		if strings.Contains(sentence, "SIGKILL") {
			killed.Add(1)
		}
	}
	summary, err := Run(t.Context(), graph, opts)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := graph.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if summary.Executions != len(graph) || summary.Edges != graph.Edges() || summary.Digest != digest {
		t.Errorf("summary %+v of %d packages and %d imports with digest %s", summary, len(graph), graph.Edges(), digest)
	}
	if killed.Load() != 1 || summary.Retaken < 1 {
		t.Errorf("%d processes were killed and %d executions retaken, want 1 and at least 1", killed.Load(), summary.Retaken)
	}
	form := `^flow completed: \d+ executions, \d+ edges, \d+ retaken after a crash, \d+\.\d s, digest [0-9a-f]{64}, verified$`
	if !regexp.MustCompile(form).MatchString(summary.String()) {
		t.Errorf("the last line is %q", summary)
	}
}

func TestRunReportsChangedSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(content string) {
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(content), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("package a\n")
	graph := Graph{{Path: "a", Dir: dir, Files: []string{"a.go"}}}
	graph = append(graph, root("a", graph))
	opts := testOptions(t, "work")
	opts.Progress = func(p Progress) {
		if p.Ended() == p.Total {
			write("package changed\n")
		}
	}
	if summary, err := Run(t.Context(), graph, opts); err == nil || !strings.Contains(err.Error(), "computed directly") {
		t.Errorf("Run() = %v, %v; the flow's digest is not that of the files", summary, err)
	}
}

func TestRunReportsAFailedExecution(t *testing.T) {
	t.Parallel()
	graph := Graph{{Path: "a", Dir: t.TempDir(), Files: []string{"missing.go"}}}
	graph = append(graph, root("a", graph))
	if summary, err := Run(t.Context(), graph, testOptions(t, "work")); err == nil || !strings.Contains(err.Error(), "ended as") {
		t.Errorf("Run() = %v, %v; an execution cannot succeed", summary, err)
	}
}

func TestRunReportsAWorkerThatStops(t *testing.T) {
	t.Parallel()
	graph := Graph{{Path: "a", Dir: t.TempDir()}}
	graph = append(graph, root("a", graph))
	summary, err := Run(t.Context(), graph, testOptions(t, "break"))
	if err == nil || !strings.Contains(err.Error(), "out of luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Run() = %v, %v; the worker processes broke", summary, err)
	}
}
