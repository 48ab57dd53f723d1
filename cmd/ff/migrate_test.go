package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

func change(t *testing.T, databaseURL, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// Each result that a deploy pipeline acts on has its own code, and --json agrees.
func TestMigrateCheck(t *testing.T) {
	t.Parallel()
	with := func(parameter string) func(t *testing.T) string {
		return func(t *testing.T) string {
			databaseURL := pgtest.URL(t)
			if strings.Contains(databaseURL, "?") {
				return databaseURL + "&" + parameter
			}
			return databaseURL + "?" + parameter
		}
	}
	clone := func(sql string) func(t *testing.T) string {
		return func(t *testing.T) string {
			databaseURL := pgtest.CloneURL(t)
			change(t, databaseURL, sql)
			return databaseURL
		}
	}
	const later = "INSERT INTO ffx_schema_migrations VALUES ('29991231000000')"
	for _, c := range []struct {
		name     string
		database func(t *testing.T) string
		code     int
		verdict  string
		says     string
	}{
		{"migrated", with("application_name=x"), exitDone, "fit", "can work on it"},
		{"migrated by a newer version that leaves room", clone(later), exitDone, "fit", "Warning: a newer version"},
		{"empty", func(t *testing.T) string { return pgtest.EmptyDatabase(t) }, exitPending, "pending", "run `ff migrate up`"},
		{
			"older", clone("DELETE FROM ffx_schema_migrations WHERE version = '" + schema.Version + "'"),
			exitPending, "pending", "run `ff migrate up`",
		},
		{
			"migrated by a newer version that leaves no room", clone(later + "; DROP FUNCTION ffx_usable_from()"),
			exitTooNew, "too_new", "newer one",
		},
		{"read-only", with("default_transaction_read_only=on"), exitDatabase, "unfit", "primary"},
		{"of somebody else", clone("DROP TABLE ff_exec_core CASCADE"), exitDatabase, "unfit", "another schema"},
		{"no such user", with("user=nobody_knows&password=x"), exitDatabase, "unfit", "correct the user or the password"},
		{"no such database", with("dbname=there_is_none"), exitDatabase, "unfit", "create it"},
		{"no server", func(*testing.T) string { return "postgres://127.0.0.1:1/x" }, exitUnreachable, "unreachable", "127.0.0.1:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := c.database(t)
			code, stdout, stderr := start(t, t.Context(), "migrate", "check", "--database-url", databaseURL)
			if code != c.code || !strings.Contains(stdout+stderr, c.says) || (code != exitDone) != (stdout == "") {
				t.Errorf("exit code %d, want %d with %q\nstdout: %s\nstderr: %s", code, c.code, c.says, stdout, stderr)
			}
			code, stdout, _ = start(t, t.Context(), "migrate", "check", "--json", "--database-url", databaseURL)
			var got migrationCheck
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("%v: %s", err, stdout)
			}
			if code != c.code || string(got.Verdict) != c.verdict || (got.Problem == "") != (code == exitDone) || got.Wanted != schema.Version {
				t.Errorf("exit code %d, want %d; %+v", code, c.code, got)
			}
			if (got.Verdict == pending) != (len(got.Pending) > 0) {
				t.Errorf("pending are %q", got.Pending)
			}
		})
	}
}

func TestMigrateCheckRefusesBadUsage(t *testing.T) {
	t.Parallel()
	if code, _, stderr := start(t, t.Context(), "migrate", "check"); code != exitUsage {
		t.Errorf("without a database: exit code %d: %s", code, stderr)
	}
}

