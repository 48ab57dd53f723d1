package schema

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestLockKey(t *testing.T) {
	const want = 2084436097824492122
	if got := lockKey("flowfabric"); got != want {
		t.Errorf("lock of database flowfabric: %d, want %d", got, want)
	}
}

func TestParseScript(t *testing.T) {
	const whole = "-- remark\n\n-- migrate:up\n\nSELECT 1;\nSELECT ü, oops;\n\n-- migrate:down\nSELECT 2;\n"
	s, err := parseScript(whole)
	if err != nil || strings.TrimSpace(s.down.sql) != "SELECT 2;" || strings.Contains(s.up.sql, "--") {
		t.Fatalf("%+v, %v", s, err)
	}
	failed := s.up.locate(&pgconn.PgError{Code: "42703", Position: int32(strings.Index(s.up.sql, "ü")) + 1 + int32(len(", "))})
	if text := failed.Error(); !strings.HasPrefix(text, "line 6: ") || !strings.Contains(text, "42703") {
		t.Errorf("the failure is %q, want line 6 of the file and the SQLSTATE", text)
	}
	for what, content := range map[string]string{
		"no directive":      "SELECT 1;",
		"no way back":       "-- migrate:up\nSELECT 1;",
		"the wrong order":   "-- migrate:down\nSELECT 1;\n-- migrate:up\n",
		"two pairs":         whole + whole,
		"an option":         strings.Replace(whole, "migrate:up", "migrate:up transaction:false", 1),
		"a statement above": "SELECT 0;\n" + whole,
	} {
		if _, err := parseScript(content); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

func TestReadScriptReadsEveryMigration(t *testing.T) {
	known, err := knownMigrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range known {
		if s, err := readScript(m); err != nil || !strings.Contains(s.up.sql, ";") || !strings.Contains(s.down.sql, ";") {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}
