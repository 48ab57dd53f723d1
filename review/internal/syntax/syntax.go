// Package syntax parses statements with Postgres' own parser, into trees in the parser's JSON form: a node is an
// object of one member, named for its type.
package syntax

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
)

// Parse returns the tree of a text of statements.
func Parse(text string) (any, error) {
	document, err := pgquery.ParseToJSON(text)
	if err != nil {
		return nil, err
	}
	var tree any
	err = json.Unmarshal([]byte(document), &tree)
	return tree, err
}

// Walk calls visit for every object of a tree, from the top, the members of each in the order of their names. For a
// node, kind is its type. For other objects, such as the relation of an UPDATE, it is the name of the member they
// are.
func Walk(tree any, visit func(kind string, object map[string]any)) {
	walk("", tree, visit)
}

func walk(kind string, tree any, visit func(string, map[string]any)) {
	switch node := tree.(type) {
	case []any:
		for _, item := range node {
			walk("", item, visit)
		}
	case map[string]any:
		if kind != "" {
			visit(kind, node)
		}
		for _, name := range slices.Sorted(maps.Keys(node)) {
			walk(name, node[name], visit)
		}
	}
}

// At descends by names. It returns nil if there is nothing.
func At(tree any, path ...string) any {
	for _, name := range path {
		node, ok := tree.(map[string]any)
		if !ok {
			return nil
		}
		tree = node[name]
	}
	return tree
}

// List returns the items of a list, or none if tree is not a list.
func List(tree any) []any {
	items, _ := tree.([]any)
	return items
}

// Text returns the text of a String node.
func Text(tree any) string {
	text, _ := At(tree, "String", "sval").(string)
	return text
}

// Last returns the last of the names in a list.
func Last(tree any) string {
	names := List(tree)
	if len(names) == 0 {
		return ""
	}
	return Text(names[len(names)-1])
}

// Bare returns the tree below casts and collations.
func Bare(tree any) any {
	for {
		if below := At(tree, "TypeCast", "arg"); below != nil {
			tree = below
		} else if below := At(tree, "CollateClause", "arg"); below != nil {
			tree = below
		} else {
			return tree
		}
	}
}

// Column returns the name of the column that an expression is, below casts.
func Column(tree any) string { return Last(At(Bare(tree), "ColumnRef", "fields")) }

// Parameter returns the number of the parameter that an expression is, below casts, or 0 if it is not a parameter.
func Parameter(tree any) int {
	number, _ := At(Bare(tree), "ParamRef", "number").(float64)
	return int(number)
}

// Relations returns the names of the relations that a tree names, without schemas, in order of appearance.
func Relations(tree any) []string {
	var names []string
	Walk(tree, func(_ string, object map[string]any) {
		if name, ok := object["relname"].(string); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}
