package rolling

import (
	"fmt"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/arguments"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// own finds queries of after that fail on their own schema with any arguments: because a required column is not filled,
// or because a called function names a missing object. A query with the same failure before the change does not count.
func (c *check) own() {
	for _, q := range c.Head.Queries {
		is := c.after.ran[q.SQL]
		if is == nil || is.unprepared || is.failure == nil || !c.certain(q, is) {
			continue
		}
		if old, known := c.Base.Query(q.Name); known {
			if was := c.before.ran[old.SQL]; was != nil && was.failure != nil && (was.failure.Code == is.failure.Code || slices.Contains(always, was.failure.Code[:2])) {
				continue
			}
		}
		c.result.Findings = append(c.result.Findings, report.Finding{
			Rule: rule.QueryFails.Name, Severity: report.Blocking, Place: q.Place, Object: q.Name,
			Title:  fmt.Sprintf("The query %s fails on the schema of its own change", q.Name),
			Detail: fmt.Sprintf("It was run on a database with rows, which said: %s (SQLSTATE %s). Other arguments do not help.", is.failure.Message, is.failure.Code),
			Do:     rule.QueryFails.Advice,
		})
	}
}

// missing are the states of a statement naming a missing table, column, function or type. Other states of their class
// may come from an argument, a setting or a right.
var missing = []string{"42P01", "42703", "42883", "42804"}

// certain reports a failure independent of arguments.
func (c *check) certain(q project.Query, o *outcome) bool {
	if o.failure.Code != notNull {
		return slices.Contains(missing, o.failure.Code)
	}
	columns, _ := arguments.Columns(q.SQL)
	return !slices.Contains(slices.Collect(maps.Values(columns)), o.failure.ColumnName)
}
