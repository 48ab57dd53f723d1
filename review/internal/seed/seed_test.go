package seed

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// with returns a connection to a new database with a schema.
func with(t *testing.T, schema string) *pgx.Conn {
	t.Helper()
	conn := connect(t, pgtest.EmptyDatabase(t))
	if _, err := conn.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	return conn
}

func fill(t *testing.T, conn *pgx.Conn, spec *Spec, opts Options) *Result {
	t.Helper()
	result, err := Fill(t.Context(), conn, spec, opts)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func number(t *testing.T, conn *pgx.Conn, sql string) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

const everything = `
	CREATE EXTENSION IF NOT EXISTS btree_gist;
	CREATE TYPE mood AS ENUM ('calm', 'busy', 'lost');
	CREATE DOMAIN mail AS varchar(60) CHECK (VALUE ~ '^[a-z0-9]+@[a-z]+\.org$');
	CREATE DOMAIN percent AS numeric(5, 2) NOT NULL CHECK (VALUE >= 0 AND VALUE <= 100);
	CREATE SCHEMA "Other One";
	CREATE TABLE "Other One"."Customers" (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), "E-Mail" mail UNIQUE NOT NULL, mood mood NOT NULL, moods mood[]);
	CREATE TABLE orders (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		customer uuid NOT NULL REFERENCES "Other One"."Customers",
		parent bigint REFERENCES orders,
		code char(6) NOT NULL UNIQUE,
		state text NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'paid', 'gone')),
		paid_at timestamptz,
		total numeric(6, 2) NOT NULL CHECK (total > 0),
		discount percent,
		total_cents bigint GENERATED ALWAYS AS ((total * 100)::bigint) STORED CHECK (total_cents >= 100),
		started date NOT NULL,
		ended date,
		link text CHECK (link LIKE 'https://%'),
		tags text[] NOT NULL DEFAULT '{}',
		CHECK ((state = 'paid') = (paid_at IS NOT NULL)),
		CHECK (started < ended),
		CHECK (length(link) BETWEEN 3 AND 200)
	);
	CREATE TABLE lines (order_id bigint, position smallint, price money, sizes int4range, at time, wait interval, ip inet, bits bit(5), words tsvector,
		PRIMARY KEY (order_id, position), FOREIGN KEY (order_id) REFERENCES orders ON DELETE CASCADE);
	CREATE TABLE booked (room int, during tstzrange NOT NULL, EXCLUDE USING gist (room WITH =, during WITH &&));
	CREATE TABLE profile (order_id bigint PRIMARY KEY REFERENCES orders, data jsonb NOT NULL CHECK (jsonb_typeof(data) = 'object'));
	CREATE TABLE days (day date NOT NULL, region text NOT NULL, n int) PARTITION BY LIST (region);
	CREATE TABLE days_north PARTITION OF days FOR VALUES IN ('north');
	CREATE TABLE days_south PARTITION OF days FOR VALUES IN ('south', 'far south') PARTITION BY HASH (n);
	CREATE TABLE days_south_0 PARTITION OF days_south FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE days_south_1 PARTITION OF days_south FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	CREATE TABLE single (locked boolean PRIMARY KEY DEFAULT true CHECK (locked), n int);
	CREATE TABLE one (id int PRIMARY KEY, two int NOT NULL);
	CREATE TABLE two (id int PRIMARY KEY, one int REFERENCES one);
	ALTER TABLE one ADD FOREIGN KEY (two) REFERENCES two;
	CREATE TABLE never (a int NOT NULL CONSTRAINT no_way CHECK (a < 0 AND a > 0));
	CREATE TABLE strange (shape aclitem NOT NULL);
	CREATE TABLE schema_migrations (version varchar(128) PRIMARY KEY);
	INSERT INTO schema_migrations VALUES ('1');
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
	CREATE TRIGGER refuse BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION refuse();
`

func TestFillKeepsConstraints(t *testing.T) {
	conn := with(t, everything)
	result := fill(t, conn, nil, Options{Rows: 6000})
	filled := map[string]int64{}
	for _, table := range result.Tables {
		t.Log(table)
		filled[table.Table] = table.Rows
	}
	for _, name := range []string{`"Other One"."Customers"`, "orders", "lines", "booked", "profile", "days", "one", "two"} {
		if filled[name] < 300 {
			t.Errorf("%s has %d rows", name, filled[name])
		}
	}
	if filled["single"] != 1 || filled["schema_migrations"] != 1 {
		t.Errorf("single has %d rows, schema_migrations %d", filled["single"], filled["schema_migrations"])
	}
	empty := result.Empty()
	if len(empty) != 2 || !strings.Contains(empty[0], "no_way") || !strings.Contains(empty[1], "aclitem") {
		t.Errorf("empty are %q", empty)
	}
	// The server did not check references during the insertion.
	for _, sql := range []string{
		`SELECT count(*) FROM orders AS o WHERE NOT EXISTS (SELECT FROM "Other One"."Customers" AS c WHERE c.id = o.customer)`,
		`SELECT count(*) FROM orders AS o WHERE parent IS NOT NULL AND NOT EXISTS (SELECT FROM orders AS p WHERE p.id = o.parent)`,
		`SELECT count(*) FROM lines AS o WHERE NOT EXISTS (SELECT FROM orders AS p WHERE p.id = o.order_id)`,
		`SELECT count(*) FROM one AS o WHERE NOT EXISTS (SELECT FROM two AS p WHERE p.id = o.two)`,
		`SELECT count(*) FROM two AS o WHERE one IS NOT NULL AND NOT EXISTS (SELECT FROM one AS p WHERE p.id = o.one)`,
	} {
		if n := number(t, conn, sql); n != 0 {
			t.Errorf("%d of %s", n, sql)
		}
	}
	if n := number(t, conn, `SELECT count(*) FROM orders WHERE parent IS NOT NULL`); n == 0 {
		t.Error("no order has a parent")
	}
	// Some customers have many orders, most have few.
	if most, few := number(t, conn, `SELECT max(n) FROM (SELECT count(*) AS n FROM orders GROUP BY customer) AS x`),
		number(t, conn, `SELECT count(*) FROM (SELECT FROM orders GROUP BY customer HAVING count(*) = 1) AS x`); most < 20 || few < 20 {
		t.Errorf("the customer with the most orders has %d, and %d have one", most, few)
	}
	if n := number(t, conn, `SELECT count(*) FROM pg_statistic AS s WHERE s.starelid = 'orders'::regclass`); n == 0 {
		t.Error("nothing was analysed")
	}
	if n := number(t, conn, `SELECT count(*) FROM pg_class WHERE relname LIKE 'seed%'`); n != 0 {
		t.Errorf("%d tables of the filling are left", n)
	}
}

func TestFillIsRepeatable(t *testing.T) {
	var sums []string
	for range 2 {
		conn := with(t, everything)
		fill(t, conn, nil, Options{Rows: 3000})
		var sum string
		if err := conn.QueryRow(t.Context(), `SELECT md5(string_agg(x, E'\n' ORDER BY x)) FROM (
			SELECT o::text FROM orders AS o UNION ALL SELECT l::text FROM lines AS l UNION ALL SELECT d::text FROM days AS d) AS all_of (x)`).Scan(&sum); err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		t.Error("the rows differ")
	}
}

// A database that was filled and then changed gets rows only in its new tables.
func TestFillAddsRowsToNewTablesOnly(t *testing.T) {
	conn := with(t, `CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)`)
	fill(t, conn, nil, Options{Rows: 1000})
	if _, err := conn.Exec(t.Context(), `CREATE TABLE c (id int PRIMARY KEY, a_id int NOT NULL REFERENCES a)`); err != nil {
		t.Fatal(err)
	}
	result := fill(t, conn, nil, Options{Rows: 1000})
	if result.Rows("a") != 500 || result.Rows("b") != 500 || result.Rows("c") != 333 {
		t.Error(result.Tables)
	}
}

func TestFillTakesLiteralsFromQueries(t *testing.T) {
	conn := with(t, `CREATE TABLE job (id int PRIMARY KEY, state text NOT NULL, kind text, late boolean);
		CREATE INDEX ON job (id) WHERE state = 'waiting'`)
	fill(t, conn, nil, Options{Rows: 1000, Queries: []string{
		`UPDATE job SET state = CASE WHEN late THEN 'late' ELSE 'ended' END WHERE id = $1 AND state <> 'cancelled'`,
		`INSERT INTO job (id, kind, state) VALUES ($1, 'usual', $2) ON CONFLICT (id) DO UPDATE SET kind = 'again'`,
		`not SQL at all`,
	}})
	for sql, want := range map[string]string{
		`SELECT string_agg(DISTINCT state, ' ' ORDER BY state) FROM job`: "cancelled ended late waiting",
		`SELECT string_agg(DISTINCT kind, ' ' ORDER BY kind) FROM job`:   "again usual",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil || got != want {
			t.Errorf("%q, error %v, instead of %q", got, err, want)
		}
	}
}

func TestFillKeepsConstraintsOfTheNewSchema(t *testing.T) {
	base := `CREATE TABLE customers (id int PRIMARY KEY);
		CREATE TABLE orders (id int PRIMARY KEY, buyer int, state text, email text);`
	conn := with(t, base)
	head := with(t, base+`ALTER TABLE orders ALTER state SET NOT NULL, ADD CHECK (state IN ('a', 'b')), ADD FOREIGN KEY (buyer) REFERENCES customers, ADD UNIQUE (email),
		ADD extra int NOT NULL CHECK (extra > 0)`)
	fill(t, conn, nil, Options{Rows: 2000, Later: head})
	if n := number(t, conn, `SELECT count(*) FROM orders`); n != 1000 {
		t.Errorf("%d orders", n)
	}
	if _, err := conn.Exec(t.Context(), `ALTER TABLE orders ALTER state SET NOT NULL, ADD CHECK (state IN ('a', 'b')), ADD FOREIGN KEY (buyer) REFERENCES customers, ADD UNIQUE (email)`); err != nil {
		t.Error(err)
	}
}

func TestReadFile(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "seed.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	spec, err := ReadFile(write(`
rows: 2000
tables:
  customers: {rows: 100}
  orders:
    rows: 1000
    references:
      - {columns: [buyer], table: customers, to: [id]}
    kinds:
      - {share: 3, set: {state: ended, ended: {sql: "DATE '2025-01-01' + i::integer"}}}
      - {share: 1, set: {state: open, ended: null}}
    columns:
      region: {values: {north: 9, south: 1}}
      part: {range: [0, 255]}
      note: {nulls: 1}
  logs: {rows: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	conn := with(t, `CREATE TABLE customers (id int PRIMARY KEY); CREATE TABLE logs (id int);
		CREATE TABLE orders (id int PRIMARY KEY, buyer int NOT NULL, state text, ended date, region text NOT NULL, part smallint NOT NULL, note text)`)
	fill(t, conn, spec, Options{Rows: 4000})
	for _, sql := range []string{
		`SELECT count(*) = 2000 FROM orders`,
		`SELECT count(*) = 0 FROM logs`,
		`SELECT bool_and((state = 'open') = (ended IS NULL)) FROM orders`,
		`SELECT count(*) FILTER (WHERE state = 'ended') BETWEEN 1400 AND 1600 FROM orders`,
		`SELECT count(*) FILTER (WHERE region = 'north') BETWEEN 1700 AND 1900 FROM orders`,
		`SELECT min(part) = 0 AND max(part) = 255 FROM orders`,
		`SELECT bool_and(note IS NULL) FROM orders`,
		`SELECT bool_and(EXISTS (SELECT FROM customers AS c WHERE c.id = o.buyer)) FROM orders AS o`,
	} {
		var kept bool
		if err := conn.QueryRow(t.Context(), sql).Scan(&kept); err != nil || !kept {
			t.Errorf("not %s, error %v", sql, err)
		}
	}
	for _, text := range []string{"row: 1", "tables: {a: {columns: {b: {value: 1}}}}", "tables: {a: {columns: {b: {range: [2, 1]}}}}", "tables: {a: {kinds: [{set: {a: 1}}]}}", "tables: {a: {references: [{table: b}]}}"} {
		if _, err := ReadFile(write(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	result := fill(t, conn, &Spec{Tables: map[string]Table{"none": {}, "logs": {Rows: new(0), Columns: Columns{"no": {}}, References: []Reference{{Table: "orders", Columns: []string{"id"}, To: []string{"nr"}}}}}}, Options{})
	if !slices.Equal(result.Missing, []string{"orders.nr", "logs.no", "none"}) {
		t.Errorf("%q", result.Missing)
	}
}

// This repository's own schema, with its triggers, generated columns and checks.
func TestFillThisRepository(t *testing.T) {
	conn := connect(t, pgtest.CloneURL(t))
	files, err := filepath.Glob("../../../db/sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	var queries []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		queries = append(queries, string(text))
	}
	start := time.Now()
	result := fill(t, conn, nil, Options{Rows: 20_000, Queries: queries})
	t.Log(time.Since(start))
	if empty := result.Empty(); len(empty) > 0 {
		t.Error(empty)
	}
	if !slices.ContainsFunc(result.Tables, func(f Filled) bool { return f.Table == "ff_exec_core" && f.Rows > 100 }) {
		t.Error(result.Tables)
	}
	if n := number(t, conn, `SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase LIKE 'lifecycle%'`); n > 0 {
		t.Errorf("%d executions are in phases that no query knows", n)
	}
}
