// Package ddl describes a statement of a migration, using the tree of PostgreSQL's own parser. The package does not
// know the statement's effects: internal/observe observes the effects.
package ddl

import (
	"strings"

	parser "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
)

// Statement is a parsed statement.
type Statement struct {
	Node *parser.Node
}

// Parse reads one statement, the first of several.
func Parse(sql string) (Statement, error) {
	tree, err := pgquery.Parse(sql)
	if err != nil {
		return Statement{}, err
	}
	if len(tree.Stmts) == 0 {
		return Statement{Node: &parser.Node{}}, nil
	}
	return Statement{Node: tree.Stmts[0].Stmt}, nil
}

// Brief returns the statement on one line, shortened to the distinguishing part.
func Brief(sql string) string {
	const most = 80
	line := []rune(strings.Join(strings.Fields(sql), " "))
	if len(line) > most {
		return string(line[:most-1]) + "…"
	}
	return string(line)
}

// Outside reports whether PostgreSQL refuses the statement inside a transaction.
func (s Statement) Outside() bool {
	switch n := s.Node.Node.(type) {
	case *parser.Node_IndexStmt:
		return n.IndexStmt.Concurrent
	case *parser.Node_DropStmt:
		return n.DropStmt.Concurrent
	case *parser.Node_ReindexStmt:
		if concurrently(n.ReindexStmt) {
			return true
		}
		switch n.ReindexStmt.Kind {
		case parser.ReindexObjectType_REINDEX_OBJECT_SCHEMA, parser.ReindexObjectType_REINDEX_OBJECT_SYSTEM, parser.ReindexObjectType_REINDEX_OBJECT_DATABASE:
			return true
		}
	case *parser.Node_AlterTableStmt:
		for _, c := range n.AlterTableStmt.Cmds {
			if def := c.GetAlterTableCmd().GetDef().GetPartitionCmd(); def != nil && def.Concurrent {
				return true
			}
		}
	case *parser.Node_VacuumStmt:
		return n.VacuumStmt.IsVacuumcmd
	case *parser.Node_ClusterStmt:
		return n.ClusterStmt.Relation == nil
	case *parser.Node_CreatedbStmt, *parser.Node_DropdbStmt, *parser.Node_AlterSystemStmt,
		*parser.Node_CreateTableSpaceStmt, *parser.Node_DropTableSpaceStmt:
		return true
	}
	return false
}

func concurrently(r *parser.ReindexStmt) bool {
	for _, p := range r.Params {
		if p.GetDefElem().GetDefname() == "concurrently" {
			return true
		}
	}
	return false
}

// Control returns the kind of a statement to begin or end a transaction, or to set a savepoint.
func (s Statement) Control() (kind parser.TransactionStmtKind, is bool) {
	t := s.Node.GetTransactionStmt()
	return t.GetKind(), t != nil
}

// Truncates reports TRUNCATE, which replaces files without reading or writing rows.
func (s Statement) Truncates() bool { return s.Node.GetTruncateStmt() != nil }

// Names returns the relations the statement names, as "schema.name" or "name", in order, each once. Names includes the
// objects of a DROP, which may be of another kind.
func (s Statement) Names() []string {
	var names []string
	seen := map[string]bool{}
	add := func(schema, name string) {
		if schema != "" {
			name = schema + "." + name
		}
		if name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	walk(s.Node.ProtoReflect(), func(m protoreflect.Message) {
		if v, is := m.Interface().(*parser.RangeVar); is {
			add(v.Schemaname, v.Relname)
		}
	})
	for _, object := range s.Node.GetDropStmt().GetObjects() {
		parts := texts(object.GetList().GetItems())
		switch s.Node.GetDropStmt().RemoveType {
		case parser.ObjectType_OBJECT_TRIGGER, parser.ObjectType_OBJECT_POLICY, parser.ObjectType_OBJECT_RULE:
			parts = parts[:max(0, len(parts)-1)] // ends in the name of the dropped object
		}
		if n := len(parts); n > 1 {
			add(parts[n-2], parts[n-1])
		} else if n == 1 {
			add("", parts[0])
		}
	}
	return names
}

// Writes visits the tables the statement inserts into and deletes from, also within WITH.
func (s Statement) Writes(visit func(target *parser.RangeVar, erases bool)) {
	walk(s.Node.ProtoReflect(), func(m protoreflect.Message) {
		switch n := m.Interface().(type) {
		case *parser.InsertStmt:
			visit(n.Relation, false)
		case *parser.DeleteStmt:
			visit(n.Relation, true)
		}
	})
}

func texts(nodes []*parser.Node) []string {
	var all []string
	for _, n := range nodes {
		if s := n.GetString_(); s != nil {
			all = append(all, s.Sval)
		}
	}
	return all
}

// walk visits a message and all within it, in the order of their fields.
func walk(m protoreflect.Message, visit func(protoreflect.Message)) {
	if !m.IsValid() {
		return
	}
	visit(m)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.Message() == nil || !m.Has(field) {
			continue
		}
		if field.IsList() {
			list := m.Get(field).List()
			for j := range list.Len() {
				walk(list.Get(j).Message(), visit)
			}
			continue
		}
		walk(m.Get(field).Message(), visit)
	}
}

// Calls reports whether the tree below a node calls a function for which is returns true, by last name.
func Calls(n *parser.Node, is func(name string) bool) bool {
	found := false
	if n == nil {
		return false
	}
	walk(n.ProtoReflect(), func(m protoreflect.Message) {
		if call, isCall := m.Interface().(*parser.FuncCall); isCall {
			if parts := texts(call.Funcname); len(parts) > 0 && is(parts[len(parts)-1]) {
				found = true
			}
		}
	})
	return found
}
