package schema_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// recordedViews has the columns of the views, "view.column type" in order. From v0.1.0 on lines are only added, at the
// end of a view's list or for a new view: programs that are not part of this repository read these columns.
const recordedViews = "testdata/views.txt"

// docs/database.md promises that a column of a view keeps its name, its type and its place.
func TestViewsKeepTheirColumns(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile(recordedViews)
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string][]string)
	for line := range strings.Lines(string(recorded)) {
		view, column, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ".")
		want[view] = append(want[view], column)
	}
	rows, err := connect(t, pgtest.URL(t)).Query(t.Context(), `
		SELECT relname::text, attname || ' ' || format_type(atttypid, atttypmod)
		FROM pg_attribute
		JOIN pg_class ON pg_class.oid = attrelid
		WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relkind IN ('v', 'm') AND attnum > 0
		ORDER BY relname, attnum`)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string][]string)
	var view, column string
	if _, err := pgx.ForEachRow(rows, []any{&view, &column}, func() error {
		got[view] = append(got[view], column)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for view, columns := range want {
		for i, column := range columns {
			if i >= len(got[view]) || got[view][i] != column {
				t.Errorf("column %d of %s is no longer %q: make a new view instead", i+1, view, column)
			}
		}
	}
	for view, columns := range got {
		for _, column := range columns[min(len(want[view]), len(columns)):] {
			t.Errorf("%s.%s is new: add it to %s", view, column, recordedViews)
		}
	}
	if len(want) != 7 {
		t.Errorf("%d views are recorded", len(want))
	}
}

// readers are the files of the statements that read a view. docs/database.md names their operations.
var readers = map[string]bool{"adopt_half_done.sql": true, "flow_summary.sql": true}

func TestOnlyNamedQueriesReadTheViews(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../db/sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	view := regexp.MustCompile(`(FROM|JOIN|USING)\s+ffx_(execution|attempt|flow|wait|steps|stream_frames)\b`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if reads := view.Match(text); reads != readers[filepath.Base(file)] {
			t.Errorf("%s reads a view: %v", file, reads)
		}
	}
}
