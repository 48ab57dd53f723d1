package syntax

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// Queries returns the text of every query of package db by name. root is the folder of the repository.
func Queries(root string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "db", "*.sql.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%d files of queries in %s, error %w", len(files), root, err)
	}
	texts := make(map[string]string)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for node := range ast.Preorder(file) {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return nil, err
			}
			if header, ok := strings.CutPrefix(text, "-- name: "); ok {
				name, _, _ := strings.Cut(header, " ")
				texts[name] = text
			}
		}
	}
	return texts, nil
}
