package rounds

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

const base = `
CREATE TABLE item (id bigint PRIMARY KEY, name text, price int, old text);
INSERT INTO item SELECT i, CASE WHEN i > 5 THEN 'n' || i END, i, 'o' || i FROM generate_series(1, 10) AS i;
CREATE TABLE empty (id int);
`

func TestCheck(t *testing.T) {
	server, err := database.Start(t.Context(), container.Run, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name, up, down string
		want           []string // rule line object
	}{
		{"a table comes and goes", "CREATE TABLE new (id int);", "DROP TABLE new;", nil},
		{"an index outside of a transaction", " transaction:false\nCREATE INDEX CONCURRENTLY i ON item (name);", " transaction:false\nDROP INDEX CONCURRENTLY i;", nil},
		{"NULLs are filled", "UPDATE item SET name = '' WHERE name IS NULL;", "SELECT 1;", nil},
		{"an unused table goes", "DROP TABLE empty;", "CREATE TABLE empty (id int);", nil},
		{
			"a column goes", "SELECT 1;\nALTER TABLE item DROP COLUMN old;", "ALTER TABLE item ADD COLUMN old text;",
			[]string{"rows-do-not-survive m/1_new.sql:4 item.old"},
		},
		{
			"a column goes for a reason", "-- irreversible: nobody reads it\nALTER TABLE item DROP COLUMN old;", "",
			[]string{"irreversible m/1_new.sql:0 1", "rows-lost-by-decision m/1_new.sql:4 item.old"},
		},
		{
			"rows go", "ALTER TABLE item ADD COLUMN x int;", "DELETE FROM item WHERE id > 7;\nALTER TABLE item DROP COLUMN x;",
			[]string{"rows-do-not-survive m/1_new.sql:3 item"},
		},
		{
			"values change", "ALTER TABLE item ALTER COLUMN price TYPE text USING price || '!';", "ALTER TABLE item ALTER COLUMN price TYPE int USING 7;",
			[]string{"rows-do-not-survive m/1_new.sql:3 item.price"},
		},
		{
			"no way back", "CREATE TABLE new (id int);", "",
			[]string{"down-missing m/1_new.sql:0 1"},
		},
		{
			"a way back to elsewhere", "CREATE INDEX i ON item (price);\nDROP TABLE empty;", "CREATE TABLE empty (id bigint);\n DROP INDEX i;",
			[]string{"down-differs m/1_new.sql:6 empty.id"},
		},
		{
			"half a way back", "CREATE TABLE new (id int);\nCREATE TABLE more (id int);", "DROP TABLE new;",
			[]string{"down-differs m/1_new.sql:4 more", "up-again-fails m/1_new.sql:4 1"},
		},
		{
			"a way back that fails", "CREATE TABLE new (id int);", "DROP TABLE newer;",
			[]string{"down-fails m/1_new.sql:5 1"},
		},
		{
			"rows do not fit", "ALTER TABLE item ALTER COLUMN name SET NOT NULL;", "ALTER TABLE item ALTER COLUMN name DROP NOT NULL;",
			[]string{"migration-fails-on-rows m/1_new.sql:3 1"},
		},
		{
			"another schema the second time", "CREATE TABLE IF NOT EXISTS empty (id int);\nCREATE TABLE IF NOT EXISTS new (id int);",
			"DROP TABLE new;\nCREATE TABLE new (id bigint);",
			[]string{"down-differs m/1_new.sql:7 new", "up-again-differs m/1_new.sql:7 new.id"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			text := "-- migrate:up" + onLine(c.up) + "\n-- migrate:down" + onLine(c.down) + "\n"
			text = "-- A change.\n" + text
			if err := os.MkdirAll(filepath.Join(dir, "m"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "m/1_new.sql"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			side, err := project.Read(dir, project.Options{})
			if err != nil {
				t.Fatal(err)
			}
			d, err := server.Create(t.Context(), "rounds")
			if err != nil {
				t.Fatal(err)
			}
			conn, err := d.Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), base); err != nil {
				t.Fatal(err)
			}
			conn.Close(t.Context())
			findings, err := Check(t.Context(), Input{Database: d, Table: side.MigrationsTable, New: side.Migrations})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, fmt.Sprintf("%s %s:%d %s", f.Rule, f.Place.File, f.Place.Line, f.Object))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q\n%s\n%+v", got, c.want, text, findings)
			}
		})
	}
}

// onLine puts statements on lines below the directive; a text that begins with a space is its options.
func onLine(statements string) string {
	if strings.HasPrefix(statements, " transaction") {
		return statements
	}
	return "\n" + statements
}
