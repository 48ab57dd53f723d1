package statements

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var (
	writes    = regexp.MustCompile(`^(?:UPDATE|DELETE FROM) (\w+)(?: AS (\w+))?$`)
	byAddress = regexp.MustCompile(`^(?:WHERE )?(?:(\w+)\.)?ctid = `)
)

// partOfTheKey names the columns of its key that a write by address may omit, and why.
var partOfTheKey = map[string][]string{
	// The rest of the key is the order of the queue, and may change.
	"ffx_ready": {"lane_id", "rank", "created_at_ms"},
	// Deleted with their flow, all of them.
	"ff_edge in DropEdgesOf": {"edge_id"}, "ff_edge_group in DropEdgeGroupsOf": {"downstream_eid"},
	"ff_cancel_dispatch_outbox in DropCancelDispatchesOf": {"downstream_eid", "target_exec_id"},
	"ff_cancel_backlog_member in DropBacklogMembersOf":    {"execution_id"}, "ffx_pruned_member in DropPrunedMembersOf": {"execution_id"},
}

// A ctid is an address within one table file. Where a table has partitions many rows have the same one, and a row may move
// between a look and a write. So a write by address names the key of its row all the same.
func TestWritesByAddressNameTheKey(t *testing.T) {
	t.Parallel()
	keys := make(map[string][]string)
	for _, row := range fixture.All[struct{ Relation, Attribute string }](t, pgtest.Pool(t), `
		SELECT c.relname::text AS relation, a.attname::text AS attribute
		FROM pg_index AS i
		JOIN pg_class AS c ON c.oid = i.indrelid
		JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
		WHERE i.indisprimary AND c.relnamespace = current_schema()::regnamespace`) {
		keys[row.Relation] = append(keys[row.Relation], row.Attribute)
	}
	found := 0
	for _, s := range statements(t) {
		for _, p := range s.parts {
			table, alias, addressed := writeByAddress(p)
			if !addressed {
				continue
			}
			found++
			text := strings.Join(p.lines, "\n")
			if alias != "" {
				alias += "."
			}
			for _, column := range keys[table] {
				if slices.Contains(partOfTheKey[table], column) || slices.Contains(partOfTheKey[table+" in "+s.name], column) {
					continue
				}
				if !regexp.MustCompile(`(?m)^(?:WHERE )?\(?` + regexp.QuoteMeta(alias+column) + ` = `).MatchString(text) {
					t.Errorf("%s: %s: %s writes %s by ctid and does not name its %s", s.file, s.name, p.name, table, column)
				}
			}
			if len(keys[table]) == 0 {
				t.Errorf("%s: %s: %s has no key", s.file, s.name, table)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d writes by address were found", found)
	}
}

// writeByAddress returns the table that a part of a statement writes, and the name by which it calls it, if it finds its
// rows by their addresses.
func writeByAddress(p part) (table, alias string, addressed bool) {
	for _, line := range p.lines {
		if m := writes.FindStringSubmatch(line); m != nil && table == "" {
			table, alias = m[1], m[2]
		}
		if m := byAddress.FindStringSubmatch(line); m != nil && table != "" && m[1] == alias {
			addressed = true
		}
	}
	return table, alias, addressed
}

// The check finds such writes.
func TestWritesByAddressAreFound(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]bool{
		"DELETE FROM ff_edge AS d\nUSING x AS s\nWHERE d.ctid = s.row_id":                    true,
		"UPDATE ff_edge AS d\nSET policy = NULL\nWHERE\n    d.ctid = s.row_id\n    AND true": true,
		"DELETE FROM ff_edge\nWHERE ctid = ANY (ARRAY(\n    SELECT x.ctid\n))":               true,
		"UPDATE ff_edge AS d\nSET policy = NULL\nWHERE d.edge_id = s.edge_id":                false,
		"SELECT t.ctid\nFROM ff_edge AS t":                                                   false,
	} {
		parts := partsOf("X :exec\n" + query)
		if _, _, got := writeByAddress(parts[len(parts)-1]); got != want {
			t.Errorf("%s: by address %t, want %t", query, got, want)
		}
	}
}
