package observe_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/observe"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// The server ignores SET LOCAL in a statement that is sent alone, and a statement that has to stand alone gets no advice
// about a setting before it.
func TestCheckFollowsHowToolsSend(t *testing.T) {
	const alone, local = "-- +goose NO TRANSACTION\n-- +goose Up\n", "SET LOCAL lock_timeout = '2s';\n"
	for _, c := range []struct{ name, text, advice, not string }{
		{"SET LOCAL alone", alone + local + "ALTER TABLE settings ADD x int;\n", "`SET lock_timeout", "Begin the migration with `SET LOCAL"},
		{"SET LOCAL in a transaction", "-- +goose Up\n" + local + "ALTER TABLE settings ADD x int;\n", "", ""},
		{"a dropped index", "-- migrate:up\nDROP INDEX accounts_owner;\n-- migrate:down\n", "Write `DROP INDEX CONCURRENTLY`, alone", "lock_timeout"},
		{"a column", "-- migrate:up\nALTER TABLE settings ADD x int;\n-- migrate:down\n", "Begin the migration with `SET LOCAL", "CONCURRENTLY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "1_a.sql"), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			side, err := project.Read(dir, project.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := observe.Check(t.Context(), seeded(t).Connect, observe.Options{Queries: queries, Migrations: side.Migrations})
			if err != nil {
				t.Fatal(err)
			}
			advice := ""
			for _, f := range r.Findings {
				if f.Rule == "lock-without-timeout" {
					advice = f.Do
				}
			}
			if (advice == "") != (c.advice == "") || !strings.Contains(advice, c.advice) || c.not != "" && strings.Contains(advice, c.not) {
				t.Errorf("the advice is %q, want %q and not %q", advice, c.advice, c.not)
			}
		})
	}
}
