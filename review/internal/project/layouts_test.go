package project

import (
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, files map[string]string, opts Options) (*Side, error) {
	t.Helper()
	dir := t.TempDir()
	lay(t, dir, files)
	return Read(dir, opts)
}

func TestReadDecidesTheTool(t *testing.T) {
	const up, table = "-- +goose Up\nSELECT 1;\n", "CREATE TABLE a (id int);\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		opts  Options
		want  Tool
		fails string // a part of the error
	}{
		{name: "goose", files: map[string]string{"m/1_a.sql": strings.ToLower(up)}, want: Goose},
		{name: "dbmate", files: map[string]string{"m/1_a.sql": "-- migrate:up\n" + table + "-- migrate:down\n"}, want: Dbmate},
		{name: "pairs", files: map[string]string{"m/1_a.up.sql": table, "m/1_a.down.sql": ""}, want: GolangMigrate},
		{name: "tern", files: map[string]string{"m/1_a.sql": table + ternSeparator + "\nDROP TABLE a;\n"}, want: Tern},
		{name: "Flyway in folders", files: map[string]string{"m/a/V1__a.sql": table}, opts: Options{MigrationsDir: "m"}, want: Flyway},
		{name: "Atlas", files: map[string]string{"m/1_a.sql": table, "m/atlas.sum": "h1:x"}, want: Atlas},
		{name: "a folder named for migrations", files: map[string]string{"db/migrations/1_a.sql": table}, want: Plain},
		{name: "numbered files elsewhere", files: map[string]string{"fixtures/1_a.sql": table}},
		{name: "a folder that is named", files: map[string]string{"x/a.sql": table}, opts: Options{MigrationsDir: "x"}, want: Plain},
		{name: "two tools", files: map[string]string{"m/1_a.sql": up, "m/2_b.up.sql": table}, fails: "--tool: golang-migrate, goose"},
		{name: "two tools, and one is named", files: map[string]string{"m/1_a.sql": up, "m/2_b.up.sql": table}, opts: Options{Tool: Goose}, want: Goose},
		{name: "two folders", files: map[string]string{"m/1_a.sql": up, "n/1_b.sql": up}, fails: "--migrations-dir: m, n"},
		{name: "an unknown tool", files: map[string]string{"migrations/1_a.sql": "-- +migrate Up\n" + table + "-- +migrate Down\nDROP TABLE a;\n"}, fails: "--migrate-command"},
		{name: "a command", files: map[string]string{"migrations/1_a.sql": "-- +migrate Up\n" + table}, opts: Options{Tool: Command}, want: Command},
	} {
		t.Run(c.name, func(t *testing.T) {
			side, err := read(t, c.files, c.opts)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("the error is %v, want %q in it", err, c.fails)
				}
				return
			}
			if err != nil || side.Tool != c.want {
				t.Errorf("it is read as %q, %v, want %q", side.Tool, err, c.want)
			}
		})
	}
	if _, err := ParseTool("liquibase"); err == nil {
		t.Error("a tool that the review does not know was taken")
	}
}

