package ddl

import (
	"strings"

	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
)

// Setting is a parameter of the session and the value a statement sets.
type Setting struct {
	Name string
	// On is false for RESET, DEFAULT and zero: such a timeout never ends anything.
	On bool
	// Local: until the transaction ends.
	Local bool
}

// Setting returns the parameter set by SET, RESET or SELECT set_config(…).
func (s Statement) Setting() (Setting, bool) {
	if v := s.Node.GetVariableSetStmt(); v != nil {
		on := v.Kind == parser.VariableSetKind_VAR_SET_VALUE && len(v.Args) > 0
		for _, arg := range v.Args {
			if zero(arg) {
				on = false
			}
		}
		return Setting{Name: strings.ToLower(v.Name), On: on, Local: v.IsLocal}, true
	}
	for _, target := range s.Node.GetSelectStmt().GetTargetList() {
		call := target.GetResTarget().GetVal().GetFuncCall()
		parts := texts(call.GetFuncname())
		if len(parts) == 0 || parts[len(parts)-1] != "set_config" || len(call.Args) != 3 {
			continue
		}
		local := call.Args[2].GetAConst().GetBoolval().GetBoolval()
		return Setting{Name: strings.ToLower(call.Args[0].GetAConst().GetSval().GetSval()), On: !zero(call.Args[1]), Local: local}, true
	}
	return Setting{}, false
}

// zero reports a constant equal to zero: 0, '0', '0s', ”.
func zero(n *parser.Node) bool {
	c := n.GetAConst()
	switch {
	case c.GetSval() != nil:
		return strings.TrimRight(strings.TrimLeft(strings.TrimSpace(c.GetSval().Sval), "0"), "usmind ") == ""
	case c.GetIval() != nil:
		return c.GetIval().Ival == 0
	}
	return false
}

// ForSession returns SET LOCAL as SET, for a session with a transaction of its own for each statement.
func (s Statement) ForSession() (string, error) {
	v := s.Node.GetVariableSetStmt()
	session := &parser.VariableSetStmt{Kind: v.Kind, Name: v.Name, Args: v.Args}
	return pgquery.Deparse(&parser.ParseResult{Stmts: []*parser.RawStmt{{
		Stmt: &parser.Node{Node: &parser.Node_VariableSetStmt{VariableSetStmt: session}},
	}}})
}
