// Package rights knows which rights a program needs in the database. table.go lists them, derived from the statements.
package rights

import (
	"slices"
	"strings"
)

// Role is a group of operations that need the same rights.
type Role string

// The roles. A creator, a worker and an operator have the rights of a reader.
const (
	Reader   Role = "reader"
	Creator  Role = "creator"
	Worker   Role = "worker"
	Operator Role = "operator"
)

// All returns the roles.
func All() []Role { return []Role{Reader, Creator, Worker, Operator} }

// The kinds of objects, as GRANT spells them.
const (
	Table    = "TABLE" // or a view
	Sequence = "SEQUENCE"
	Function = "FUNCTION"
)

// Right is one privilege on one object.
type Right struct{ Kind, Object, Privilege string }

// object is a row of the table: the privileges that each role needs on an object, separated by commas.
type object struct{ kind, name, reader, creator, worker, operator string }

func (o object) privileges(role Role) string {
	switch role {
	case Creator:
		return o.creator
	case Worker:
		return o.worker
	case Operator:
		return o.operator
	}
	return o.reader
}

// Of returns the rights that a program needs for all of the roles together, by object.
func Of(roles ...Role) []Right {
	var rights []Right
	for _, o := range table {
		for _, role := range roles {
			for privilege := range strings.SplitSeq(o.privileges(role), ", ") {
				right := Right{o.kind, o.name, privilege}
				if privilege != "" && !slices.Contains(rights, right) {
					rights = append(rights, right)
				}
			}
		}
	}
	return rights
}

// Privileges are all privileges that a right may be of, in the order in which GRANT lists them.
var Privileges = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "USAGE", "EXECUTE"}

// Grants returns the statements that give rights to a role of the database: one for all objects of a kind that need the
// same privileges. The names of the schema and the role are identifiers as SQL has them; without a schema the search_path
// decides. Objects are separated by between.
func Grants(rights []Right, schema, role, between string) []string {
	if schema != "" {
		schema += "."
	}
	type object struct{ kind, name string }
	var objects []object
	held := make(map[object][]string)
	for _, r := range rights {
		o := object{r.Kind, r.Object}
		if held[o] == nil {
			objects = append(objects, o)
		}
		held[o] = append(held[o], r.Privilege)
	}
	var heads []string
	lists := make(map[string][]string)
	for _, kind := range []string{Table, Sequence, Function} {
		for _, o := range objects {
			if o.kind != kind {
				continue
			}
			privileges := slices.DeleteFunc(slices.Clone(Privileges), func(p string) bool { return !slices.Contains(held[o], p) })
			head := "GRANT " + strings.Join(privileges, ", ") + " ON " + kind
			if lists[head] == nil {
				heads = append(heads, head)
			}
			lists[head] = append(lists[head], schema+o.name)
		}
	}
	statements := make([]string, len(heads))
	for i, head := range heads {
		statements[i] = head + " " + strings.Join(lists[head], between) + " TO " + role
	}
	return statements
}
