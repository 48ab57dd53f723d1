package schema_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// firstDeclared is the first migration that declares the versions that may use the database.
const firstDeclared = "20261125000001"

var (
	declaration = regexp.MustCompile(`(?m)^-- usable-from: (\d{14})$`)
	declares    = regexp.MustCompile(`(?m)^CREATE (OR REPLACE )?FUNCTION ffx_usable_from\(\)`)
)

// usableFrom is the statement of a migration that older versions cannot tolerate.
func usableFrom(version string) string {
	return fmt.Sprintf("CREATE OR REPLACE FUNCTION ffx_usable_from() RETURNS text LANGUAGE sql STABLE AS $$ SELECT '%s' $$;", version)
}

func TestEveryMigrationNamesTheVersionsItServes(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	conn := connect(t, databaseURL)
	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	newer := "" // the declaration of the migration after this one
	for _, m := range slices.Backward(state.Migrations) {
		if m.Version < firstDeclared {
			continue
		}
		text, err := os.ReadFile("../../schema/migrations/" + m.Name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		declared := declaration.FindSubmatch(text)
		if declared == nil {
			t.Fatalf("%s has no usable-from line", m.Name)
		}
		from := string(declared[1])
		if from > m.Version || from < firstDeclared || newer != "" && from > newer {
			t.Errorf("%s is for versions from %s on, the one after it for those from %q on", m.Name, from, newer)
		}
		newer = from
		if up, _, _ := bytes.Cut(text, []byte("-- migrate:down")); declares.Match(up) != (from == m.Version) {
			t.Errorf("%s is for versions from %s on, and replaces the declaration: %t", m.Name, from, declares.Match(up))
		}
		if _, err := schema.Rollback(t.Context(), databaseURL, m.Version, schema.Options{}); err != nil {
			t.Fatal(err)
		}
		if got := scalar[string](t, conn, "SELECT ffx_usable_from()"); got != from {
			t.Errorf("the database at %s says %s, the file %s", m.Name, got, from)
		}
	}
}

// N2: any newer migration was an error of every operation, even if it changed nothing incompatible.
func TestMigrateLeavesANewerDatabaseAlone(t *testing.T) {
	t.Parallel()
	const newer = "20991231000001"
	databaseURL := pgtest.CloneURL(t)
	conn := connect(t, databaseURL)
	exec(t, conn, "CREATE TABLE ffx_later (); INSERT INTO ffx_schema_migrations VALUES ('"+newer+"')")
	before := catalog(t, conn)

	state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
	if err != nil || state.Err != nil || state.Version != newer || state.UsableFrom != scalar[string](t, conn, "SELECT ffx_usable_from()") {
		t.Errorf("status %+v, %v", state, err)
	}
	if len(state.Warnings) != 1 || !strings.Contains(state.Warnings[0], newer) {
		t.Errorf("warnings %q, want one that names %s", state.Warnings, newer)
	}
	for name, call := range map[string]func(schema.Options) (schema.Result, error){
		"Migrate": func(opts schema.Options) (schema.Result, error) {
			return schema.Migrate(t.Context(), databaseURL, opts)
		},
		"Adopt": func(opts schema.Options) (schema.Result, error) { return adoptAs(t.Context(), databaseURL, opts) },
		"Check": func(opts schema.Options) (schema.Result, error) {
			return schema.Result{To: newer}, schema.Check(t.Context(), conn, opts)
		},
	} {
		var log bytes.Buffer
		result, err := call(schema.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil || result.To != newer || len(result.Applied) != 0 {
			t.Errorf("%s: %+v, %v, want nothing done at %s", name, result, err, newer)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), newer) {
			t.Errorf("%s logged %q, want a warning that names %s", name, log.String(), newer)
		}
	}
	if _, err := schema.Rollback(t.Context(), databaseURL, "", schema.Options{}); !errors.Is(err, fferr.ErrTooNew) {
		t.Errorf("Rollback: %v, want ErrTooNew", err)
	}
	requireSameLines(t, catalog(t, conn), before)
}

// A program that only reads accepts a read-only server, but must still learn that it cannot read these tables.
func TestCheckReportsATooNewReadOnlyServer(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	exec(t, connect(t, databaseURL), "INSERT INTO ffx_schema_migrations VALUES ('20991231000001');"+usableFrom("20991231000001"))
	standby := connect(t, databaseURL, "default_transaction_read_only", "on")
	if err := schema.Check(t.Context(), standby, schema.Options{}); !errors.Is(err, fferr.ErrTooNew) {
		t.Errorf("%v, want ErrTooNew", err)
	}
}
