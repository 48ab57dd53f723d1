package views

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The view ffx_lane and the queries of Engine.Lanes count by the same lists: a change of one goes into the other.
func TestViewOfLanesHasTheListsOfTheQueries(t *testing.T) {
	t.Parallel()
	const root = "../.."
	queries, err := os.ReadFile(filepath.Join(root, "queries/engine/lanes.sql"))
	if err != nil {
		t.Fatal(err)
	}
	migrations, err := filepath.Glob(filepath.Join(root, "schema/migrations/*.sql")) // in the order of their names
	if err != nil {
		t.Fatal(err)
	}
	var view string // as the last migration makes it
	for _, name := range migrations {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- migrate:down")
		if _, made, found := strings.Cut(up, "VIEW ffx_lane AS\n"); found {
			view = made
		}
	}
	for _, c := range []struct{ inView, inQuery string }{
		{"delayed", "delayed"},
		{"leased", "timed"},
		{"gated", "gated"},
		{"suspended", "suspended"},
		{"placed", "placed"},
		{"members", "members"},
	} {
		got, want := listed(view, c.inView), listed(string(queries), c.inQuery)
		if want == "" || got != want {
			t.Errorf("%s of the view reads\n%s\nand %s of the queries\n%s", c.inView, got, c.inQuery, want)
		}
	}
}

var (
	remark = regexp.MustCompile(`(?m)^ *--.*\n`)
	space  = regexp.MustCompile(`\s+`)
	fields = regexp.MustCompile(`SELECT .*? FROM `)
	bound  = regexp.MustCompile(`sqlc\.arg\(max_counted\)::integer \+ 1`) // the view's is engine.MaxCounted and one more
)

// listed returns what the common table expression lists, without the columns, which may differ.
func listed(sql, name string) string {
	_, rest, _ := strings.Cut(sql, name+" AS MATERIALIZED (\n")
	body, _, _ := strings.Cut(rest, "\n)")
	line := space.ReplaceAllString(remark.ReplaceAllString(body, ""), " ")
	return bound.ReplaceAllString(fields.ReplaceAllString(line, "SELECT … FROM "), "10001")
}
