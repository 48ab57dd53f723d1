package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/catalog"
	"github.com/flowfabric/flowfabric-go/review/report"
)

func TestJudge(t *testing.T) {
	key := report.Change{Kind: "constraint", Object: "k on orders", Before: "FOREIGN KEY (customer_id) REFERENCES customer(id)"}
	for _, c := range []struct {
		name    string
		changes []report.Change
		want    string
	}{
		{"a foreign key", []report.Change{key}, "risk foreign-key-dropped"},
		{"a foreign key of a dropped column", []report.Change{{Kind: "column", Object: "orders.customer_id", Before: "bigint"}, key}, ""},
		{"a replaced foreign key", []report.Change{key, {Kind: "constraint", Object: "n on orders", After: "FOREIGN KEY (customer_id) REFERENCES customer(id) ON DELETE CASCADE"}}, ""},
		{"a foreign key beside another one", []report.Change{key, {Kind: "constraint", Object: "n on orders", After: "FOREIGN KEY (shop_id) REFERENCES shop(id)"}}, "risk foreign-key-dropped"},
		{"a check", []report.Change{{Kind: "constraint", Object: "k on orders", Before: "CHECK (amount > 0)"}}, ""},
		{"row security", []report.Change{{Kind: "table row security", Object: "orders", Before: "none", After: "enabled"}}, "risk row-security-hides-rows"},
		{"forced row security", []report.Change{{Kind: "table row security", Object: "orders", Before: "enabled", After: "enabled forced"}}, "risk row-security-hides-rows"},
		{"row security goes", []report.Change{{Kind: "table row security", Object: "orders", Before: "enabled forced", After: "none"}, {Kind: "policy", Object: "p on orders", Before: "x"}}, ""},
		{"a policy goes", []report.Change{{Kind: "policy", Object: "p on orders", Before: "x"}}, "risk row-security-hides-rows"},
		{"a unique index", []report.Change{{Kind: "index", Object: "i", After: "CREATE UNIQUE INDEX i ON orders USING btree (code)"}}, "risk unique-over-duplicates"},
		{"a unique index, concurrently", []report.Change{{Kind: "index", Object: "quietly", After: "CREATE UNIQUE INDEX quietly ON orders USING btree (code)"}}, "note unique-over-duplicates"},
		{"a unique index over a new column", []report.Change{{Kind: "column", Object: "orders.code", After: "text"}, {Kind: "index", Object: "i", After: "CREATE UNIQUE INDEX i ON orders USING btree (code)"}}, ""},
		{"a unique constraint over a new column", []report.Change{{Kind: "column", Object: "orders.code", After: "text"}, {Kind: "constraint", Object: "k on orders", After: "UNIQUE (shop, code)"}}, ""},
		{"a unique constraint of another name", []report.Change{{Kind: "constraint", Object: "k on orders", Before: "UNIQUE (code)"}, {Kind: "constraint", Object: "n on orders", After: "UNIQUE (code)"}}, ""},
		{"a unique constraint over other columns", []report.Change{{Kind: "constraint", Object: "k on orders", Before: "UNIQUE (shop)"}, {Kind: "constraint", Object: "n on orders", After: "UNIQUE (code)"}}, "risk unique-over-duplicates"},
		{"an index", []report.Change{{Kind: "index", Object: "i", After: "CREATE INDEX i ON orders USING btree (code)"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, f := range catalog.Judge(c.changes, func(index string) bool { return index == "quietly" }) {
				got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Rule))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}
