package schema_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// A schema that was renamed, or restored under another name, broke creations, and Check said that all was well.
func TestRepairOfARenamedSchema(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, before, after string }{
		{"renamed", "billing", "accounts"},
		{"renamed to a name in need of quotes", "billing", `Bill, "ing"`},
		{"renamed from a name in need of quotes", `Bill, "ing"`, "billing"},
		{"renamed beside a new one of the old name", "billing", "accounts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := pgtest.EmptyDatabase(t)
			conn := connect(t, databaseURL)
			migrate(t, databaseURL, schema.Options{Schema: test.before})
			if err := schema.Check(t.Context(), conn, schema.Options{Schema: test.before}); err != nil {
				t.Fatal(err)
			}
			exec(t, conn, "ALTER SCHEMA "+pgx.Identifier{test.before}.Sanitize()+" RENAME TO "+pgx.Identifier{test.after}.Sanitize())
			if strings.Contains(test.name, "beside") {
				migrate(t, databaseURL, schema.Options{Schema: test.before})
			}
			opts := schema.Options{Schema: test.after}
			err := schema.Check(t.Context(), conn, opts)
			if !errors.Is(err, schema.ErrMoved) {
				t.Fatalf("error %v, want %v", err, schema.ErrMoved)
			}
			advice := "ALTER FUNCTION " + quoted(test.after) + ".ffx_fill_ready() SET search_path = " + pgx.Identifier{test.after}.Sanitize()
			if !strings.Contains(err.Error(), advice) {
				t.Errorf("%v does not advise %s", err, advice)
			}
			for _, want := range []int{33, 0} {
				result, err := schema.Repair(t.Context(), databaseURL, opts)
				if err != nil || len(result.Applied) != want {
					t.Errorf("repaired %q, %v; want %d functions", result.Applied, err, want)
				}
				if err := schema.Check(t.Context(), conn, opts); err != nil {
					t.Error(err)
				}
			}
			eng, err := engine.New(openPool(t, databaseURL, test.after), engine.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := eng.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// quoted is a name as format's %I has it.
func quoted(name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") == "" {
		return name
	}
	return pgx.Identifier{name}.Sanitize()
}

func TestRepairRefusesAnUnmigratedDatabase(t *testing.T) {
	t.Parallel()
	if _, err := schema.Repair(t.Context(), pgtest.EmptyDatabase(t), schema.Options{}); !errors.Is(err, fferr.ErrNotMigrated) {
		t.Errorf("error %v, want %v", err, fferr.ErrNotMigrated)
	}
	if _, err := schema.Repair(t.Context(), referenceDatabase(t, ordinary), schema.Options{}); !errors.Is(err, schema.ErrNotAdopted) {
		t.Errorf("error %v, want %v", err, schema.ErrNotAdopted)
	}
}
