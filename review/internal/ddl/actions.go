package ddl

import (
	parser "github.com/pganalyze/pg_query_go/v6"
)

// Kind is the kind of a statement's effect on a relation.
type Kind int

// The kinds distinguished by rules. Other is any other change of a relation's definition.
const (
	Other Kind = iota
	CreateIndex
	Reindex
	AddColumn
	AddForeignKey
	AddCheck
	AddUnique    // builds the index
	AddPrimary   // builds the index unless ByIndex
	AddExclusion // builds the index
	Validate
	SetNotNull
	ChangeType
	CreateTrigger
	Drop
)

// Action is one effect of a statement on one relation.
type Action struct {
	Kind Kind
	// Table is the relation as named in the statement; for Reindex of an index, the index.
	Table string
	// Object is the column, constraint, index or trigger.
	Object string
	// Concurrently and NotValid are the keywords against stopping writers.
	Concurrently, NotValid bool
	// ByIndex: the constraint takes an existing index.
	ByIndex bool
	// Column is the definition of an added one, Check the expression of an added check.
	Column *parser.ColumnDef
	Check  *parser.Node
}

// Creates returns the tables, views and sequences the statement creates, as named there.
func (s Statement) Creates() []string {
	switch n := s.Node.Node.(type) {
	case *parser.Node_CreateStmt:
		return []string{nameOf(n.CreateStmt.Relation)}
	case *parser.Node_CreateTableAsStmt:
		return []string{nameOf(n.CreateTableAsStmt.Into.GetRel())}
	case *parser.Node_ViewStmt:
		return []string{nameOf(n.ViewStmt.View)}
	case *parser.Node_SelectStmt:
		if into := n.SelectStmt.IntoClause; into != nil {
			return []string{nameOf(into.Rel)}
		}
	}
	return nil
}

// Ephemeral reports a table dropped at the end of its transaction, so later statements belong to the transaction.
func (s Statement) Ephemeral() bool {
	const goes = parser.OnCommitAction_ONCOMMIT_DROP
	const empties = parser.OnCommitAction_ONCOMMIT_DELETE_ROWS
	action := s.Node.GetCreateStmt().GetOncommit()
	if into := s.Node.GetCreateTableAsStmt().GetInto(); into != nil {
		action = into.OnCommit
	}
	return action == goes || action == empties || s.Node.GetDeclareCursorStmt() != nil || s.Node.GetConstraintsSetStmt() != nil
}

func nameOf(v *parser.RangeVar) string {
	if v.GetSchemaname() != "" {
		return v.Schemaname + "." + v.Relname
	}
	return v.GetRelname()
}

// Actions returns the statement's effects on existing relations, in order.
func (s Statement) Actions() []Action {
	switch n := s.Node.Node.(type) {
	case *parser.Node_IndexStmt:
		return []Action{{
			Kind: CreateIndex, Table: nameOf(n.IndexStmt.Relation), Object: n.IndexStmt.Idxname, Concurrently: n.IndexStmt.Concurrent,
		}}
	case *parser.Node_ReindexStmt:
		if n.ReindexStmt.Relation == nil {
			return nil
		}
		return []Action{{Kind: Reindex, Table: nameOf(n.ReindexStmt.Relation), Concurrently: concurrently(n.ReindexStmt)}}
	case *parser.Node_CreateTrigStmt:
		return []Action{{Kind: CreateTrigger, Table: nameOf(n.CreateTrigStmt.Relation), Object: n.CreateTrigStmt.Trigname}}
	case *parser.Node_RenameStmt:
		if n.RenameStmt.Relation == nil {
			return nil
		}
		return []Action{{Kind: Other, Table: nameOf(n.RenameStmt.Relation)}}
	case *parser.Node_DropStmt:
		switch n.DropStmt.RemoveType {
		case parser.ObjectType_OBJECT_TABLE, parser.ObjectType_OBJECT_MATVIEW, parser.ObjectType_OBJECT_INDEX,
			parser.ObjectType_OBJECT_TRIGGER, parser.ObjectType_OBJECT_VIEW:
			var all []Action
			for _, name := range s.Names() {
				all = append(all, Action{Kind: Drop, Table: name, Concurrently: n.DropStmt.Concurrent})
			}
			return all
		}
	case *parser.Node_AlterTableStmt:
		var all []Action
		for _, cmd := range n.AlterTableStmt.Cmds {
			all = append(all, alterAction(nameOf(n.AlterTableStmt.Relation), cmd.GetAlterTableCmd()))
		}
		return all
	}
	return nil
}

func alterAction(table string, c *parser.AlterTableCmd) Action {
	a := Action{Table: table, Object: c.Name}
	switch c.Subtype {
	case parser.AlterTableType_AT_AddColumn:
		a.Kind, a.Column = AddColumn, c.Def.GetColumnDef()
		a.Object = a.Column.GetColname()
	case parser.AlterTableType_AT_AddConstraint:
		constraint := c.Def.GetConstraint()
		a.Object, a.NotValid = constraint.GetConname(), constraint.GetSkipValidation()
		switch constraint.GetContype() {
		case parser.ConstrType_CONSTR_FOREIGN:
			a.Kind = AddForeignKey
		case parser.ConstrType_CONSTR_CHECK:
			a.Kind, a.Check = AddCheck, constraint.GetRawExpr()
		case parser.ConstrType_CONSTR_PRIMARY:
			a.Kind, a.ByIndex = AddPrimary, constraint.Indexname != ""
		case parser.ConstrType_CONSTR_UNIQUE:
			if constraint.Indexname == "" {
				a.Kind = AddUnique
			}
		case parser.ConstrType_CONSTR_EXCLUSION:
			a.Kind = AddExclusion
		}
	case parser.AlterTableType_AT_ValidateConstraint:
		a.Kind = Validate
	case parser.AlterTableType_AT_SetNotNull:
		a.Kind = SetNotNull
	case parser.AlterTableType_AT_AlterColumnType:
		a.Kind = ChangeType
	}
	return a
}

// NotNullColumn returns the column if the expression is only IS NOT NULL.
func NotNullColumn(expression *parser.Node) (string, bool) {
	test := expression.GetNullTest()
	if test.GetNulltesttype() != parser.NullTestType_IS_NOT_NULL {
		return "", false
	}
	parts := texts(test.Arg.GetColumnRef().GetFields())
	if len(parts) == 0 {
		return "", false
	}
	return parts[len(parts)-1], true
}
