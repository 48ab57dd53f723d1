package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Judge returns findings about differences no lock and no query shows. concurrently reports whether an index of the
// name is built without stopping writers.
func Judge(changes []report.Change, concurrently func(index string) bool) []report.Finding {
	var found []report.Finding
	for _, c := range changes {
		switch {
		case c.Kind == "constraint" && c.After == "" && strings.HasPrefix(c.Before, "FOREIGN KEY") && !replaced(c, changes):
			found = append(found, keyDropped(c))
		case c.Kind == "table row security":
			if f, hides := hidden(c, changes); hides {
				found = append(found, f)
			}
		case c.Kind == "policy" && c.After == "" && !policyReplaced(c, changes):
			found = append(found, report.Finding{
				Rule: rule.RowSecurityHidesRows.Name, Severity: report.Risk, Place: c.Place, Object: c.Object,
				Title:  fmt.Sprintf("The policy %s is gone, and with it the rows that it showed", c.Object),
				Detail: "It was: " + c.Before + ". Roles that are neither the table's owner nor superuser see only rows that some policy shows.",
				Do:     rule.RowSecurityHidesRows.Advice,
			})
		case c.Before == "" && uniqueOnOld(c) && !fits(c, changes):
			found = append(found, duplicates(c, concurrently))
		}
	}
	return found
}

// tableOf returns the table of an object such as "name on table".
func tableOf(object string) string {
	_, table, _ := strings.Cut(object, " on ")
	return table
}

// columnsOf returns the columns of a definition: "FOREIGN KEY (a, b) REFERENCES …".
func columnsOf(definition string) string {
	_, rest, _ := strings.Cut(definition, "(")
	columns, _, _ := strings.Cut(rest, ")")
	return columns
}

// replaced reports a foreign key another one of the same columns replaces, or whose column is gone as well.
func replaced(c report.Change, changes []report.Change) bool {
	columns := strings.Split(columnsOf(c.Before), ", ")
	return slices.ContainsFunc(changes, func(other report.Change) bool {
		switch {
		case other.Kind == "constraint" && other.Before == "" && tableOf(other.Object) == tableOf(c.Object):
			return strings.HasPrefix(other.After, "FOREIGN KEY") && columnsOf(other.After) == columnsOf(c.Before)
		case other.Kind == "column" && other.After == "":
			return slices.ContainsFunc(columns, func(column string) bool { return other.Object == tableOf(c.Object)+"."+column })
		}
		return false
	})
}

func keyDropped(c report.Change) report.Finding {
	return report.Finding{
		Rule: rule.ForeignKeyDropped.Name, Severity: report.Risk, Place: c.Place, Object: c.Object,
		Title:  fmt.Sprintf("Rows of `%s` may now refer to rows that don't exist", tableOf(c.Object)),
		Detail: "The foreign key was: " + c.Before + ". Rows that refer to nothing may appear, and then it cannot be added again. What ON DELETE did is no longer done.",
		Do:     rule.ForeignKeyDropped.Advice,
	}
}

func hidden(c report.Change, changes []report.Change) (report.Finding, bool) {
	enabled := strings.Contains(c.After, "enabled") && !strings.Contains(c.Before, "enabled")
	forced := strings.Contains(c.After, "enabled forced") && !strings.Contains(c.Before, "enabled forced")
	if !enabled && !forced {
		return report.Finding{}, false
	}
	who := "Roles that are neither the table's owner nor superuser see"
	if forced {
		who = "All roles but superusers, the owner too, see"
	}
	policies := slices.ContainsFunc(changes, func(other report.Change) bool {
		return other.Kind == "policy" && other.Before == "" && tableOf(other.Object) == c.Object
	})
	detail := who + " only rows that a policy shows, and statements pass over the others without an error."
	if !policies {
		detail += " The change adds no policy; without any, no row is seen."
	}
	return report.Finding{
		Rule: rule.RowSecurityHidesRows.Name, Severity: report.Risk, Place: c.Place, Object: c.Object,
		Title: fmt.Sprintf("Row security hides rows of `%s` from programs that saw them", c.Object), Detail: detail,
		Do: rule.RowSecurityHidesRows.Advice,
	}, true
}

func policyReplaced(c report.Change, changes []report.Change) bool {
	return slices.ContainsFunc(changes, func(other report.Change) bool {
		off := other.Kind == "table row security" && other.Object == tableOf(c.Object) && !strings.Contains(other.After, "enabled")
		return off || other.Kind == "policy" && other.Before == "" && tableOf(other.Object) == tableOf(c.Object)
	})
}

func uniqueOnOld(c report.Change) bool {
	switch c.Kind {
	case "index":
		return strings.HasPrefix(c.After, "CREATE UNIQUE INDEX")
	case "constraint":
		return strings.HasPrefix(c.After, "UNIQUE") || strings.HasPrefix(c.After, "PRIMARY KEY")
	}
	return false
}

// fits reports a key for the rows of before: over a new column, or over one already unique before. A misfit of a new
// column shows when the migration runs on rows.
func fits(c report.Change, changes []report.Change) bool {
	columns, table := columnsOf(c.After), keyTable(c)
	return slices.ContainsFunc(changes, func(other report.Change) bool {
		switch {
		case other.Kind == "column" && other.Before == "":
			return slices.ContainsFunc(strings.Split(columns, ", "), func(column string) bool { return other.Object == table+"."+column })
		case other.After == "" && keyTable(other) == table:
			old := report.Change{Kind: other.Kind, After: other.Before}
			return uniqueOnOld(old) && columnsOf(other.Before) == columns
		}
		return false
	})
}

// keyTable returns the table of an index or a constraint.
func keyTable(c report.Change) string {
	if c.Kind != "index" {
		return tableOf(c.Object)
	}
	_, rest, _ := strings.Cut(c.Before+c.After, " ON ")
	table, _, _ := strings.Cut(strings.TrimPrefix(rest, "ONLY "), " ")
	return table
}

func duplicates(c report.Change, concurrently func(string) bool) report.Finding {
	name, _, _ := strings.Cut(c.Object, " on ")
	f := report.Finding{
		Rule: rule.UniqueOverDuplicates.Name, Severity: report.Risk, Place: c.Place, Object: c.Object,
		Title:  fmt.Sprintf("Rows with equal values refuse %s", c.Object),
		Detail: "The rows of the review were made to fit it, so it succeeds here: " + c.After + ".",
		Do:     rule.UniqueOverDuplicates.Advice,
	}
	if concurrently(name) {
		f.Severity = report.Note
		f.Detail += " In a database with duplicates the build leaves an invalid index, which has to be dropped."
	}
	return f
}
