package docs

import (
	"go/ast"
	"go/types"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

// root is the module's root, as the tests see it.
const root = "../.."

const module = "github.com/flowfabric/flowfabric-go"

// roomOf returns a package's path below the module's root.
func roomOf(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

// loadedPackages type-checks the packages of the root module, of console, ffotel and fftest, once for all tests.
var loadedPackages = sync.OnceValues(func() (map[string]*packages.Package, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes |
			packages.NeedTypesInfo | packages.NeedSyntax,
		Dir: root,
	}, "./...", "./console", "./ffotel", "./fftest")
	rooms := make(map[string]*packages.Package)
	for _, p := range loaded {
		rooms[roomOf(p.PkgPath)] = p
	}
	return rooms, err
})

// sources returns the packages of the root module, console, ffotel and fftest, by their path below the root.
func sources(t *testing.T) map[string]*packages.Package {
	t.Helper()
	rooms, err := loadedPackages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rooms {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
	}
	return rooms
}

// isPublic reports whether programs of others may import a package, by its path below the root.
func isPublic(room string) bool { return !strings.HasPrefix(room, "internal/") }

// callGraph says which functions of a package the body of each refers to, its own and those of others, by full name.
type callGraph map[string]map[string]bool

func newCallGraph(p *packages.Package) callGraph {
	graph := make(callGraph)
	for _, file := range p.Syntax {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			refers := make(map[string]bool)
			for node := range ast.Preorder(function) {
				name, ok := node.(*ast.Ident)
				if !ok {
					continue
				}
				if f, ok := p.TypesInfo.Uses[name].(*types.Func); ok {
					refers[f.Origin().FullName()] = true
				}
			}
			graph[p.TypesInfo.Defs[function.Name].(*types.Func).FullName()] = refers
		}
	}
	return graph
}

// reached returns the queries of package db that a function leads to.
func (g callGraph) reached(from string) map[string]bool {
	queries, seen := make(map[string]bool), make(map[string]bool)
	var visit func(name string)
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

// operation returns the full name of an operation of the engine: "Claim" is a method of Engine or, if that has none,
// of another exported type; "Claimer.Claim" names the type.
func operation(p *packages.Package, name string) (full string, found bool) {
	scope := p.Types.Scope()
	method := func(typeName, methodName string) (string, bool) {
		object, ok := scope.Lookup(typeName).(*types.TypeName)
		if !ok || !object.Exported() {
			return "", false
		}
		selected, _, _ := types.LookupFieldOrMethod(types.NewPointer(object.Type()), true, p.Types, methodName)
		f, ok := selected.(*types.Func)
		if !ok || !f.Exported() {
			return "", false
		}
		return f.Origin().FullName(), true
	}
	if typeName, methodName, ok := strings.Cut(name, "."); ok {
		return method(typeName, methodName)
	}
	if full, found = method("Engine", name); found {
		return full, true
	}
	for _, typeName := range scope.Names() {
		if full, found = method(typeName, name); found {
			return full, true
		}
	}
	return "", false
}
