package observe_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/observe"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

var server *database.Server

func TestMain(m *testing.M) {
	ctx := context.Background()
	var err error
	if server, err = database.Start(ctx, container.Run, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if err := server.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

const baseSchema = `
	CREATE TYPE mood AS ENUM ('sad', 'ok');
	CREATE TABLE owners (name text PRIMARY KEY);
	CREATE TABLE accounts (
		id bigint PRIMARY KEY, owner text, checked text CHECK (checked IS NOT NULL), balance int NOT NULL, mood mood, code varchar(50), at timestamp
	);
	CREATE INDEX accounts_owner ON accounts (owner);
	CREATE UNIQUE INDEX accounts_code ON accounts (code);
	CREATE TABLE entries (id bigint PRIMARY KEY, account_id bigint NOT NULL, owner text, amount int);
	CREATE TABLE shops (id int PRIMARY KEY, note text);
	CREATE TABLE sales (id int PRIMARY KEY, shop int REFERENCES shops ON DELETE CASCADE, note text);
	CREATE TABLE settings (name text PRIMARY KEY, value text);
	ALTER TABLE entries ADD CONSTRAINT pending CHECK (amount > 0) NOT VALID;
	CREATE VIEW rich AS SELECT id, owner FROM accounts WHERE balance > 900;
	CREATE MATERIALIZED VIEW totals AS SELECT owner, count(*) FROM entries GROUP BY owner;
	CREATE UNIQUE INDEX ON totals (owner);
	CREATE TABLE days (day date NOT NULL, n int) PARTITION BY RANGE (day);
	CREATE TABLE days_old PARTITION OF days FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
	CREATE DOMAIN word AS text;
	CREATE TABLE tags (id int PRIMARY KEY, tag word);
	CREATE TABLE days_new (day date NOT NULL, n int);
	CREATE FUNCTION post(a bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN UPDATE entries SET amount = amount WHERE id = -a; END $$;
	CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
	INSERT INTO owners SELECT 'owner ' || i FROM generate_series(0, 99) AS i;
	INSERT INTO accounts SELECT i, 'owner ' || i % 100, 'x', i % 1000, 'ok', 'code ' || i, now() FROM generate_series(1, 3000) AS i;
	INSERT INTO entries SELECT i, i, 'owner ' || i % 100, 1 + i % 10 FROM generate_series(1, 3000) AS i;
	INSERT INTO shops SELECT i FROM generate_series(1, 10) AS i;
	INSERT INTO sales SELECT i, 1 + i % 10 FROM generate_series(1, 100) AS i;
	INSERT INTO settings SELECT 'setting ' || i, 'on' FROM generate_series(1, 10) AS i;
	INSERT INTO tags SELECT i, 'tag' FROM generate_series(1, 3000) AS i;
	INSERT INTO days SELECT '2025-01-01', i FROM generate_series(1, 3000) AS i;
	INSERT INTO days_new SELECT '2026-01-01', i FROM generate_series(1, 3000) AS i;
	REFRESH MATERIALIZED VIEW totals;
	ANALYZE`

var queries = []project.Query{
	{Name: "GetAccount", SQL: "SELECT id, owner FROM accounts WHERE id = $1", Operations: []string{"bank.Show"}},
	{Name: "ListRich", SQL: "SELECT id FROM rich", Operations: []string{"bank.List"}},
	{Name: "LockAccount", SQL: "SELECT id FROM accounts WHERE id = $1 FOR UPDATE"},
	{Name: "SetBalance", SQL: "UPDATE accounts SET balance = $2 WHERE id = $1", Operations: []string{"bank.Pay"}},
	{Name: "InsertEntry", SQL: "INSERT INTO entries (id, account_id, owner, amount) VALUES ($1, $2, $3, $4)"},
	{Name: "GetTotal", SQL: "SELECT count FROM totals WHERE owner = $1"},
	{Name: "Post", SQL: "SELECT post($1)", Operations: []string{"bank.Post"}},
	{Name: "InsertSales", SQL: "WITH made AS (INSERT INTO sales (id, shop) SELECT unnest($1::int[]), $2 RETURNING id) SELECT id FROM made"},
	{Name: "SetSale", SQL: "UPDATE sales SET note = $2 WHERE id = $1"},
	{Name: "DropShop", SQL: "DELETE FROM shops WHERE id = $1"},
	{Name: "GetSetting", SQL: "SELECT value FROM settings WHERE name = ANY($1::text[])"},
}

var template struct {
	sync.Mutex
	db *database.Database
}

// seeded returns a new database with the base schema and rows.
func seeded(t testing.TB) *database.Database {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if template.db == nil {
		db, err := server.Create(t.Context(), "observe")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := db.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), baseSchema); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		template.db = db
	}
	db, err := server.Copy(t.Context(), template.db, "case")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Drop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return db
}

