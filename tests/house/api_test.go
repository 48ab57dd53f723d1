package house

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/api"
	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
)

// TestAPIIsListed compares api/*.txt with the exported names. A change of the API shows up in a review as a change of
// these files.
func TestAPIIsListed(t *testing.T) {
	t.Parallel()
	root := checkout.Root(t)
	lists, err := api.Lists(root)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "api", "*.txt"))
	if err != nil || len(files) != len(lists) || len(lists) != len(api.Packages) {
		t.Errorf("%d files in api, %d packages (%v)", len(files), len(lists), err)
	}
	for _, folder := range api.Packages {
		name := path.Base(folder)
		content, err := os.ReadFile(filepath.Join(root, "api", name+".txt"))
		if err != nil {
			t.Error(err)
			continue
		}
		want, got := slices.Collect(strings.Lines(string(content))), slices.Collect(strings.Lines(lists[name]))
		var diff strings.Builder
		for _, line := range want {
			if !slices.Contains(got, line) {
				diff.WriteString("- " + line)
			}
		}
		for _, line := range got {
			if !slices.Contains(want, line) {
				diff.WriteString("+ " + line)
			}
		}
		if diff.Len() > 0 {
			t.Errorf("the exported names of %s have changed. If that is meant, run make api and say so in CHANGELOG.md.\n%s", folder, &diff)
		}
	}
}
