package schema_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// firstCommented is the first migration with comments.
const firstCommented = "20261125000001"

// described lists the objects in the connection's schema with their comments, "kind name: comment", sorted.
func described(t *testing.T, db schema.Querier) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		WITH class AS (
			SELECT * FROM pg_class WHERE relnamespace = quote_ident(current_schema())::regnamespace AND NOT relispartition AND relkind IN ('r', 'p', 'v')
		),
		object (name, comment) AS (
			SELECT 'relation ' || relname, obj_description(oid, 'pg_class') FROM class
			UNION ALL
			SELECT format('column %s.%s', relname, attname), col_description(attrelid, attnum)
			FROM pg_attribute
			JOIN class ON class.oid = attrelid
			WHERE attnum > 0 AND NOT attisdropped
			UNION ALL
			SELECT format('trigger %s on %s', tgname, relname), obj_description(pg_trigger.oid, 'pg_trigger')
			FROM pg_trigger
			JOIN class ON class.oid = tgrelid
			WHERE NOT tgisinternal
			UNION ALL
			SELECT format('function %s(%s)', proname, pg_get_function_identity_arguments(oid)), obj_description(oid, 'pg_proc')
			FROM pg_proc
			WHERE pronamespace = quote_ident(current_schema())::regnamespace
		)
		SELECT name || ': ' || coalesce(comment, '') FROM object`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

func isCommented(line string) bool { return !strings.HasSuffix(line, ": ") }

func TestCommentsCoverEverything(t *testing.T) {
	t.Parallel()
	lines := described(t, connect(t, pgtest.URL(t)))
	if len(lines) < 300 {
		t.Fatalf("%d objects", len(lines))
	}
	for _, line := range lines {
		switch _, comment, _ := strings.Cut(line, ": "); {
		case !isCommented(line):
			t.Errorf("no comment on %s", strings.TrimSuffix(line, ": "))
		case !strings.HasSuffix(comment, "."):
			t.Errorf("not a sentence: %s", line)
		}
	}
}

// A column of milliseconds names the unit, and one of JSON its content.
func TestCommentsNameUnitAndForm(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	silent := scalar[[]string](t, conn, `
		SELECT coalesce(array_agg(attrelid::regclass || '.' || attname), '{}')
		FROM pg_attribute
		JOIN pg_class ON pg_class.oid = attrelid
		WHERE
			relnamespace = quote_ident(current_schema())::regnamespace AND relkind IN ('r', 'v') AND attnum > 0
			AND (
				attname ~ '_ms$' AND col_description(attrelid, attnum) !~* 'milliseconds'
				OR atttypid = 'jsonb'::regtype AND col_description(attrelid, attnum) !~* 'object|array|exactly one of|\{|policy|reserved'
			)`)
	if len(silent) > 0 {
		t.Errorf("without unit or form: %q", silent)
	}
}

func TestCommentsAreInTheDump(t *testing.T) {
	t.Parallel()
	dump, err := os.ReadFile("../../schema/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	loaded := connect(t, pgtest.EmptyDatabase(t))
	exec(t, loaded, string(dump))
	requireSameLines(t, described(t, loaded), described(t, connect(t, pgtest.URL(t))))
}

// The tables of a converted database have their comments, FlowFabric's ledger included, whether it was there or not.
func TestCommentsReachAConvertedDatabase(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]string{"with its ledger": "", "applied by hand": "DROP TABLE _sqlx_migrations"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databaseURL := referenceDatabase(t, ordinary)
			conn := connect(t, databaseURL)
			exec(t, conn, arrange)
			adopt(t, databaseURL)
			if _, err := schema.DropAdopted(t.Context(), databaseURL, schema.Options{}); err != nil {
				t.Fatal(err)
			}
			requireSameLines(t, described(t, conn), described(t, connect(t, pgtest.URL(t))))
		})
	}
}

// In a schema of any name, and only ours.
func TestCommentsAreRemovedOnRollback(t *testing.T) {
	t.Parallel()
	opts := schema.Options{Schema: "Our #1"}
	databaseURL := pgtest.EmptyDatabase(t)
	migrate(t, databaseURL, opts)
	conn := connect(t, databaseURL, "search_path", `"Our #1"`)
	exec(t, conn, "CREATE TABLE orders (); COMMENT ON TABLE orders IS 'not ours'")
	state, err := schema.Status(t.Context(), databaseURL, opts)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(state.Migrations, func(m schema.Migration) bool { return m.Version == firstCommented })
	if _, err := schema.Rollback(t.Context(), databaseURL, state.Migrations[i-1].Version, opts); err != nil {
		t.Fatal(err)
	}
	left := linesOf(described(t, conn), isCommented)
	if len(left) != 1 || left[0] != "relation orders: not ours" {
		t.Errorf("left: %q", left)
	}
}
