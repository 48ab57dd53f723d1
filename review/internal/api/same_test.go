package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A package is generated once if both sides have the same files. Every difference makes it two.
func TestSameFilesAreGeneratedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		twice bool
	}{
		"same":      {nil, false},
		"migration": {map[string]string{"migrations/2_note.sql": "-- migrate:up\nALTER TABLE items ADD COLUMN note text;\n-- migrate:down\nALTER TABLE items DROP COLUMN note;\n"}, true},
		"query":     {map[string]string{"queries/items.sql": queries + "\n-- name: Names :many\nSELECT name FROM items;\n"}, true},
		"options":   {map[string]string{"sqlc.yaml": strings.Replace(config, "emit_interface: true", "emit_interface: false", 1)}, true},
	} {
		dir := t.TempDir()
		result, err := Check(t.Context(), side(t, nil), side(t, c.files), dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "base")); (err == nil) != c.twice {
			t.Errorf("%s: the base's package was generated: %v", name, err == nil)
		}
		if result.Same == c.twice {
			t.Errorf("%s: the result says that the files are the same: %v", name, result.Same)
		}
		if (len(result.Changes) > 0) != (name == "migration" || name == "query") && name != "options" {
			t.Errorf("%s: %v", name, result.Changes)
		}
	}
}
