package project

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// takeGenerated replaces the statements by the statements of a package that sqlc generated, in the folder out: it expands
// stars, numbers parameters, and has the text that programs send. A query the package does not have keeps its
// statement.
func (s *Side) takeGenerated(out string) error {
	sent, err := s.sentBy(s.Dir, out)
	if err != nil {
		return err
	}
	for i, q := range s.Queries {
		if sql, found := sent[q.Name]; found {
			s.Queries[i].SQL = sql
		}
	}
	return nil
}

// TakeMade takes the statements the committed package does not have from the one the review generated for p below dir.
// Without it a star would stand for the columns of the schema the query is tried on. It removes the queries whose new
// statement the review does not run, and returns them.
func (s *Side) TakeMade(p *SQLC, dir string, runs func(sql string) bool) (removed []Query, err error) {
	if p == nil || p.Out == "" {
		return nil, nil
	}
	committed, err := s.sentBy(s.Dir, p.Out)
	if err != nil {
		return nil, err
	}
	made, err := s.sentBy(dir, p.Out)
	if err != nil {
		return nil, err
	}
	var kept []Query
	for _, q := range s.Queries {
		name := q.bare()
		sql, found := made[name]
		if _, has := committed[name]; found && !has && q.Package == p.id() {
			q.SQL = sql
			if !runs(sql) {
				removed = append(removed, q)
				continue
			}
		}
		kept = append(kept, q)
	}
	s.Queries = kept
	return removed, nil
}

// sentBy returns the statements of the generated package in the folder out below root, by the names of their queries.
func (s *Side) sentBy(root, out string) (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, out))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		s.unread(out, "the folder of the generated package cannot be read")
		return nil, nil
	}
	sent := map[string]string{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		file := path.Join(out, entry.Name())
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			s.broken(report.Place{File: file}, "The generated package has a file that is not Go", err.Error())
			continue
		}
		for _, declaration := range parsed.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.CONST {
				continue
			}
			for _, spec := range general.Specs {
				for _, value := range spec.(*ast.ValueSpec).Values {
					takeConstant(sent, value)
				}
			}
		}
	}
	return sent, nil
}
