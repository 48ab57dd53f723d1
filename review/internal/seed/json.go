package seed

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// document has the facts about a value of JSON in expressions: kind, literals and keys.
type document struct {
	kind   string // as jsonb_typeof names it; "" is unknown
	cast   string // the type of a cast; "" is none
	facts  *hints
	merged []string // contained documents
	keys   map[string]*document
}

func (d *document) at(path ...string) *document {
	for _, name := range path {
		if d.keys == nil {
			d.keys = make(map[string]*document)
		}
		if d.keys[name] == nil {
			d.keys[name] = &document{facts: new(hints)}
		}
		d = d.keys[name]
	}
	return d
}

// pathOf returns the column and the keys an expression reads: data->'a'->>'b'.
func pathOf(tree any) (column string, path []string, ok bool) {
	bare := syntax.Bare(tree)
	if name := syntax.Last(syntax.At(bare, "ColumnRef", "fields")); name != "" {
		return name, nil, true
	}
	operator := syntax.Last(syntax.At(bare, "A_Expr", "name"))
	values, constant := constants(syntax.At(bare, "A_Expr", "rexpr"))
	if !constant {
		return "", nil, false
	}
	column, path, ok = pathOf(syntax.At(bare, "A_Expr", "lexpr"))
	switch {
	case !ok:
	case (operator == "->" || operator == "->>") && len(values) == 1:
		_, err := strconv.Atoi(values[0]) // the element of an array
		return column, append(path, values[0]), err != nil
	case operator == "#>" || operator == "#>>":
		if len(values) == 1 && strings.HasPrefix(values[0], "{") {
			values = strings.Split(strings.Trim(values[0], "{}"), ",")
		}
		return column, append(path, values...), true
	}
	return "", nil, false
}

// document returns the facts of the JSON value an expression reads, or nil.
func (r reader) document(tree any) *document {
	column, path, ok := pathOf(tree)
	if !ok || len(path) == 0 {
		return nil
	}
	d := r.of(column).document().at(path...)
	if name := syntax.Last(syntax.At(tree, "TypeCast", "typeName", "names")); name != "" && name != "text" {
		d.cast = name
	}
	return d
}

func (h *hints) document() *document {
	if h.json == nil {
		h.json = &document{facts: new(hints)}
	}
	return h.json
}

// whole returns the facts of the JSON value an expression is or reads.
func (r reader) whole(tree any) *document {
	column, path, ok := pathOf(tree)
	if !ok {
		return nil
	}
	return r.of(column).document().at(path...)
}

// jsonComparison reads the operators of jsonb, and comparisons of the results. It returns false for another expression.
func (r reader) jsonComparison(x map[string]any) bool {
	operator := syntax.Last(x["name"])
	values, constant := constants(x["rexpr"])
	switch operator {
	case "->", "->>", "#>", "#>>":
		r.document(map[string]any{"A_Expr": x})
		return true
	case "?", "?&", "?|":
		d := r.whole(x["lexpr"])
		if d == nil || !constant {
			return false
		}
		if operator == "?|" {
			values = values[:1]
		}
		for _, name := range values {
			d.at(name)
		}
		return true
	case "@>":
		if d := r.whole(x["lexpr"]); d != nil && constant && len(values) == 1 && json.Valid([]byte(values[0])) {
			d.merged = append(d.merged, values[0])
			return true
		}
		return false
	}
	if name, argument := call(x["lexpr"]); constant && (name == "jsonb_typeof" || name == "json_typeof") && operator == "=" {
		if d := r.whole(argument); d != nil {
			d.kind = values[0]
			return true
		}
	}
	if name, argument := call(x["lexpr"]); name == "jsonb_array_length" || name == "json_array_length" {
		if d := r.whole(argument); d != nil {
			d.kind = "array"
			return true
		}
	}
	if d := r.document(x["lexpr"]); d != nil && constant {
		d.facts.compare(x, operator, values)
		return true
	}
	if name, argument := call(x["lexpr"]); name == "length" || name == "char_length" {
		if d := r.document(argument); d != nil && constant {
			d.facts.measure(operator, values)
			return true
		}
	}
	return false
}

// call returns the name and the only argument of a function call.
func call(tree any) (name string, argument any) {
	bare := syntax.Bare(tree)
	args := syntax.List(syntax.At(bare, "FuncCall", "args"))
	if len(args) != 1 {
		return "", nil
	}
	return syntax.Last(syntax.At(bare, "FuncCall", "funcname")), args[0]
}

// ofJSON returns a document with the keys the conditions name.
func (m maker) ofJSON(c *column, n string, w wish) string {
	d := w.hints.json
	if d == nil {
		return fmt.Sprintf("jsonb_build_object('n', %s, 'name', 'name ' || %s)::%s", n, n, c.Base)
	}
	return fmt.Sprintf("(%s)::%s", m.ofDocument(c, d, n, true), c.Base)
}

func (m maker) ofDocument(c *column, d *document, n string, top bool) string {
	value := ""
	switch {
	case d.kind == "array":
		value = fmt.Sprintf("jsonb_build_array(%s)", n)
	case d.kind == "null":
		value = "'null'::jsonb"
	case d.kind == "boolean" || d.cast == "bool":
		value = fmt.Sprintf("to_jsonb((%s) %% 5 = 0)", n)
	case d.kind == "object" || len(d.keys) > 0 || len(d.merged) > 0 || top && d.kind == "":
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(d.keys)) {
			parts = append(parts, quote(name), m.ofDocument(c, d.keys[name], n, false))
		}
		if top && len(d.keys) == 0 {
			parts = append(parts, quote("n"), n, quote("name"), "'name ' || "+n)
		}
		value = fmt.Sprintf("jsonb_build_object(%s)", strings.Join(parts, ", "))
	default:
		value = m.ofScalar(c, d, n)
	}
	for _, text := range d.merged {
		value = fmt.Sprintf("%s || %s::jsonb", value, quote(text))
	}
	return value
}

// castTypes are the types of casts of texts in documents, by name in the parser's form.
var castTypes = map[string]string{"uuid": "uuid", "timestamptz": "timestamptz", "timestamp": "timestamp", "date": "date", "inet": "inet", "interval": "interval"}

func (m maker) ofScalar(c *column, d *document, n string) string {
	literals := distinct(d.facts.literals)
	number := d.kind == "number" || d.facts.least != nil || d.facts.most != nil
	switch d.cast {
	case "int2", "int4", "int8", "numeric", "float4", "float8":
		number = true
	}
	if len(literals) > 0 {
		kind := "text"
		if number {
			kind = "numeric"
		}
		return fmt.Sprintf("to_jsonb((%s::text[])[1 + (%s) %% %d]::%s)", quoteArray(literals), n, len(literals), kind)
	}
	plain := "text"
	switch {
	case number:
		plain = "int4"
	case castTypes[d.cast] != "":
		plain = castTypes[d.cast]
	}
	part := &column{Name: c.Name, Base: plain, sort: &sort{Name: plain, Plain: plain, Kind: "b"}}
	w := wish{unique: true, hints: d.facts}
	if texts := matching(d.facts.patterns, m.rows, false); plain == "text" && len(texts) > 0 {
		return fmt.Sprintf("to_jsonb((%s::text[])[1 + (%s) %% %d])", quoteArray(texts), n, len(texts))
	}
	return fmt.Sprintf("to_jsonb(%s)", m.ofType(part, n, w, salt(c.Name)))
}
