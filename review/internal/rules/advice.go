package rules

import (
	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// AdviseOn returns how to get the effect of a statement without stopping programs, for statements whose kind says more
// than their actions. Empty: see [Advise].
func AdviseOn(s ddl.Statement, tool project.Tool) string {
	alone := ", " + tool.Alone()
	switch n := s.Node.Node.(type) {
	case *parser.Node_RefreshMatViewStmt:
		if !n.RefreshMatViewStmt.Concurrent {
			return "Write `REFRESH MATERIALIZED VIEW CONCURRENTLY`: readers go on. It needs a unique index on columns of the view, and rows from an earlier refresh. Better refresh it from a program, outside migrations."
		}
	case *parser.Node_AlterDomainStmt:
		switch n.AlterDomainStmt.Subtype {
		case "C":
			if n.AlterDomainStmt.GetDef().GetConstraint().GetSkipValidation() {
				break
			}
			return "Add it `NOT VALID`: new values are checked at once. `ALTER DOMAIN … VALIDATE CONSTRAINT` in a later migration still stops writers while it reads the tables, so run it in a quiet hour. Checks on the columns can be validated while writers go on."
		case "O":
			return "Add `CHECK (VALUE IS NOT NULL) NOT VALID` to the domain instead, and validate it in a later migration; or put NOT NULL on the columns, each by a validated check."
		}
	case *parser.Node_DropStmt:
		if n.DropStmt.RemoveType == parser.ObjectType_OBJECT_INDEX && !n.DropStmt.Concurrent {
			return "Write `DROP INDEX CONCURRENTLY`" + alone + ": it waits without stopping others."
		}
	case *parser.Node_AlterTableStmt:
		for _, c := range n.AlterTableStmt.Cmds {
			switch cmd := c.GetAlterTableCmd(); cmd.GetSubtype() {
			case parser.AlterTableType_AT_DetachPartition:
				if !cmd.GetDef().GetPartitionCmd().GetConcurrent() {
					return "Write `ALTER TABLE … DETACH PARTITION … CONCURRENTLY`" + alone + ": it waits without stopping others. It is refused while there is a default partition."
				}
			case parser.AlterTableType_AT_AttachPartition:
				return "Add a check of the partition's bounds to the new partition before, `NOT VALID`, and validate it: then `ATTACH PARTITION` reads no rows. A default partition needs a check that excludes them."
			}
		}
	}
	return ""
}

// adviseColumn is the advice about an added column, by the reason for writing or reading rows.
func adviseColumn(column *parser.ColumnDef) string {
	const fill = "Add the column without the default, give it the default in a second statement, which concerns new rows only, and fill the old ones in small batches."
	if serial(column.GetTypeName()) {
		return adviseNumbers
	}
	for _, n := range column.GetConstraints() {
		switch n.GetConstraint().GetContype() {
		case parser.ConstrType_CONSTR_GENERATED:
			return "Compute it in the queries or in a view. If it has to be stored: add an ordinary column, let a trigger fill it for new rows, and fill the old ones in small batches."
		case parser.ConstrType_CONSTR_IDENTITY:
			return adviseNumbers
		case parser.ConstrType_CONSTR_UNIQUE:
			return "Add the column alone. Build a unique index with `CREATE UNIQUE INDEX CONCURRENTLY` in a later migration, and add the constraint `USING INDEX` after that."
		case parser.ConstrType_CONSTR_PRIMARY:
			return "Add the column alone and fill it in small batches. " + advisePrimary
		case parser.ConstrType_CONSTR_CHECK, parser.ConstrType_CONSTR_FOREIGN:
			return "Add the column alone, then the constraint `NOT VALID`, and `VALIDATE CONSTRAINT` in a later migration."
		}
	}
	return fill
}

const (
	adviseNumbers = "Add a plain `bigint` column, create a sequence, and make `nextval` the column's default in a second statement, which concerns new rows only. Fill the old rows in small batches, and only then make it NOT NULL, by a validated check."
	advisePrimary = "Make each column NOT NULL first, by a validated check: a primary key over a nullable column reads the whole table. Build a unique index with `CREATE UNIQUE INDEX CONCURRENTLY`, and add `PRIMARY KEY USING INDEX` after that."
)
