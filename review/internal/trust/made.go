package trust

import (
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Stays reports whether a review runs the text of a query not seen by Read. Call it after Clean.
func (r *Reading) Stays(sql string) bool {
	return !slices.ContainsFunc(pieces(sql), func(p piece) bool { return !r.decided.stays(p) })
}

// Findings returns the findings about a query refused by Stays. If old, base has the query as well, and the findings
// are notes.
func (r *Reading) Findings(q project.Query, old bool) []report.Finding {
	var findings []report.Finding
	for _, p := range pieces(q.SQL) {
		findings = append(findings, r.decided.findings(p, q.Place, old)...)
	}
	return findings
}
