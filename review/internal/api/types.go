package api

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// packagePath is the path of both sides, since apidiff compares packages of one path.
const packagePath = "generated"

// goPackage is a generated package as seen by importers.
type goPackage struct {
	types *types.Package
}

// load reads the package in sqlc's output folder, below dir.
func load(dir string, config *project.SQLC) (*goPackage, error) {
	names, err := filepath.Glob(filepath.Join(dir, config.Out, "*.go"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read the generated package: %w", err)
		}
		files = append(files, file)
	}
	others := others{}
	for _, file := range files {
		others.read(file)
	}
	check := types.Config{Importer: others, IgnoreFuncBodies: true, Error: func(error) {}}
	made, _ := check.Check(packagePath, set, files, nil) // an unresolved type is invalid on both sides
	return &goPackage{made}, nil
}

// declared returns a name's type, "T", "T.Field" or a function.
func (p *goPackage) declared(name string) string {
	first, rest, _ := strings.Cut(name, ".")
	object := p.types.Scope().Lookup(first)
	if object == nil {
		if queries := p.types.Scope().Lookup("Queries"); queries != nil {
			object, _, _ = types.LookupFieldOrMethod(types.NewPointer(queries.Type()), true, p.types, first)
		}
	} else if rest != "" {
		object, _, _ = types.LookupFieldOrMethod(object.Type(), true, p.types, rest)
	}
	if object == nil {
		return ""
	}
	if _, isType := object.(*types.TypeName); isType {
		return "type"
	}
	return types.TypeString(object.Type(), func(other *types.Package) string {
		if other == p.types {
			return ""
		}
		return other.Name()
	})
}

// others are the imported packages, each with the used types, without content.
type others map[string]*types.Package

// Import returns a package.
func (o others) Import(name string) (*types.Package, error) {
	if found := o[name]; found != nil {
		return found, nil
	}
	made := types.NewPackage(name, lastName(name))
	made.MarkComplete()
	o[name] = made
	return made, nil
}

// lastName guesses the name of a package from the path: a version is no name.
func lastName(name string) string {
	last := path.Base(name)
	if len(last) > 1 && last[0] == 'v' && strings.Trim(last[1:], "0123456789") == "" {
		last = path.Base(path.Dir(name))
	}
	return strings.TrimSuffix(last, ".go")
}

// read declares the names of other packages a file uses, with type parameters, if any.
func (o others) read(file *ast.File) {
	imported := map[string]*types.Package{}
	for _, spec := range file.Imports {
		made, _ := o.Import(strings.Trim(spec.Path.Value, `"`))
		name := made.Name()
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = made
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.BlockStmt:
			return false
		case *ast.IndexExpr:
			declare(imported, n.X, 1)
		case *ast.IndexListExpr:
			declare(imported, n.X, len(n.Indices))
		case *ast.SelectorExpr:
			declare(imported, n, 0)
		}
		return true
	})
}

func declare(imported map[string]*types.Package, expr ast.Expr, parameters int) {
	selector, is := expr.(*ast.SelectorExpr)
	if !is {
		return
	}
	from, is := selector.X.(*ast.Ident)
	if !is || imported[from.Name] == nil {
		return
	}
	in := imported[from.Name]
	if in.Scope().Lookup(selector.Sel.Name) != nil {
		return
	}
	name := types.NewTypeName(token.NoPos, in, selector.Sel.Name, nil)
	named := types.NewNamed(name, types.NewStruct(nil, nil), nil)
	var list []*types.TypeParam
	for i := range parameters {
		parameter := types.NewTypeName(token.NoPos, in, fmt.Sprintf("T%d", i), nil)
		list = append(list, types.NewTypeParam(parameter, types.Universe.Lookup("any").Type()))
	}
	named.SetTypeParams(list)
	in.Scope().Insert(name)
}
