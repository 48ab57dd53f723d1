package seed

import (
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// derivations returns the columns whose values follow from others by a check, such as total = price * count, and the
// expressions.
func (c *composing) derivations() map[string]string {
	found := make(map[string]string)
	if c.way.bare {
		return found
	}
	uses := make(map[string]bool)
	for _, check := range c.table.checks {
		if check.later && !c.way.later || check.Name == partitionCheck {
			continue
		}
		tree, err := syntax.Parse(whereOf + check.Text)
		if err != nil {
			continue
		}
		for _, e := range equalities(syntax.At(first(tree), "stmt", "SelectStmt", "whereClause")) {
			for _, turned := range []bool{false, true} {
				name, expression, uses2 := e.solve(whereOf+check.Text, turned)
				if name == "" || uses[name] || found[name] != "" || slices.Contains(uses2, name) || !c.derivable(name) ||
					slices.ContainsFunc(uses2, func(other string) bool {
						return found[other] != "" || c.table.column(other) == nil || c.table.column(other).Generated != ""
					}) {
					continue
				}
				found[name] = expression
				for _, other := range uses2 {
					uses[other] = true
				}
				break
			}
		}
	}
	return found
}

const whereOf = "SELECT FROM x WHERE "

func first(tree any) any {
	if list := syntax.List(syntax.At(tree, "stmts")); len(list) > 0 {
		return list[0]
	}
	return nil
}

// derivable reports whether nothing else decides the column's values.
func (c *composing) derivable(name string) bool {
	column := c.table.column(name)
	return c.free(column) && !c.injective(column) && !c.bounded(name)
}

// equality is a = b, with the place of the operator in the text.
type equality struct {
	left, right any
	location    int
}

// equalities returns the equalities required by a condition, which is one, or a conjunction.
func equalities(tree any) []equality {
	if syntax.At(tree, "BoolExpr", "boolop") == "AND_EXPR" {
		var all []equality
		for _, argument := range syntax.List(syntax.At(tree, "BoolExpr", "args")) {
			all = append(all, equalities(argument)...)
		}
		return all
	}
	x := syntax.At(tree, "A_Expr")
	location, _ := syntax.At(x, "location").(float64)
	if syntax.At(x, "kind") != "AEXPR_OP" || syntax.Last(syntax.At(x, "name")) != "=" {
		return nil
	}
	return []equality{{syntax.At(x, "lexpr"), syntax.At(x, "rexpr"), int(location)}}
}

// solve returns the column on one side, the text of the other side, and the columns in it.
func (e equality) solve(text string, turned bool) (name, expression string, uses []string) {
	side, other := e.left, e.right
	from, to := e.location+1, end(text, e.location+1)
	if turned {
		side, other = e.right, e.left
		from, to = begin(text, e.location), e.location
	}
	name, uses = syntax.Column(side), columnsIn(other)
	if name == "" || len(uses) == 0 || to > len(text) || from >= to {
		return "", "", nil
	}
	return name, strings.TrimSpace(text[from:to]), uses
}

// end returns where the parenthesis around a place ends. Parentheses in quotes do not count.
func end(text string, at int) int {
	depth := 0
	for quoted := byte(0); at < len(text); at++ {
		switch b := text[at]; {
		case quoted != 0:
			if b == quoted {
				quoted = 0
			}
		case b == '\'' || b == '"':
			quoted = b
		case b == '(':
			depth++
		case b == ')':
			if depth--; depth < 0 {
				return at
			}
		}
	}
	return at
}

// begin returns where the text inside the parenthesis around a place begins.
func begin(text string, at int) int {
	depth := 0
	for quoted := byte(0); at > 0; at-- {
		switch b := text[at-1]; {
		case quoted != 0:
			if b == quoted {
				quoted = 0
			}
		case b == '\'' || b == '"':
			quoted = b
		case b == ')':
			depth++
		case b == '(':
			if depth--; depth < 0 {
				return at
			}
		}
	}
	return at
}
