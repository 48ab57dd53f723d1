package review_test

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// ownCache makes reviews run by a role with a cache of its own, which the end of the test drops.
func ownCache(t *testing.T) {
	t.Helper()
	server, err := pgserver.Start(t.Context(), pgserver.Options{Purpose: pgserver.Tests, Container: container.Run})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	role := fmt.Sprintf("ff_reviewer_%d_%d", os.Getpid(), time.Now().UnixNano())
	exec := func(sql string) {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	exec("CREATE ROLE " + role + " SUPERUSER LOGIN PASSWORD 'x'")
	t.Cleanup(func() {
		rows, err := admin.Query(context.WithoutCancel(t.Context()), "SELECT datname::text FROM pg_database JOIN pg_roles AS r ON r.oid = datdba WHERE rolname = $1", role)
		if err != nil {
			t.Error(err)
			return
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "ff_review_cache_") {
				t.Errorf("%s is left", name)
			}
			exec("DROP DATABASE " + name)
		}
		exec("DROP OWNED BY " + role)
		exec("DROP ROLE " + role)
		_ = admin.Close(context.WithoutCancel(t.Context()))
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "x")
	t.Setenv("FF_POSTGRES", "url")
	t.Setenv("DATABASE_URL", u.String())
}

// cached reviews a project, and returns how many databases were taken from earlier reviews, and kept.
func cached(t *testing.T, config review.Config) (r *report.Report, used, kept int) {
	t.Helper()
	var log bytes.Buffer
	config.Log, config.Rows, config.Today = &log, 500, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	r, err := review.Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return r, strings.Count(log.String(), " of an earlier review is used"), strings.Count(log.String(), " is kept for later reviews")
}

const addNote, dropNote = "ALTER TABLE item ADD COLUMN note text;", "ALTER TABLE item DROP COLUMN note;"

func TestRunTakesDatabasesOfEarlierReviews(t *testing.T) {
	ownCache(t)
	s := newShop(t)
	s.migration("2_note.sql", addNote, dropNote)
	config := review.Config{Dir: s.dir, Base: "main"}
	first, used, kept := cached(t, config)
	if used != 0 || kept != 2 {
		t.Errorf("%d databases were used, %d kept", used, kept)
	}
	again, used, kept := cached(t, config)
	if used != 2 || kept != 0 {
		t.Errorf("%d databases were used, %d kept", used, kept)
	}
	if was, is := linesOf(first), linesOf(again); !slices.Equal(was, is) || !slices.Equal(first.Catalog, again.Catalog) || len(first.Statements) != len(again.Statements) {
		t.Errorf("the report became another one:\n%q\n%q", was, is)
	}
	for _, c := range []struct {
		name       string
		change     func(config *review.Config)
		used, kept int
	}{
		{"no cache", func(config *review.Config) { config.NoCache = true }, 0, 0},
		// Rows that the change has a part in are not base's.
		{"the change has a constraint", func(*review.Config) {
			s.migration("2_note.sql", "ALTER TABLE item ADD CONSTRAINT dear CHECK (price > 5) NOT VALID;", "ALTER TABLE item DROP CONSTRAINT dear;")
		}, 1, 0},
		{"the change has a seed file", func(*review.Config) {
			s.migration("2_note.sql", addNote, dropNote)
			s.lay("db/seed.yaml", "rows: 300\n")
		}, 1, 0},
		{"base has the seed file", func(*review.Config) {
			s.git("add", "db/seed.yaml")
			s.git("commit", "-q", "-m", "seed")
		}, 1, 1},
		{"the change has another seed file", func(*review.Config) { s.lay("db/seed.yaml", "rows: 301\n") }, 1, 0},
		{"base has another query", func(*review.Config) {
			s.git("checkout", "-q", "db/seed.yaml")
			s.lay("queries/more.sql", "-- name: Cheap :many\nSELECT id FROM item WHERE price = 3 LIMIT 1;\n")
			s.git("add", "queries")
			s.git("commit", "-q", "-m", "query")
		}, 1, 1},
		{"base has another migration", func(*review.Config) {
			s.migration("1_items.sql", "CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL, price int NOT NULL, CHECK (price > 0));", "DROP TABLE item;")
			s.git("add", "db/migrations/1_items.sql")
			s.git("commit", "-q", "-m", "migration")
		}, 0, 2},
		{"the migrations have another table", func(config *review.Config) { config.MigrationsTable = "versions" }, 0, 2},
	} {
		config := config
		c.change(&config)
		if _, used, kept := cached(t, config); used != c.used || kept != c.kept {
			t.Errorf("%s: %d databases were used, want %d; %d kept, want %d", c.name, used, c.used, kept, c.kept)
		}
	}
}

// A change does not decide what is kept as base's either. This one hides the tables from the session that reads base.
func TestHostileChangeDoesNotDecideTheRows(t *testing.T) {
	ownCache(t)
	s := newShop(t)
	s.lay("db/seed.yaml", "tables: {item: {rows: 123}}\n")
	s.git("add", "db/seed.yaml")
	s.git("commit", "-q", "-m", "seed")
	config := review.Config{Dir: s.dir, Base: "main"}
	s.migration("2_note.sql", "DO $$ BEGIN EXECUTE 'SET ROLE NONE'; EXECUTE 'ALT' || 'ER ROLE CURRENT_USER SET quote_all_identifiers = on'; END $$;\n"+addNote, dropNote)
	cached(t, config)
	s.migration("2_note.sql", addNote, dropNote)
	_, used, kept := cached(t, config)
	if used != 1 || kept != 1 {
		t.Errorf("%d databases were used, %d kept: the rows were made without the seed file", used, kept)
	}
}

// A change cannot alter what later reviews of other changes see.
func TestHostileChangeDoesNotReachTheCache(t *testing.T) {
	ownCache(t)
	s := newShop(t)
	config := review.Config{Dir: s.dir, Base: "main"}
	s.migration("2_note.sql", addNote, dropNote)
	want, _, kept := cached(t, config)
	if kept != 2 {
		t.Fatalf("%d databases were kept", kept)
	}
	var hostile strings.Builder
	for _, sql := range []string{
		"EXECUTE format('ALTER DATABASE %I WITH ALLOW_CONNECTIONS true', name)", "EXECUTE format('DROP DATABASE %I', name)",
		"EXECUTE format('COMMENT ON DATABASE %I IS ''x''', name)", "EXECUTE 'ALTER ROLE CURRENT_USER SET search_path = evil'",
		"EXECUTE 'SET ROLE NONE'; EXECUTE 'ALTER ROLE CURRENT_USER SET search_path = evil'",
	} {
		fmt.Fprintf(&hostile, "DO $$ DECLARE name text; BEGIN FOR name IN SELECT datname FROM pg_database WHERE datname LIKE 'ff\\_review\\_cache%%' LOOP BEGIN %s; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$;\n", sql)
	}
	s.migration("2_note.sql", hostile.String()+"CREATE SCHEMA evil; INSERT INTO public.item VALUES (-1, 'evil', 1);", "SELECT 1;")
	s.lay("db/seed.yaml", "tables: {item: {columns: {name: {sql: \"'evil'\"}}}}\n")
	if _, used, kept := cached(t, config); used != 1 || kept != 0 {
		t.Errorf("%d databases were used by the hostile change, %d kept", used, kept)
	}
	if err := os.Remove(filepath.Join(s.dir, "db/seed.yaml")); err != nil {
		t.Fatal(err)
	}
	s.migration("2_note.sql", addNote, dropNote)
	again, used, _ := cached(t, config)
	if used != 2 {
		t.Errorf("%d databases were used", used)
	}
	if was, is := linesOf(want), linesOf(again); !slices.Equal(was, is) || !slices.Equal(want.Catalog, again.Catalog) {
		t.Errorf("the report became another one:\n%q\n%q", was, is)
	}
}

// A project of 200 migrations is reviewed, and again from the databases of the first review.
func TestRunReviewsTwoHundredMigrations(t *testing.T) {
	ownCache(t)
	base, head := t.TempDir(), t.TempDir()
	var queries strings.Builder
	n := 0
	add := func(up, down string) {
		n++
		for _, dir := range []string{base, head} {
			layFile(t, dir, fmt.Sprintf("db/migrations/%05d_step.sql", n), "-- +goose Up\n"+up+"\n-- +goose Down\n"+down+"\n")
		}
	}
	for i := range 50 {
		reference := ""
		if i > 0 {
			reference = fmt.Sprintf(", above bigint NOT NULL REFERENCES t%d (id)", i/2)
		}
		add(fmt.Sprintf("CREATE TABLE t%d (id bigint PRIMARY KEY, name text NOT NULL%s);", i, reference), fmt.Sprintf("DROP TABLE t%d;", i))
		add(fmt.Sprintf("ALTER TABLE t%d ADD COLUMN amount numeric NOT NULL DEFAULT 0;", i), fmt.Sprintf("ALTER TABLE t%d DROP COLUMN amount;", i))
		add(fmt.Sprintf("CREATE INDEX t%d_name ON t%[1]d (name);", i), fmt.Sprintf("DROP INDEX t%d_name;", i))
		add(fmt.Sprintf("ALTER TABLE t%d ADD CHECK (amount >= 0);", i), fmt.Sprintf("ALTER TABLE t%d DROP CONSTRAINT t%[1]d_amount_check;", i))
		fmt.Fprintf(&queries, "-- name: Get%d :one\nSELECT id, amount FROM t%[1]d WHERE id = $1;\n\n-- name: Find%[1]d :many\nSELECT id FROM t%[1]d WHERE name = $1 ORDER BY id LIMIT 10;\n\n", i)
	}
	for _, dir := range []string{base, head} {
		layFile(t, dir, "queries/all.sql", queries.String())
		layFile(t, dir, "sqlc.yaml", "version: \"2\"\nsql:\n  - {engine: postgresql, schema: db/migrations, queries: queries, gen: {go: {package: big, out: big, sql_package: pgx/v5}}}\n")
	}
	layFile(t, head, "db/migrations/00201_index.sql", "-- +goose Up\nCREATE INDEX t9_amount ON t9 (amount);\n-- +goose Down\nDROP INDEX t9_amount;\n")
	config := review.Config{Dir: head, BaseDir: base}
	var before []string
	for _, want := range []int{0, 2} {
		r, used, _ := cached(t, config)
		lines := linesOf(r)
		if used != want || !has(lines, "blocking lock-blocks-writers db/migrations/00201_index.sql:2 t9") || has(lines, "risk review-incomplete") {
			t.Errorf("%d databases were used; found %q", used, lines)
		}
		if len(r.Migrations) != 1 || len(r.Statements) != 1 || len(r.NotSeeded) > 0 || r.Order != report.AnyOrder {
			t.Errorf("%d migrations, %d statements, order %v; not seeded: %q", len(r.Migrations), len(r.Statements), r.Order, r.NotSeeded)
		}
		if before != nil && !slices.Equal(before, lines) {
			t.Errorf("the report became another one:\n%q\n%q", before, lines)
		}
		before = lines
	}
}

func layFile(t *testing.T, dir, name, text string) {
	t.Helper()
	shop{t, dir}.lay(name, text)
}
