package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// half reads the text after a line such as "migrate:up transaction:false".
func half(t *testing.T, file, options, sql string, line int) project.Half {
	t.Helper()
	statements, err := project.Split(sql, report.Place{File: file, Line: line})
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return project.Half{SQL: sql, Transaction: !strings.Contains(options, "transaction:false"), Statements: statements}
}

// side reads files given as name and way up in turn; a way down follows a line "-- down", and options are on the
// first line.
func side(t *testing.T, files ...string) *project.Side {
	t.Helper()
	s := &project.Side{}
	for i := 0; i < len(files); i += 2 {
		name, text := files[i], files[i+1]
		up, down, _ := strings.Cut(text, "-- down\n")
		version, _, _ := strings.Cut(name, "_")
		first, _, _ := strings.Cut(up, "\n")
		s.Migrations = append(s.Migrations, project.Migration{
			Version: version, File: name, Text: text,
			Up:   half(t, name, first, up, 1),
			Down: half(t, name, "", down, 1+strings.Count(up, "\n")+1),
		})
	}
	slices.SortStableFunc(s.Migrations, func(a, b project.Migration) int { return strings.Compare(a.File, b.File) })
	return s
}

// said returns rule, severity and line of each finding.
func said(findings []report.Finding) string {
	var lines []string
	for _, f := range findings {
		lines = append(lines, fmt.Sprintf("%s %s %s:%d", f.Rule, f.Severity, f.Place.File, f.Place.Line))
	}
	return strings.Join(lines, "\n")
}

const accounts = "CREATE TABLE accounts (id bigint PRIMARY KEY, owner text, balance int);"

