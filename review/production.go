package review

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/internal/words"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// addProduction adds to findings how many rows their tables have in production, as far as the statistics say.
func (r *review) addProduction(filled *seed.Result) {
	for i := range r.report.Findings {
		f := &r.report.Findings[i]
		var said []string
		for _, table := range concerned(*f) {
			if rows, known := filled.Production(table); known {
				said = append(said, fmt.Sprintf("`%s` has %s in production.", table, roughly(rows)))
			}
		}
		if len(said) > 0 {
			f.Detail = strings.TrimSpace(f.Detail + " " + strings.Join(said, " "))
		}
	}
}

// concerned returns the relations of a finding, each once.
func concerned(f report.Finding) []string {
	names := []string{f.Object}
	if m := f.Measured; m != nil {
		names = slices.Concat(names, m.Rewrites, m.Scans)
		for _, l := range m.Locks {
			names = append(names, l.Relation)
		}
	}
	var all []string
	for _, name := range names {
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// roughly returns a number of rows in words, to two digits from a million on.
func roughly(rows int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}} {
		if rows >= unit.size {
			number := float64(rows) / float64(unit.size)
			if number >= 9.95 {
				return fmt.Sprintf("%.0f %s rows", number, unit.name)
			}
			return strings.Replace(fmt.Sprintf("%.1f %s rows", number, unit.name), ".0 ", " ", 1)
		}
	}
	if rows == 1 {
		return "1 row"
	}
	return words.Thousands(rows) + " rows"
}
