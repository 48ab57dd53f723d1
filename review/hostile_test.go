package review_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// hostile is a change that tries to get out of the review. Files and Links replace those of a harmless project. In
// them {{canary}} is a file that must not exist afterwards, {{program}} one that makes it, and {{role}} a role or
// database that must not exist afterwards.
type hostile struct {
	About string
	Files map[string]string
	Links map[string]string
	Finds []string // beginnings of findings
	// Unread are beginnings of what was not read.
	Unread []string
}

// TestHostile reviews changes that try to run programs, to access files, and to get rights.
func TestHostile(t *testing.T) {
	server, err := pgserver.Start(t.Context(), pgserver.Options{Purpose: pgserver.Tests, Container: container.Run, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	secret := "secret" + rand.Text()
	t.Setenv("FF_HOSTILE_SECRET", secret)
	files, err := filepath.Glob("testdata/hostile/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d hostile changes, error %v", len(files), err)
	}
	t.Run("changes", func(t *testing.T) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				reviewHostile(t, server.URL(), text, secret)
			})
		}
	})
}

func reviewHostile(t *testing.T, server string, text []byte, secret string) {
	canary := filepath.Join(os.TempDir(), "ff-canary-"+rand.Text()) // on this machine and on the server's
	role := "ff_hostile_" + strings.ToLower(rand.Text())
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+canary+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.NewReplacer("{{canary}}", canary, "{{role}}", role, "{{program}}", program).Replace(string(text)))
	var change hostile
	if err := yaml.Unmarshal(text, &change); err != nil {
		t.Fatal(err)
	}
	base, head := layHostile(t, hostile{}), layHostile(t, change)
	var log bytes.Buffer
	r, err := review.Run(t.Context(), review.Config{Container: container.Run, Dir: head, BaseDir: base, Rows: 20, Log: &log})
	said := log.String()
	if err != nil {
		said += err.Error()
		if len(change.Finds)+len(change.Unread) > 0 {
			t.Errorf("%s: %v", change.About, err)
		}
	} else {
		var out bytes.Buffer
		if err := report.WriteJSON(&out, r, report.Blocking); err != nil {
			t.Fatal(err)
		}
		said += out.String()
		for _, want := range change.Finds {
			if !has(linesOf(r), want) {
				t.Errorf("%s: no finding %q among %q, skipped %q", change.About, want, linesOf(r), r.Skipped)
			}
		}
		for _, want := range change.Unread {
			if !has(r.NotRead, want) {
				t.Errorf("%s: %q is not among %q", change.About, want, r.NotRead)
			}
		}
		t.Logf("%q, skipped %q", linesOf(r), r.Skipped)
	}
	for _, leak := range []string{secret, "root:x:"} {
		if strings.Contains(said, leak) {
			t.Errorf("%s: the report has %q:\n%s", change.About, leak, said)
		}
	}
	if _, err := os.Stat(canary); err == nil {
		t.Errorf("%s: %s was made", change.About, canary)
	}
	nothingLeft(t, server, change.About, canary, role)
}

// nothingLeft asks the server, as its superuser, for what the change tried to make.
func nothingLeft(t *testing.T, server, about, canary, role string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var file, made, changed bool
	if err := conn.QueryRow(t.Context(), `SELECT (pg_stat_file($1, true)).size IS NOT NULL,
			EXISTS (SELECT FROM pg_roles WHERE rolname = $2) OR EXISTS (SELECT FROM pg_database WHERE datname = $2),
			EXISTS (SELECT FROM pg_roles WHERE rolname LIKE 'ff\_review%' AND (rolsuper OR rolcreatedb OR rolcreaterole))
				OR EXISTS (SELECT FROM pg_file_settings WHERE name = 'archive_command' AND setting LIKE 'touch%')`, canary, role).Scan(&file, &made, &changed); err != nil {
		t.Fatal(err)
	}
	if file || made || changed {
		t.Errorf("%s: the file exists: %v, the role: %v, rights or configuration changed: %v", about, file, made, changed)
	}
}

// layHostile writes the harmless project with a change into a folder.
func layHostile(t *testing.T, change hostile) string {
	t.Helper()
	files := map[string]string{
		"sqlc.yaml":                 "version: \"2\"\nsql:\n  - {engine: postgresql, schema: db/migrations, queries: queries, gen: {go: {package: shop, out: shop, sql_package: pgx/v5}}}\n",
		"db/migrations/1_items.sql": "-- migrate:up\nCREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL);\n-- migrate:down\nDROP TABLE item;\n",
		"queries/items.sql":         "-- name: ListItems :many\nSELECT id, name FROM item WHERE id = @id;\n",
	}
	maps.Copy(files, change.Files)
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range change.Links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A role that migrations name exists during the review, without rights, and is dropped afterwards. The statement about
// it is not run, and the grants to it are.
func TestRunMakesRolesOfMigrations(t *testing.T) {
	role := "ff_app_" + strings.ToLower(rand.Text())
	s := newShop(t)
	s.migration("2_roles.sql", `CREATE ROLE `+role+` LOGIN PASSWORD 'x';
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '`+role+`') THEN
    CREATE ROLE `+role+`;
  END IF;
END $$;
GRANT SELECT ON item TO `+role+`;
ALTER TABLE item OWNER TO `+role+`;
CREATE SCHEMA AUTHORIZATION `+role+`;
CREATE POLICY p ON item TO `+role+` USING (true);`, `DROP POLICY p ON item;
DROP SCHEMA `+role+`;
REVOKE SELECT ON item FROM `+role+`;
DROP ROLE `+role+`;`)
	r := s.review()
	lines := linesOf(r)
	if !has(lines, "note statement-not-run db/migrations/2_roles.sql:2") {
		t.Errorf("found %q", lines)
	}
	for _, rule := range []string{"blocking migration-fails", "blocking down-fails", "blocking up-again-fails", "blocking statement-refused"} {
		if has(lines, rule) {
			t.Errorf("found %q", lines)
		}
	}
	server, err := pgserver.Start(t.Context(), pgserver.Options{Purpose: pgserver.Tests, Container: container.Run, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, server.URL(), "a role of a migration", "/nowhere", role)
	if text, err := json.Marshal(r.Catalog); err != nil || !strings.Contains(string(text), role) {
		t.Errorf("the grant is not in the catalog: %s, %v", text, err)
	}
}
