package review_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// statements are queries that are no SELECT, INSERT, UPDATE or DELETE.
const statements = `-- name: Refresh :exec
REFRESH MATERIALIZED VIEW dear;

-- name: RefreshConcurrently :exec
REFRESH MATERIALIZED VIEW CONCURRENTLY dear;

-- name: Listen :exec
LISTEN items;

-- name: Empty :exec
TRUNCATE item;

-- name: Settle :exec
CALL settle();

-- name: Lock :exec
LOCK TABLE item IN EXCLUSIVE MODE;

-- name: DropItems :exec
DROP TABLE IF EXISTS item CASCADE;

-- name: Clean :exec
VACUUM item;

-- name: Begin :exec
BEGIN;

-- name: Commit :exec
COMMIT;

-- name: SetRole :exec
SET ROLE NONE;

-- name: Leave :exec
DISCARD ALL;

-- name: Copy :exec
COPY item FROM STDIN;

-- name: Forget :exec
DEALLOCATE ALL;
`

func TestRunReviewsBesideStatementsThatAreNoQueries(t *testing.T) {
	s := newShop(t)
	s.lay("queries/statements.sql", statements)
	s.lay("db/migrations/1_items.sql", `-- migrate:up
CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL, price int NOT NULL);
CREATE INDEX item_price ON item (price);
CREATE MATERIALIZED VIEW dear AS SELECT id FROM item WHERE price > 100;
CREATE UNIQUE INDEX dear_id ON dear (id);
CREATE PROCEDURE settle() LANGUAGE plpgsql AS $$ BEGIN DELETE FROM item WHERE price < 0; COMMIT; END $$;
-- migrate:down
DROP PROCEDURE settle();
DROP MATERIALIZED VIEW dear;
DROP TABLE item;
`)
	s.commit()
	s.migration("2_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	r := s.review()
	lines := linesOf(r)
	if !has(lines, "blocking lock-blocks-writers db/migrations/2_index.sql:2 item") || has(lines, "risk review-incomplete") {
		t.Errorf("found %q", lines)
	}
	for _, want := range []string{"ListItems", "Rename"} {
		if has(r.Skipped, want) {
			t.Errorf("skipped %q", r.Skipped)
		}
	}
	if r.Order != report.AnyOrder {
		t.Errorf("the order is %q", r.Order)
	}
	if len(r.Statements) != 1 || !slices.ContainsFunc(r.Statements[0].Measured.Waiting, func(w report.Waiting) bool { return w.Query == "Rename" }) {
		t.Errorf("the statements are %+v", r.Statements)
	}
}

// The change is reviewed by its text and its package, and the report begins with the failure.
func TestRunReviewsBesideABaseThatFails(t *testing.T) {
	s := newShop(t)
	s.migration("2_broken.sql", "ALTER TABLE nowhere ADD a int;", "")
	s.commit()
	s.migration("3_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	r := s.review()
	lines := linesOf(r)
	if !strings.HasPrefix(lines[0], "risk review-incomplete db/migrations/2_broken.sql:2") || !has(lines, "risk index-without-concurrently db/migrations/3_index.sql:2") {
		t.Errorf("found %q", lines)
	}
	if has(lines, "blocking") {
		t.Errorf("an old migration blocks: %q", lines)
	}
}

// A change may mend what the base broke.
func TestRunReviewsTheRepairOfABase(t *testing.T) {
	s := newShop(t)
	s.migration("2_broken.sql", "ALTER TABLE nowhere ADD a int;", "")
	s.commit()
	s.migration("2_broken.sql", "CREATE TABLE somewhere (a int);", "DROP TABLE somewhere;")
	lines := linesOf(s.review())
	if !has(lines, "risk review-incomplete db/migrations/2_broken.sql") || has(lines, "blocking migration-fails") {
		t.Errorf("found %q", lines)
	}
}

// What the parser does not read in old files is a note; in a changed one it blocks.
func TestRunNotesUnreadableOldFiles(t *testing.T) {
	s := newShop(t)
	s.lay("db/migrations/2_old.sql", "-- migrate:up\nCREATE TABLE basket (id bigint PRIMARY KEY);\n-- migrate:down\nDROP TABEL basket;\n")
	s.commit()
	s.migration("3_table.sql", "CREATE TABLE shelf (id bigint PRIMARY KEY);", "DROP TABLE shelf;")
	lines := linesOf(s.review())
	if !has(lines, "note migration-unreadable db/migrations/2_old.sql") || has(lines, "blocking") || !has(lines, "note") {
		t.Errorf("found %q", lines)
	}
	s.lay("db/migrations/3_table.sql", "-- migrate:up\nCREATE TABLE shelf (id bigint PRIMARY KEY);\n-- migrate:down\nDROP TABEL shelf;\n")
	if lines := linesOf(s.review()); !has(lines, "blocking migration-unreadable db/migrations/3_table.sql") {
		t.Errorf("found %q", lines)
	}
}

func TestRunReviewsAMigrationThatLeavesATransactionOpen(t *testing.T) {
	s := newShop(t)
	s.lay("db/migrations/2_open.sql", "-- migrate:up transaction:false\nBEGIN;\nCREATE TABLE basket (id bigint PRIMARY KEY);\n-- migrate:down\nDROP TABLE basket;\n")
	lines := linesOf(s.review())
	t.Logf("found %q", lines)
	if !has(lines, "blocking transaction-left-open db/migrations/2_open.sql:2") {
		t.Errorf("found %q", lines)
	}
	s.migration("3_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	lines = linesOf(s.review())
	if !has(lines, "blocking transaction-left-open db/migrations/2_open.sql:2") || !has(lines, "risk index-without-concurrently db/migrations/3_index.sql:2") {
		t.Errorf("found %q", lines)
	}
}
