package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// mustDraw creates the flow of a chart on a lane.
func mustDraw(t *testing.T, eng *engine.Engine, lane id.LaneID, spec engine.FlowSpec) id.FlowID {
	t.Helper()
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Lane = lane
	}
	created, err := eng.CreateFlow(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return created.ID
}

// mustComplete claims the next execution of a lane and completes it.
func mustComplete(t *testing.T, eng *engine.Engine, lane id.LaneID) {
	t.Helper()
	if err := eng.CompleteExecution(t.Context(), mustClaim(t, eng, lane).Lease, nil); err != nil {
		t.Fatal(err)
	}
}

func testCLIFlows(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	ff.run(t, databaseURL, "flow", "list").succeeds(t, "None found.")
	spec := fixture.Chart(nil, "fetch>parse")
	spec.Kind, spec.Tags = "an import with a name that is rather long for a terminal", map[string]string{"app.tenant": "acme"}
	first := mustDraw(t, eng, "a", spec)
	second := mustDraw(t, eng, "b", fixture.Chart(nil, "a"))
	execSQL(t, databaseURL, `INSERT INTO ff_flow_summary (partition_key, flow_id, public_flow_state, last_summary_update_at)
		SELECT partition_key, flow_id, 'failed', 1 FROM ff_flow_core WHERE flow_id = '`+second.String()+`'`)

	list := func(want []id.FlowID, args ...string) {
		t.Helper()
		out := ff.run(t, databaseURL, append([]string{"flow", "list"}, args...)...)
		out.fitsATerminal(t)
		place := 0
		for _, flow := range want {
			at := strings.Index(out.stdout[place:], flow.String())
			if at < 0 {
				t.Fatalf("ff flow list %q does not list %v in this order, but\n%s%s", args, want, out.stdout, out.stderr)
			}
			place += at
		}
		listed := ff.run(t, databaseURL, append([]string{"flow", "list", "--json"}, args...)...).object(t)["flows"].([]any)
		if len(listed) != len(want) {
			t.Errorf("ff flow list %q lists %d, want %d", args, len(listed), len(want))
		}
	}
	list([]id.FlowID{second, first})
	list([]id.FlowID{first, second}, "--order", "oldest")
	list([]id.FlowID{first}, "--tag", "app.tenant=acme", "--since", "1h")
	list([]id.FlowID{second}, "--state", "failed")
	list([]id.FlowID{first}, "--state", "open", "--kind", spec.Kind)
	list(nil, "--until", "2020-01-01T00:00:00Z")
	list(nil, "--namespace", "elsewhere")
	ff.run(t, databaseURL, "flow", "list", "--wide").succeeds(t, "app.tenant=acme")
	page := ff.run(t, databaseURL, "flow", "list", "--limit", "1", "--json").object(t)
	wantKeys(t, page["flows"].([]any)[0].(map[string]any), "id", "kind", "namespace", "state", "nodes", "edges", "tags", "created_at", "summed_at")
	next := page["next"].(string)
	list([]id.FlowID{first}, "--after", next)
	ff.run(t, databaseURL, "flow", "list", "--limit", "1").succeeds(t, "--after "+next)
	ff.run(t, databaseURL, "flow", "list", "--state", "asleep").fails(t, cliUsage, "state")
	ff.run(t, databaseURL, "flow", "list", "--tag", "plain=x").fails(t, cliUsage, "tag key")
}

