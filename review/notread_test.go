package review_test

import "testing"

// A change cannot lead the review to a copy of the base's migrations.
func TestRunReviewsTheFolderOfTheBase(t *testing.T) {
	s := newShop(t)
	s.migration("2_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	s.lay(".env", "DBMATE_MIGRATIONS_DIR=decoy\n")
	s.lay("decoy/1_items.sql", "-- migrate:up\nCREATE TABLE item (id bigint PRIMARY KEY);\n-- migrate:down\nDROP TABLE item;\n")
	r := s.review()
	if lines := linesOf(r); !has(lines, "blocking lock-blocks-writers db/migrations/2_index.sql:2 item") {
		t.Errorf("found %q", lines)
	}
	for _, want := range []string{"`decoy`", "`.env`: the change of DBMATE_MIGRATIONS_DIR"} {
		if !has(r.NotRead, want) {
			t.Errorf("%q is not among %q", want, r.NotRead)
		}
	}
}

// The change is reviewed beside a configuration and a generated package that are broken.
func TestRunReviewsBesideBrokenFiles(t *testing.T) {
	s := newShop(t)
	s.lay("shop/items.sql.go", "package shop\n\nfunc {\n")
	s.lay("other/sqlc.yaml", "version: [\n")
	s.migration("2_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	r := s.review()
	lines := linesOf(r)
	for _, want := range []string{
		"blocking query-unreadable shop/items.sql.go", "blocking query-unreadable other/sqlc.yaml",
		"blocking lock-blocks-writers db/migrations/2_index.sql:2 item",
	} {
		if !has(lines, want) {
			t.Errorf("%q is not among %q", want, lines)
		}
	}
	for _, want := range []string{"`shop/items.sql.go`: it cannot be read", "`other/sqlc.yaml`: it cannot be read"} {
		if !has(r.NotRead, want) {
			t.Errorf("%q is not among %q", want, r.NotRead)
		}
	}
	t.Logf("found %q, skipped %q", lines, r.Skipped)
}
