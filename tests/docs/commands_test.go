package docs

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// quick are the commands that are run as they are shown, each on a database of its own. Of the others only the command and
// the flags are tried.
var quick = []string{
	"migrate up", "migrate status", "migrate check", "migrate sql", "migrate adopt", "migrate down --all",
	"migrate down --steps 1", "kind list", "version",
}

var (
	commandLine = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S* )*(?:ff|go run \./cmd/ff)((?: .*)?)$`)
	cutShell    = regexp.MustCompile(`( \| | > | # ).*$|…|\[[^\]]*\]`)
	word        = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// ffArgs returns the arguments of a line that calls ff.
func ffArgs(line string) (args []string, ok bool) {
	match := commandLine.FindStringSubmatch(strings.TrimSpace(line))
	if match == nil {
		return nil, false
	}
	for _, arg := range word.FindAllString(cutShell.ReplaceAllString(match[1]+" ", " "), -1) {
		args = append(args, strings.Trim(arg, `'"`))
	}
	return args, true
}

// TestDocsCommandsRun runs every line with ff that a document or a comment shows, and every example in the help of ff.
func TestDocsCommandsRun(t *testing.T) {
	t.Parallel()
	ff := fixture.BuildFF(t)
	folder := t.TempDir() // where those work that write files
	run := func(databaseURL string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), ff, args...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "DATABASE_URL="+databaseURL)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	lines := make(map[string]string) // and where each stands
	for _, d := range documents(t) {
		for _, block := range d.blocks() {
			for line := range strings.SplitSeq(block.text, "\n") {
				if _, ok := ffArgs(line); ok && block.language != "go" {
					lines[line] = d.path
				}
			}
		}
		for _, span := range d.code() {
			if _, ok := ffArgs(span.text); ok {
				lines[span.text] = d.path
			}
		}
	}
	for _, span := range codeInComments(t) {
		if _, ok := ffArgs(span.text); ok {
			lines[span.text] = span.path
		}
	}
	groups := make(map[string][]string) // the subcommands of each command that has some
	var help func(path ...string)
	help = func(path ...string) {
		out, err := run("", append(path, "--help")...)
		if err != nil {
			t.Errorf("ff %s --help: %v\n%s", strings.Join(path, " "), err, out)
		}
		_, examples, _ := strings.Cut(out, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		for line := range strings.SplitSeq(examples, "\n") {
			if _, ok := ffArgs(line); ok {
				lines[strings.TrimSpace(line)] = "the help of ff " + strings.Join(path, " ")
			} else if strings.TrimSpace(line) != "" {
				t.Errorf("ff %s --help: the example %q does not call ff", strings.Join(path, " "), line)
			}
		}
		_, commands, _ := strings.Cut(out, "Available Commands:\n")
		commands, _, _ = strings.Cut(commands, "\n\n")
		for line := range strings.Lines(commands) {
			if name := strings.Fields(line)[0]; name != "help" {
				groups[strings.Join(path, " ")] = append(groups[strings.Join(path, " ")], name)
				help(append(slices.Clone(path), name)...)
			}
		}
	}
	help()

	for _, line := range slices.Sorted(maps.Keys(lines)) {
		args, _ := ffArgs(line)
		for i, arg := range args {
			subcommands := groups[strings.Join(args[:i], " ")]
			if len(subcommands) == 0 || strings.HasPrefix(arg, "-") {
				break
			}
			if !slices.Contains(subcommands, arg) {
				t.Errorf("%s: %s: there is no command %s", lines[line], line, arg)
			}
		}
		// An unknown flag is refused before help is given.
		if out, err := run("", append(slices.Clone(args), "--help")...); err != nil {
			t.Errorf("%s: %s: %v\n%s", lines[line], line, err, out)
			continue
		}
		text := strings.Join(args, " ")
		if !slices.ContainsFunc(quick, func(command string) bool { return text == command || strings.HasPrefix(text, command+" -") }) {
			continue
		}
		// Its database is the test's, and so is its schema.
		if out, err := run(pgtest.CloneURL(t), withoutDatabase(args)...); err != nil {
			t.Errorf("%s: %s: %v\n%s", lines[line], line, err, out)
		}
	}
}

// withoutDatabase returns arguments without the flags that say where to work.
func withoutDatabase(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--database-url", "--schema":
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	return rest
}