func TestCheckStatements(t *testing.T) {
	for _, c := range []struct {
		name, up string
		want     string // rules, joined by spaces; lock-without-timeout is left out
	}{
		{"an index", "CREATE INDEX i ON accounts (owner);", "index-without-concurrently"},
		{"an index, concurrently", "-- transaction:false\nCREATE INDEX CONCURRENTLY i ON accounts (owner);", ""},
		{"an index, concurrently, in a transaction", "CREATE INDEX CONCURRENTLY i ON accounts (owner);", "outside-transaction"},
		{"an index, concurrently, after a setting", "-- transaction:false\nSET lock_timeout = '2s';\nCREATE INDEX CONCURRENTLY i ON accounts (owner);", "concurrently-not-alone"},
		{"an index, concurrently, if there is none", "-- transaction:false\nCREATE INDEX CONCURRENTLY IF NOT EXISTS i ON accounts (owner);", "concurrently-if-not-exists"},
		{"an index that goes, concurrently, in a transaction", "DROP INDEX CONCURRENTLY i;", "outside-transaction"},
		{"an index of a new table", "CREATE TABLE new (id int); CREATE INDEX i ON new (id);", ""},
		{"a rebuilt index", "REINDEX INDEX i;", "index-without-concurrently"},
		{"vacuum", "VACUUM accounts;", "outside-transaction"},
		{"analyze", "ANALYZE accounts;", ""},
		{"a foreign key", "ALTER TABLE accounts ADD CONSTRAINT f FOREIGN KEY (owner) REFERENCES owners (name);", "constraint-without-not-valid"},
		{"a foreign key, not valid", "ALTER TABLE accounts ADD CONSTRAINT f FOREIGN KEY (owner) REFERENCES owners (name) NOT VALID;", ""},
		{"not valid and validated at once", "ALTER TABLE accounts ADD CONSTRAINT f CHECK (balance > 0) NOT VALID; ALTER TABLE accounts VALIDATE CONSTRAINT f;", "validate-in-same-transaction"},
		{"validated alone", "ALTER TABLE accounts VALIDATE CONSTRAINT f;", ""},
		{"a check", "ALTER TABLE accounts ADD CONSTRAINT c CHECK (balance > 0);", "constraint-without-not-valid"},
		{"a unique constraint", "ALTER TABLE accounts ADD UNIQUE (owner);", "unique-without-index"},
		{"a unique constraint by an index", "ALTER TABLE accounts ADD CONSTRAINT u UNIQUE USING INDEX i;", ""},
		{"not null", "ALTER TABLE accounts ALTER owner SET NOT NULL;", "not-null-without-check"},
		{"another type", "ALTER TABLE accounts ALTER balance TYPE bigint;", "column-type-changed"},
		{"a column", "ALTER TABLE accounts ADD note text;", ""},
		{"a constant default", "ALTER TABLE accounts ADD note text NOT NULL DEFAULT '';", ""},
		{"a stable default", "ALTER TABLE accounts ADD at timestamptz NOT NULL DEFAULT now();", ""},
		{"a volatile default", "ALTER TABLE accounts ADD note uuid DEFAULT gen_random_uuid();", "volatile-default"},
		{"a volatile default within another expression", "ALTER TABLE accounts ADD note text DEFAULT md5(random()::text);", "volatile-default"},
		{"a serial column", "ALTER TABLE accounts ADD note bigserial;", "volatile-default"},
		{"a generated column", "ALTER TABLE accounts ADD note int GENERATED ALWAYS AS (balance * 2) STORED;", "generated-column"},
		{"a renamed enum value", "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue';", "enum-value-renamed"},
		{"an enum value", "ALTER TYPE mood ADD VALUE 'ok';", ""},
		{"a value of a new enum", "CREATE TYPE size AS ENUM ('s'); ALTER TYPE size ADD VALUE 'm'; CREATE TABLE shirt (size size DEFAULT 'm');", ""},
		{"an enum value used at once", "ALTER TYPE mood ADD VALUE 'ok'; UPDATE accounts SET mood = 'ok' WHERE id = 1;", "enum-value-used-at-once"},
		{"cascade", "DROP TABLE accounts CASCADE;", "drop-cascade"},
		{"cascade of a column", "ALTER TABLE accounts DROP owner CASCADE;", "drop-cascade"},
		{"commit", "COMMIT;", "transaction-ended-early"},
		{"begin without commit", "-- transaction:false\nBEGIN; ALTER TABLE accounts ADD note text;", "transaction-left-open"},
		{"begin and commit", "-- transaction:false\nBEGIN; ALTER TABLE accounts ADD note text; COMMIT;", ""},
		{"a database", "-- transaction:false\nDROP DATABASE shop;", "database-dropped"},
		{"commit in a function", "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := side(t, "1_a.sql", accounts)
			head := side(t, "1_a.sql", accounts, "2_b.sql", c.up)
			var got []string
			for _, f := range rules.Check(base, head, nil) {
				if f.Rule != "lock-without-timeout" {
					got = append(got, f.Rule)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

func TestCheckNotNullAfterAValidatedCheck(t *testing.T) {
	base := side(t, "1_a.sql", accounts,
		"2_b.sql", "ALTER TABLE accounts ADD CONSTRAINT c CHECK (owner IS NOT NULL) NOT VALID;")
	up := "ALTER TABLE accounts ALTER owner SET NOT NULL;"
	head := side(t, "1_a.sql", accounts, "2_b.sql", base.Migrations[1].Text, "4_d.sql", up)
	if got := said(rules.Check(base, head, nil)); !strings.Contains(got, "not-null-without-check") {
		t.Errorf("the check is not validated, but: %s", got)
	}
	head = side(t, "1_a.sql", accounts, "2_b.sql", base.Migrations[1].Text,
		"3_c.sql", "ALTER TABLE accounts VALIDATE CONSTRAINT c;", "4_d.sql", up)
	if got := said(rules.Check(base, head, nil)); strings.Contains(got, "not-null-without-check") {
		t.Errorf("the check is validated, but: %s", got)
	}
}

func TestCheckLockTimeout(t *testing.T) {
	base := side(t, "1_a.sql", accounts)
	for up, want := range map[string]bool{
		"ALTER TABLE accounts ADD note text;":                                                                true,
		"SET LOCAL lock_timeout = '2s'; ALTER TABLE accounts ADD note text;":                                 false,
		"SELECT set_config('lock_timeout', '2s', true); ALTER TABLE accounts ADD note text;":                 false,
		"SET LOCAL lock_timeout = 2000; ALTER TABLE accounts ADD note text;":                                 false,
		"SET LOCAL lock_timeout = 0; ALTER TABLE accounts ADD note text;":                                    true,
		"SET LOCAL lock_timeout = '0s'; ALTER TABLE accounts ADD note text;":                                 true,
		"SET lock_timeout = '2s'; RESET lock_timeout; ALTER TABLE accounts ADD note text;":                   true,
		"CREATE TABLE new (id int); ALTER TABLE new ADD note text;":                                          false,
		"SET LOCAL statement_timeout = '2s'; CREATE TRIGGER t AFTER INSERT ON accounts EXECUTE FUNCTION f()": true,
	} {
		got := said(rules.Check(base, side(t, "1_a.sql", accounts, "2_b.sql", up), nil))
		if strings.Contains(got, "lock-without-timeout") != want {
			t.Errorf("%s: %s", up, got)
		}
	}
}

func TestCheckReleasedMigrations(t *testing.T) {
	base := side(t, "1_a.sql", accounts+"\n-- down\nDROP TABLE accounts;", "2_b.sql", "SELECT 1;\nSELECT 2;")
	for _, c := range []struct {
		name string
		head *project.Side
		want string
	}{
		{"as it was", base, ""},
		{"comments and white space", side(t, "1_a.sql", "-- The accounts.\n"+strings.ReplaceAll(accounts, ", ", ",\n ")+"\n-- down\nDROP TABLE accounts;",
			"2_b.sql", "SELECT 1; /* one */\nSELECT 2;"), ""},
		{"a changed statement", side(t, "1_a.sql", base.Migrations[0].Text, "2_b.sql", "SELECT 1;\nSELECT 3;"),
			"released-migration-changed blocking 2_b.sql:2"},
		{"a statement that is gone", side(t, "1_a.sql", base.Migrations[0].Text, "2_b.sql", "SELECT 1;"),
			"released-migration-changed blocking 2_b.sql:0"},
		{"no transaction any more", side(t, "1_a.sql", base.Migrations[0].Text, "2_b.sql", "-- transaction:false\nSELECT 1;\nSELECT 2;"),
			"released-migration-changed blocking 2_b.sql:0"},
		{"a changed way down", side(t, "1_a.sql", accounts+"\n-- down\nDROP TABLE IF EXISTS accounts;", "2_b.sql", base.Migrations[1].Text),
			"released-way-down-changed advice 1_a.sql:3"},
		{"a removed file", side(t, "1_a.sql", base.Migrations[0].Text), "released-migration-removed blocking 2_b.sql:0"},
		{"another file of its version", side(t, "1_a.sql", base.Migrations[0].Text, "2_c.sql", "SELECT 3;"),
			"migration-version-twice blocking 2_c.sql:0"},
		{"a renamed file", side(t, "1_a.sql", base.Migrations[0].Text, "2_c.sql", base.Migrations[1].Text), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := said(rules.Check(base, c.head, nil)); got != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

func TestCheckVersions(t *testing.T) {
	base := side(t, "1_a.sql", "SELECT 1;")
	target := side(t, "1_a.sql", "SELECT 1;", "3_theirs.sql", "SELECT 3;")
	for _, c := range []struct {
		name string
		head *project.Side
		want string
	}{
		{"above all", side(t, "1_a.sql", "SELECT 1;", "4_ours.sql", "SELECT 3;"), ""},
		{"the same as theirs", side(t, "1_a.sql", "SELECT 1;", "3_ours.sql", "SELECT 3;"), "migration-version-twice blocking 3_ours.sql:0"},
		{"below theirs", side(t, "1_a.sql", "SELECT 1;", "2_ours.sql", "SELECT 3;"), "migration-out-of-order risk 2_ours.sql:0"},
		{"twice in the change", side(t, "1_a.sql", "SELECT 1;", "4_ours.sql", "SELECT 4;", "4_other.sql", "SELECT 3;"),
			"migration-version-twice blocking 4_ours.sql:0"},
		{"beside a released one", side(t, "1_a.sql", "SELECT 1;", "1_b.sql", "SELECT 4;"), "migration-version-twice blocking 1_b.sql:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := said(rules.Check(base, c.head, target)); got != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	today := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, comment string
		silenced      string
		want          string
	}{
		{"no comment", "", "", ""},
		{"a reason and a day", "-- review: allow index-without-concurrently until 2027-01-31: the table is small", "the table is small", ""},
		{"until today", "-- review: allow index-without-concurrently until 2026-11-23: the table is small", "the table is small", ""},
		{"until yesterday", "-- review: allow index-without-concurrently until 2026-11-22: the table is small", "", "silence-expired risk 2_b.sql:1"},
		{"without a reason", "-- review: allow index-without-concurrently until 2026-11-24", "", "silence-unreadable risk 2_b.sql:1"},
		{"without a day", "-- review: allow index-without-concurrently: the table is small", "", "silence-unreadable risk 2_b.sql:1"},
		{"no such day", "-- review: allow index-without-concurrently until 2027-02-31: the table is small", "", "silence-unreadable risk 2_b.sql:1"},
		{"for ever", "-- review: allow index-without-concurrently until 2099-01-01: the table is small", "the table is small", "silence-long advice 2_b.sql:1"},
		{"of another rule", "-- review: allow drop-cascade until 2027-01-31: the table is small", "", "silence-unused advice 2_b.sql:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			head := side(t, "2_b.sql", c.comment+"\nCREATE INDEX i\nON accounts (owner);\nCREATE INDEX j ON accounts (id);")
			found := []report.Finding{
				{Rule: "index-without-concurrently", Place: report.Place{File: "2_b.sql", Line: 2}},
				{Rule: "index-without-concurrently", Place: report.Place{File: "2_b.sql", Line: 4}},
			}
			got := rules.Silence(found, nil, head, today)
			if got[0].Silenced != c.silenced || got[1].Silenced != "" || found[0].Silenced != "" {
				t.Errorf("silenced %q and %q", got[0].Silenced, got[1].Silenced)
			}
			if about := said(got[2:]); about != c.want {
				t.Errorf("%q, not %q", about, c.want)
			}
			for _, f := range rules.Silence(found, head, head, today)[2:] {
				t.Errorf("an old migration's comment is judged: %s", f.Rule)
			}
		})
	}
}
