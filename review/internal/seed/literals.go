package seed

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// hints has the facts about a column in expressions: literals compared with or assigned, and bounds.
type hints struct {
	literals []string
	avoided  []string // of <>
	least    *float64
	most     *float64
	longest  int // of a text; 0: unknown
	shortest int
	patterns []string // regular expressions a text matches
	json     *document
	optional bool // conditions ask whether it is NULL
}

// literalsOf reads the hints in the expressions of statements, by name of the column. It skips a text the parser does
// not accept.
func literalsOf(statements []string) map[string]*hints {
	found := make(map[string]*hints)
	for _, text := range statements {
		if tree, err := syntax.Parse(text); err == nil {
			reader{found}.walk(tree)
		}
	}
	return found
}

// reader collects hints from a parse tree as JSON: nodes are objects of one member, named for the type.
type reader struct {
	found map[string]*hints
}

func (r reader) of(name string) *hints {
	if r.found[name] == nil {
		r.found[name] = new(hints)
	}
	return r.found[name]
}

func (r reader) walk(tree any) {
	switch node := tree.(type) {
	case []any:
		for _, item := range node {
			r.walk(item)
		}
	case map[string]any:
		if x, ok := node["A_Expr"].(map[string]any); ok && !r.jsonComparison(x) {
			r.comparison(x)
		}
		if x, ok := node["NullTest"].(map[string]any); ok {
			r.nullTest(x["arg"])
		}
		if x, ok := node["FuncCall"].(map[string]any); ok {
			if name := syntax.Last(x["funcname"]); name == "num_nonnulls" || name == "num_nulls" {
				for _, argument := range syntax.List(x["args"]) {
					r.nullTest(argument)
				}
			}
		}
		if x, ok := node["CaseExpr"].(map[string]any); ok && x["arg"] != nil {
			r.cases(x)
		}
		if x, ok := node["UpdateStmt"].(map[string]any); ok {
			r.settings(syntax.List(x["targetList"]))
		}
		if x, ok := node["onConflictClause"].(map[string]any); ok {
			r.settings(syntax.List(x["targetList"]))
		}
		if x, ok := node["InsertStmt"].(map[string]any); ok {
			r.insertion(x)
		}
		for _, name := range slices.Sorted(maps.Keys(node)) {
			r.walk(node[name])
		}
	}
}

// comparison reads column OP literal, in either order, and length(column) OP number.
func (r reader) comparison(x map[string]any) {
	operator := ""
	if names := syntax.List(x["name"]); len(names) > 0 {
		operator, _ = syntax.At(names[len(names)-1], "String", "sval").(string)
	}
	column, function := columnOf(x["lexpr"])
	other := x["rexpr"]
	if column == "" {
		if column, function = columnOf(x["rexpr"]); column == "" {
			return
		}
		other = x["lexpr"]
		turned := map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<="}
		operator = cmp.Or(turned[operator], operator)
	}
	values, ok := constants(other)
	if !ok {
		return
	}
	h := r.of(column)
	switch function {
	case "":
	case "length", "char_length", "character_length", "octet_length":
		h.measure(operator, values)
		return
	default:
		return
	}
	h.compare(x, operator, values)
}

// nullTest reads column IS NULL, and IS NOT NULL.
func (r reader) nullTest(argument any) {
	if r.document(argument) != nil {
		return
	}
	if column := syntax.Column(argument); column != "" {
		r.of(column).optional = true
	}
}

// compare reads OP literals.
func (h *hints) compare(x map[string]any, operator string, values []string) {
	kind, _ := x["kind"].(string)
	switch {
	case kind == "AEXPR_BETWEEN" && len(values) == 2:
		h.bound(">=", values[:1])
		h.bound("<=", values[1:])
	case kind == "AEXPR_SIMILAR":
	case (kind == "AEXPR_LIKE" || operator == "~~") && len(values) == 1:
		quoted := regexp.QuoteMeta(values[0])
		h.patterns = append(h.patterns, strings.NewReplacer("%", ".*", "_", ".").Replace(quoted))
	case operator == "~" && len(values) == 1:
		h.patterns = append(h.patterns, values[0])
	case operator == "=":
		h.literals = append(h.literals, values...)
	case operator == "<>":
		h.avoided = append(h.avoided, values...)
	default:
		h.bound(operator, values)
	}
}

func (h *hints) measure(operator string, values []string) {
	if len(values) != 1 {
		return
	}
	n, err := strconv.Atoi(values[0])
	if err != nil {
		return
	}
	switch operator {
	case "<":
		h.longest = n - 1
	case "<=":
		h.longest = n
	case "=":
		h.longest, h.shortest = n, n
	case ">":
		h.shortest = n + 1
	case ">=":
		h.shortest = n
	}
}

func (h *hints) bound(operator string, values []string) {
	if len(values) != 1 {
		return
	}
	n, err := strconv.ParseFloat(values[0], 64)
	if err != nil {
		return
	}
	switch operator {
	case "<", "<=":
		if operator == "<" {
			n--
		}
		if h.most == nil || n < *h.most {
			h.most = &n
		}
	case ">", ">=":
		if operator == ">" {
			n++
		}
		if h.least == nil || n > *h.least {
			h.least = &n
		}
	}
}

