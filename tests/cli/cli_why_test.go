package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCLIWhy(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	x := f.Create(t)
	ff.run(t, f.Url, "why", x.String()).succeeds(t, "no_worker: No registered worker claims from lane")
	ff.run(t, f.Url, "why", x.Short()).succeeds(t, "    ff worker list --lane")
	ff.run(t, f.Url, "why", x.String(), "--json").succeeds(t, `"code": "no_worker"`)
	ff.run(t, f.Url, "execution", "show", x.String()).succeeds(t, "why        No registered worker claims from lane")

	missing := id.NewExecutionID(f.Lane, id.Partitions{})
	ff.run(t, f.Url, "why", missing.String()).succeeds(t, "not_found: No execution has this id here")
	ff.run(t, f.Url, "why").fails(t, cliUsage, "one id")
}

// The commands that explanations propose exist.
func TestCLIHasTheCommandsOfExplanations(t *testing.T) {
	ff := cli{fixture.BuildFF(t)}
	files, err := filepath.Glob("../../explain/*.go")
	if err != nil {
		t.Fatal(err)
	}
	proposed := regexp.MustCompile("[\"`]ff (why|[a-z]+ [a-z]+)")
	commands := make(map[string]bool)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range proposed.FindAllStringSubmatch(string(source), -1) {
			commands[match[1]] = true
		}
	}
	if len(commands) < 12 {
		t.Fatalf("only %d commands were found: %v", len(commands), commands)
	}
	for command := range commands {
		ff.run(t, "", append(strings.Fields(command), "--help")...).succeeds(t, "ff "+command)
	}
}
