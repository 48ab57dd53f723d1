package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/stream"
)

// The output of an execution is printed as it is, attempt after attempt, and a tail ends with the execution.
func testCLIStreams(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	at := policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(0)}
	x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send", Policy: &policy.Execution{Retry: &at}}).UUID().String()
	work := mustClaim(t, eng, "mail")
	appendTo := func(frames ...stream.FrameSpec) {
		t.Helper()
		if _, err := stream.Append(t.Context(), eng, work.Lease, frames); err != nil {
			t.Fatal(err)
		}
	}
	appendTo(
		stream.FrameSpec{Payload: []byte("Hel"), Type: "token"}, stream.FrameSpec{Payload: []byte("lo"), Type: "token", Mode: stream.BestEffort},
		stream.FrameSpec{Payload: []byte{0xff}, Type: stream.Blob},
	)
	if _, err := eng.FailExecution(t.Context(), work.Lease, engine.Failure{Message: "no", Class: policy.Transient}); err != nil {
		t.Fatal(err)
	}
	work = mustClaim(t, eng, "mail")
	appendTo(stream.FrameSpec{Payload: []byte(`{"done":2}`), Mode: stream.Summary})
	if err := eng.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}

	out := ff.run(t, databaseURL, "stream", "tail", x)
	out.succeeds(t, "Hello\n{\"done\":2}\n")
	for _, want := range []string{"1 bytes", "attempt 0 ended: attempt_failure", "attempt 1\n", "attempt 1 ended: attempt_success"} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("standard error %q has no %q", out.stderr, want)
		}
	}
	ff.run(t, databaseURL, "stream", "tail", x, "--attempt", "0", "--skip-best-effort").succeeds(t, "Hel\n")

	var lines []map[string]any
	for line := range strings.Lines(ff.run(t, databaseURL, "stream", "tail", x, "--json").stdout) {
		var frame map[string]any
		if err := json.Unmarshal([]byte(line), &frame); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, frame)
	}
	if len(lines) != 6 || lines[2]["base64"] != "/w==" || lines[3]["closed"] != "attempt_failure" || lines[5]["last"] != true {
		t.Fatalf("%v", lines)
	}
	rest := ff.run(t, databaseURL, "stream", "tail", x, "--json", "--after", lines[3]["position"].(string))
	if n := strings.Count(rest.stdout, "\n"); n != 2 {
		t.Errorf("%d lines after a position, want 2: %s", n, rest.stdout)
	}

	if lines[0]["epoch"] == nil {
		t.Errorf("a frame without an epoch: %v", lines[0])
	}

	ff.run(t, databaseURL, "stream", "summary", x).succeeds(t, `{"done": 2}`)
	ff.run(t, databaseURL, "stream", "summary", x, "--attempt", "0").fails(t, 3, "summary")
	ff.run(t, databaseURL, "stream", "tail", x, "--after", "odd").fails(t, 2, "five numbers")
	ff.run(t, databaseURL, "stream", "tail", x, "--after", "1.0.0.0.0", "--attempt", "1").fails(t, 2, "exclude")
	ff.run(t, databaseURL, "stream", "tail", x, "--attempt", "3000000000").fails(t, 2, "too large")
	ff.run(t, databaseURL, "stream", "summary", x, "--attempt", "3000000000").fails(t, 2, "too large")
	ff.run(t, databaseURL, "stream", "tail", x, "--attempt", "99").fails(t, 3, "attempt 99 of execution")
	ff.run(t, databaseURL, "stream", "tail", "0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10").fails(t, 3, "")

	shown := ff.run(t, databaseURL, "execution", "show", x)
	shown.fitsATerminal(t)
	shown.succeeds(t, "frames: 3, the newest at ")
}
