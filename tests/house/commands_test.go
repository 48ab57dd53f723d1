package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestFFLeavesTheReviewOut checks that ff needs no module that only the schema review uses. The review has a command of its
// own: users of ff need not download and link its parser of SQL.
func TestFFLeavesTheReviewOut(t *testing.T) {
	t.Parallel()
	unwanted := []string{
		fixture.Module + "/review",
		"github.com/amacneil/dbmate/v2",
		"github.com/owenrumney/go-sarif/v3",
		"github.com/pganalyze/pg_query_go/v6",
		"github.com/wasilibs/go-pgquery",
		"google.golang.org/protobuf",
	}
	goMod, err := os.ReadFile(filepath.Join(checkout.Root(t), "cmd", "ff", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	linked := checkout.List(t, "-deps", fixture.Module+"/cmd/ff")
	reviews := checkout.List(t, "-deps", fixture.Module+"/review/cmd/schema-review")
	for _, path := range unwanted {
		if !containsPackage(reviews, path) {
			t.Errorf("the schema review does not link %s, so this test checks nothing", path)
		}
		if containsPackage(linked, path) {
			t.Errorf("ff links %s", path)
		}
		if strings.Contains(string(goMod), path+" v") {
			t.Errorf("ff's go.mod requires %s", path)
		}
	}
}

// containsPackage reports whether one of the packages is in the module.
func containsPackage(packages []string, module string) bool {
	for _, path := range packages {
		if path == module || strings.HasPrefix(path, module+"/") {
			return true
		}
	}
	return false
}
