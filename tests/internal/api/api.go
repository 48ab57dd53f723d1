// Package api lists the exported names of this library's packages, one a line, in the form of Go's own api/*.txt.
package api

import (
	"errors"
	"fmt"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Packages are the folders of the packages that docs/versions.md calls API.
var Packages = []string{"budget", "console", "engine", "events", "explain", "fferr", "ffotel", "fftest", "id", "id/wire", "interop", "limit", "normalise", "observe", "operator", "policy", "reconcile", "schedule", "schema", "state", "stream", "waitpoint", "worker"}

// Lists returns the list of each package of [Packages], by the package's name. The root is the repository's.
func Lists(root string) (map[string]string, error) {
	var patterns []string
	for _, folder := range Packages {
		patterns = append(patterns, "./"+folder)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile,
		Dir:  root,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	var errs []error
	lists := make(map[string]string)
	for _, pkg := range loaded {
		for _, err := range pkg.Errors {
			errs = append(errs, err)
		}
		lists[pkg.Name] = list(pkg.Types)
	}
	return lists, errors.Join(errs...)
}

// lister collects the lines of a package.
type lister struct {
	pkg   *types.Package
	lines []string
}

func list(pkg *types.Package) string {
	l := &lister{pkg: pkg}
	for _, name := range pkg.Scope().Names() {
		if object := pkg.Scope().Lookup(name); object.Exported() {
			l.object(object)
		}
	}
	slices.Sort(l.lines)
	return strings.Join(slices.Compact(l.lines), "")
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, "pkg "+l.pkg.Name()+", "+fmt.Sprintf(format, args...)+"\n")
}

func (l *lister) object(object types.Object) {
	switch object := object.(type) {
	case *types.Const:
		l.add("const %s %s = %s", object.Name(), l.text(object.Type()), object.Val().ExactString())
	case *types.Var:
		l.add("var %s %s", object.Name(), l.text(object.Type()))
	case *types.Func:
		l.add("func %s%s", object.Name(), l.signature(object.Signature()))
	case *types.TypeName:
		l.typeName(object)
	}
}

func (l *lister) typeName(object *types.TypeName) {
	if alias, ok := object.Type().(*types.Alias); ok {
		l.add("type %s%s = %s", object.Name(), l.typeParameters(alias.TypeParams()), l.text(alias.Rhs()))
		return
	}
	named := object.Type().(*types.Named)
	name := object.Name() + l.typeParameters(named.TypeParams())
	switch under := named.Underlying().(type) {
	case *types.Struct:
		l.add("type %s struct", name)
		for field := range under.Fields() {
			switch {
			case !field.Exported():
			case field.Embedded():
				l.add("type %s struct, embedded %s", name, l.text(field.Type()))
			default:
				l.add("type %s struct, %s %s", name, field.Name(), l.text(field.Type()))
			}
		}
	case *types.Interface:
		l.add("type %s interface", name)
		for method := range under.Methods() {
			if method.Exported() {
				l.add("type %s interface, %s%s", name, method.Name(), l.signature(method.Signature()))
			} else {
				l.add("type %s interface, unexported methods", name)
			}
		}
		return
	default:
		l.add("type %s %s", name, l.text(under))
	}
	l.methods(named)
}

// methods adds the methods of a type, including those it has from embedded fields.
func (l *lister) methods(named *types.Named) {
	values := types.NewMethodSet(named)
	for selection := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		method := selection.Obj().(*types.Func)
		if !method.Exported() {
			continue
		}
		receiver := named.Obj().Name()
		if values.Lookup(method.Pkg(), method.Name()) == nil {
			receiver = "*" + receiver
		}
		l.add("method (%s) %s%s", receiver, method.Name(), l.signature(selection.Type().(*types.Signature)))
	}
}

func (l *lister) text(t types.Type) string {
	return types.TypeString(t, func(pkg *types.Package) string {
		if pkg == l.pkg {
			return ""
		}
		return pkg.Name()
	})
}

// signature returns a function's type parameters, parameters and results. Their names are left out, which a caller does not
// use.
func (l *lister) signature(signature *types.Signature) string {
	parameters := l.tuple(signature.Params())
	if last := len(parameters) - 1; signature.Variadic() {
		parameters[last] = "..." + strings.TrimPrefix(parameters[last], "[]")
	}
	text := l.typeParameters(signature.TypeParams()) + "(" + strings.Join(parameters, ", ") + ")"
	switch results := l.tuple(signature.Results()); len(results) {
	case 0:
	case 1:
		text += " " + results[0]
	default:
		text += " (" + strings.Join(results, ", ") + ")"
	}
	return text
}

func (l *lister) tuple(tuple *types.Tuple) []string {
	var texts []string
	for variable := range tuple.Variables() {
		texts = append(texts, l.text(variable.Type()))
	}
	return texts
}

func (l *lister) typeParameters(list *types.TypeParamList) string {
	var texts []string
	for parameter := range list.TypeParams() {
		texts = append(texts, parameter.Obj().Name()+" "+l.text(parameter.Constraint()))
	}
	if texts == nil {
		return ""
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
