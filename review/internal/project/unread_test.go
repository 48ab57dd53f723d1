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
		"m/0004_old.down.txt": "SELECT 1;\n", "m/notes.txt": "x",
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
	if got := unreadOf(side); !slices.Equal(got, []string{"m/0004_old.down.txt if changed"}) {
		t.Errorf("unread are %q", got)
	}
}
