package review_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
)

// operation is a dangerous operation, in our own words, with the case of the corpus that does it. list names the tools
// whose documentation lists it: squawk, strong_migrations, Atlas. It is empty for those of the same kinds that none of
// them lists. Style, such as the names of types, is left out.
type operation struct{ what, list, bad string }

var operations = []operation{
	{"a column with a default that differs from row to row", "squawk, strong_migrations, Atlas", "volatile-default"},
	{"a stored generated column", "squawk, strong_migrations", "generated-column"},
	{"a serial column", "squawk, strong_migrations", "serial-column"},
	{"an identity column", "strong_migrations", "identity-column"},
	{"a required column without a default", "squawk, Atlas", "required-column-without-default"},
	{"a required column that old programs do not fill", "", "required-column"},
	{"a unique column", "", "inline-unique-column"},
	{"a column with a check", "squawk, strong_migrations", "column-with-check"},
	{"a column that refers to another table, and its index", "strong_migrations", "reference-column"},
	{"NOT NULL on a column with rows", "squawk, strong_migrations, Atlas", "not-null-alone"},
	{"NOT NULL without a validated check", "squawk, Atlas", "not-null-without-check"},
	{"NOT NULL is dropped", "squawk", "nullability-flip"},
	{"a default is dropped", "", "default-dropped"},
	{"a column is dropped", "squawk, strong_migrations, Atlas", "drop-column-still-read"},
	{"a table is dropped", "squawk, Atlas", "drop-table-still-read"},
	{"a table is dropped with whatever depends on it", "", "drop-cascade"},
	{"a table is made anew", "strong_migrations", "table-made-anew"},
	{"a schema is dropped", "Atlas", "drop-schema"},
	{"a database is dropped", "squawk", "drop-database"},
	{"a view is dropped", "", "drop-view-still-read"},
	{"a view loses a column", "", "view-column-removed"},
	{"a function is dropped", "", "drop-function-still-called"},
	{"a function takes other arguments", "", "function-with-another-signature"},
	{"a foreign key is dropped", "Atlas", "foreign-key-dropped"},
	{"a column is renamed", "squawk, strong_migrations, Atlas", "rename-column"},
	{"a table is renamed", "squawk, strong_migrations, Atlas", "rename-table"},
	{"a table moves to another schema", "", "table-moved"},
	{"another type rewrites the table", "squawk, strong_migrations, Atlas", "type-change-with-rewrite"},
	{"a text gets a limit", "squawk, strong_migrations", "type-text-to-varchar"},
	{"another kind of time reads or rewrites the table", "", "timestamp-without-zone"},
	{"an enumeration loses a value", "", "enum-value-removed"},
	{"an enumeration's value is renamed", "", "enum-value-renamed"},
	{"an enumeration's value is used by its own transaction", "squawk", "enum-value-used-at-once"},
	{"an index that stops writers", "squawk, strong_migrations, Atlas", "index-without-concurrently"},
	{"a unique index that stops writers", "squawk, strong_migrations, Atlas", "unique-index-without-concurrently"},
	{"a unique index over duplicates", "Atlas", "unique-over-duplicates"},
	{"an index is dropped under a lock", "squawk, strong_migrations, Atlas", "drop-index"},
	{"an index is dropped that queries need", "", "index-dropped-that-a-query-needs"},
	{"an index is rebuilt under a lock", "squawk", "reindex"},
	{"an index is built concurrently in a transaction", "squawk, Atlas", "concurrently-in-transaction"},
	{"an index is built concurrently beside other statements", "", "concurrently-not-alone"},
	{"the invalid index of a failed build is taken for a good one", "", "concurrently-if-not-exists"},
	{"a foreign key is checked at once", "squawk, strong_migrations, Atlas", "foreign-key-without-not-valid"},
	{"a check is checked at once", "squawk, strong_migrations, Atlas", "check-without-not-valid"},
	{"a constraint is validated by the transaction that adds it", "squawk, strong_migrations", "validate-in-one-transaction"},
	{"a check of a domain", "squawk", "domain-constraint"},
	{"a unique constraint builds its index", "squawk, strong_migrations, Atlas", "unique-constraint"},
	{"a primary key builds its index", "squawk, Atlas", "primary-key-replaced"},
	{"a primary key over a nullable column", "Atlas", "primary-key-over-nullable"},
	{"an exclusion constraint", "strong_migrations, Atlas", "exclusion-constraint"},
	{"rows are filled under the lock of another statement", "strong_migrations", "backfill-under-lock"},
	{"all rows are updated by one statement", "strong_migrations", "update-of-every-row"},
	{"all rows are deleted by one statement", "", "delete-of-every-row"},
	{"TRUNCATE with whatever refers to it", "squawk", "truncate-cascade"},
	{"TRUNCATE", "", "truncate-table"},
	{"a lock is waited for without a limit", "squawk, strong_migrations", "lock-queue-behind-a-reader"},
	{"a table is locked for long", "", "lock-table-and-read"},
	{"a transaction within the tool's", "squawk, Atlas", "commit-in-migration"},
	{"a transaction that does not end", "squawk", "begin-without-commit"},
	{"CLUSTER", "squawk", "cluster"},
	{"VACUUM FULL", "squawk", "vacuum-full"},
	{"a table becomes unlogged", "", "set-unlogged"},
	{"row security is enabled", "", "row-security-enabled"},
	{"row security is forced", "", "row-security-forced"},
	{"a trigger makes writers wait for each other", "", "trigger-waits"},
	{"a migration below one that databases have", "Atlas", "version-below-released"},
	{"a released migration is edited", "", "edited-old-migration"},
	{"a released migration is removed", "", "removed-old-migration"},
	{"a file that is no SQL", "squawk", "migration-unreadable"},
	{"a partition is detached under a lock", "squawk", "detach-partition"},
	{"a partition is detached concurrently in a transaction", "squawk", "detach-concurrently-in-transaction"},
	{"a materialized view is refreshed under a lock", "", "refresh-materialized-view"},
	{"a schema is renamed", "strong_migrations", "rename-schema"},
	{"a json column meets SELECT DISTINCT", "strong_migrations", "json-column-distinct"},
}

