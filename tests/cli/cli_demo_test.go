package cli

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
)

var demoLine = regexp.MustCompile(
	`^flow completed: (\d+) executions, (\d+) edges, (\d+) retaken after a crash, \d+\.\d s, digest [0-9a-f]{64}, verified$`)

// testCLIDemo runs the demo on a few packages, with the crash.
func testCLIDemo(t *testing.T, ff cli) {
	databaseURL := pgtest.EmptyDatabase(t)
	out := ff.run(t, databaseURL, "demo", "--packages", "sort", "--workers", "3")
	if out.code != cliDone {
		t.Fatalf("exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	lines := strings.Split(strings.TrimSuffix(out.stdout, "\n"), "\n")
	match := demoLine.FindStringSubmatch(lines[len(lines)-1])
	if match == nil {
		t.Fatalf("the last line is %q", lines[len(lines)-1])
	}
	executions, _ := strconv.Atoi(match[1])
	retaken, _ := strconv.Atoi(match[3])
	if executions < 5 || retaken < 1 || !strings.Contains(out.stdout, "is killed with SIGKILL") {
		t.Errorf("%d executions, %d retaken\n%s", executions, retaken, out.stdout)
	}

	// It leaves the user's own tables alone, and its flow can be looked at.
	ff.run(t, databaseURL, "migrate", "status").succeeds(t, "origin none")
	flow := regexp.MustCompile("`ff flow show ([0-9a-f-]+) --schema flowfabric_demo`").FindStringSubmatch(out.stdout)
	if flow == nil {
		t.Fatalf("the output names no flow:\n%s", out.stdout)
	}
	object := ff.run(t, databaseURL, "flow", "show", flow[1], "--schema", "flowfabric_demo", "--json").object(t)
	if got := object["members_by_state"].(map[string]any)["completed"]; got != float64(executions) {
		t.Errorf("%v of %d executions are completed", got, executions)
	}
}

// testCLIDemoEnded ends the demo while the killed worker's lease has yet to run out.
func testCLIDemoEnded(t *testing.T, ff cli) {
	for _, c := range []struct {
		name   string
		signal os.Signal
		code   int
		says   string
	}{
		{"interrupted", os.Interrupt, cliInterrupted, "ff: interrupted.\n"},
		{"killed", os.Kill, -1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := pgtest.EmptyDatabase(t)
			cmd := ff.command(t.Context(), databaseURL, "demo", "--packages", "sort")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var seen []byte
			for buffer := make([]byte, 4096); !bytes.Contains(seen, []byte("SIGKILL")); {
				n, err := stdout.Read(buffer)
				if err != nil {
					t.Fatalf("%v after %s%s", err, seen, &stderr)
				}
				seen = append(seen, buffer[:n]...)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.HasSuffix(stderr.String(), c.says) {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, seen, &stderr)
			}
			waitForSessions(t, databaseURL)
		})
	}
}

// waitForSessions returns once there is no other session on the database: no worker process was left behind.
func waitForSessions(t *testing.T, databaseURL string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	progress.Wait(t, "the sessions to end", func() (sessions int, done bool) {
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&sessions)
		if err != nil {
			t.Fatal(err)
		}
		return sessions, sessions == 0
	})
}

func testCLIDemoWithoutToolchain(t *testing.T, ff cli) {
	var stderr bytes.Buffer
	cmd := ff.command(t.Context(), "", "demo")
	cmd.Env = append(cmd.Env, "PATH="+t.TempDir())
	cmd.Stderr = &stderr
	_ = cmd.Run()
	want := "ff: no go command on PATH: install Go from https://go.dev/dl, or add its bin folder to PATH.\n"
	if cmd.ProcessState.ExitCode() != 1 || stderr.String() != want {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), &stderr)
	}
}