func TestReadSplitsAsGooseDoes(t *testing.T) {
	side, err := read(t, map[string]string{
		"m/00001_a.sql": "-- +goose Up\nCREATE TABLE a (id int); -- one\n-- +goose NO TRANSACTION\nCREATE TABLE b (\n  id int);\n" +
			"-- +goose StatementBegin\nSELECT 1;\nSELECT 2;\n-- +goose StatementEnd\n-- +goose Down\nDROP TABLE a;\n",
		"m/00002_b.sql": "-- +goose Up\nCREATE TABLE c (id int)\n",
		"m/00010_c.sql": "-- +goose Up\n-- +goose StatementBegin\nSELECT 1;\n",
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := side.Migrations[0]
	var lines []int
	for _, b := range first.Up.Batches {
		lines = append(lines, b.Place.Line)
	}
	if !slices.Equal(lines, []int{2, 4, 7}) || first.Up.Transaction || len(first.Down.Batches) != 1 || first.Up.Separate() {
		t.Errorf("batches at %v of %+v", lines, first)
	}
	if len(side.Findings) != 2 || side.Findings[0].Rule != "migration-unreadable" || side.Findings[1].Place.File != "m/00010_c.sql" {
		t.Errorf("%+v", side.Findings)
	}
}

func TestReadReportsUnreadFiles(t *testing.T) {
	const up = "-- +goose Up\nSELECT 1;\n"
	side, err := read(t, map[string]string{
		"m/1_a.sql": up, "m/2_b.go": "package m\n", "m/embed.go": "package m\n", "m/README.md": "x", "m/seed.sql": "SELECT 1;\n",
		"m/3_c.py": "x", "m/old/1_a.sql": "SELECT 1;\n",
		"sqlc.yaml":       `{"version": "2", "sql": [{"engine": "postgresql", "schema": "m", "queries": ["q/**", "gone"]}, {"engine": "sqlite", "schema": "lite.sql", "queries": "lite"}]}`,
		"q/deep/er/a.sql": "-- name: One :one\nSELECT 1;\n", "q/b.sql": "-- name: Two :one\nSELECT 2;\n",
		"other/sqlc.dev.yaml": `{"version": "2", "sql": [{"engine": "postgresql", "schema": "m", "queries": "q"}]}`,
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range side.Unread {
		got = append(got, u.Path+map[bool]string{true: " if changed"}[u.IfChanged])
	}
	slices.Sort(got)
	want := []string{"gone", "lite if changed", "lite.sql if changed", "m/2_b.go", "m/3_c.py", "m/old if changed", "m/seed.sql if changed", "other/sqlc.dev.yaml"}
	if !slices.Equal(got, want) {
		t.Errorf("unread are %q, want %q", got, want)
	}
	if len(side.Queries) != 2 {
		t.Errorf("queries %+v", side.Queries)
	}
}

func TestReadReportsQueriesWithoutConfiguration(t *testing.T) {
	side, err := read(t, map[string]string{"q/a.sql": "-- name: One :one\nSELECT 1;\n"}, Options{})
	if err != nil || len(side.Unread) != 1 || side.Unread[0].Path != "q" {
		t.Errorf("%+v, %v", side, err)
	}
}

func TestReadTakesAllPackages(t *testing.T) {
	files := map[string]string{
		"sqlc.yaml": `{"version": "2", "sql": [` +
			`{"engine": "postgresql", "schema": "m", "queries": "a", "gen": {"go": {"package": "a", "out": "gen/a"}}},` +
			`{"engine": "postgresql", "schema": "m", "queries": "b", "gen": {"go": {"package": "b", "out": "gen/b"}}}]}`,
		"svc/sqlc.json": `{"version": "1", "packages": [{"name": "c", "path": "gen", "schema": "../m", "queries": "q.sql"}]}`,
		"a/a.sql":       "-- name: One :one\nSELECT 1;\n", "b/b.sql": "-- name: One :one\nSELECT 2;\n", "svc/q.sql": "-- name: One :one\nSELECT 3;\n",
		"extra.yaml": `{"version": "1", "packages": [{"name": "d", "path": "d", "schema": "m", "queries": "d.sql"}]}`,
		"d.sql":      "-- name: Four :one\nSELECT 4;\n",
	}
	side, err := read(t, files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	Qualify(side)
	var got []string
	for _, q := range side.Queries {
		got = append(got, q.Name+" "+q.SQL)
	}
	if want := []string{"a.One SELECT 1", "b.One SELECT 2", "c.One SELECT 3"}; !slices.Equal(got, want) {
		t.Errorf("queries %q, want %q", got, want)
	}
	if only := side.Only(side.Packages[2]); only.SQLC.Out != "svc/gen" || len(only.Queries) != 1 || only.Queries[0].Name != "One" {
		t.Errorf("%+v", only)
	}
	side, err = read(t, files, Options{SQLCConfigs: []string{"extra.yaml"}})
	if err != nil || len(side.Queries) != 1 || side.Queries[0].Name != "Four" {
		t.Errorf("%+v, %v", side, err)
	}
}

func TestReadReportsAGapInTernsNumbers(t *testing.T) {
	text := "SELECT 1;\n" + ternSeparator + "\nSELECT 2;\n"
	side, err := read(t, map[string]string{"m/001_a.sql": text, "m/003_c.sql": text}, Options{})
	if err != nil || len(side.Findings) != 1 || side.Findings[0].Place.File != "m/003_c.sql" {
		t.Errorf("%+v, %v", side.Findings, err)
	}
}

func TestCompareOrdersVersions(t *testing.T) {
	for _, c := range []struct {
		tool        Tool
		first, then string
	}{{Flyway, "1.2", "1.10"}, {Flyway, "1", "1.0.1"}, {Goose, "9", "10"}, {Dbmate, "0009", "10"}, {Plain, "10_a", "9_a"}} {
		if c.tool.Compare(c.first, c.then) >= 0 || c.tool.Compare(c.then, c.first) <= 0 {
			t.Errorf("%s: %s does not come before %s", c.tool, c.first, c.then)
		}
	}
}
