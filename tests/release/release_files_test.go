package release

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
	"github.com/flowfabric/flowfabric-go/tests/internal/licenses"
)

// TestLicensesAreComplete compares the output of `ff licenses` and `schema-review --licenses` with the license files of the
// modules that they link.
func TestLicensesAreComplete(t *testing.T) {
	t.Parallel()
	root := checkout.Root(t)
	for _, command := range licenses.Commands {
		want, err := licenses.Collect(root, command)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, command.File()))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) == want {
			continue
		}
		for line := range strings.Lines(want) {
			if !strings.Contains(string(got), line) {
				t.Errorf("missing: %s", line)
			}
		}
		t.Errorf("%s is not what make licenses writes", command.File())
	}
}

// TestDependabotKnowsEveryModule compares the folders in .github/dependabot.yml with those that have a go.mod.
func TestDependabotKnowsEveryModule(t *testing.T) {
	t.Parallel()
	root := checkout.Root(t)
	var want []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "testdata" {
			return fs.SkipDir
		}
		if err == nil && entry.Name() == "go.mod" {
			folder, relErr := filepath.Rel(root, filepath.Dir(name))
			want, err = append(want, filepath.Join("/", folder)), relErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, match := range regexp.MustCompile(`(?m)^      - (/.*)$`).FindAllStringSubmatch(string(config), -1) {
		got = append(got, match[1])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("dependabot.yml has %v, the modules are in %v", got, want)
	}
}

// TestActionsArePinned refuses an action that is named by a tag, which may move. One of this repository has none.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(checkout.Root(t), ".github", "workflows", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows %v, %v", files, err)
	}
	files = append(files, filepath.Join(checkout.Root(t), "review", "action", "action.yml"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !isPinned(line) {
				t.Errorf("%s: %s", filepath.Base(name), strings.TrimSpace(line))
			}
		}
	}
	for line, want := range map[string]bool{
		"  - uses: ./review/action # this repository's": true, "    uses: a/b@" + strings.Repeat("0a", 20) + " # v1.2.3": true, "run: make": true,
		"- uses: a/b@v1": false, "- uses: a/b@main # uses: ./": false, "- uses: a/b@main # uses: a/b@" + strings.Repeat("0a", 20) + " # v1.2.3": false,
	} {
		if isPinned(line) != want {
			t.Errorf("%q is taken for pinned: %v", line, !want)
		}
	}
}

var pinned = regexp.MustCompile(`^uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// isPinned reports whether a line of a workflow names no action that may move.
func isPinned(line string) bool {
	line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
	return !strings.Contains(line, "uses:") || strings.HasPrefix(line, "uses: ./") || pinned.MatchString(line)
}
