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
