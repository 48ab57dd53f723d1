package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// lay writes the files of a project.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var shop = map[string]string{
	"sqlc.yaml": "version: \"2\"\nsql:\n  - engine: postgresql\n    schema: db/schema.sql\n    queries: [queries]\n" +
		"    gen: {go: {package: shop, out: shop, sql_package: pgx/v5}}\n",
	"db/schema.sql": "CREATE TABLE item (id bigint);\n",
	"db/migrations/20260101000001_items.sql": `-- Items.
-- usable-from: 3

-- migrate:up

CREATE TABLE item (id bigint, name text DEFAULT ';é');  -- a table
-- review: allow lock-blocks-writers until 2027-01-31: the table is empty everywhere
/* and
   another */ CREATE INDEX item_name
    ON item (name);

DO $$
BEGIN
    PERFORM 1;
END
$$;

-- migrate:down

DROP TABLE item;
`,
	"db/migrations/20260101000002_index.sql": `-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY item_id ON item (id);

-- migrate:down
-- irreversible: rows were merged
`,
	"queries/items.sql": `-- name: ListItems :many
-- ListItems lists items.
--
-- Used by: shop.List, shop.Show. More words.
SELECT *, '@no' AS x FROM item
WHERE id > @after AND name = ANY (sqlc.narg(names)::text[]) -- @remark
    AND sqlc.arg('after') > 0
LIMIT @page_size;

-- name: CopyItems :copyfrom
INSERT INTO item (id, name) VALUES (@id, @name);
`,
	".env":              "# dbmate's\nexport DBMATE_MIGRATIONS_TABLE=\"app.ledger\"\n",
	"shop/items.sql.go": "package shop\n\nconst copyNothing = `x`\n",
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, shop)
	side, err := Read(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := side.Migrations[0]
	file := "db/migrations/20260101000001_items.sql"
	want := []Statement{
		{SQL: "CREATE TABLE item (id bigint, name text DEFAULT ';é')", Place: report.Place{File: file, Line: 6}},
		{SQL: "CREATE INDEX item_name\n    ON item (name)", Place: report.Place{File: file, Line: 9}, Silence: []Silence{{
			Rule: "lock-blocks-writers", Reason: "the table is empty everywhere", Until: "2027-01-31",
			Place: report.Place{File: file, Line: 7},
		}}},
		{SQL: "DO $$\nBEGIN\n    PERFORM 1;\nEND\n$$", Place: report.Place{File: file, Line: 12}},
	}
	if !reflect.DeepEqual(first.Up.Statements, want) {
		t.Errorf("statements up:\n%+v\nwant\n%+v", first.Up.Statements, want)
	}
	if down := first.Down.Statements; len(down) != 1 || down[0].SQL != "DROP TABLE item" || down[0].Place.Line != 20 {
		t.Errorf("statements down: %+v", down)
	}
	if first.Usable != "3" || !first.Up.Transaction || first.Irreversible != "" {
		t.Errorf("the first migration: %+v", first)
	}
	second := side.Migrations[1]
	if second.Up.Transaction || !second.Down.Transaction || second.Irreversible != "rows were merged" || len(second.Down.Statements) != 0 {
		t.Errorf("the second migration: %+v", second)
	}
	queries := []Query{
		{
			Name: "ListItems", Command: "many", Package: side.SQLC.id(),
			SQL:        "SELECT *, '@no' AS x FROM item\nWHERE id > $1 AND name = ANY ($2::text[]) -- @remark\n    AND $1 > 0\nLIMIT $3",
			Place:      report.Place{File: "queries/items.sql", Line: 1},
			Operations: []string{"shop.List", "shop.Show"},
		},
		{
			Name: "CopyItems", Command: "copyfrom", Package: side.SQLC.id(), SQL: "INSERT INTO item (id, name) VALUES ($1, $2)",
			Place: report.Place{File: "queries/items.sql", Line: 10},
		},
	}
	if !reflect.DeepEqual(side.Queries, queries) {
		t.Errorf("queries:\n%+v\nwant\n%+v", side.Queries, queries)
	}
	if side.Dump != "db/schema.sql" || side.MigrationsTable != "app.ledger" || side.SQLC.Package != "shop" || len(side.Findings) != 0 {
		t.Errorf("%+v", side)
	}
}

