package explain

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// causes returns the causes of an execution, which are the same for all readers.
func causes(t *testing.T, f *place, x id.ExecutionID) []explain.Cause {
	t.Helper()
	why, err := explain.Execution(t.Context(), f.Engine, x)
	if err != nil {
		t.Fatal(err)
	}
	if !why.At.Equal(f.Time()) {
		t.Errorf("at %s, want %s", why.At, f.Time())
	}
	for _, r := range f.readers {
		r.await(t)
		other, err := explain.Execution(t.Context(), r.eng, x)
		if err != nil || !reflect.DeepEqual(other, why) {
			t.Errorf("%s: %+v, %v; want %+v", r.name, other, err, why)
		}
	}
	return why.Causes
}

// want fails unless the nearest cause has the code, is certain as given, and has all parts in its text. It returns the cause.
func want(t *testing.T, f *place, x id.ExecutionID, code explain.Code, certain bool, parts ...string) explain.Cause {
	t.Helper()
	all := causes(t, f, x)
	if len(all) == 0 {
		t.Fatalf("no cause, want %s", code)
	}
	nearest := all[0]
	if nearest.Code != code || nearest.Certain != certain {
		t.Fatalf("%s (certain: %v), want %s (%v): %s", nearest.Code, nearest.Certain, code, certain, nearest.Text)
	}
	for _, part := range parts {
		if !strings.Contains(nearest.Text, part) {
			t.Errorf("the text lacks %q: %s", part, nearest.Text)
		}
	}
	t.Logf("%s: %s %q", nearest.Code, nearest.Text, nearest.Do)
	return nearest
}

// The page for operators has a row for each code, and no other.
func TestEveryCodeIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/why.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| Code | Meaning |")
	if !found {
		t.Fatal("docs/why.md has no table of codes")
	}
	var documented []explain.Code
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for i, part := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				documented = append(documented, explain.Code(part))
			}
		}
	}
	want := explain.Codes()
	slices.Sort(documented)
	slices.Sort(want)
	if !slices.Equal(documented, want) {
		t.Errorf("documented: %v, want %v", documented, want)
	}
}

// codes returns the codes of all causes, the nearest first.
func codes(t *testing.T, f *place, x id.ExecutionID) string {
	t.Helper()
	var all []string
	for _, c := range causes(t, f, x) {
		all = append(all, string(c.Code))
	}
	return strings.Join(all, " ")
}
