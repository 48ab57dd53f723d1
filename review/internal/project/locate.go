package project

import (
	"regexp"

	"github.com/flowfabric/flowfabric-go/review/report"
)

var words = regexp.MustCompile(`[\pL_][\pL\pN_$]*`)

// Locate returns the place of the statement about an object, named as "table", "table.column" or "index on table": the
// last one up, or down, with most of the name's words. Without one the place is the first migration's file, and without
// migrations no place.
func Locate(migrations []Migration, object string, down bool) report.Place {
	if len(migrations) == 0 {
		return report.Place{}
	}
	wanted := map[string]bool{}
	for _, w := range words.FindAllString(object, -1) {
		wanted[w] = true
	}
	place, best := report.Place{File: migrations[0].File}, 0
	for _, m := range migrations {
		half := m.Up
		if down {
			half = m.Down
		}
		for _, s := range half.Statements {
			held := map[string]bool{}
			for _, w := range words.FindAllString(s.SQL, -1) {
				if wanted[w] {
					held[w] = true
				}
			}
			if len(held) > 0 && len(held) >= best {
				place, best = s.Place, len(held)
			}
		}
	}
	return place
}
