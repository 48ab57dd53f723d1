package rules_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
)

// Statements that the tool sends one by one share a transaction from BEGIN to COMMIT. COMMIT AND CHAIN begins the next.
func TestCheckFollowsTransactionsOfEnums(t *testing.T) {
	const add, use = "ALTER TYPE mood ADD VALUE 'ok';\n", "UPDATE person SET mood = 'ok' WHERE id = 1;\n"
	for _, c := range []struct {
		name, up string
		found    bool
	}{
		{"no transaction", add + use, false},
		{"used in the transaction", "BEGIN;\n" + add + use + "COMMIT;\n", true},
		{"used after COMMIT", "BEGIN;\n" + add + "COMMIT;\n" + use, false},
		{"added and used after COMMIT", "BEGIN;\nSELECT 1;\nCOMMIT;\n" + add + use, false},
		{"added and used after ROLLBACK", "BEGIN;\nSELECT 1;\nROLLBACK;\n" + add + use, false},
		{"used in the chained transaction", "BEGIN;\n" + add + "COMMIT AND CHAIN;\n" + use + "COMMIT;\n", false},
		{"added and used in the chained transaction", "BEGIN;\nSELECT 1;\nCOMMIT AND CHAIN;\n" + add + use + "COMMIT;\n", true},
		{"added and used after a chained ROLLBACK", "BEGIN;\nSELECT 1;\nROLLBACK AND CHAIN;\n" + add + use + "COMMIT;\n", true},
		{"added and used after the chained transaction", "BEGIN;\nSELECT 1;\nCOMMIT AND CHAIN;\nCOMMIT;\n" + add + use, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			text := "-- +goose NO TRANSACTION\n-- +goose Up\n" + c.up
			if err := os.WriteFile(filepath.Join(dir, "1_a.sql"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			head, err := project.Read(dir, project.Options{})
			if err != nil || len(head.Migrations) != 1 || len(head.Migrations[0].Up.Batches) != strings.Count(c.up, ";") {
				t.Fatalf("%+v, %v", head, err)
			}
			got := said(rules.Check(&project.Side{}, head, nil))
			if strings.Contains(got, "enum-value-used-at-once") != c.found {
				t.Errorf("found:\n%s", got)
			}
		})
	}
}
