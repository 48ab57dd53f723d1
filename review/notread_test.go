package review_test

import "testing"

// A change cannot lead the review to a copy of the base's migrations.
func TestRunReviewsTheFolderOfTheBase(t *testing.T) {
	s := newShop(t)
	s.migration("2_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	s.lay(".env", "DBMATE_MIGRATIONS_DIR=decoy\n")
	s.lay("decoy/1_items.sql", "-- migrate:up\nCREATE TABLE item (id bigint PRIMARY KEY);\n-- migrate:down\nDROP TABLE item;\n")
	r := s.review()
	if lines := told(r); !has(lines, "blocking lock-blocks-writers db/migrations/2_index.sql:2 item") {
		t.Errorf("found %q", lines)
	}
	for _, want := range []string{"`decoy`", "`.env`: the change of DBMATE_MIGRATIONS_DIR"} {
		if !has(r.NotRead, want) {
			t.Errorf("%q is not among %q", want, r.NotRead)
		}
	}
}
