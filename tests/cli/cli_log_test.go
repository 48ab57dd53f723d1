package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The log lists recorded actions and the calls of operators, by a filter and in pages, and nothing a terminal interprets.
func TestCLILog(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	run := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, f.Url, append([]string{"log"}, args...)...)
	}
	run().succeeds(t, "Nothing is logged.")
	x := f.Create(t)
	if err := operator.Prioritize(t.Context(), f.Engine, x, 5); err != nil {
		t.Fatal(err)
	}
	for _, a := range []operator.Action{
		{By: "grace", Name: "limit.set", Object: "sync/tenant", Detail: "--units 2"},
		{By: "ada \x1b[31m", Name: strings.Repeat("n", 64), Object: strings.Repeat("o", 1024), Detail: "d", Execution: x},
	} {
		if err := operator.RecordAction(t.Context(), f.Engine, a); err != nil {
			t.Fatal(err)
		}
	}
	at := f.Time().UTC().Format("2006-01-02 15:04:05")
	all := run()
	all.fitsATerminal(t)
	all.succeeds(t, at+"  grace         limit.set              sync/tenant --units 2")
	all.succeeds(t, at+"                priority_changed       priority 0 -> 5")
	all.succeeds(t, `"ada \x1b[3…`)
	for _, whole := range []string{"ooo d", x.Short(), strings.Repeat("n", 64), ".000Z"} {
		run("--wide").succeeds(t, whole)
	}

	page := run("--limit", "2", "--json").object(t)
	wantKeys(t, page, "entries", "next")
	wantKeys(t, page["entries"].([]any)[0].(map[string]any), "event_id", "at", "type", "by", "action", "object", "detail", "execution")
	rest := run("--json", "--after", page["next"].(string)).object(t)
	wantKeys(t, rest, "entries")
	last := rest["entries"].([]any)[0].(map[string]any)
	wantKeys(t, last, "event_id", "at", "type", "detail", "execution")
	if len(rest["entries"].([]any)) != 1 || last["execution"] != x.String() || last["type"] != "priority_changed" {
		t.Errorf("after two entries: %v", rest)
	}
	for want, args := range map[string][]string{
		"[priority_changed action]": {"--execution", x.UUID().String()},
		"[action]":                  {"--by", "grace"},
		"[]":                        {"--by", "grace", "--execution", x.Short()},
	} {
		var types []string
		for _, entry := range run(append(args, "--json")...).object(t)["entries"].([]any) {
			types = append([]string{entry.(map[string]any)["type"].(string)}, types...)
		}
		if got := fmt.Sprint(types); got != want {
			t.Errorf("%q lists %s, want %s", args, got, want)
		}
	}
	run("--limit", "1").succeeds(t, "continue with --after")
	run("--limit", "-1").fails(t, cliUsage, "--limit")
	run("--after", "x").fails(t, cliUsage, "--after")
	run("--by", strings.Repeat("b", 257)).fails(t, cliUsage, "--by")
	run("--execution", "x").fails(t, cliUsage, "execution id")
	run("--execution", id.NewExecutionUUID().String()).fails(t, cliNotFound, "not found")
	ff.run(t, f.Url, "event", "tail", "operator", "--after", "beginning", "--once").succeeds(t, "limit.set by grace sync/tenant")
	f.Exec(t, `UPDATE ff_operator_event SET details = '{"by": 7}' WHERE event_type = 'action'`)
	run("--wide").succeeds(t, "ff_operator_event.details")
}
