package api

import (
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// locator finds the line of SQL a name of the generated package comes from.
type locator struct {
	base, head *project.Side
	added      []project.Migration
}

// place returns the query's place if the text changed or the query is gone, else the place of the new statement about
// the column or table.
func (l locator) place(name string) report.Place {
	owner, field, _ := strings.Cut(name, ".")
	before, was := query(l.base, owner)
	after, is := query(l.head, owner)
	switch {
	case is && (!was || before.SQL != after.SQL):
		return after.Place
	case was && !is:
		return before.Place
	}
	if at, found := l.statement(owner, field, is); found {
		return at
	}
	if is {
		return after.Place
	}
	if len(l.added) > 0 {
		return report.Place{File: l.added[0].File}
	}
	return report.Place{File: l.head.SQLC.Config}
}

// query returns the query a function, its parameters or its row come from.
func query(side *project.Side, name string) (project.Query, bool) {
	for _, end := range []string{"", "Params", "Row", "BatchResults"} {
		if bare, has := strings.CutSuffix(name, end); has {
			if q, found := side.Query(bare); found {
				return q, true
			}
		}
	}
	return project.Query{}, false
}

// statement finds the new statement to change the column, or to create or drop the table.
func (l locator) statement(owner, field string, anyTable bool) (report.Place, bool) {
	for _, m := range l.added {
		for _, s := range m.Up.Statements {
			parsed, err := ddl.Parse(s.SQL)
			if err != nil {
				continue
			}
			for _, a := range parsed.Actions() {
				if field != "" && plain(a.Object) == plain(field) && (anyTable || same(a.Table, owner)) {
					return s.Place, true
				}
				if field == "" && same(a.Table, owner) {
					return s.Place, true
				}
			}
			for _, made := range append(parsed.Creates(), parsed.Names()...) {
				if same(made, owner) {
					return s.Place, true
				}
			}
		}
	}
	return report.Place{}, false
}

func plain(name string) string {
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.ToLower(strings.NewReplacer("_", "", `"`, "").Replace(name))
}

// same reports whether sqlc makes the Go name from the table's: in camel case, in the singular.
func same(table, name string) bool {
	t, n := plain(table), plain(name)
	return t == n || t == n+"s" || t == n+"es" || t == strings.TrimSuffix(n, "y")+"ies" || strings.HasPrefix(n, t) && t != ""
}
