package needs

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/flowfabric/flowfabric-go/tests/internal/locks"
)

const module = "github.com/flowfabric/flowfabric-go"

// graph has the names each function and variable of the library refers to, by full name.
type graph map[string]map[string]bool

// readGraph reads the packages with statements.
func readGraph(root string) (graph, error) {
	patterns := []string{"./engine", "./events", "./internal/core", "./internal/outbox", "./internal/upkeep", "./internal/pgtx", "./internal/notify"}
	for _, room := range Capabilities {
		patterns = append(patterns, "./"+room)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedSyntax,
		Dir:  root,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	g := make(graph)
	for _, p := range loaded {
		for _, err := range p.Errors {
			return nil, err
		}
		for _, file := range p.Syntax {
			for _, declaration := range file.Decls {
				g.add(p, declaration)
			}
		}
	}
	// Creations run the steps New gives to an engine.
	for _, runs := range []string{"createExecutions", "besideInsert"} {
		g["(*"+module+"/engine.Engine)."+runs][module+"/engine.creationSteps"] = true
	}
	// The engine implements core.Creator.
	for _, method := range []string{"Register", "Copy"} {
		g["("+module+"/internal/core.Creator[S any])."+method] = map[string]bool{"(" + module + "/engine.creator)." + method: true}
	}
	return g, nil
}

func (g graph) add(p *packages.Package, declaration ast.Decl) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		g[fullName(p.TypesInfo.Defs[d.Name])] = references(p, d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range values.Names {
					if full := fullName(p.TypesInfo.Defs[name]); full != "" {
						g[full] = references(p, values)
					}
				}
			}
		}
	}
}

// references returns the functions and the variables of packages a part of the source refers to.
func references(p *packages.Package, part ast.Node) map[string]bool {
	refers := make(map[string]bool)
	for node := range ast.Preorder(part) {
		if name, ok := node.(*ast.Ident); ok {
			if full := fullName(p.TypesInfo.Uses[name]); full != "" {
				refers[full] = true
			}
		}
	}
	return refers
}

// fullName names a function or a variable of a package; other objects have none.
func fullName(object types.Object) string {
	switch o := object.(type) {
	case *types.Func:
		return o.Origin().FullName()
	case *types.Var:
		if o.Pkg() != nil && o.Parent() == o.Pkg().Scope() {
			return o.Pkg().Path() + "." + o.Name()
		}
	}
	return ""
}

// queries returns the queries a function leads to.
func (g graph) queries(from string) map[string]bool {
	queries, seen := make(map[string]bool), make(map[string]bool)
	var visit func(string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if query, ok := strings.CutPrefix(name, "(*"+module+"/db.Queries)."); ok {
			queries[query] = true
		}
		for next := range g[name] {
			visit(next)
		}
	}
	visit(from)
	return queries
}

// node returns the full name of a call in the form of [Calls].
func (g graph) node(call string) (string, error) {
	first, method, _ := strings.Cut(call, ".")
	for _, full := range []string{
		fmt.Sprintf("(*%s/engine.%s).%s", module, first, method),
		fmt.Sprintf("(%s/engine.%s).%s", module, first, method),
		fmt.Sprintf("(*%s/internal/upkeep.%s).%s", module, first, method),
		fmt.Sprintf("%s/%s.%s", module, first, method),
	} {
		if g[full] != nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("there is no %s", call)
}

// readUsers returns the queries used by package events through values of functions, by the users in the headers.
func readUsers(root string) (map[string][]string, error) {
	headers, err := locks.Headers(root)
	if err != nil {
		return nil, err
	}
	byUser := make(map[string][]string)
	for _, h := range headers {
		for _, user := range h.Users {
			byUser[user] = append(byUser[user], h.Name)
		}
	}
	return byUser, nil
}
