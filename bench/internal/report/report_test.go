package report

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/bench/internal/server"
)

// Results of one server are printed without its version, those of several servers with it.
func TestPrintSeparatesServers(t *testing.T) {
	r := &Report{Facts: server.Facts{Postgres: "PostgreSQL 15.18 on x86_64"}}
	add := func(rate float64) {
		r.Add(Result{Name: "burn-down", Unit: "executions/s", Ours: new(rate), Setup: Setup{Scenario: "a"}})
	}
	add(111)
	if lines := printed(r); strings.Contains(line(t, lines, "111"), "15.18") {
		t.Errorf("one server, and its version in the row:\n%s", lines)
	}
	r.Facts.Postgres = "PostgreSQL 18.3 on x86_64"
	add(222)
	lines := printed(r)
	if header := line(t, lines, "measurement"); !strings.Contains(header, "server") {
		t.Errorf("two servers, and no heading for them: %s", header)
	}
	if line(t, lines, "Measured on") != line(t, lines, "15.18 on x86_64; PostgreSQL 18.3 on x86_64") {
		t.Errorf("the servers are not said under the table:\n%s", lines)
	}
	for rate, version := range map[string]string{"111": "15.18", "222": "18.3"} {
		if !strings.Contains(line(t, lines, rate), version) {
			t.Errorf("%s executions/s is not said to be of %s:\n%s", rate, version, lines)
		}
	}
}

func printed(r *Report) string {
	var out strings.Builder
	r.Print(&out)
	return out.String()
}

func line(t *testing.T, lines, with string) string {
	t.Helper()
	for line := range strings.Lines(lines) {
		if strings.Contains(line, with) {
			return line
		}
	}
	t.Fatalf("no line with %q:\n%s", with, lines)
	return ""
}
