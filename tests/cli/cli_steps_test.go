package cli

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Steps are shown, and a retry keeps them, those before a named one, or none.
func testCLISteps(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"}).UUID().String()
	fail := func(steps ...string) {
		t.Helper()
		work := mustClaim(t, eng, "mail")
		for seq, name := range steps {
			if _, err := eng.RecordStep(t.Context(), engine.StepRecord{Lease: work.Lease, Name: name, Seq: seq, Error: "declined", Tries: 2}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := eng.FailExecution(t.Context(), work.Lease, engine.Failure{Message: "no", Class: policy.Permanent}); err != nil {
			t.Fatal(err)
		}
	}
	wantSteps := func(want string) {
		t.Helper()
		var names []string
		steps, _ := ff.run(t, databaseURL, "execution", "show", x, "--json").object(t)["steps"].([]any)
		for _, step := range steps {
			names = append(names, step.(map[string]any)["name"].(string))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("steps %q, want %q", got, want)
		}
	}
	fail("charge", "book", "mail")
	out := ff.run(t, databaseURL, "execution", "show", x)
	out.fitsATerminal(t)
	out.succeeds(t, "before: declined")
	out.succeeds(t, "succeeded")
	wantSteps("charge book mail")
	ff.run(t, databaseURL, "execution", "fork", x, "--before", "bok").fails(t, 3, "bok")
	ff.run(t, databaseURL, "execution", "fork", x).succeeds(t, x+" continues as ")
	fork := ff.run(t, databaseURL, "execution", "fork", x, "--before", "mail", "--json").object(t)
	of, err := id.ParseExecutionID(fork["id"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if steps, err := eng.Steps(t.Context(), of); err != nil || len(steps) != 2 {
		t.Errorf("the fork has %+v, error %v", steps, err)
	}
	ff.run(t, databaseURL, "execution", "show", of.UUID().String()).succeeds(t, "ffx.forked_from")
	ff.run(t, databaseURL, "execution", "cancel", of.UUID().String()).succeeds(t, "")
	ff.run(t, databaseURL, "execution", "retry", x, "--from", "book", "--no-steps").fails(t, 2, "either")
	ff.run(t, databaseURL, "execution", "retry", "--state", "failed", "--from", "book").fails(t, 2, "one execution")
	ff.run(t, databaseURL, "execution", "retry", x, "--from", "bok").fails(t, 3, "bok")
	ff.run(t, databaseURL, "execution", "retry", x, "--from", "book").succeeds(t, "")
	wantSteps("charge")
	ff.run(t, databaseURL, "execution", "retry", x, "--from", "charge").fails(t, 1, "not ended")
	fail()
	ff.run(t, databaseURL, "execution", "retry", x, "--no-steps").succeeds(t, "")
	wantSteps("")
}
