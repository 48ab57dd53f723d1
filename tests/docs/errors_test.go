package docs

import (
	"go/types"
	"regexp"
	"strings"
	"testing"
)

// TestDocsListEveryError: docs/errors.md has each exported sentinel of a public package in exactly one row, with a meaning and
// a next step.
func TestDocsListEveryError(t *testing.T) {
	t.Parallel()
	listed := make(map[string]bool)
	for _, row := range readDocument(t, "docs/errors.md").table("Error", "Meaning", "Next step") {
		for name := range strings.SplitSeq(row[0], ", ") {
			if listed[name] {
				t.Errorf("%s is listed twice", name)
			}
			listed[name] = true
		}
		if row[1] == "" || row[2] == "" {
			t.Errorf("%s has no meaning or no next step", row[0])
		}
	}
	sentinel := regexp.MustCompile(`^Err[A-Z]`)
	exported := make(map[string]bool)
	for room, p := range sources(t) {
		if !isPublic(room) || room == "" {
			continue
		}
		for _, name := range p.Types.Scope().Names() {
			v, ok := p.Types.Scope().Lookup(name).(*types.Var)
			if ok && sentinel.MatchString(name) && types.Identical(v.Type(), types.Universe.Lookup("error").Type()) {
				exported[p.Name+"."+name] = true
			}
		}
	}
	if len(exported) < 50 {
		t.Fatalf("%d exported errors", len(exported))
	}
	for name := range exported {
		if !listed[name] {
			t.Errorf("%s is missing", name)
		}
	}
	for name := range listed {
		if !exported[name] {
			t.Errorf("there is no %s", name)
		}
	}
}
