package seed

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shape is a schema that some project has. Every table of it is filled, except those of empty, which are listed with a
// reason that holds the text. What kept says holds for the rows.
type shape struct {
	extension string
	sql       string
	few       []string // tables whose constraints allow a few rows only
	empty     map[string]string
	kept      []string
}

var shapes = map[string]shape{
	"schemas": {sql: `CREATE TABLE customers (id int PRIMARY KEY); CREATE TABLE orders (id int PRIMARY KEY, customer_id int NOT NULL)`,
		kept: []string{`SELECT bool_and(EXISTS (SELECT FROM customers AS c WHERE c.id = o.customer_id)) FROM orders AS o`}},
	"enums": {sql: `CREATE TYPE mood AS ENUM ('calm', 'busy'); CREATE TABLE t (id int PRIMARY KEY, a mood NOT NULL, b mood[] NOT NULL, c mood[][] NOT NULL)`,
		kept: []string{`SELECT count(DISTINCT a) = 2 AND bool_and(b[1] IS NOT NULL) FROM t`}},
	"composites": {sql: `CREATE TYPE unit AS ENUM ('m', 'km'); CREATE TYPE size AS (n int, u unit, more text[]);
		CREATE TABLE t (id int PRIMARY KEY, a size NOT NULL CHECK ((a).n > 0), b size[] NOT NULL)`,
		kept: []string{`SELECT bool_and((a).u IS NOT NULL AND (b[1]).n IS NOT NULL) FROM t`}},
	"ranges": {sql: `CREATE TYPE floats AS RANGE (subtype = float8);
		CREATE TABLE t (id int PRIMARY KEY, a int4range NOT NULL, b nummultirange NOT NULL, c tstzrange NOT NULL, d daterange[] NOT NULL, e floats NOT NULL, f tsmultirange NOT NULL)`,
		kept: []string{`SELECT bool_and(NOT isempty(a) AND NOT isempty(e)) FROM t`}},
	"range partitions": {sql: `CREATE TABLE t (id bigserial, day date NOT NULL, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
		CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM ('2031-01-01') TO ('2031-02-01');
		CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM ('2031-02-01') TO ('2031-03-01');
		CREATE TABLE once (day date PRIMARY KEY) PARTITION BY RANGE (day);
		CREATE TABLE once_1 PARTITION OF once FOR VALUES FROM ('1999-01-01') TO ('2001-01-01');
		CREATE TABLE moments (at timestamp NOT NULL, n bigint NOT NULL) PARTITION BY RANGE (date_trunc('day', at));
		CREATE TABLE moments_1 PARTITION OF moments FOR VALUES FROM ('2040-01-01') TO ('2040-02-01');
		CREATE TABLE pairs (a int NOT NULL, b text NOT NULL) PARTITION BY RANGE (a, b);
		CREATE TABLE pairs_1 PARTITION OF pairs FOR VALUES FROM (-9, 'm') TO (-5, 'c');
		CREATE TABLE open (n numeric NOT NULL, u uuid NOT NULL) PARTITION BY RANGE (n);
		CREATE TABLE open_low PARTITION OF open FOR VALUES FROM (MINVALUE) TO (-1000);
		CREATE TABLE open_high PARTITION OF open FOR VALUES FROM (9000000000) TO (MAXVALUE);
		CREATE TABLE numbered (id bigserial PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE numbered_1 PARTITION OF numbered FOR VALUES FROM (500000) TO (900000);
		CREATE TABLE by_id (id uuid PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE by_id_1 PARTITION OF by_id FOR VALUES FROM ('a0000000-0000-0000-0000-000000000000') TO ('b0000000-0000-0000-0000-000000000000')`,
		kept: []string{`SELECT count(*) > 50 FROM t_1`, `SELECT count(*) > 50 FROM t_2`, `SELECT count(*) > 20 FROM open_low`, `SELECT count(*) > 20 FROM open_high`}},
	"list and hash partitions": {sql: `CREATE TABLE t (region text, day timestamp NOT NULL, n int NOT NULL) PARTITION BY LIST (region);
		CREATE TABLE t_north PARTITION OF t FOR VALUES IN ('north', 'far north') PARTITION BY RANGE (day);
		CREATE TABLE t_north_1 PARTITION OF t_north FOR VALUES FROM ('2001-01-01') TO ('2001-02-01') PARTITION BY HASH (n);
		CREATE TABLE t_north_1_0 PARTITION OF t_north_1 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
		CREATE TABLE t_north_1_1 PARTITION OF t_north_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
		CREATE TABLE t_rest PARTITION OF t DEFAULT;
		CREATE TABLE half (n int NOT NULL) PARTITION BY HASH (n);
		CREATE TABLE half_0 PARTITION OF half FOR VALUES WITH (MODULUS 3, REMAINDER 1);
		CREATE TABLE truth (b boolean NOT NULL) PARTITION BY LIST (b);
		CREATE TABLE truth_1 PARTITION OF truth FOR VALUES IN (true);
		CREATE TABLE lone (n int) PARTITION BY LIST (n);
		CREATE TABLE lone_0 PARTITION OF lone FOR VALUES IN (NULL);
		CREATE TABLE strict (n int NOT NULL, m int NOT NULL) PARTITION BY LIST (n);
		CREATE TABLE strict_1 PARTITION OF strict (CHECK (m > 77)) FOR VALUES IN (7)`,
		kept: []string{`SELECT count(*) > 10 FROM t_north_1_0`, `SELECT count(*) > 10 FROM t_rest`}},
	"no partition": {sql: `CREATE TABLE t (n int) PARTITION BY RANGE (n); CREATE TABLE other (n int)`, empty: map[string]string{"t": "no partition"}},
	"json": {sql: `CREATE TABLE t (id int PRIMARY KEY, a json NOT NULL, b jsonb NOT NULL CHECK (jsonb_typeof(b) = 'array'),
		c jsonb NOT NULL CHECK (c ? 'name' AND c ->> 'kind' IN ('x', 'y') AND jsonb_typeof(c -> 'n') = 'number' AND (c ->> 'n')::int >= 5 AND (c #>> '{at,day}')::date > '1900-01-01'),
		d jsonb NOT NULL CHECK (d ?& ARRAY['one', 'two'] AND d @> '{"v": 2}' AND length(d ->> 'one') >= 30 AND (d -> 'deep' ->> 'id')::uuid IS NOT NULL AND jsonb_typeof(d -> 'list') = 'array'),
		price numeric GENERATED ALWAYS AS ((c ->> 'n')::numeric) STORED)`,
		kept: []string{`SELECT count(DISTINCT c ->> 'kind') = 2 FROM t`}},
	"domains": {sql: `CREATE DOMAIN code AS text CHECK (VALUE ~ '^[A-Z]{3}[0-9]{4}$'); CREATE DOMAIN short AS code CHECK (length(VALUE) = 7) NOT NULL;
		CREATE DOMAIN pick AS varchar(9) CHECK (VALUE IN ('left', 'right')); CREATE DOMAIN level AS smallint CHECK (VALUE BETWEEN 1 AND 5);
		CREATE DOMAIN list AS int[] CHECK (cardinality(VALUE) > 0);
		CREATE TABLE t (id int PRIMARY KEY, a code NOT NULL, b short, c pick[] NOT NULL, d level NOT NULL, e list NOT NULL)`},
	"row security": {sql: `CREATE TABLE t (id int PRIMARY KEY, owner text NOT NULL); ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
		CREATE POLICY p ON t USING (owner = current_setting('app.user', true)); CREATE TABLE u (id int PRIMARY KEY, t int NOT NULL REFERENCES t)`,
		kept: []string{`SELECT relforcerowsecurity FROM pg_class WHERE oid = 't'::regclass`}},
	"generated": {sql: `CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int NOT NULL, b int GENERATED ALWAYS AS (a * 2) STORED CHECK (b >= 10));
		CREATE TABLE numbers (id bigint GENERATED BY DEFAULT AS IDENTITY); CREATE TABLE serials (id serial PRIMARY KEY);
		CREATE TABLE part (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY REFERENCES t)`},
	"types": {sql: `CREATE TABLE t (id int PRIMARY KEY, a inet NOT NULL, b cidr NOT NULL, c macaddr NOT NULL, d macaddr8 NOT NULL, e uuid NOT NULL, f bytea NOT NULL,
		g tsvector NOT NULL, h interval NOT NULL, i bit(3) NOT NULL, j bit varying(5) NOT NULL, k point NOT NULL, l line NOT NULL, m lseg NOT NULL, n box NOT NULL,
		o path NOT NULL, p polygon NOT NULL, q circle NOT NULL, r xml NOT NULL, s money NOT NULL, t timetz NOT NULL, u tsquery NOT NULL, v pg_lsn NOT NULL, w pg_snapshot NOT NULL,
		x "char" NOT NULL, y name NOT NULL, z char(4) NOT NULL, aa jsonpath NOT NULL, ab xid8 NOT NULL, ac regclass NOT NULL, ad numeric(4, 2) NOT NULL, ae bit NOT NULL, af varbit NOT NULL, ag real NOT NULL)`},
	"citext":      {extension: "citext", sql: `CREATE TABLE t (id citext PRIMARY KEY, a citext NOT NULL CHECK (a IN ('X', 'y')), b citext[] NOT NULL)`},
	"hstore":      {extension: "hstore", sql: `CREATE TABLE t (id int PRIMARY KEY, a hstore NOT NULL)`},
	"ltree":       {extension: "ltree", sql: `CREATE TABLE t (id ltree PRIMARY KEY, a lquery NOT NULL)`},
	"pgcrypto":    {extension: "pgcrypto", sql: `CREATE TABLE t (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), a bytea NOT NULL CHECK (length(digest(a, 'sha256')) = 32))`},
	"cube":        {extension: "cube", sql: `CREATE TABLE t (id int PRIMARY KEY, a cube NOT NULL)`},
	"exclusion":   {extension: "btree_gist", sql: `CREATE TABLE t (room int NOT NULL, during tsrange NOT NULL, EXCLUDE USING gist (room WITH =, during WITH &&)); CREATE TABLE places (b box, EXCLUDE USING gist (b WITH &&))`, few: []string{"places"}},
	"self":        {sql: `CREATE TABLE t (id serial PRIMARY KEY, parent int NOT NULL REFERENCES t); CREATE TABLE u (id int PRIMARY KEY, parent int REFERENCES u)`, kept: []string{`SELECT count(*) > 20 FROM u WHERE parent IS NOT NULL`}},
	"cycle":       {sql: `CREATE TABLE a (id serial PRIMARY KEY, b int NOT NULL); CREATE TABLE b (id int PRIMARY KEY, c int NOT NULL); CREATE TABLE c (id int PRIMARY KEY, a int NOT NULL REFERENCES a); ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b; ALTER TABLE b ADD FOREIGN KEY (c) REFERENCES c DEFERRABLE`},
	"wide keys":   {sql: `CREATE TABLE tenants (id int PRIMARY KEY); CREATE TABLE users (tenant int REFERENCES tenants, id int, PRIMARY KEY (tenant, id)); CREATE TABLE shops (tenant int REFERENCES tenants, id int, boss int, PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, boss) REFERENCES users); CREATE TABLE sales (tenant int NOT NULL REFERENCES tenants, buyer int NOT NULL, shop int NOT NULL, FOREIGN KEY (tenant, buyer) REFERENCES users, FOREIGN KEY (tenant, shop) REFERENCES shops); CREATE TABLE tree (tenant int REFERENCES tenants, id int, up int, PRIMARY KEY (tenant, id), FOREIGN KEY (tenant, up) REFERENCES tree)`},
	"joins":       {sql: `CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE ab (a int REFERENCES a, b int REFERENCES b, PRIMARY KEY (a, b), CHECK (a <> b))`},
	"few values":  {sql: `CREATE TYPE side AS ENUM ('l', 'r'); CREATE TABLE t (s side UNIQUE NOT NULL); CREATE TABLE u (b boolean NOT NULL, s side NOT NULL, UNIQUE (b, s)); CREATE TABLE v (s text PRIMARY KEY CHECK (s IN ('a', 'b', 'c')))`, few: []string{"t", "u", "v"}, kept: []string{`SELECT count(*) = 2 FROM t`, `SELECT count(*) >= 2 FROM u`, `SELECT count(*) = 3 FROM v`}},
	"deferred":    {sql: `CREATE TABLE t (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, position int NOT NULL, UNIQUE (position) DEFERRABLE)`, kept: []string{`SELECT count(*) = count(DISTINCT position) FROM t`}},
	"checks":      {sql: `CREATE TABLE t (id int PRIMARY KEY, price numeric(8, 2) NOT NULL CHECK (price > 0), n int NOT NULL CHECK (n > 0), total numeric(14, 2) NOT NULL, begins timestamptz NOT NULL, ends timestamptz NOT NULL, length interval NOT NULL, CHECK (total = price * n), CHECK (ends - begins = length), CHECK (begins < ends)); CREATE TABLE arcs (a int, b text, c uuid, CHECK (num_nonnulls(a, b, c) = 1)); CREATE TABLE either (a int, b int, CHECK ((a IS NULL) <> (b IS NULL)))`},
	"impossible":  {sql: `CREATE TABLE t (n int PRIMARY KEY CHECK (n < 0 AND n > 0)); CREATE TABLE u (t int NOT NULL REFERENCES t, n int); CREATE TABLE v (a aclitem NOT NULL); CREATE TABLE w (n int NOT NULL CHECK (1 / (n - n) > 0))`, empty: map[string]string{"t": "t_n_check", "u": "it refers to", "v": "aclitem", "w": "zero"}},
	"triggers":    {sql: `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'; CREATE FUNCTION zero() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := 0; RETURN NEW; END'; CREATE TABLE t (id int PRIMARY KEY); CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no(); ALTER TABLE t ENABLE ALWAYS TRIGGER no; CREATE TABLE u (n int PRIMARY KEY); CREATE TRIGGER zero BEFORE INSERT ON u FOR EACH ROW EXECUTE FUNCTION zero(); CREATE TABLE v (n int NOT NULL); CREATE RULE never AS ON INSERT TO v DO INSTEAD NOTHING`, kept: []string{`SELECT tgenabled = 'A' FROM pg_trigger WHERE tgrelid = 't'::regclass`, `SELECT tgenabled = 'O' FROM pg_trigger WHERE tgrelid = 'u'::regclass`, `SELECT ev_enabled = 'O' FROM pg_rewrite WHERE ev_class = 'v'::regclass`}},
	"own types":   {sql: `CREATE TYPE empty AS ENUM (); CREATE TABLE t (a empty NOT NULL); CREATE TABLE u (n int NOT NULL, a empty)`, empty: map[string]string{"t": "empty"}},
	"own opinion": {sql: `CREATE FUNCTION even(n int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT n % 2 = 0'; CREATE TABLE t (n int NOT NULL CHECK (even(n)), m int NOT NULL DEFAULT 3)`},
}