// cases reads CASE column WHEN literal.
func (r reader) cases(x map[string]any) {
	column, function := columnOf(x["arg"])
	if column == "" || function != "" {
		return
	}
	for _, when := range syntax.List(x["args"]) {
		if values, ok := constants(syntax.At(when, "CaseWhen", "expr")); ok {
			r.of(column).literals = append(r.of(column).literals, values...)
		}
	}
}

// settings reads SET column = literal.
func (r reader) settings(targets []any) {
	for _, target := range targets {
		if name, ok := syntax.At(target, "ResTarget", "name").(string); ok {
			r.assigned(name, syntax.At(target, "ResTarget", "val"))
		}
	}
}

// insertion reads INSERT INTO t (column) VALUES (literal), and the same of a SELECT.
func (r reader) insertion(x map[string]any) {
	var names []string
	for _, target := range syntax.List(x["cols"]) {
		name, _ := syntax.At(target, "ResTarget", "name").(string)
		names = append(names, name)
	}
	var rows [][]any
	for _, row := range syntax.List(syntax.At(x["selectStmt"], "SelectStmt", "valuesLists")) {
		rows = append(rows, syntax.List(syntax.At(row, "List", "items")))
	}
	var selected []any
	for _, target := range syntax.List(syntax.At(x["selectStmt"], "SelectStmt", "targetList")) {
		selected = append(selected, syntax.At(target, "ResTarget", "val"))
	}
	for _, row := range append(rows, selected) {
		for i, value := range row {
			if i < len(names) {
				r.assigned(names[i], value)
			}
		}
	}
}

// assigned takes a literal, and the results of a CASE.
func (r reader) assigned(name string, value any) {
	if values, ok := constants(value); ok {
		r.of(name).literals = append(r.of(name).literals, values...)
		return
	}
	for _, when := range syntax.List(syntax.At(value, "CaseExpr", "args")) {
		r.assigned(name, syntax.At(when, "CaseWhen", "result"))
	}
	if rest := syntax.At(value, "CaseExpr", "defresult"); rest != nil {
		r.assigned(name, rest)
	}
}

// columnOf returns the column an expression is, below casts, and the function around it.
func columnOf(tree any) (name, function string) {
	for {
		if below := syntax.At(tree, "TypeCast", "arg"); below != nil {
			tree = below
		} else if below := syntax.At(tree, "CollateClause", "arg"); below != nil {
			tree = below
		} else if args := syntax.List(syntax.At(tree, "FuncCall", "args")); len(args) == 1 && function == "" {
			names := syntax.List(syntax.At(tree, "FuncCall", "funcname"))
			function, _ = syntax.At(names[len(names)-1], "String", "sval").(string)
			tree = args[0]
		} else {
			break
		}
	}
	fields := syntax.List(syntax.At(tree, "ColumnRef", "fields"))
	if len(fields) == 0 {
		return "", ""
	}
	name, _ = syntax.At(fields[len(fields)-1], "String", "sval").(string)
	return name, function
}

// constants returns the literals of an expression: a literal, or an array or list of literals. A parameter is none.
func constants(tree any) ([]string, bool) {
	if below := syntax.At(tree, "TypeCast", "arg"); below != nil {
		values, ok := constants(below)
		// '{a,b}'::text[]
		if ok && len(values) == 1 && syntax.At(tree, "TypeCast", "typeName", "arrayBounds") != nil {
			if inner, ok := strings.CutPrefix(values[0], "{"); ok && !strings.ContainsAny(inner, `"\{`) {
				return strings.Split(strings.TrimSuffix(inner, "}"), ","), true
			}
		}
		return values, ok
	}
	if c, ok := syntax.At(tree, "A_Const").(map[string]any); ok {
		for _, member := range [][2]string{{"sval", "sval"}, {"fval", "fval"}} {
			if text, ok := syntax.At(c, member[0], member[1]).(string); ok {
				return []string{text}, true
			}
		}
		if text, ok := c["sval"]; ok && text != nil { // ''
			return []string{""}, true
		}
		if n, ok := c["ival"].(map[string]any); ok {
			value, _ := n["ival"].(float64) // 0 is left out
			return []string{fmt.Sprint(int64(value))}, true
		}
		return nil, false
	}
	if name := syntax.List(syntax.At(tree, "A_Expr", "name")); len(name) == 1 && syntax.At(name[0], "String", "sval") == "-" && syntax.At(tree, "A_Expr", "lexpr") == nil {
		values, ok := constants(syntax.At(tree, "A_Expr", "rexpr"))
		if !ok || len(values) != 1 {
			return nil, false
		}
		return []string{"-" + values[0]}, true
	}
	items := syntax.List(syntax.At(tree, "A_ArrayExpr", "elements"))
	if items == nil {
		items = syntax.List(syntax.At(tree, "List", "items"))
	}
	var all []string
	for _, item := range items {
		values, ok := constants(item)
		if !ok {
			return nil, false
		}
		all = append(all, values...)
	}
	return all, len(all) > 0
}

// add adds the hints of o.
func (h *hints) add(o *hints) {
	h.literals, h.avoided, h.patterns = append(h.literals, o.literals...), append(h.avoided, o.avoided...), append(h.patterns, o.patterns...)
	h.least, h.most = cmp.Or(h.least, o.least), cmp.Or(h.most, o.most)
	h.longest, h.shortest = cmp.Or(h.longest, o.longest), cmp.Or(h.shortest, o.shortest)
	h.json, h.optional = cmp.Or(h.json, o.json), h.optional || o.optional
}
