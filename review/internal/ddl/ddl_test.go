package ddl_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
)

func TestStatement(t *testing.T) {
	for _, c := range []struct {
		sql, names string
		outside    bool
	}{
		{`CREATE INDEX CONCURRENTLY i ON app."Accounts" (id)`, "app.Accounts", true},
		{`CREATE INDEX i ON accounts (id)`, "accounts", false},
		{`DROP INDEX CONCURRENTLY app.i`, "app.i", true},
		{`DROP TABLE a, app.b`, "a app.b", false},
		{`DROP TRIGGER t ON app.accounts`, "app.accounts", false},
		{`REINDEX (CONCURRENTLY) TABLE accounts`, "accounts", true},
		{`REINDEX TABLE accounts`, "accounts", false},
		{`REINDEX SCHEMA app`, "", true},
		{`VACUUM accounts`, "accounts", true},
		{`ANALYZE accounts`, "accounts", false},
		{`CLUSTER`, "", true},
		{`CREATE DATABASE other`, "", true},
		{`ALTER SYSTEM SET work_mem = '1MB'`, "", true},
		{`ALTER TABLE days DETACH PARTITION days_1 CONCURRENTLY`, "days days_1", true},
		{`ALTER TABLE entries ADD FOREIGN KEY (owner) REFERENCES owners`, "entries owners", false},
		{`INSERT INTO a SELECT * FROM b JOIN c USING (id) WHERE id IN (SELECT id FROM d)`, "a b c d", false},
	} {
		s, err := ddl.Parse(c.sql)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Names(), " "); got != c.names {
			t.Errorf("%s: names %q, not %q", c.sql, got, c.names)
		}
		if s.Outside() != c.outside {
			t.Errorf("%s: outside %t", c.sql, s.Outside())
		}
	}
}

func TestSetting(t *testing.T) {
	for sql, want := range map[string]string{
		"SET lock_timeout = '2s'":                         "{lock_timeout true false}",
		"SET LOCAL Lock_Timeout TO 500":                   "{lock_timeout true true}",
		"SET lock_timeout = 0":                            "{lock_timeout false false}",
		"SET lock_timeout = '0 ms'":                       "{lock_timeout false false}",
		"SET lock_timeout = '100ms'":                      "{lock_timeout true false}",
		"SET lock_timeout TO DEFAULT":                     "{lock_timeout false false}",
		"RESET lock_timeout":                              "{lock_timeout false false}",
		"SELECT set_config('lock_timeout', '2s', true)":   "{lock_timeout true true}",
		"SELECT pg_catalog.set_config('x.y', '1', false)": "{x.y true false}",
	} {
		s, err := ddl.Parse(sql)
		if err != nil {
			t.Fatal(err)
		}
		if got, is := s.Setting(); !is || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, not %s", sql, got, want)
		}
	}
	s, err := ddl.Parse("SELECT lower('lock_timeout')")
	if err != nil {
		t.Fatal(err)
	}
	if got, is := s.Setting(); is {
		t.Errorf("%v is no setting", got)
	}
}

func TestForSession(t *testing.T) {
	s, err := ddl.Parse("SET LOCAL search_path = app, public")
	if err != nil {
		t.Fatal(err)
	}
	if sql, err := s.ForSession(); err != nil || sql != "SET search_path TO app, public" {
		t.Errorf("%q, error %v", sql, err)
	}
}

func TestBrief(t *testing.T) {
	if got := ddl.Brief("ALTER TABLE\n\ta  ADD b"); got != "ALTER TABLE a ADD b" {
		t.Errorf("%q", got)
	}
	if got := ddl.Brief(strings.Repeat("wört ", 30)); len([]rune(got)) != 80 || !strings.HasSuffix(got, "…") {
		t.Errorf("%q", got)
	}
}
