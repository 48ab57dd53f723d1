package schema_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

func connect(t *testing.T, databaseURL string, settings ...string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	for setting := range slices.Chunk(settings, 2) {
		config.RuntimeParams[setting[0]] = setting[1]
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func scalar[T any](t *testing.T, db schema.Querier, sql string, args ...any) T {
	t.Helper()
	var value T
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func migrate(t *testing.T, databaseURL string, opts schema.Options) schema.Result {
	t.Helper()
	result, err := schema.Migrate(t.Context(), databaseURL, opts)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// catalog describes everything in the connection's schema, one fact a line, the same for every name of the schema and
// every history of the objects.
func catalog(t *testing.T, db schema.Querier) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		WITH namespace AS (
			SELECT oid, nspname FROM pg_namespace WHERE nspname = current_schema()
		),
		class AS (
			SELECT c.* FROM pg_class AS c JOIN namespace AS n ON c.relnamespace = n.oid WHERE NOT c.relispartition
		),
		fact (line) AS (
			SELECT format('table %s %s', relname, (SELECT array_agg(o ORDER BY o) FROM unnest(reloptions) AS o))
			FROM class
			WHERE relkind IN ('r', 'p')
			UNION ALL
			SELECT format(
				'column %s %s %s %s default %s identity %s generated %s not null %s',
				relname,
				CASE WHEN attname LIKE 'ffx\_%' THEN '' ELSE row_number() OVER (PARTITION BY attrelid ORDER BY attnum)::text END,
				attname, format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid), attidentity, attgenerated, attnotnull
			)
			FROM pg_attribute
			JOIN class ON class.oid = attrelid
			LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE relkind IN ('r', 'p', 'v') AND attnum > 0 AND NOT attisdropped
			UNION ALL
			SELECT format('view %s %s', relname, pg_get_viewdef(oid)) FROM class WHERE relkind = 'v'
			UNION ALL
			SELECT format('index %s', replace(pg_get_indexdef(class.oid), ' ON ONLY ', ' ON ')) FROM class WHERE relkind IN ('i', 'I')
			UNION ALL
			SELECT format('constraint %s %s %s', relname, conname, pg_get_constraintdef(pg_constraint.oid))
			FROM pg_constraint
			JOIN class ON class.oid = conrelid
			UNION ALL
			SELECT format('trigger %s', pg_get_triggerdef(pg_trigger.oid))
			FROM pg_trigger
			JOIN class ON class.oid = tgrelid
			WHERE NOT tgisinternal
			UNION ALL
			SELECT format(
				'function %s(%s) %s %s %s %s %s',
				proname, pg_get_function_arguments(pg_proc.oid), prorettype::regtype, provolatile, proparallel, proisstrict, prosrc
			)
			FROM pg_proc
			JOIN namespace ON namespace.oid = pronamespace
			UNION ALL
			SELECT format(
				'sequence %s %s start %s by %s of %s.%s',
				class.relname, seqtypid::regtype, seqstart, seqincrement, owner.relname, attname
			)
			FROM pg_sequence
			JOIN class ON class.oid = seqrelid
			JOIN pg_depend ON pg_depend.objid = seqrelid AND deptype IN ('a', 'i') AND refobjsubid > 0
			JOIN pg_class AS owner ON owner.oid = refobjid
			JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
		)
		SELECT replace(line, quote_ident(current_schema()) || '.', '') FROM fact`)
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

func requireSameLines(t *testing.T, got, want []string) {
	t.Helper()
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("unexpected: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d facts, want %d", len(got), len(want))
	}
}

func TestMigrateUpDownUpGivesTheSameCatalog(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	migrate(t, databaseURL, schema.Options{})
	first := catalog(t, conn)

	result, err := schema.Rollback(t.Context(), databaseURL, "", schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if result.From != schema.Version || result.To != "" {
		t.Errorf("rolled back from %q to %q, want from %q to nothing", result.From, result.To, schema.Version)
	}
	if left := catalog(t, conn); len(left) != 0 {
		t.Fatalf("left behind: %s", strings.Join(left, "\n"))
	}

	migrate(t, databaseURL, schema.Options{})
	requireSameLines(t, catalog(t, conn), first)
}

func TestDumpHasTheCatalogOfTheMigrations(t *testing.T) {
	t.Parallel()
	migratedURL, loadedURL := pgtest.EmptyDatabase(t), pgtest.EmptyDatabase(t)
	migrate(t, migratedURL, schema.Options{})
	dump, err := os.ReadFile("../../schema/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	loaded := connect(t, loadedURL)
	exec(t, loaded, string(dump))
	requireSameLines(t, catalog(t, loaded), catalog(t, connect(t, migratedURL)))
}

func TestMigrateCatalogStaysSmall(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	migrate(t, databaseURL, schema.Options{})
	conn := connect(t, databaseURL)
	for _, limit := range []struct {
		what, query string
		most        int64
	}{
		{"tables", "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()", 67},
		{"indexes", "SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema()", 113},
		{"bytes", "SELECT pg_database_size(current_database())", 15 << 20},
	} {
		if n := scalar[int64](t, conn, limit.query); n > limit.most {
			t.Errorf("%d %s, want at most %d", n, limit.what, limit.most)
		} else {
			t.Logf("%d %s", n, limit.what)
		}
	}
}

// The tables can be distributed by partition_key: it is in every key of a table that has it.
func TestMigrateEveryKeyHoldsThePartitionKey(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	without := scalar[[]string](t, conn, `
		SELECT coalesce(array_agg(indexrelid::regclass::text), '{}')
		FROM pg_index
		JOIN pg_attribute ON attrelid = indrelid AND attname = 'partition_key'
		JOIN pg_class ON pg_class.oid = indrelid
		WHERE relnamespace = current_schema()::regnamespace AND indisunique AND NOT attnum = ANY (indkey)`)
	if len(without) > 0 {
		t.Errorf("without partition_key: %q", without)
	}
}

// The reference inserts children before parents and deletes parents before children, and knows of no
// unique index but its own keys.
func TestMigrateAddsNothingTheReferenceCouldViolate(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	if n := scalar[int](t, conn, "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace"); n != 0 {
		t.Errorf("%d foreign keys", n)
	}
	unique := scalar[[]string](t, conn, `
		SELECT coalesce(array_agg(relname::text), '{}')
		FROM pg_index
		JOIN pg_class ON pg_class.oid = indexrelid
		WHERE relnamespace = current_schema()::regnamespace AND indisunique AND NOT indisprimary`)
	if len(unique) > 0 {
		t.Errorf("unique indexes that are no keys: %q", unique)
	}
	demanding := scalar[[]string](t, conn, `
		SELECT coalesce(array_agg(attrelid::regclass || '.' || attname), '{}')
		FROM pg_attribute
		JOIN pg_class ON pg_class.oid = attrelid
		WHERE
			relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname LIKE 'ff\_%'
			AND attname LIKE 'ffx\_%' AND (attnotnull OR atthasdef AND attgenerated = '')`)
	if len(demanding) > 0 {
		t.Errorf("columns that an insert of the reference would have to fill: %q", demanding)
	}
}
