package seed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// exportQuery returns the query of the documentation.
func exportQuery(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/schema-review.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```sql\nSELECT json_build_object('schema_review_statistics'")
	query, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("the documentation has no query")
	}
	return "SELECT json_build_object('schema_review_statistics'" + query
}

func seedFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const production = `CREATE SCHEMA app;
	CREATE TABLE app."Big ""Orders""" (id int PRIMARY KEY, state text NOT NULL, note text, customer int NOT NULL, long text NOT NULL);
	CREATE TABLE customers (id int PRIMARY KEY); CREATE TABLE settings (id int PRIMARY KEY); CREATE TABLE days (day date NOT NULL) PARTITION BY RANGE (day);
	CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2020-01-01') TO ('2030-01-01');
	ALTER TABLE app."Big ""Orders""" ADD FOREIGN KEY (customer) REFERENCES customers;`

const productionRows = `INSERT INTO customers SELECT generate_series(1, 2000); INSERT INTO settings SELECT generate_series(1, 7);
	INSERT INTO days SELECT '2020-01-01'::date + i % 100 FROM generate_series(1, 4000) AS i;
	INSERT INTO app."Big ""Orders""" SELECT i, CASE WHEN i % 10 < 9 THEN 'secret-done' ELSE 'secret-open-' || i % 3 END, CASE WHEN i % 4 > 0 THEN 'secret' || i END, 1 + i % 50, repeat('s', 300)
	FROM generate_series(1, 20000) AS i; ANALYZE`

// The rows have the shares of production, read from a real server by the query of the documentation.
func TestFillTakesSharesFromExport(t *testing.T) {
	from := with(t, production)
	execute(t, from, productionRows)
	var text string
	if err := from.QueryRow(t.Context(), exportQuery(t), pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "secret") {
		t.Error("the export has values")
	}
	for name, file := range map[string]string{"psql": text, "COPY": strings.ReplaceAll(text, `\`, `\\`)} {
		t.Run(name, func(t *testing.T) { likeProduction(t, file) })
	}
}

func likeProduction(t *testing.T, file string) {
	spec, err := ReadFile(seedFile(t, file))
	if err != nil {
		t.Fatal(err)
	}
	conn := with(t, production)
	result := fill(t, conn, spec, Options{Rows: 5200})
	if rows, known := result.Production(`app."Big ""Orders"""`); !known || rows != 20000 {
		t.Errorf("%d rows in production", rows)
	}
	for _, sql := range []string{
		`SELECT count(*) BETWEEN 3900 AND 4100 FROM app."Big ""Orders"""`,
		`SELECT count(*) BETWEEN 390 AND 410 FROM customers`,
		`SELECT count(*) = 7 FROM settings`,
		`SELECT count(*) BETWEEN 780 AND 820 FROM days`,
		`SELECT count(DISTINCT state) = 4 FROM app."Big ""Orders"""`,
		`SELECT max(n) BETWEEN 3400 AND 3800 FROM (SELECT count(*) AS n FROM app."Big ""Orders""" GROUP BY state) AS x`,
		`SELECT count(*) FILTER (WHERE note IS NULL) BETWEEN 900 AND 1150 FROM app."Big ""Orders"""`,
		`SELECT count(DISTINCT customer) BETWEEN 45 AND 50 FROM app."Big ""Orders"""`,
		`SELECT avg(length(long)) BETWEEN 250 AND 350 FROM app."Big ""Orders"""`,
	} {
		var kept bool
		if err := conn.QueryRow(t.Context(), sql).Scan(&kept); err != nil || !kept {
			t.Errorf("not %s, error %v", sql, err)
		}
	}
}

const dump = `--
-- PostgreSQL database dump
--
\restrict abcDEF123
SET statement_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);
SELECT * FROM pg_catalog.pg_restore_relation_stats(
	'version', '180000'::integer,
	'schemaname', 'public',
	'relname', 'orders',
	'relpages', '44'::integer,
	'reltuples', '12000000'::real,
	'relallvisible', '0'::integer
);
SELECT * FROM pg_catalog.pg_restore_attribute_stats(
	'version', '180000'::integer,
	'schemaname', 'public',
	'relname', 'orders',
	'attname', 'state',
	'inherited', 'f'::boolean,
	'null_frac', '0.25'::real,
	'avg_width', '5'::integer,
	'n_distinct', '3'::real,
	'most_common_vals', E'{"it''s; a \\"secret\\"",b,c}'::text,
	'most_common_freqs', '{0.7,0.03,0.02}'::real[],
	'correlation', '0.5'::real
);
SELECT * FROM pg_catalog.pg_restore_relation_stats('version', '180000'::integer, 'schemaname', 'public', 'relname', 'other', 'reltuples', '-1'::real);
DROP TABLE orders;
\unrestrict abcDEF123
`

// The statements of a dump are read, and none is run.
func TestFillTakesSharesFromDump(t *testing.T) {
	spec, err := ReadFile(seedFile(t, dump))
	if err != nil {
		t.Fatal(err)
	}
	conn := with(t, `CREATE TABLE orders (id int PRIMARY KEY, state text); CREATE TABLE other (id int PRIMARY KEY)`)
	result := fill(t, conn, spec, Options{Rows: 4000})
	if rows, known := result.Production("orders"); !known || rows != 12_000_000 || !spec.Sized("orders") || spec.Sized("other") {
		t.Errorf("orders has %d rows in production", rows)
	}
	if _, known := result.Production("other"); known {
		t.Error("the size of other is known")
	}
	for _, sql := range []string{
		`SELECT count(*) = 4000 FROM orders`,
		`SELECT count(*) = 20 FROM other`,
		`SELECT count(*) FILTER (WHERE state IS NULL) BETWEEN 900 AND 1100 AND count(DISTINCT state) = 3 FROM orders`,
		`SELECT max(n) BETWEEN 2600 AND 3000 FROM (SELECT count(*) AS n FROM orders WHERE state IS NOT NULL GROUP BY state) AS x`,
	} {
		var kept bool
		if err := conn.QueryRow(t.Context(), sql).Scan(&kept); err != nil || !kept {
			t.Errorf("not %s, error %v", sql, err)
		}
	}
}

func TestReadFileRefusesOtherKinds(t *testing.T) {
	for text, want := range map[string]string{
		"schema,table,rows\npublic,orders,12\n": "unknown kind",
		"SELECT 1;":                             "unknown kind",
		"- 1":                                   "unknown kind",
		`{"schema_review_statistics": 2, "tables": []}`:                                                                            "version 2",
		`{"schema_review_statistics": 1, "tables": [{"secret"`:                                                                     "no valid JSON",
		`{"schema_review_statistics": 1, "tables": "secret"}`:                                                                      "not of the form",
		`{"schema_review_statistics": 1, "tables": [{"table": "a", "schema": "b", "columns": [{"column": "c", "null_frac": 7}]}]}`: "out of its bounds",
		`SELECT pg_restore_relation_stats('schemaname', 'a', 'relname', 'b', 'reltuples', 'secret');`:                              "no number",
		`SELECT pg_restore_relation_stats('relname', 'b', 'reltuples', '1');`:                                                      "schemaname",
		`SELECT pg_restore_relation_stats('secret;`:                                                                                "no text of SQL",
		`SELECT FROM pg_restore_relation_stats 'secret' FROM;`:                                                                     "cannot be parsed",
		strings.Repeat(" ", mostStatistics+1):                                                                                      "larger than",
	} {
		_, err := ReadFile(seedFile(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q gives %v", text, err)
		}
	}
}

// A number of rows that no table can have is bounded, and the report says so.
func TestReadFileBoundsRows(t *testing.T) {
	for _, text := range []string{
		`{"schema_review_statistics": 1, "tables": [{"table": "b", "schema": "a", "rows": 1e300}, {"table": "c", "schema": "a", "rows": 7}]}`,
		"SELECT pg_restore_relation_stats('schemaname', 'a', 'relname', 'b', 'reltuples', '1e300');\nSELECT pg_restore_relation_stats('schemaname', 'a', 'relname', 'c', 'reltuples', '7');",
	} {
		spec, err := ReadFile(seedFile(t, text))
		if err != nil {
			t.Fatal(err)
		}
		s := spec.Statistics
		if rows := s.tables[relation{"a", "b"}].rows; rows != mostRows || s.tables[relation{"a", "c"}].rows != 7 {
			t.Errorf("%v rows", rows)
		}
		if len(s.Bounded) != 1 || !strings.Contains(s.Bounded[0], "a.b more rows than a table can have") {
			t.Errorf("bounded are %q", s.Bounded)
		}
	}
}