func TestReadTakesGeneratedStatements(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, shop)
	lay(t, dir, map[string]string{"shop/items.sql.go": "package shop\n\nconst listItems = `-- name: ListItems :many\n" +
		"SELECT id, ` + \"`\" + `name FROM item WHERE id > $1\n`\n"})
	side, err := Read(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "SELECT id, `name FROM item WHERE id > $1"; side.Queries[0].SQL != want {
		t.Errorf("the statement is %q, want %q", side.Queries[0].SQL, want)
	}
}

func TestReadOtherForms(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, map[string]string{
		"m/0001_a.up.sql":   "CREATE TABLE a (id int);\nCREATE TABLE b (id int);\n",
		"m/0001_a.down.sql": "DROP TABLE b;\n\nDROP TABLE a;",
		"sqlc.json":         `{"version": "1", "packages": [{"path": "db", "schema": "m", "queries": "q.sql"}]}`,
		"q.sql":             "/* name: One :one */\nSELECT 1;\n",
	})
	side, err := Read(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []report.Place
	for _, m := range side.Migrations {
		for _, s := range append(m.Up.Statements, m.Down.Statements...) {
			got = append(got, s.Place)
		}
	}
	want := []report.Place{
		{File: "m/0001_a.up.sql", Line: 1},
		{File: "m/0001_a.up.sql", Line: 2},
		{File: "m/0001_a.down.sql", Line: 1},
		{File: "m/0001_a.down.sql", Line: 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("places %v, want %v", got, want)
	}
	if side.Migrations[0].Up.Transaction || side.Dump != "" || side.SQLC.Package != "db" || len(side.Queries) != 1 {
		t.Errorf("%+v", side)
	}
}

func TestReadReportsUnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, map[string]string{
		"m/1_a.sql": "-- migrate:up\nCREATE TABEL a;\n-- migrate:down\n",
		"m/2_b.sql": "-- migrate:up\n",
	})
	side, err := Read(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(side.Findings) != 2 || side.Findings[0].Rule != "migration-unreadable" || side.Findings[1].Place.File != "m/2_b.sql" {
		t.Errorf("%+v", side.Findings)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "service")
	lay(t, inner, shop)
	lay(t, dir, map[string]string{".gitignore": "bin/\n"})
	run := func(arguments ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, arguments...)...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	run("init", "-q", "-b", "main")
	run("add", ".")
	run("commit", "-q", "-m", "base")
	lay(t, inner, map[string]string{
		"db/migrations/20260101000003_more.sql": "-- migrate:up\nSELECT 1;\n-- migrate:down\n",
		"bin/junk":                              "x",
	})

	base, err := openAt(t.Context(), inner, "main", filepath.Join(t.TempDir(), "base"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	head, err := openAt(t.Context(), inner, "", filepath.Join(t.TempDir(), "head"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if added := New(base, head); len(base.Migrations) != 2 || len(added) != 1 || added[0].Version != "20260101000003" {
		t.Errorf("base has %d migrations, new are %+v", len(base.Migrations), added)
	}
	if _, err := os.Stat(filepath.Join(head.Dir, "bin/junk")); err == nil {
		t.Error("an ignored file was copied")
	}
	if _, err := openAt(t.Context(), inner, "nowhere", t.TempDir(), Options{}); err == nil {
		t.Error("an unknown revision was opened")
	}
	if _, err := MergeBase(t.Context(), inner, "main", ""); err != nil {
		t.Error(err)
	}
}

// A single file that sqlc reads is the dump; of several, each is a part of the schema.
func TestReadDump(t *testing.T) {
	for schema, want := range map[string]string{`"all.sql"`: "all.sql", `["all.sql", "more.sql"]`: ""} {
		dir := t.TempDir()
		lay(t, dir, map[string]string{
			"m/1_a.sql": "-- migrate:up\nCREATE TABLE a (id int);\n-- migrate:down\nDROP TABLE a;\n",
			"sqlc.json": `{"version": "1", "packages": [{"path": "db", "schema": ` + schema + `, "queries": "q.sql"}]}`,
			"q.sql":     "-- name: One :one\nSELECT 1;\n", "all.sql": "CREATE TABLE a (id int);\n", "more.sql": "SELECT 1;\n",
		})
		if side, err := Read(dir, Options{}); err != nil || side.Dump != want {
			t.Errorf("of the schema %s the dump is %q, %v, want %q", schema, side.Dump, err, want)
		}
	}
}