// in makes the tables of a shape in a schema of its own, and returns false if the server lacks the extension.
func (s shape) in(t *testing.T, conn *pgx.Conn, schema string) bool {
	t.Helper()
	if s.extension != "" {
		var known bool
		if err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = $1)`, s.extension).Scan(&known); err != nil {
			t.Fatal(err)
		}
		if !known {
			t.Logf("the server has no extension %s", s.extension)
			return false
		}
		execute(t, conn, `CREATE EXTENSION IF NOT EXISTS `+s.extension+` SCHEMA public`)
	}
	execute(t, conn, fmt.Sprintf(`CREATE SCHEMA %s; SET search_path = %s, public; %s`, schema, schema, s.sql))
	return true
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// check compares a filled schema with its shape.
func (s shape) check(t *testing.T, conn *pgx.Conn, schema string, result *Result) {
	t.Helper()
	execute(t, conn, "RESET SESSION AUTHORIZATION")
	execute(t, conn, "SET search_path = "+schema+", public")
	seen := 0
	for _, filled := range result.Tables {
		name, ours := strings.CutPrefix(filled.Table, schema+".")
		if !ours {
			continue
		}
		seen++
		rows := number(t, conn, "SELECT count(*) FROM "+filled.Table)
		reason, empty := s.empty[name]
		switch {
		case int64(rows) != filled.Rows:
			t.Errorf("%s has %d rows instead of %d", filled.Table, rows, filled.Rows)
		case empty && (rows > 0 || !strings.Contains(filled.Reason, reason)):
			t.Errorf("%s has %d rows, for the reason %q instead of %q", filled.Table, rows, filled.Reason, reason)
		case !empty && rows < 100 && !(rows > 0 && slices.Contains(s.few, name)):
			t.Errorf("%s has %d rows, as %q", filled.Table, rows, filled.Reason)
		}
	}
	if seen == 0 {
		t.Errorf("no table of %s is in the result", schema)
	}
	for _, sql := range s.kept {
		var kept bool
		if err := conn.QueryRow(t.Context(), sql).Scan(&kept); err != nil || !kept {
			t.Errorf("not %s, error %v", sql, err)
		}
	}
	// The server validates every foreign key anew.
	rows, err := conn.Query(t.Context(), `SELECT format('ALTER TABLE %1$s DROP CONSTRAINT %2$I; ALTER TABLE %1$s ADD CONSTRAINT %2$I %3$s', conrelid::regclass, conname, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE contype = 'f' AND connamespace = $1::regnamespace`, schema)
	if err != nil {
		t.Fatal(err)
	}
	again, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range again {
		execute(t, conn, sql)
	}
}

func TestFillEveryShape(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		t.Run(name, func(t *testing.T) {
			conn := with(t, "")
			if !shapes[name].in(t, conn, "app") {
				return
			}
			tables := strings.Count(shapes[name].sql, "CREATE TABLE ") - strings.Count(shapes[name].sql, " PARTITION OF ")
			shapes[name].check(t, conn, "app", fill(t, conn, nil, Options{Rows: 200 * tables}))
		})
	}
}

// A role that is no superuser cannot turn off the checks of references, and row level security applies to it.
func TestFillEveryShapeWithoutSuperuser(t *testing.T) {
	admin := with(t, "")
	role := fmt.Sprintf("seeder_%d", time.Now().UnixNano())
	execute(t, admin, "CREATE ROLE "+role)
	t.Cleanup(func() { execute(t, admin, "DROP ROLE "+role) })
	for _, name := range []string{"row security", "triggers", "cycle", "self", "wide keys", "range partitions", "generated", "deferred"} {
		t.Run(name, func(t *testing.T) {
			conn := with(t, `GRANT CREATE ON SCHEMA public TO `+role)
			t.Cleanup(func() { execute(t, conn, "RESET SESSION AUTHORIZATION; DROP OWNED BY "+role) })
			var database string
			if err := conn.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database); err != nil {
				t.Fatal(err)
			}
			execute(t, conn, `GRANT CREATE ON DATABASE `+database+` TO `+role+`; SET SESSION AUTHORIZATION `+role)
			shapes[name].in(t, conn, "app")
			tables := strings.Count(shapes[name].sql, "CREATE TABLE ") - strings.Count(shapes[name].sql, " PARTITION OF ")
			shapes[name].check(t, conn, "app", fill(t, conn, nil, Options{Rows: 200 * tables}))
		})
	}
}

// Schemas composed of several shapes, in any order, are filled as each alone.
func TestFillComposedShapes(t *testing.T) {
	names := slices.Sorted(maps.Keys(shapes))
	for round := range uint64(3) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			conn := with(t, "")
			random := rand.New(rand.NewPCG(round, 35))
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			made, tables := map[string]string{}, 0
			for i, name := range names[:12] {
				schema := fmt.Sprintf("app_%d", i)
				if shapes[name].in(t, conn, schema) {
					made[schema] = name
					tables += strings.Count(shapes[name].sql, "CREATE TABLE ") - strings.Count(shapes[name].sql, " PARTITION OF ")
				}
			}
			execute(t, conn, "RESET search_path")
			result := fill(t, conn, nil, Options{Rows: 150 * tables})
			for schema, name := range made {
				t.Log(schema, name)
				shapes[name].check(t, conn, schema, result)
			}
		})
	}
}

// Migrations may set the search path of a role or a database. Tables keep their names.
func TestFillUnderAnySearchPath(t *testing.T) {
	conn := with(t, `CREATE SCHEMA app; CREATE TABLE app.orders (id int PRIMARY KEY, kind text CHECK (kind IN ('a', 'b')));
		CREATE TABLE public.orders (id int PRIMARY KEY); SET search_path = app`)
	result := fill(t, conn, &Spec{Tables: map[string]Table{"app.orders": {Rows: new(70)}, "orders": {Rows: new(30)}}}, Options{})
	if len(result.Tables) != 2 || result.Tables[0].Table != "app.orders" || result.Tables[0].Rows != 70 || result.Tables[1].Rows != 30 || len(result.Missing) > 0 {
		t.Error(result)
	}
	if n := number(t, conn, "SELECT count(*) FROM orders"); n != 70 {
		t.Errorf("app.orders has %d rows", n)
	}
}
