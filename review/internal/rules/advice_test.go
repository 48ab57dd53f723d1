package rules_test

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
)

// The advice says what helps for the statement at hand.
func TestAdvice(t *testing.T) {
	for sql, want := range map[string]string{
		"ALTER TABLE a ADD COLUMN n int GENERATED ALWAYS AS (m * 2) STORED": "let a trigger fill it",
		"ALTER TABLE a ADD COLUMN n int UNIQUE":                             "USING INDEX",
		"ALTER TABLE a ADD COLUMN n bigserial":                              "create a sequence",
		"ALTER TABLE a ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY":    "create a sequence",
		"ALTER TABLE a ADD COLUMN n uuid DEFAULT gen_random_uuid()":         "without the default",
		"ALTER TABLE a ADD COLUMN n int CHECK (n > 0)":                      "NOT VALID",
		"ALTER TABLE a ADD PRIMARY KEY (n)":                                 "NOT NULL first",
		"ALTER TABLE a ADD CONSTRAINT k PRIMARY KEY USING INDEX i":          "NOT NULL first",
		"ALTER DOMAIN d ADD CONSTRAINT c CHECK (VALUE > 0)":                 "NOT VALID",
		"ALTER DOMAIN d SET NOT NULL":                                       "CHECK (VALUE IS NOT NULL) NOT VALID",
		"REFRESH MATERIALIZED VIEW v":                                       "REFRESH MATERIALIZED VIEW CONCURRENTLY",
		"DROP INDEX i":                                                      "DROP INDEX CONCURRENTLY",
		"ALTER TABLE a DETACH PARTITION p":                                  "CONCURRENTLY",
		"ALTER TABLE a ATTACH PARTITION p FOR VALUES IN (1)":                "a check of the partition's bounds",
		"DROP INDEX CONCURRENTLY i":                                         "",
		"REFRESH MATERIALIZED VIEW CONCURRENTLY v":                          "",
		"ALTER TABLE a DETACH PARTITION p CONCURRENTLY":                     "",
		"ALTER DOMAIN d ADD CONSTRAINT c CHECK (VALUE > 0) NOT VALID":       "",
		"ALTER DOMAIN d VALIDATE CONSTRAINT c":                              "",
	} {
		s, err := ddl.Parse(sql)
		if err != nil {
			t.Fatal(err)
		}
		do := rules.AdviseOn(s, "")
		for _, a := range s.Actions() {
			if do == "" {
				do = rules.Advise(a, "")
			}
		}
		if want == "" && do != "" || !strings.Contains(do, want) {
			t.Errorf("%s: %q, not %q", sql, do, want)
		}
	}
}
