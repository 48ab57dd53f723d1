package review_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Statistics of production decide the rows, and findings name its sizes. A table without rows is at the top.
func TestRunOnStatisticsOfProduction(t *testing.T) {
	s := newShop(t)
	s.migration("2_odd.sql", "CREATE TABLE odd (rights aclitem NOT NULL);", "DROP TABLE odd;")
	s.commit()
	s.migration("3_index.sql", "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;")
	path := filepath.Join(t.TempDir(), "statistics.json")
	if err := os.WriteFile(path, []byte(`{"schema_review_statistics": 1, "tables": [{"schema": "public", "table": "item", "rows": 12345678,
		"columns": [{"column": "name", "null_frac": 0, "n_distinct": 3, "avg_width": 9, "most_common_freqs": [0.9], "most_common_vals": ["secret"]}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := review.Run(t.Context(), review.Config{
		Container: container.Run, Dir: s.dir, Base: "main", Rows: 2000, Seed: path, Today: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var lock *report.Finding
	for i, f := range r.Findings {
		if f.Rule == "lock-blocks-writers" {
			lock = &r.Findings[i]
		}
	}
	if lock == nil || !strings.Contains(lock.Detail, "`item` has 12 million rows in production.") || lock.Measured.Rows != 2000 {
		t.Errorf("found %+v", r.Findings)
	}
	if len(r.NotSeeded) != 1 || !strings.HasPrefix(r.NotSeeded[0], "odd: ") {
		t.Errorf("without rows are %q", r.NotSeeded)
	}
	var b strings.Builder
	if err := report.WriteMarkdown(&b, r, report.Blocking); err != nil || strings.Contains(b.String(), "secret") {
		t.Errorf("%v, %s", err, b.String())
	}
}
