package review_test

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
)

// A seed file holds expressions, not statements.
func TestRunRefusesStatementsInTheSeedFile(t *testing.T) {
	for name, seed := range map[string]string{
		"columns": "tables: {item: {columns: {name: {sql: \"'x'); DROP TABLE item; SELECT ('y'\"}}}}\n",
		"kinds":   "tables: {item: {kinds: [{share: 1, set: {name: {sql: \"pg_read_file('x')\"}}}]}}\n",
	} {
		base, head := layHostile(t, hostile{}), layHostile(t, hostile{Files: map[string]string{"db/seed.yaml": seed}})
		_, err := review.Run(t.Context(), review.Config{Container: container.Run, Dir: head, BaseDir: base})
		if err == nil || !strings.Contains(err.Error(), "column name of table item") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
