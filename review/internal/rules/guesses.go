package rules

import (
	"fmt"
	"strings"

	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// volatile has the usual functions in defaults with a different value for each row. The server knows all; a guess needs
// only these.
var volatile = map[string]bool{
	"clock_timestamp": true, "gen_random_uuid": true, "nextval": true, "random": true, "timeofday": true,
	"uuid_generate_v1": true, "uuid_generate_v4": true, "uuidv4": true, "uuidv7": true,
}

// guesses returns the probable effects of a statement on a table with rows. made are the tables of the change itself.
func guesses(head *project.Side, m project.Migration, steps []step, made map[string]bool) []report.Finding {
	var found []report.Finding
	notValid := map[string]bool{}
	sending, untimed := Follow(m.Up), false
	for _, s := range steps {
		if sending.Next(s.Statement, s.tree) {
			clear(notValid)
		}
		for _, a := range s.Actions() {
			if made[a.Table] {
				continue
			}
			if name, title, do := guess(head, m, s, a); name != "" {
				found = append(found, report.Finding{
					Rule: name, Severity: report.Risk, Place: s.Place, Object: a.Table, Title: title, Do: do,
				})
			}
			key := a.Table + "." + a.Object
			if a.NotValid {
				notValid[key] = true
			}
			if a.Kind == ddl.Validate && notValid[key] {
				found = append(found, report.Finding{
					Rule: rule.ValidateInSameTransaction.Name, Severity: report.Risk, Place: s.Place, Object: a.Table,
					Title: fmt.Sprintf("%s is validated under the lock of the statement that adds it", report.Code(a.Object)),
					Do:    Advise(a, m.Tool),
				})
			}
			if !sending.Timeout() && !untimed && locks(a) {
				untimed = true
				found = append(found, report.Finding{
					Rule: rule.LockWithoutTimeout.Name, Severity: report.Advice, Place: s.Place, Object: a.Table,
					Title: fmt.Sprintf("A lock on %s is waited for without end", report.Code(a.Table)),
					Do:    TimeoutAdvice(m.Tool, m.Up),
				})
			}
		}
	}
	return found
}

func locks(a ddl.Action) bool {
	return !a.Concurrently && a.Kind != ddl.Validate
}

func guess(head *project.Side, m project.Migration, s step, a ddl.Action) (name, title, do string) {
	do = Advise(a, m.Tool)
	switch a.Kind {
	case ddl.CreateIndex, ddl.Reindex:
		if !a.Concurrently {
			return rule.IndexWithoutConcurrently.Name, fmt.Sprintf("Building an index of `%s` stops its writers", a.Table), do
		}
	case ddl.AddForeignKey, ddl.AddCheck:
		if !a.NotValid {
			return rule.ConstraintWithoutNotValid.Name, fmt.Sprintf("The constraint reads `%s` whole while writers wait", a.Table), do
		}
	case ddl.AddUnique, ddl.AddExclusion, ddl.AddPrimary:
		if a.ByIndex {
			break
		}
		return rule.UniqueWithoutIndex.Name, fmt.Sprintf("The constraint builds its index on `%s` while all others wait", a.Table), do
	case ddl.SetNotNull:
		if !checkedNotNull(head, m, s, a) {
			return rule.NotNullWithoutCheck.Name, fmt.Sprintf("`SET NOT NULL` reads `%s` whole while all others wait", a.Table), do
		}
	case ddl.ChangeType:
		return rule.ColumnTypeChanged.Name, fmt.Sprintf("Another type of `%s.%s` may rewrite the table", a.Table, a.Object), do
	case ddl.AddColumn:
		for _, n := range a.Column.GetConstraints() {
			constraint := n.GetConstraint()
			switch constraint.GetContype() {
			case parser.ConstrType_CONSTR_GENERATED:
				return rule.GeneratedColumn.Name, fmt.Sprintf("The computed column rewrites `%s`", a.Table), do
			case parser.ConstrType_CONSTR_IDENTITY:
				return rule.VolatileDefault.Name, fmt.Sprintf("The identity column rewrites `%s`", a.Table), do
			case parser.ConstrType_CONSTR_DEFAULT:
				if ddl.Calls(constraint.RawExpr, func(name string) bool { return volatile[name] }) {
					return rule.VolatileDefault.Name, fmt.Sprintf("A default that differs from row to row rewrites `%s`", a.Table), do
				}
			case parser.ConstrType_CONSTR_UNIQUE, parser.ConstrType_CONSTR_PRIMARY:
				return rule.UniqueWithoutIndex.Name, fmt.Sprintf("The constraint builds its index on `%s` while all others wait", a.Table), do
			case parser.ConstrType_CONSTR_CHECK:
				return rule.ConstraintWithoutNotValid.Name, fmt.Sprintf("The constraint reads `%s` whole while all others wait", a.Table), do
			}
		}
		if serial(a.Column.GetTypeName()) {
			return rule.VolatileDefault.Name, fmt.Sprintf("The serial column rewrites `%s`", a.Table), do
		}
	}
	return "", "", ""
}

func serial(t *parser.TypeName) bool {
	names := t.GetNames()
	return len(names) > 0 && strings.HasSuffix(strings.TrimRight(names[len(names)-1].GetString_().GetSval(), "248"), "serial")
}

// checkedNotNull reports whether the migrations before the statement leave a valid check of the same condition.
func checkedNotNull(head *project.Side, m project.Migration, s step, wanted ddl.Action) bool {
	pending, valid := map[string]bool{}, false
	for _, before := range head.Migrations {
		for _, at := range parsed(before.Up) {
			if before.File == m.File && at.Place == s.Place {
				return valid
			}
			for _, a := range at.Actions() {
				if a.Table != wanted.Table {
					continue
				}
				column, is := ddl.NotNullColumn(a.Check)
				switch {
				case a.Kind == ddl.AddCheck && is && column == wanted.Object && a.NotValid:
					pending[a.Object] = true
				case a.Kind == ddl.AddCheck && is && column == wanted.Object, a.Kind == ddl.Validate && pending[a.Object]:
					valid = true
				}
			}
		}
	}
	return valid
}

// Advise returns how to do an action without stopping programs, in the words of the migration tool. Empty: no better way is known.
func Advise(a ddl.Action, tool project.Tool) string {
	switch a.Kind {
	case ddl.CreateIndex:
		return "Write `CREATE INDEX CONCURRENTLY`, " + tool.Alone() + ". On a partitioned table, build it on each partition so and attach it."
	case ddl.Reindex:
		return "Write `REINDEX … CONCURRENTLY`, " + tool.Alone() + "."
	case ddl.AddForeignKey, ddl.AddCheck:
		return "Add it `NOT VALID`, and `VALIDATE CONSTRAINT` in a later migration: that reads the rows while writers go on."
	case ddl.Validate:
		return "Move `VALIDATE CONSTRAINT` into a migration of its own: then it reads the rows while writers go on."
	case ddl.AddUnique:
		return "Build a unique index with `CREATE UNIQUE INDEX CONCURRENTLY` in a migration before, and add the constraint `USING INDEX`."
	case ddl.AddExclusion:
		return "There is no way to add it while writers go on: fill a new table that has it, and exchange the two."
	case ddl.SetNotNull:
		return "Add `CHECK (column IS NOT NULL) NOT VALID`, validate it in a migration of its own, and `SET NOT NULL` after that: it then reads nothing. Drop the check last."
	case ddl.ChangeType:
		return "Add a column of the new type, write both, fill it in small batches, move the readers, and drop the old one."
	case ddl.AddColumn:
		return adviseColumn(a.Column)
	case ddl.AddPrimary:
		return advisePrimary
	}
	return ""
}