func testCLIFlowFormats(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	flow := mustDraw(t, eng, "a", fixture.Chart(nil, "fetch>left", "fetch>right", "left>join", "right>join"))
	mustComplete(t, eng, "a")
	show := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, append([]string{"flow", "show", flow.String()}, args...)...)
	}
	out := show()
	out.fitsATerminal(t)
	for _, want := range []string{"│ fetch ", "✓ completed", "▼", "join", "4: 2 waiting, 1 waiting_children, 1 completed", eng.NodeID(flow, "left").UUID().String()} {
		out.succeeds(t, want)
	}
	show("--wide").succeeds(t, eng.NodeID(flow, "join").String())
	show("--wide").succeeds(t, "left, right")
	show("--format", "mermaid").succeeds(t, "flowchart TD\n    n0[\"fetch<br/>✓ completed\"]:::completed\n")
	show("--format", "mermaid").succeeds(t, "\n    n0 --> n2\n")
	show("--format", "dot").succeeds(t, "digraph \"flow "+flow.String()+"\" {\n")
	show("--format", "svg").succeeds(t, "<svg ")
	object := show("--format", "json").object(t)
	edges := object["edge_list"].([]any)
	wantKeys(t, edges[0].(map[string]any), "id", "from", "to", "from_node", "to_node", "kind", "state", "outcome")
	if first := edges[0].(map[string]any); len(edges) != 4 || first["from_node"] != "fetch" || first["state"] != string(state.EdgeSatisfied) {
		t.Errorf("edges %v", edges)
	}
	for _, format := range []string{"text", "mermaid", "dot", "svg", "json"} {
		ff.run(t, databaseURL, "flow", "show", id.NewFlowID().String(), "--format", format).fails(t, cliNotFound, "not found")
	}
	// Flows too large for a terminal are listed.
	var parts []string
	for i := range 70 {
		parts = append(parts, "source>worker-with-a-long-name-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	flow = mustDraw(t, eng, "b", fixture.Chart(nil, parts...))
	out = show()
	out.fitsATerminal(t)
	out.succeeds(t, "WAITS FOR")
	out.succeeds(t, "and 21 more")
	flow = mustDraw(t, eng, "c", engine.FlowSpec{})
	show().succeeds(t, "executions  0\n")
}

func testCLIFlowWatch(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	ff.run(t, databaseURL, "flow", "watch", id.NewFlowID().String()).fails(t, cliNotFound, "not found")

	// Without a terminal there is a line for each change.
	flow := mustDraw(t, eng, "a", fixture.Chart(nil, "fetch>parse"))
	var stderr bytes.Buffer
	ctx, step, stop := progress.Context(t, "something new to be written")
	defer stop()
	cmd := ff.command(ctx, databaseURL, "flow", "watch", flow.String(), "--interval", "100ms")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []byte
	until := func(read func([]byte) (int, error), want string) {
		t.Helper()
		for buffer := make([]byte, 4096); !bytes.Contains(seen, []byte(want)); {
			n, err := read(buffer)
			seen = append(seen, buffer[:n]...)
			step()
			if err != nil && !bytes.Contains(seen, []byte(want)) {
				t.Fatalf("%v, without %q\n%s%s", err, want, seen, &stderr)
			}
		}
	}
	until(stdout.Read, "0 of 2 ended: 1 waiting, 1 waiting_children\n")
	mustComplete(t, eng, "a")
	until(stdout.Read, "fetch: completed\nparse: waiting\n1 of 2 ended: 1 waiting, 1 completed\n")
	mustComplete(t, eng, "a")
	until(stdout.Read, "parse: completed\n2 of 2 ended: 2 completed\n")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s%s", err, seen, &stderr)
	}
	ff.run(t, databaseURL, "flow", "watch", flow.String()).succeeds(t, "2 of 2 ended: 2 completed\n")

	// On a terminal it is drawn again in the same place.
	flow = mustDraw(t, eng, "b", fixture.Chart(nil, "fetch>parse"))
	cmd = ff.command(ctx, databaseURL, "flow", "watch", flow.String(), "--interval", "100ms")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	seen = nil
	until(terminal.Read, "0 of 2 ended")
	mustComplete(t, eng, "b")
	until(terminal.Read, "1 of 2 ended")
	mustComplete(t, eng, "b")
	until(terminal.Read, "2 of 2 ended: 2 completed")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, seen)
	}
	if !bytes.Contains(seen, []byte("\x1b[12A\x1b[J╭")) || !bytes.Contains(seen, []byte("│ ✓ completed │")) {
		t.Errorf("drawn %q", seen)
	}

	// Interrupted, it says so.
	flow = mustDraw(t, eng, "c", fixture.Chart(nil, "a"))
	cmd = ff.command(ctx, databaseURL, "flow", "watch", flow.String())
	stdout, err = cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen = nil
	until(stdout.Read, "0 of 1 ended")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != cliInterrupted {
		t.Errorf("exit code %d, want %d", code, cliInterrupted)
	}
}

