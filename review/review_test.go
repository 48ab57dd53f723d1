package review_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// shop is a small project, in a git repository.
type shop struct {
	t   *testing.T
	dir string
}

func newShop(t *testing.T) shop {
	t.Helper()
	s := shop{t, t.TempDir()}
	s.git("init", "-q", "-b", "main")
	s.lay("sqlc.yaml", "version: \"2\"\nsql:\n  - {engine: postgresql, schema: db/migrations, queries: queries, gen: {go: {package: shop, out: shop, sql_package: pgx/v5}}}\n")
	s.lay("db/migrations/1_items.sql", `-- migrate:up
CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL, price int NOT NULL);
CREATE INDEX item_price ON item (price);
-- migrate:down
DROP TABLE item;
`)
	s.lay("queries/items.sql", `-- name: ListItems :many
-- Used by: shop.List.
SELECT id, name FROM item WHERE price = @price ORDER BY id LIMIT 10;

-- name: Rename :exec
-- Used by: shop.Rename.
UPDATE item SET name = @name WHERE id = @id;
`)
	s.commit()
	return s
}

func (s shop) git(arguments ...string) {
	s.t.Helper()
	command := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, arguments...)...)
	command.Dir = s.dir
	if out, err := command.CombinedOutput(); err != nil {
		s.t.Fatalf("git %v: %v\n%s", arguments, err, out)
	}
}

func (s shop) commit() {
	s.t.Helper()
	s.git("add", ".")
	s.git("commit", "-q", "-m", "change")
}

func (s shop) lay(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s shop) migration(name, up, down string) {
	s.t.Helper()
	s.lay("db/migrations/"+name, "-- migrate:up\n"+up+"\n-- migrate:down\n"+down+"\n")
}

func (s shop) review() *report.Report {
	s.t.Helper()
	r, err := review.Run(s.t.Context(), review.Config{
		Container: container.Run, Dir: s.dir, Base: "main", Rows: 2000, Today: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Log: s.t.Output(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func linesOf(r *report.Report) []string {
	var lines []string
	for _, f := range r.Findings {
		silenced := ""
		if f.Silenced != "" {
			silenced = " silenced"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s:%d %s%s", f.Severity, f.Rule, f.Place.File, f.Place.Line, f.Object, silenced))
	}
	return lines
}

func has(lines []string, want string) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) })
}

func TestRunReportsNoChange(t *testing.T) {
	r := newShop(t).review()
	if len(r.Migrations)+len(r.Catalog)+len(r.Statements) > 0 || r.Migrations == nil {
		t.Errorf("%+v", r)
	}
	for _, f := range r.Findings {
		if f.Severity > report.Note {
			t.Errorf("nothing changed, and %q was found", linesOf(r))
		}
	}
	if r.Elsewhere != "sqlc.yaml" {
		t.Errorf("findings without a place are at %q", r.Elsewhere)
	}
}

func TestRunReviewsAnIndex(t *testing.T) {
	s := newShop(t)
	s.migration("2_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	r := s.review()
	lines := linesOf(r)
	if !has(lines, "blocking lock-blocks-writers db/migrations/2_index.sql:2 item") {
		t.Errorf("found %q", lines)
	}
	if has(lines, "risk index-without-concurrently") {
		t.Error("the guess stands beside the observation")
	}
	want := report.Change{
		Kind: "index", Object: "item_name", After: "CREATE INDEX item_name ON item USING btree (name)",
		Place: report.Place{File: "db/migrations/2_index.sql", Line: 2},
	}
	if len(r.Catalog) != 1 || r.Catalog[0] != want {
		t.Errorf("the catalog's changes are %+v", r.Catalog)
	}
	if len(r.Statements) != 1 || len(r.Statements[0].Measured.Waiting) != 1 || r.Statements[0].Measured.Waiting[0].Operations[0] != "shop.Rename" {
		t.Errorf("the statements are %+v", r.Statements)
	}
}

func TestRunIsSilencedByAComment(t *testing.T) {
	s := newShop(t)
	s.migration("2_index.sql", "-- review: allow lock-blocks-writers until 2026-12-01: nobody writes at night\nCREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	if lines := linesOf(s.review()); !slices.Contains(lines, "blocking lock-blocks-writers db/migrations/2_index.sql:3 item silenced") {
		t.Errorf("found %q", lines)
	}
}

func TestRunReportsAFailingMigration(t *testing.T) {
	s := newShop(t)
	s.migration("2_wrong.sql", "ALTER TABLE item ADD COLUMN name text;", "SELECT 1;")
	r := s.review()
	if lines := linesOf(r); !slices.Contains(lines, "blocking migration-fails db/migrations/2_wrong.sql:2 2") || len(r.Skipped) == 0 {
		t.Errorf("found %q, skipped %q", lines, r.Skipped)
	}
}

func TestRunReportsAnEditedMigration(t *testing.T) {
	s := newShop(t)
	s.lay("db/migrations/1_items.sql", `-- migrate:up
CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL, price bigint NOT NULL);
CREATE INDEX item_price ON item (price);
-- migrate:down
DROP TABLE item;
`)
	lines := linesOf(s.review())
	if !has(lines, "blocking history-differs") || !has(lines, "blocking released-migration-changed") {
		t.Errorf("found %q", lines)
	}
}

// A version that main took after the branch left it is taken, and other later changes of main are no part of the
// change.
func TestRunComparesWithTheMergeBase(t *testing.T) {
	s := newShop(t)
	s.git("checkout", "-q", "-b", "branch")
	s.migration("3_mine.sql", "CREATE TABLE mine (id int PRIMARY KEY);", "DROP TABLE mine;")
	s.commit()
	s.git("checkout", "-q", "main")
	s.migration("2_early.sql", "CREATE TABLE early (id int PRIMARY KEY);", "DROP TABLE early;")
	s.migration("3_theirs.sql", "CREATE TABLE theirs (id int PRIMARY KEY);", "DROP TABLE theirs;")
	s.commit()
	s.git("checkout", "-q", "branch")
	r := s.review()
	if lines := linesOf(r); !has(lines, "blocking migration-version-twice db/migrations/3_mine.sql") {
		t.Errorf("found %q", lines)
	}
	if len(r.Catalog) != 1 || r.Catalog[0].Object != "mine" {
		t.Errorf("the catalog's changes are %+v", r.Catalog)
	}
}

func TestRunTakesAFolderAsBase(t *testing.T) {
	s := newShop(t)
	s.migration("2_table.sql", "CREATE TABLE basket (id bigint PRIMARY KEY);", "DROP TABLE basket;")
	base := newShop(t)
	r, err := review.Run(t.Context(), review.Config{Container: container.Run, Dir: s.dir, BaseDir: base.dir, Rows: 100, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Migrations) != 1 || len(r.Catalog) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestRunRefusesBadInput(t *testing.T) {
	s := newShop(t)
	for _, config := range []review.Config{{Dir: s.dir}, {Dir: s.dir, Base: "nowhere"}, {Dir: s.dir, Base: "main", Seed: "no.yaml"}} {
		config.Container = container.Run
		if _, err := review.Run(t.Context(), config); err == nil {
			t.Errorf("%+v was taken", config)
		}
	}
}
