package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shownImports are the packages that a fragment may use without saying so.
var shownImports = []string{
	"context", "encoding/json", "errors", "fmt", "log", "log/slog", "net/http", "os", "os/exec", "strings", "testing", "time",
	"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool",
	module + "/budget", module + "/console", module + "/engine", module + "/events", module + "/fferr", module + "/ffotel", module + "/fftest", module + "/id", module + "/policy", module + "/reconcile", module + "/schema", module + "/state",
	module + "/limit", module + "/operator", module + "/schedule", module + "/stream", module + "/waitpoint", module + "/worker",
}

// given are the variables that a fragment may use without saying where they come from.
const given = `ctx context.Context, pool *pgxpool.Pool, eng *engine.Engine, w *worker.Worker, tx pgx.Tx, ` +
	`lease engine.Lease, execution id.ExecutionID, flow id.FlowID, order []byte, t *testing.T, kit *fftest.Kit`

// TestDocsGoBlocksCompile checks every block of Go in the documents as the compiler does. A fragment becomes the body of a function
// that has the usual variables; it leaves nothing out.
func TestDocsGoBlocksCompile(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	imported := make(map[string]bool)
	var programs []*ast.File
	for _, d := range documents(t) {
		for _, block := range d.blocks() {
			if block.language != "go" {
				continue
			}
			where := fmt.Sprintf("%s:%d", d.path, block.line)
			if left := elision(block.text); left != "" {
				t.Errorf("%s: %s leaves something out", where, left)
				continue
			}
			program, err := complete(block.text, where)
			if err != nil {
				t.Errorf("%s: %v", where, err)
				continue
			}
			file, err := parser.ParseFile(files, path.Base(where), program, parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%s: %v", where, err)
				continue
			}
			for _, spec := range file.Imports {
				imported[strings.Trim(spec.Path.Value, `"`)] = true
			}
			programs = append(programs, file)
		}
	}
	if len(programs) == 0 {
		t.Fatal("no document shows any Go")
	}
	check := types.Config{
		Importer: importer.ForCompiler(files, "gc", exports(t, slices.Sorted(maps.Keys(imported)))),
		Error:    func(err error) { t.Error(err) },
	}
	for _, program := range programs {
		_, _ = check.Check("shown", files, []*ast.File{program}, nil) // Error has the errors
	}
}

// exports compiles packages, and returns a function that opens the types of each and of its imports.
func exports(t *testing.T, packages []string) importer.Lookup {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	list.Dir = root
	list.Stderr = t.Output()
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	written := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		written[name] = file
	}
	return func(name string) (io.ReadCloser, error) { return os.Open(written[name]) }
}

// elision returns the first mark in a block, outside of comments and strings, of something that is left out.
func elision(block string) string {
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", -1, len(block)), []byte(block), nil, 0)
	previous := token.SEMICOLON
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return ""
		case tok == token.ILLEGAL:
			return text
		case tok == token.ELLIPSIS && (previous == token.SEMICOLON || previous == token.LBRACE):
			return "..."
		}
		previous = tok
	}
}

// complete makes a program of a block. A compiler error in a fragment has the fragment's position.
func complete(block, where string) ([]byte, error) {
	files := token.NewFileSet()
	if _, err := parser.ParseFile(files, "", block, 0); err == nil {
		return []byte(block), nil
	}
	line := "//line " + where + "\n"
	body := line + block
	if _, err := parser.ParseFile(files, "", "package main\n"+block, 0); err != nil {
		unused, err := declared(block)
		if err != nil {
			return nil, err
		}
		body = "func shown(" + given + ") error {\n{\n" + line + block + unused + "\n}\nreturn nil\n}\n"
	}
	var out bytes.Buffer
	out.WriteString("package main\nimport (\n")
	for _, path := range shownImports {
		name := path[strings.LastIndex(path, "/")+1:]
		if name == "v5" {
			name = "pgx"
		}
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
			fmt.Fprintf(&out, "%q\n", path)
		}
	}
	fmt.Fprintf(&out, ")\nfunc main() {}\n%s", body)
	return out.Bytes(), nil
}

// declared returns a use of each variable that a fragment declares in its outermost block.
func declared(block string) (uses string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() {\n"+block+"\n}", 0)
	if err != nil {
		return "", err
	}
	for _, statement := range file.Decls[0].(*ast.FuncDecl).Body.List {
		assignment, ok := statement.(*ast.AssignStmt)
		if !ok || assignment.Tok != token.DEFINE {
			continue
		}
		for _, left := range assignment.Lhs {
			if name, ok := left.(*ast.Ident); ok && name.Name != "_" {
				uses += "\n_ = " + name.Name
			}
		}
	}
	return uses, nil
}