func TestMigrateUpDryRun(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.EmptyDatabase(t)
	up := func(arg ...string) (int, string) {
		code, stdout, stderr := start(t, t.Context(), append([]string{"migrate", "up", "--database-url", databaseURL}, arg...)...)
		return code, stdout + stderr
	}
	for range 2 { // the first run changed nothing
		if code, text := up("--dry-run"); code != exitDone || !strings.Contains(text, "would apply 20261101000001_executions\n") ||
			!strings.Contains(text, "at version none and would be at "+schema.Version) {
			t.Errorf("exit code %d: %s", code, text)
		}
	}
	if code, text := up(); code != exitDone {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if code, text := up("--dry-run"); code != exitDone || strings.Contains(text, "would apply") {
		t.Errorf("exit code %d: %s", code, text)
	}
	change(t, databaseURL, "INSERT INTO ffx_schema_migrations VALUES ('29991231000000'); DROP FUNCTION ffx_usable_from()")
	if code, text := up("--dry-run"); code != exitDatabase || !strings.Contains(text, "too new") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// Package schema tests the SQL itself; this tests the command's output.
func TestMigrateSQL(t *testing.T) {
	t.Parallel()
	run := func(code int, says string, args ...string) string {
		t.Helper()
		got, stdout, stderr := start(t, t.Context(), append([]string{"migrate", "sql"}, args...)...)
		if got != code || !strings.Contains(stdout+stderr, says) {
			t.Errorf("ff migrate sql %s: exit code %d, want %d with %q\nstdout: %.300s\nstderr: %s", strings.Join(args, " "), got, code, says, stdout, stderr)
		}
		return stdout
	}
	for _, c := range []struct {
		args        []string
		begins, has string
	}{
		{nil, "BEGIN;", "CREATE TABLE ff_exec_core"},
		{[]string{"--down"}, "BEGIN;", "DROP TABLE ff_exec_core"},
		{[]string{"--format", "goose"}, "-- +goose Up\n-- +goose StatementBegin\n", "\n-- +goose Down\n"},
		{[]string{"--format", "golang-migrate", "--from", "20261101000008"}, "-- 20261125000001_compatibility\n", "ffx_ready"},
		{[]string{"--format", "atlas", "--schema", "billing"}, "-- 20261101000001_executions\n", `CREATE SCHEMA IF NOT EXISTS "billing"`},
	} {
		if text := run(exitDone, c.has, c.args...); !strings.HasPrefix(text, c.begins) {
			t.Errorf("ff migrate sql %q begins with %.60q, want %q", c.args, text, c.begins)
		}
	}
	if text := run(exitDone, "20261125000006", "--from", "20261125000005", "--to", "20261125000006"); strings.Contains(text, "'20261125000005'") {
		t.Error("the version to begin after is in it")
	}
	run(exitDone, "no migration after", "--from", schema.Version)
	run(exitUsage, "no migration \"7\"", "--from", "7")
	run(exitUsage, "flyway", "--format", "flyway")
	run(exitUsage, "no file for the way down", "--format", "goose", "--down")
	run(exitUsage, "asks for one", "--dir", t.TempDir(), "--down")
	run(exitUsage, "without a database", "--database-url", "postgres://127.0.0.1:1/x")
}

func TestMigrateSQLWritesFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	write := func(code int, says string) {
		t.Helper()
		got, stdout, stderr := start(t, t.Context(), "migrate", "sql", "--format", "golang-migrate", "--dir", dir)
		if got != code || !strings.Contains(stdout+stderr, says) || says == "" && stdout != "" {
			t.Errorf("exit code %d, want %d with %q\nstdout: %s\nstderr: %s", got, code, says, stdout, stderr)
		}
	}
	first := filepath.Join(dir, "20261101000001_executions.up.sql")
	write(exitDone, "wrote "+first)
	steps, err := schema.SQL(schema.SQLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2*len(steps) {
		t.Fatalf("%d files, %v, want %d", len(files), err, 2*len(steps))
	}
	text, err := os.ReadFile(first)
	if err != nil || string(text) != steps[0].Up {
		t.Errorf("%v, %.100s", err, text)
	}
	write(exitDone, "") // nothing to write
	if err := os.WriteFile(first, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(exitFailed, fmt.Sprintf("%s exists with another content", first))
	if text, err := os.ReadFile(first); err != nil || string(text) != "mine" {
		t.Errorf("it was overwritten: %v, %.100s", err, text)
	}
}
