package house

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/rights"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/api"
	"github.com/flowfabric/flowfabric-go/tests/internal/needs"
)

// Every call that reaches the database belongs to a role, and every call in a role exists.
func TestRightsEveryCallBelongsToARole(t *testing.T) {
	t.Parallel()
	exported := make(map[string]bool)
	for name, handle := range map[string]reflect.Type{
		"Engine": reflect.TypeFor[*engine.Engine](), "Upkeep": reflect.TypeFor[*upkeep.Upkeep](),
		"Claimer": reflect.TypeFor[*engine.Claimer](),
	} {
		for i := range handle.NumMethod() {
			exported[name+"."+handle.Method(i).Name] = true
		}
	}
	lists, err := api.Lists("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range append([]string{"events"}, needs.Capabilities...) {
		for line := range strings.Lines(lists[room]) {
			if function, ok := strings.CutPrefix(line, "pkg "+room+", func "); ok {
				name := function[:strings.IndexAny(function, "([")]
				exported[room+"."+name] = true
			}
		}
	}
	listed := make(map[string]bool)
	for role, calls := range needs.Calls {
		if role != "" && !slices.Contains(rights.All(), rights.Role(role)) {
			t.Errorf("there is no role %q", role)
		}
		for _, call := range calls {
			if listed[call] = true; !exported[call] {
				t.Errorf("there is no %s, which belongs to %q", call, role)
			}
			if role == "" {
				continue
			}
			if slices.Contains(needs.Calls[""], call) {
				t.Errorf("%s belongs to %q, and to no role", call, role)
			}
			if role != "reader" && slices.Contains(needs.Calls["reader"], call) {
				t.Errorf("%s belongs to %q, which can do all that a reader can", call, role)
			}
		}
	}
	for call := range exported {
		if !listed[call] {
			t.Errorf("%s belongs to no role: enter it in tests/internal/needs/calls.go", call)
		}
	}
}

// The table of rights equals the needs of the statements, and a reader writes nothing.
func TestRightsAreThoseOfTheStatements(t *testing.T) {
	t.Parallel()
	const root = "../.."
	table, err := needs.Table(root)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.ReadFile(filepath.Join(root, needs.Path))
	if err != nil {
		t.Fatal(err)
	}
	if string(held) != string(table) {
		t.Errorf("%s is not what `make generate` writes", needs.Path)
	}
	for _, r := range rights.Of(rights.Reader) {
		if r.Privilege != "SELECT" && r.Privilege != "USAGE" && r.Privilege != "EXECUTE" {
			t.Errorf("a reader needs %s on %s", r.Privilege, r.Object)
		}
	}
}