// migration reads a way up. A first line "-- transaction:false" is its option.
func migration(t testing.TB, version, up string) project.Migration {
	t.Helper()
	file := version + ".sql"
	statements, err := project.Split(up, report.Place{File: file, Line: 1})
	if err != nil {
		t.Fatal(err)
	}
	return project.Migration{Version: version, File: file, Text: up, Up: project.Half{
		SQL: up, Transaction: !strings.Contains(up, "transaction:false"), Statements: statements,
	}}
}

func check(t testing.TB, db *database.Database, ups ...string) *observe.Result {
	t.Helper()
	opts := observe.Options{Queries: queries, Small: func(table string) bool { return table == "settings" }}
	for i, up := range ups {
		opts.Migrations = append(opts.Migrations, migration(t, fmt.Sprint(i+2), up))
	}
	result, err := observe.Check(t.Context(), db.Connect, opts)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// said returns rule, severity and object of each finding.
func said(r *observe.Result) string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s %s %s", f.Rule, f.Severity, f.Object))
	}
	return strings.Join(lines, "; ")
}

// did returns the last statement's locks, work and waiting queries.
func did(r *observe.Result) string {
	if len(r.Statements) == 0 {
		return ""
	}
	m := r.Statements[len(r.Statements)-1].Measured
	var parts []string
	for _, l := range m.Locks {
		parts = append(parts, strings.TrimSuffix(l.Mode, "Lock")+" "+l.Relation)
	}
	for _, name := range m.Rewrites {
		parts = append(parts, "rewrites "+name)
	}
	for _, name := range m.Scans {
		parts = append(parts, "scans "+name)
	}
	if len(m.Waiting) > 0 {
		var names []string
		for _, w := range m.Waiting {
			names = append(names, w.Query)
		}
		parts = append(parts, "waiting "+strings.Join(names, " "))
	}
	return strings.Join(parts, "; ")
}

const everybody = "waiting GetAccount ListRich LockAccount SetBalance"

