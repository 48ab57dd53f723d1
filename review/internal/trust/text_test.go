package trust

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// odd are decisions that know an extension and a schema that the tool makes.
func odd() *decisions {
	return &decisions{ways: map[string]database.Way{"postgis": database.ByTool}, tool: map[string]bool{"postgis": true, "schema gis": true}}
}

// Letters such as ɐ are longer in upper case, and comments hold keywords.
func TestCleanFindsKeywordsByTokens(t *testing.T) {
	for sql, want := range map[string]string{
		"CREATE /* SCHEMA ɐɐɐɐɐɐɐɐ */ SCHEMA gis":                "CREATE /* SCHEMA ɐɐɐɐɐɐɐɐ */ SCHEMA IF NOT EXISTS gis",
		"CREATE SCHEMA gis -- IF NOT EXISTS\n;":                  "CREATE SCHEMA IF NOT EXISTS gis -- IF NOT EXISTS\n;",
		"CREATE SCHEMA if not exists gis":                        "CREATE SCHEMA if not exists gis",
		"CREATE SCHEMA /* ɐɐɐɐɐɐɐɐɐɐɐɐɐɐ */ AUTHORIZATION app":   "CREATE SCHEMA /* ɐɐɐɐɐɐɐɐɐɐɐɐɐɐ */ app AUTHORIZATION CURRENT_USER",
		"CREATE SCHEMA AUTHORIZATION\n\"ɐ\"":                     "CREATE SCHEMA \n\"ɐ\" AUTHORIZATION CURRENT_USER",
		"SELECT 'ɐ'; ALTER TABLE ɐ OWNER TO /* ɐ */ app; SELECT": "SELECT 'ɐ'; ALTER TABLE ɐ OWNER TO /* ɐ */ CURRENT_USER; SELECT",
	} {
		if got := odd().cleaned(sql, pieces(sql)); got != want {
			t.Errorf("%q is cleaned to %q, want %q", sql, got, want)
		}
	}
}

// A DO block keeps only statements that a review runs.
func TestCleanDropsBlocksThatStillChangeRoles(t *testing.T) {
	for sql, want := range map[string]string{
		"DO $$BEGIN CREATE ROLE a; END$$":                              "DO $$BEGIN NULL         ; END$$",
		"DO $x$BEGIN CREATE ROLE a; PERFORM 1; END$x$":                 "DO $x$BEGIN NULL         ; PERFORM 1; END$x$",
		"DO 'BEGIN CREATE ROLE a; END'":                                "",
		"DO $$BEGIN CREATE ROLE a; EXECUTE 'CREATE ROLE b'; END$$":     "",
		"DO $$BEGIN RAISE NOTICE 'Please do not create user x'; END$$": "DO $$BEGIN RAISE NOTICE 'Please do not create user x'; END$$",
		"DO $$BEGIN ALTER TABLE t DROP role; END$$":                    "DO $$BEGIN ALTER TABLE t DROP role; END$$",
	} {
		if got := strings.TrimRight(odd().cleaned(sql, pieces(sql)), " "); got != want {
			t.Errorf("%q is cleaned to %q, want %q", sql, got, want)
		}
	}
}

func FuzzCleaned(f *testing.F) {
	pieces("SELECT 1") // the first use of the parser takes longer than the fuzzing engine waits for an input
	for _, sql := range []string{
		"", ";", "\x00", "SELECT 1\x00; COPY t TO PROGRAM 'x'", "\xff", "CREATE SCHEMA AUTHORIZATION \"ɐ\"", "/* SCHEMA ɐ */ CREATE SCHEMA gis; CREATE ROLE none",
		"DO $$BEGIN CREATE ROLE a; EXECUTE 'x'; END$$", "DO $a$ $$ $a$", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "COPY t FROM STDIN;\n1\n\\.\n",
		"ALTER TABLE ɐ OWNER TO app; GRANT a TO b; CREATE EXTENSION postgis SCHEMA gis", "ALTER DEFAULT PRIVILEGES FOR ROLE a, \"B\" GRANT SELECT ON TABLES TO c",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		got := odd().cleaned(sql, pieces(sql))
		if a, b := strings.Count(got, "\n"), strings.Count(sql, "\n"); a != b {
			t.Errorf("%q has %d lines, cleaned %q has %d", sql, b, got, a)
		}
	})
}

// readFiles reads migrations of a tool.
func readFiles(t *testing.T, tool project.Tool, files map[string]string) *project.Side {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	side, err := project.Read(dir, project.Options{Tool: tool})
	if err != nil {
		t.Fatal(err)
	}
	return side
}

func findingsOf(t *testing.T, base, head *project.Side, ways map[string]database.Way) (*project.Side, []string) {
	t.Helper()
	_, clean, findings, err := Read(base, head).Clean(ways)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range findings {
		lines = append(lines, fmt.Sprintf("%s %s %s:%d", f.Severity, f.Rule, f.Place.File, f.Place.Line))
	}
	return clean, lines
}

// A change of only the file down is a change, and one of only the file up leaves the other as it was.
func TestFindingsBlockInChangedFilesDown(t *testing.T) {
	base := readFiles(t, project.GolangMigrate, map[string]string{"1_a.up.sql": "CREATE TABLE t (id int);\n", "1_a.down.sql": "DROP TABLE t;\n"})
	head := readFiles(t, project.GolangMigrate, map[string]string{"1_a.up.sql": "CREATE TABLE t (id int);\n", "1_a.down.sql": "DROP TABLE t;\nCOPY u TO PROGRAM 'x';\n"})
	if _, found := findingsOf(t, base, head, nil); !slices.Equal(found, []string{"blocking statement-refused 1_a.down.sql:2"}) {
		t.Errorf("found %q", found)
	}
	if _, found := findingsOf(t, head, head, nil); !slices.Equal(found, []string{"note statement-refused 1_a.down.sql:2"}) {
		t.Errorf("found %q", found)
	}
}

// A statement that reads rows from its sender would wait for ever.
func TestCleanLeavesOutStatementsThatWaitForRows(t *testing.T) {
	head := readFiles(t, project.Goose, map[string]string{"1_a.sql": "-- +goose NO TRANSACTION\n-- +goose Up\nCREATE TABLE t (id int);\nCOPY t FROM STDIN;\nCREATE ROLE a;\nDROP EXTENSION hstore, postgis;\nCREATE INDEX i ON t (id);\n-- +goose Down\nDROP TABLE t;\n"})
	if !head.Migrations[0].Up.Separate() {
		t.Fatal("the statements are not sent one by one")
	}
	ways := map[string]database.Way{"postgis": database.ByTool}
	base := readFiles(t, project.Goose, map[string]string{"1_a.sql": "-- +goose Up\nCREATE EXTENSION postgis;\n"})
	clean, found := findingsOf(t, base, head, ways)
	want := []string{"risk statement-not-run 1_a.sql:4", "note statement-not-run 1_a.sql:5", "risk statement-not-run 1_a.sql:6"}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	up := clean.Migrations[0].Up
	if !up.Separate() || len(up.Statements) != 2 || len(up.In(1)) != 1 || !strings.HasPrefix(up.In(1)[0].SQL, "CREATE INDEX") {
		t.Errorf("the way up is %+v", up)
	}
	if up.Batches[1].Place.Line != 7 {
		t.Errorf("the index is at %v", up.Batches[1].Place)
	}
}