func testCLIFlowCancel(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	flow := mustDraw(t, eng, "a", fixture.Chart(nil, "runs", "runs>held"))
	running := mustClaim(t, eng, "a")
	cancel := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, append([]string{"flow", "cancel", flow.String()}, args...)...)
	}
	counts := func(want map[state.PublicState]int) {
		t.Helper()
		progress, err := eng.FlowProgress(t.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		fixture.WantEqual(t, "counts", progress.Counts, want)
	}
	cancel("--policy", "flow", "--reason", "wrong input").succeeds(t, "cancelled, with 0 of its executions")
	counts(map[state.PublicState]int{state.PublicActive: 1, state.PublicWaitingChildren: 1})
	cancel("--policy", "flow").succeeds(t, "was cancelled before (cancel_flow_only: wrong input)")
	object := cancel("--policy", "pending", "--json").object(t)
	wantKeys(t, object, "id", "policy", "reason", "already", "members", "still_running", "dry_run")
	if held := eng.NodeID(flow, "held").String(); object["policy"] != "cancel_pending" || object["already"] != false || object["members"].([]any)[0] != held {
		t.Errorf("cancelled %v", object)
	}
	counts(map[state.PublicState]int{state.PublicActive: 1, state.PublicCancelled: 1})
	cancel().succeeds(t, "cancelled, with 1 of its executions")
	counts(map[state.PublicState]int{state.PublicCancelled: 2})
	if err := eng.CompleteExecution(t.Context(), running.Lease, nil); err == nil {
		t.Error("what was cancelled is completed")
	}
	ff.run(t, databaseURL, "flow", "show", flow.String()).succeeds(t, "⊘ cancelled")
	ff.run(t, databaseURL, "flow", "list", "--state", "cancelled").succeeds(t, flow.String())
	ff.run(t, databaseURL, "flow", "cancel", id.NewFlowID().String()).fails(t, cliNotFound, "not found")
	cancel("--reason", strings.Repeat("x", 5000)).fails(t, cliUsage, "reason")

	// A clean-up runs, and a preview says so and changes nothing.
	flow = mustDraw(t, eng, "b", fixture.Chart(fixture.When{"refund": policy.OnFailure()}, "charge>ship", "charge>refund", "ship>refund"))
	mustComplete(t, eng, "b")
	preview := cancel("--dry-run")
	preview.fitsATerminal(t)
	for _, want := range []string{"would be cancelled, with 1 of its executions; 1 would still run\n", "ship    waiting           cancelled\n", "refund  waiting_children  waiting\n"} {
		preview.succeeds(t, want)
	}
	object = cancel("--dry-run", "--json", "--policy", "everything").object(t)
	if object["dry_run"] != true || len(object["members"].([]any)) != 2 || len(object["still_running"].([]any)) != 0 {
		t.Errorf("previewed %v", object)
	}
	counts(map[state.PublicState]int{state.PublicCompleted: 1, state.PublicWaiting: 1, state.PublicWaitingChildren: 1})
	cancel().succeeds(t, "cancelled, with 1 of its executions\nnot ended yet: 1\n  refund\n")
	counts(map[state.PublicState]int{state.PublicCompleted: 1, state.PublicCancelled: 1, state.PublicWaiting: 1})
	cancel("--dry-run").succeeds(t, "was cancelled before (cancel_all: flow_cancelled); nothing would change\n")
	cancel("--policy", "everything").succeeds(t, "cancelled, with 1 of its executions\n")
	ff.run(t, databaseURL, "flow", "cancel", id.NewFlowID().String(), "--dry-run").fails(t, cliNotFound, "not found")
}

// The machine code of Graphviz is kept in a folder that only the user can write to, and never in a public one.
func TestCLIKeepsMachineCodeInAPrivateFolder(t *testing.T) {
	t.Parallel()
	ff := cli{fixture.BuildFF(t)}
	home, temporary := t.TempDir(), t.TempDir()
	for _, environment := range [][]string{
		{"HOME=" + home, "XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "TMPDIR=" + temporary},
		{"HOME=", "XDG_CACHE_HOME=", "TMPDIR=" + temporary},
	} {
		cmd := ff.command(t.Context(), "", "version")
		cmd.Env = append(cmd.Env, environment...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("in the directory for temporary files are %v, %v", left, err)
	}
	folder := filepath.Join(home, "cache", "flowfabric")
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s: %v, %v", folder, info, err)
	}
	if kept, err := os.ReadDir(folder); err != nil || len(kept) == 0 {
		t.Errorf("nothing is kept in %s, %v", folder, err)
	}
}
