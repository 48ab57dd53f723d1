package review

import (
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
)

// builtConcurrently reports whether the change builds the index concurrently, or adds the constraint by such an index.
func (r *review) builtConcurrently(name string) bool {
	built := map[string]bool{}
	for _, m := range r.added {
		for _, s := range m.Up.Statements {
			tree, err := ddl.Parse(s.SQL)
			if err != nil {
				continue
			}
			if index := tree.Node.GetIndexStmt(); index.GetConcurrent() {
				built[index.Idxname] = true
			}
			for _, cmd := range tree.Node.GetAlterTableStmt().GetCmds() {
				if c := cmd.GetAlterTableCmd().GetDef().GetConstraint(); c.GetIndexname() != "" {
					built[c.Conname] = true
				}
			}
		}
	}
	return built[strings.Trim(name, `"`)]
}