func TestCheckStatements(t *testing.T) {
	for _, c := range []struct {
		name, up  string
		did, said string
	}{
		{"a constant default", "ALTER TABLE accounts ADD note text NOT NULL DEFAULT 'x'",
			"AccessExclusive accounts; " + everybody, "lock-without-timeout risk accounts"},
		{"a constant default, with a timeout", "SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ADD note text NOT NULL DEFAULT 'x'",
			"AccessExclusive accounts; " + everybody, ""},
		{"a stable default", "SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ADD seen timestamptz NOT NULL DEFAULT now()",
			"AccessExclusive accounts; " + everybody, ""},
		{"a volatile default", "SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ADD seen timestamptz NOT NULL DEFAULT clock_timestamp()",
			"AccessExclusive accounts; rewrites accounts; scans accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"a generated column", "ALTER TABLE accounts ADD twice int GENERATED ALWAYS AS (balance * 2) STORED",
			"AccessExclusive accounts; rewrites accounts; scans accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"an identity column", "ALTER TABLE accounts ADD n bigint GENERATED ALWAYS AS IDENTITY",
			"AccessExclusive accounts; rewrites accounts; scans accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"a type with a rewrite", "ALTER TABLE entries ALTER account_id TYPE text",
			"AccessExclusive entries; rewrites entries; scans entries; waiting InsertEntry Post", "lock-blocks-readers blocking entries"},
		{"a wider varchar", "SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ALTER code TYPE varchar(80)",
			"AccessExclusive accounts; " + everybody, ""},
		{"varchar to text", "SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ALTER code TYPE text",
			"AccessExclusive accounts; " + everybody, ""},
		{"a shorter varchar", "ALTER TABLE accounts ALTER code TYPE varchar(20)",
			"AccessExclusive accounts; rewrites accounts; scans accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"an enum made text", "ALTER TABLE accounts ALTER mood TYPE text",
			"AccessExclusive accounts; rewrites accounts; scans accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"not null", "ALTER TABLE entries ALTER owner SET NOT NULL",
			"AccessExclusive entries; scans entries; waiting InsertEntry Post", "lock-blocks-readers blocking entries"},
		{"not null that a valid check says", "SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ALTER checked SET NOT NULL",
			"AccessExclusive accounts; " + everybody, ""},
		{"an index", "CREATE INDEX i ON accounts (balance)",
			"Share accounts; scans accounts; waiting SetBalance", "lock-blocks-writers blocking accounts"},
		{"an index, concurrently", "-- transaction:false\nCREATE INDEX CONCURRENTLY i ON accounts (balance)",
			"ShareUpdateExclusive accounts", ""},
		{"a foreign key", "ALTER TABLE entries ADD FOREIGN KEY (owner) REFERENCES owners",
			"ShareRowExclusive entries; ShareRowExclusive owners; scans entries; scans owners; waiting InsertEntry Post", "lock-blocks-writers blocking entries"},
		{"a foreign key, not valid", "ALTER TABLE entries ADD FOREIGN KEY (owner) REFERENCES owners NOT VALID",
			"ShareRowExclusive entries; ShareRowExclusive owners; waiting InsertEntry Post", "lock-without-timeout advice entries"},
		{"a column that refers", "ALTER TABLE entries ADD by text REFERENCES owners",
			"AccessExclusive entries; ShareRowExclusive owners; waiting InsertEntry Post", "lock-without-timeout risk entries"},
		{"a check", "ALTER TABLE entries ADD CHECK (amount < 1000)",
			"AccessExclusive entries; scans entries; waiting InsertEntry Post", "lock-blocks-readers blocking entries"},
		{"a check, not valid", "SET lock_timeout = '2s'; ALTER TABLE entries ADD CHECK (amount < 1000) NOT VALID",
			"AccessExclusive entries; waiting InsertEntry Post", ""},
		{"validate", "ALTER TABLE entries VALIDATE CONSTRAINT pending",
			"ShareUpdateExclusive entries; scans entries", ""},
		{"not valid and validate at once", "SET LOCAL lock_timeout = '2s'; ALTER TABLE entries ADD CONSTRAINT c CHECK (amount < 1000) NOT VALID; ALTER TABLE entries VALIDATE CONSTRAINT c",
			"ShareUpdateExclusive entries; scans entries", "lock-held-while-slow blocking entries"},
		{"a unique constraint", "ALTER TABLE entries ADD UNIQUE (account_id)",
			"AccessExclusive entries; scans entries; waiting InsertEntry Post", "lock-blocks-readers blocking entries"},
		{"a unique constraint by an index", "ALTER TABLE accounts ADD CONSTRAINT u UNIQUE USING INDEX accounts_code",
			"AccessExclusive accounts; " + everybody, "lock-without-timeout risk accounts"},
		{"a column that goes", "ALTER TABLE entries DROP amount",
			"AccessExclusive entries; waiting InsertEntry Post", "lock-without-timeout risk entries"},
		{"an enum value", "ALTER TYPE mood ADD VALUE 'happy'", "", ""},
		{"a trigger", "CREATE TRIGGER t BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION touch()",
			"ShareRowExclusive accounts; waiting SetBalance", "lock-without-timeout advice accounts"},
		{"a trigger that goes", "CREATE TRIGGER t BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION touch(); DROP TRIGGER t ON accounts",
			"AccessExclusive accounts; " + everybody, "lock-without-timeout risk accounts"},
		{"an index that goes", "DROP INDEX accounts_owner",
			"AccessExclusive accounts; " + everybody, "lock-without-timeout risk accounts"},
		{"an index that goes, concurrently", "-- transaction:false\nDROP INDEX CONCURRENTLY accounts_owner",
			"ShareUpdateExclusive accounts", ""},
		{"a rebuilt index", "REINDEX INDEX accounts_owner",
			"Share accounts; AccessExclusive accounts_owner; rewrites accounts_owner; scans accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"a rebuilt index, concurrently", "-- transaction:false\nREINDEX INDEX CONCURRENTLY accounts_owner",
			"ShareUpdateExclusive accounts", ""},
		{"vacuum", "-- transaction:false\nVACUUM accounts", "ShareUpdateExclusive accounts", ""},
		{"vacuum full", "-- transaction:false\nVACUUM FULL accounts",
			"AccessExclusive accounts; rewrites accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"cluster", "CLUSTER accounts USING accounts_owner",
			"AccessExclusive accounts; rewrites accounts; scans accounts; " + everybody, "lock-blocks-readers blocking accounts"},
		{"a table that goes", "DROP TABLE settings",
			"AccessExclusive settings; waiting GetSetting", "lock-without-timeout risk settings"},
		{"truncate", "TRUNCATE settings",
			"AccessExclusive settings; waiting GetSetting", "lock-without-timeout risk settings"},
		{"a small table", "CREATE INDEX i ON settings (value)",
			"Share settings; scans settings", "lock-without-timeout advice settings"},
		{"a new table", "CREATE TABLE new (id int, owner text); CREATE INDEX i ON new (id); ALTER TABLE new ADD PRIMARY KEY (id); ALTER TABLE new ALTER owner SET NOT NULL", "", ""},
		{"a new table that refers", "CREATE TABLE new (owner text REFERENCES owners)",
			"ShareRowExclusive owners", "lock-without-timeout advice owners"},
		{"a table that others refer to", "SET LOCAL lock_timeout = '2s'; ALTER TABLE shops ADD city text",
			"AccessExclusive shops; waiting DropShop InsertSales", ""},
		{"a table that refers to others", "SET LOCAL lock_timeout = '2s'; CREATE TRIGGER t BEFORE UPDATE ON sales FOR EACH ROW EXECUTE FUNCTION touch()",
			"ShareRowExclusive sales; waiting DropShop InsertSales SetSale", ""},
		{"a new view", "CREATE VIEW poor AS SELECT id FROM accounts WHERE balance < 10", "", ""},
		{"a refreshed view", "REFRESH MATERIALIZED VIEW totals",
			"AccessExclusive totals; rewrites totals; scans entries; scans totals; waiting GetTotal", "lock-blocks-readers blocking totals"},
		{"a refreshed view, concurrently", "REFRESH MATERIALIZED VIEW CONCURRENTLY totals",
			"Exclusive totals; scans entries; scans totals", ""},
		{"an attached partition", "ALTER TABLE days ATTACH PARTITION days_new FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
			"ShareUpdateExclusive days; AccessExclusive days_new; scans days_new", "lock-blocks-readers blocking days_new"},
		{"an index of a partitioned table", "CREATE INDEX i ON days (n)",
			"Share days; Share days_old; scans days_old", "lock-blocks-writers blocking days"},
		{"a new partition", "CREATE TABLE days_2027 PARTITION OF days FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')",
			"AccessExclusive days", "lock-without-timeout advice days"},
		{"a check of a domain", "ALTER DOMAIN word ADD CHECK (length(value) < 100)",
			"Share tags; scans tags", "lock-blocks-writers blocking tags"},
		{"a domain's check, not valid", "ALTER DOMAIN word ADD CHECK (length(value) < 100) NOT VALID", "", ""},
		{"a locked table", "LOCK TABLE entries IN EXCLUSIVE MODE",
			"Exclusive entries; waiting InsertEntry Post", "lock-without-timeout advice entries"},
		{"every row", "UPDATE entries SET amount = amount + 1",
			"RowExclusive entries; scans entries", "writes-every-row blocking entries"},
		{"every row, after a column", "SET LOCAL lock_timeout = '2s'; ALTER TABLE entries ADD cents int; UPDATE entries SET cents = amount * 100",
			"RowExclusive entries; scans entries", "lock-held-while-slow blocking entries; writes-every-row blocking entries"},
		{"an index, after a column", "SET LOCAL lock_timeout = '2s'; ALTER TABLE entries ADD cents int; CREATE INDEX i ON entries (cents)",
			"Share entries; scans entries; waiting InsertEntry Post", "lock-blocks-writers blocking entries; lock-held-while-slow blocking entries"},
		{"one row", "UPDATE entries SET amount = 1 WHERE id = 7",
			"RowExclusive entries", ""},
		{"every setting", "UPDATE settings SET value = 'off'", "RowExclusive settings; scans settings", ""},
		{"another setting of the table", "ALTER TABLE accounts SET (fillfactor = 70)",
			"ShareUpdateExclusive accounts", ""},
		{"a comment", "COMMENT ON TABLE accounts IS 'x'", "ShareUpdateExclusive accounts", ""},
		{"a procedure that commits", "-- transaction:false\nDO $$ BEGIN FOR i IN 0..2 LOOP UPDATE entries SET amount = 5 WHERE id % 3 = i; COMMIT; END LOOP; END $$", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := check(t, seeded(t), c.up)
			if got := did(r); got != c.did {
				t.Errorf("did:  %s\nwant: %s", got, c.did)
			}
			if got := said(r); got != c.said {
				t.Errorf("said: %s\nwant: %s", got, c.said)
			}
			for _, s := range r.Skipped {
				t.Error("skipped:", s)
			}
		})
	}
}
