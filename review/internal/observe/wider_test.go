package observe_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/observe"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
)

func connect(t *testing.T, db *database.Database) *pgx.Conn {
	t.Helper()
	conn, err := db.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return conn
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// A finding names the queries that wait in the queue behind the statement while it waits for a long reader.
func TestCheckNamesTheQueueBehindALongReader(t *testing.T) {
	const change = "ALTER TABLE accounts ADD note text"
	r := check(t, seeded(t), change)
	if got := said(r); got != "lock-without-timeout risk accounts" {
		t.Fatal(got)
	}
	waits := map[string]bool{}
	for _, w := range r.Findings[0].Measured.Waiting {
		waits[w.Query] = true
	}

	db := seeded(t)
	reader, changer, program, watch := connect(t, db), connect(t, db), connect(t, db), connect(t, db)
	run(t, reader, "BEGIN; SELECT count(*) FROM accounts")
	ended := make(chan error, 1)
	go func() {
		_, err := changer.Exec(t.Context(), change)
		ended <- err
	}()
	for queued := false; !queued; {
		if err := watch.QueryRow(t.Context(), "SELECT cardinality(pg_blocking_pids($1)) > 0", int32(changer.PgConn().PID())).Scan(&queued); err != nil {
			t.Fatal(err)
		}
	}
	run(t, program, "SET lock_timeout = '50ms'")
	for _, q := range queries {
		_, err := program.Prepare(t.Context(), "", q.SQL)
		refused, _ := errors.AsType[*pgconn.PgError](err)
		if queued := refused != nil && refused.Code == "55P03"; queued != waits[q.Name] {
			t.Errorf("%s: stands in the queue %t, was said to wait %t", q.Name, queued, waits[q.Name])
		}
	}
	run(t, reader, "COMMIT")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestCheckNamesWaitingQueries(t *testing.T) {
	r := check(t, seeded(t), "CREATE INDEX i ON entries (amount)")
	if len(r.Findings) != 1 {
		t.Fatal(said(r))
	}
	f := r.Findings[0]
	if f.Detail != "It holds SHARE on `entries` for a time that grows with the rows. 2 queries wait: `InsertEntry` and `Post`." {
		t.Error(f.Detail)
	}
	if len(f.Measured.Waiting) != 2 {
		t.Fatalf("%+v", f.Measured.Waiting)
	}
	if w := f.Measured.Waiting[1]; w.Query != "Post" || strings.Join(w.Operations, " ") != "bank.Post" {
		t.Errorf("%+v", w)
	}
	if f.Measured.Rows != 3000 || f.Measured.Duration <= 0 || f.Measured.WALBytes <= 0 {
		t.Errorf("%+v", f.Measured)
	}
	if f.Title != "The writers of `entries` wait while the statement reads `entries` whole" || !strings.Contains(f.Do, "CONCURRENTLY") {
		t.Errorf("%s / %s", f.Title, f.Do)
	}
}

// Objects that the change itself creates are exempt, also in a later migration of the same change.
func TestCheckExemptsObjectsOfTheSameChange(t *testing.T) {
	r := check(t, seeded(t),
		"CREATE TABLE new (id int); INSERT INTO new SELECT generate_series(1, 5000)",
		"CREATE INDEX i ON new (id); ALTER TABLE new ALTER id TYPE bigint",
		"SET LOCAL lock_timeout = '2s'; ALTER TABLE entries ADD CONSTRAINT c CHECK (amount < 1000) NOT VALID",
		"ALTER TABLE entries VALIDATE CONSTRAINT c")
	if got := said(r); got != "" || len(r.Statements) != 6 {
		t.Errorf("%d statements, %s", len(r.Statements), got)
	}
}

// A lock that is held too long is reported once, and again only if it is a stronger one.
func TestCheckReportsALongLockOnce(t *testing.T) {
	for up, want := range map[string]string{
		"CREATE TRIGGER t BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION touch();\nALTER TABLE entries VALIDATE CONSTRAINT pending;" +
			"\nUPDATE accounts SET balance = 1 WHERE id > 5;\nALTER TABLE entries ADD x int;\nREFRESH MATERIALIZED VIEW CONCURRENTLY totals": "lock-held-while-slow 3; writes-every-row 4; lock-held-while-slow 6",
		"-- transaction:false\nBEGIN;\nALTER TABLE entries ADD x int;\nCOMMIT;\nALTER TABLE entries VALIDATE CONSTRAINT pending": "",
		"-- transaction:false\nALTER TABLE entries ADD x int;\nALTER TABLE entries VALIDATE CONSTRAINT pending":                  "lock-held-while-slow 4",
	} {
		r := check(t, seeded(t), "SET lock_timeout = '2s';\n"+up)
		var got []string
		for _, f := range r.Findings {
			got = append(got, fmt.Sprint(f.Rule, " ", f.Place.Line))
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s\n%q, not %s", up, got, want)
		}
	}
}

func TestCheckSessionSettings(t *testing.T) {
	r := check(t, seeded(t),
		"CREATE SCHEMA other; SET LOCAL search_path = other; CREATE TABLE accounts (id int); SELECT 1/count(*) FROM pg_tables WHERE schemaname = 'other'",
		"SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ADD note text", // of public again
		"ALTER TABLE accounts ADD other text") // without the timeout of the one before
	if got := said(r); got != "lock-without-timeout risk accounts" || r.Findings[0].Place.File != "4.sql" || len(r.Skipped) > 0 {
		t.Error(got, r.Skipped)
	}
}

func TestCheckTablesCreatedInTheTransaction(t *testing.T) {
	r := check(t, seeded(t), `CREATE TEMP TABLE chosen ON COMMIT DROP AS SELECT id FROM entries WHERE id < 10;
		UPDATE entries SET amount = 1 FROM chosen WHERE chosen.id = entries.id;
		CREATE INDEX i ON settings (value)`, "CREATE INDEX j ON entries (amount)")
	if got := said(r); got != "lock-without-timeout advice settings; lock-blocks-writers blocking entries" || len(r.Skipped) > 0 {
		t.Error(got, r.Skipped)
	}
}

func TestCheckReportsRowsThatFail(t *testing.T) {
	for up, want := range map[string]string{
		"ALTER TABLE accounts ALTER at SET NOT NULL; UPDATE accounts SET at = NULL WHERE id = 1": "fails-on-rows risk accounts; lock-blocks-readers blocking accounts",
		"ALTER TABLE entries ADD UNIQUE (owner)":                                                 "fails-on-rows risk entries",
		"ALTER TABLE entries ADD CHECK (amount < 3)":                                             "fails-on-rows risk entries",
		"ALTER TABLE entries ADD extra int NOT NULL":                                             "fails-on-rows blocking entries",
		"ALTER TABLE accounts ALTER code TYPE int USING code::int":                               "fails-on-rows risk accounts",
	} {
		r := check(t, seeded(t), "SET lock_timeout = '2s';"+up)
		if got := said(r); got != want || len(r.Skipped) > 0 {
			t.Errorf("%s: %s, %q", up, got, r.Skipped)
		}
		for _, f := range r.Findings {
			if strings.Contains(f.Detail, "code 1") {
				t.Errorf("%s: values of rows are told: %s", up, f.Detail)
			}
		}
	}
}

// Statements that cannot be observed are reported, and the rest goes on.
func TestCheckReportsUnobservableStatements(t *testing.T) {
	r := check(t, seeded(t), "ALTER TABLE missing ADD x int; CREATE INDEX i ON entries (amount)")
	if got := said(r); got != "lock-blocks-writers blocking entries" {
		t.Error(got)
	}
	want := "2.sql:1: `ALTER TABLE missing ADD x int` could not be observed, as the database refuses it here: relation \"missing\" does not exist (SQLSTATE 42P01)"
	if len(r.Skipped) != 1 || r.Skipped[0] != want {
		t.Errorf("%q", r.Skipped)
	}
}

func TestCheckTriggers(t *testing.T) {
	counting := `CREATE TABLE counters (name text PRIMARY KEY, n int NOT NULL); INSERT INTO counters VALUES ('all', 0);
		CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE counters SET n = n + 1 WHERE name = 'all'; RETURN NULL; END $$;`
	set := "SET LOCAL lock_timeout = '2s';"
	for _, c := range []struct{ name, up, want string }{
		{"that does nothing", set + "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION touch()", ""},
		{"that counts inserts in one row", set + counting + "CREATE TRIGGER t AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION counted()", "trigger-waits blocking t"},
		{"that counts updates in one row", set + counting + "CREATE TRIGGER t AFTER UPDATE OF amount ON entries FOR EACH ROW EXECUTE FUNCTION counted()", "trigger-waits blocking t"},
		{"that counts statements", set + counting + "CREATE TRIGGER t AFTER DELETE ON entries EXECUTE FUNCTION counted()", "trigger-waits blocking t"},
		{"that takes an advisory lock", set + `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
			CREATE TRIGGER t BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION f()`, "trigger-waits blocking t"},
		{"that locks a table", set + `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOCK TABLE owners IN EXCLUSIVE MODE; RETURN NEW; END $$;
			CREATE TRIGGER t BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION f()`, "trigger-waits blocking t"},
		{"that locks what some rows share", set + `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(NEW.id % 2); RETURN NEW; END $$;
			CREATE TRIGGER t BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION f()`, "trigger-waits risk t"},
		{"that adds a row", set + `CREATE TABLE log (id bigint); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (NEW.id); RETURN NEW; END $$;
			CREATE TRIGGER t BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION f()`, ""},
		{"of a new table", counting + "CREATE TABLE new (id int); CREATE TRIGGER t AFTER INSERT ON new EXECUTE FUNCTION counted()", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := check(t, seeded(t), c.up)
			if got := said(r); got != c.want || len(r.Skipped) > 0 {
				t.Errorf("%q, not %q; skipped %q", got, c.want, r.Skipped)
			}
		})
	}
}

// An old trigger that waits is no finding of the change; a function of it that the change replaces is.
func TestCheckIgnoresOldTriggers(t *testing.T) {
	db := seeded(t)
	conn := connect(t, db)
	run(t, conn, `CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
		CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
		CREATE TRIGGER f BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION f();
		CREATE TRIGGER g BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION g()`)
	r := check(t, db, "SET LOCAL lock_timeout = '2s'; CREATE TRIGGER other BEFORE UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION touch()",
		"CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$")
	if got := said(r); got != "trigger-waits blocking f" || r.Findings[0].Place.File != "3.sql" {
		t.Errorf("%s %+v", got, r.Findings)
	}
}

// dbmate sends the statements of a migration as one text, so PostgreSQL runs them as one transaction, also under
// "transaction:false". Two rules and the sum of locks depend on it.
func TestDbmateSendsOneText(t *testing.T) {
	for up, fails := range map[string]bool{
		"-- migrate:up transaction:false\nCREATE INDEX CONCURRENTLY i ON entries (amount);\n":                           false,
		"-- migrate:up transaction:false\nSET lock_timeout = '2s';\nCREATE INDEX CONCURRENTLY i ON entries (amount);\n": true,
		"-- migrate:up\nCREATE INDEX CONCURRENTLY i ON entries (amount);\n":                                             true,
		"-- migrate:up transaction:false\nALTER TABLE entries ADD x int;\nALTER TABLE entries ADD x int;\n":             true,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "1_a.sql"), []byte(up+"-- migrate:down\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		side, err := project.Read(dir, project.Options{})
		if err != nil {
			t.Fatal(err)
		}
		db := seeded(t)
		if err := db.Migrate(t.Context(), side.Migrations, "migrations"); (err != nil) != fails {
			t.Errorf("%s: %v", up, err)
		}
		var columns int
		if err := connect(t, db).QueryRow(t.Context(), "SELECT count(*) FROM pg_attribute WHERE attrelid = 'entries'::regclass AND attname = 'x'").Scan(&columns); err != nil {
			t.Fatal(err)
		}
		if columns != 0 {
			t.Errorf("%s: what succeeded before the failure stays", up)
		}
		found := 0
		for _, f := range rules.Check(&project.Side{}, side, nil) {
			if f.Rule == "outside-transaction" || f.Rule == "concurrently-not-alone" {
				found++
			}
		}
		if fails && strings.Contains(up, "CONCURRENTLY") != (found == 1) {
			t.Errorf("%s: %d findings", up, found)
		}
	}
}

func TestReplace(t *testing.T) {
	base := &project.Side{}
	head := &project.Side{Migrations: []project.Migration{migration(t, "2",
		"ALTER TABLE accounts ALTER checked SET NOT NULL;\nCREATE INDEX i ON entries (amount);\nALTER TABLE missing ALTER x SET NOT NULL;\nALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")}}
	guessed := rules.Check(base, head, nil)
	seen := check(t, seeded(t), head.Migrations[0].Text)
	var left []string
	for _, f := range observe.Replace(guessed, seen) {
		left = append(left, f.Rule)
	}
	if got := strings.Join(left, " "); got != "not-null-without-check enum-value-renamed" {
		t.Errorf("%s; of %d", got, len(guessed))
	}
}