// TestOperations holds that each listed operation has a case, and counts how the cases are reported, as the
// documentation does. TestCorpus reviews the cases. A case is reported fully if the finding is a risk or blocks and names
// the harm: its rule and, for locks, its lock or the advice. It is reported weakly if the finding is advice.
func TestOperations(t *testing.T) {
	full, weak, listed, seen := 0, 0, 0, map[string]bool{}
	for _, o := range operations {
		dir := filepath.Join("testdata/corpus/bad", o.bad)
		if _, err := os.Stat(dir); err != nil || seen[o.bad] {
			t.Errorf("%s: the case %s is missing, or named twice", o.what, o.bad)
			continue
		}
		seen[o.bad] = true
		want := expectationOf(t, dir)
		r, known := rule.ByName(want.Rule)
		if !known || !slices.Contains(r.Severities, want.Severity) || want.Severity == "note" {
			t.Errorf("%s is missed: %s %s is no finding", o.what, want.Severity, want.Rule)
			continue
		}
		if strings.HasPrefix(want.Rule, "lock-") && want.Lock == "" && want.Advice == "" {
			t.Errorf("%s: the case names no lock", o.what)
		}
		if want.Severity == "advice" {
			t.Logf("weakly: %s", o.what)
			weak++
		} else {
			full++
		}
		if o.list != "" {
			listed++
		}
	}
	if missed := len(operations) - full - weak; full < 60 || missed > 0 {
		t.Errorf("%d of %d operations are reported fully, %d weakly, %d are missed", full, len(operations), weak, missed)
	}
	text, err := os.ReadFile("../docs/schema-review-corpus.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| reported fully | %d of %d |", full, len(operations)), fmt.Sprintf("| reported weakly | %d |", weak),
		"| missed | 0 |", fmt.Sprintf("| listed by one of the three tools | %d |", listed),
	} {
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("docs/schema-review-corpus.md has no row %q", row)
		}
	}
}
