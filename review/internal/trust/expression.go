package trust

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/syntax"
)

// Expression returns an error unless the text is a single expression allowed in a review.
func Expression(sql string) error {
	tree, err := syntax.Parse("SELECT (" + sql + ")::text")
	if err != nil {
		return fmt.Errorf("it is no expression: %w", err)
	}
	one := errors.New("it is more than one expression")
	statements := syntax.List(syntax.At(tree, "stmts"))
	if len(statements) != 1 || strings.ContainsRune(sql, 0) {
		return one
	}
	query, is := syntax.At(statements[0], "stmt", "SelectStmt").(map[string]any)
	if !is || len(syntax.List(query["targetList"])) != 1 {
		return one
	}
	for clause := range query {
		switch clause {
		case "targetList", "limitOption", "op":
		default:
			return one
		}
	}
	switch j := judge(query); {
	case j.refused != "":
		return fmt.Errorf("the expression %s", j.refused)
	case j.notRun != "":
		return fmt.Errorf("the expression %s", j.notRun)
	}
	return nil
}
