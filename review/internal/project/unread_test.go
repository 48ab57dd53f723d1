package project

import (
	"slices"
	"testing"
)

// unreadOf returns the paths that were not read.
func unreadOf(s *Side) []string {
	var paths []string
	for _, u := range s.Unread {
		paths = append(paths, u.Path+map[bool]string{true: " if changed"}[u.IfChanged])
	}
	slices.Sort(paths)
	return paths
}

func TestReadRefusesPathsOutsideForEveryEngine(t *testing.T) {
	for _, engine := range []string{"sqlite", "mysql", ""} {
		side, err := read(t, map[string]string{
			"sqlc.yaml": `{"version": "2", "sql": [{"engine": "` + engine + `", "schema": "../../../..", "queries": ["/etc", "q"]}]}`,
		}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := unreadOf(side); !slices.Equal(got, []string{"q if changed"}) {
			t.Errorf("with the engine %q, unread are %q", engine, got)
		}
		if len(side.Findings) != 2 || side.Findings[0].Rule != "path-outside" {
			t.Errorf("with the engine %q, found %+v", engine, side.Findings)
		}
	}
}

// golang-migrate applies files of every extension, and pairs them by their numbers.
func TestReadTakesPairsOfEveryExtension(t *testing.T) {
	side, err := read(t, map[string]string{
		"m/0001_a.up.sql": "CREATE TABLE a (id int);\n", "m/1_other.down.sql~": "DROP TABLE a;\n",
		"m/0003_notes.up.txt": "DROP TABLE a;\n", "m/0003_notes.down.md": "SELECT 1;\n", "m/3_more.down.sql": "SELECT 2;\n",
		"m/0004_old.down.txt": "SELECT 1;\n", "m/notes.txt": "x", "m/5_x.up.d/README": "x",
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range side.Migrations {
		got = append(got, m.Version, m.File, m.Down.SQL)
	}
	if want := []string{"1", "m/0001_a.up.sql", "DROP TABLE a;\n", "3", "m/0003_notes.up.txt", "SELECT 1;\n"}; !slices.Equal(got, want) {
		t.Errorf("the migrations are %q, want %q", got, want)
	}
	if len(side.Findings) != 1 || side.Findings[0].Place.File != "m/3_more.down.sql" {
		t.Errorf("found %+v", side.Findings)
	}
	if got := unreadOf(side); !slices.Equal(got, []string{"m/0004_old.down.txt if changed", "m/5_x.up.d if changed"}) {
		t.Errorf("unread are %q", got)
	}
}

// A broken file is a finding, and the others are read.
func TestReadGoesOnBesideBrokenFiles(t *testing.T) {
	side, err := read(t, map[string]string{
		"sqlc.yaml": "version: [\n",
		"a/sqlc.yaml": `{"version": "2", "sql": [{"engine": "postgresql", "schema": "../m", "queries": ["q.sql", "x/[", "y/[b-a]*"], ` +
			`"gen": {"go": {"package": "a", "out": "gen"}}}]}`,
		"b/sqlc.yaml": `{"version": "2", "sql": [{"engine": "postgresql", "schema": "../m", "queries": "q.sql", "gen": {"go": {"package": "b", "out": "[gen"}}}]}`,
		"a/q.sql":     "-- name: One :one\nSELECT 1;\n", "b/q.sql": "-- name: Two :one\nSELECT 2;\n",
		"a/gen/bad.go": "package a\n\nfunc {\n", "a/gen/q.go": "package a\n\nconst one = `-- name: One :one\nSELECT 1 AS made\n`\n",
		"b/[gen/q.go": "package b\n\nconst two = `-- name: Two :one\nSELECT 2 AS made\n`\n",
		"m/1_a.sql":   "-- migrate:up\nCREATE TABLE a (id int);\n-- migrate:down\nDROP TABLE a;\n",
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range side.Findings {
		found = append(found, f.Rule+" "+f.Place.File)
	}
	want := []string{"query-unreadable sqlc.yaml", "query-unreadable a/sqlc.yaml", "query-unreadable a/sqlc.yaml", "query-unreadable a/gen/bad.go"}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	if got := unreadOf(side); !slices.Equal(got, []string{"a/gen/bad.go", "a/sqlc.yaml", "a/sqlc.yaml", "sqlc.yaml"}) {
		t.Errorf("unread are %q", got)
	}
	if len(side.Migrations) != 1 || len(side.Queries) != 2 || side.Queries[0].SQL != "SELECT 1 AS made" || side.Queries[1].SQL != "SELECT 2 AS made" {
		t.Errorf("the migrations are %+v, the queries %+v", side.Migrations, side.Queries)
	}
}

func TestUnreadQueriesReportsAMissingFolder(t *testing.T) {
	if err := (&Side{Dir: t.TempDir() + "/nowhere"}).unreadQueries(); err == nil {
		t.Error("a folder that does not exist has no error")
	}
}
