package api

import (
	"go/types"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// ofGenerator are the names from neither a query nor a table. sqlc's options decide on such names, and every program
// uses some.
var ofGenerator = []string{"Close", "DBTX", "New", "Prepare", "Querier", "Queries", "WithTx"}

// usedByQueries reports whether a function of a query the change keeps takes or returns the name's type, or the
// generator makes the name itself. Other names are gone with their queries, or belong to a table no query reads.
func (p *goPackage) usedByQueries(name string, before, after *project.Side) bool {
	object := p.object(owner(name))
	if object == nil {
		return true
	}
	if _, is := query(before, owner(name)); is {
		_, kept := query(after, owner(name))
		return kept
	}
	if slices.Contains(ofGenerator, owner(name)) {
		return true
	}
	kept := map[*types.TypeName]bool{}
	for _, function := range p.functions() {
		if _, is := query(after, function.Name()); is {
			reach(function.Type(), p.types, kept)
		}
	}
	own := map[*types.TypeName]bool{}
	if of, is := object.(*types.TypeName); is {
		own[of] = true
	} else {
		reach(object.Type(), p.types, own)
	}
	for of := range own {
		if kept[of] {
			return true
		}
	}
	return len(own) == 0 // such as a function of sqlc's own
}

// object returns the declaration of a name, or the method of Queries.
func (p *goPackage) object(name string) types.Object {
	if object := p.types.Scope().Lookup(name); object != nil {
		return object
	}
	for _, function := range p.functions() {
		if function.Name() == name {
			return function
		}
	}
	return nil
}

// functions are the methods of Queries.
func (p *goPackage) functions() []types.Object {
	queries := p.types.Scope().Lookup("Queries")
	if queries == nil {
		return nil
	}
	var all []types.Object
	methods := types.NewMethodSet(types.NewPointer(queries.Type()))
	for i := range methods.Len() {
		all = append(all, methods.At(i).Obj())
	}
	return all
}

// reach adds the package's types a type consists of. A type for a value or NULL is followed as well.
func reach(from types.Type, in *types.Package, found map[*types.TypeName]bool) {
	switch t := types.Unalias(from).(type) {
	case *types.Named:
		name := t.Obj()
		if found[name] {
			return
		}
		if name.Pkg() == in {
			found[name] = true
			if bare := in.Scope().Lookup("Null" + name.Name()); bare != nil && !strings.HasPrefix(name.Name(), "Null") {
				reach(bare.Type(), in, found)
			}
			reach(t.Underlying(), in, found)
			for i := range t.NumMethods() { // such as the methods of a batch's results
				reach(t.Method(i).Type(), in, found)
			}
		}
		for i := range t.TypeArgs().Len() {
			reach(t.TypeArgs().At(i), in, found)
		}
	case *types.Pointer:
		reach(t.Elem(), in, found)
	case *types.Slice:
		reach(t.Elem(), in, found)
	case *types.Array:
		reach(t.Elem(), in, found)
	case *types.Map:
		reach(t.Key(), in, found)
		reach(t.Elem(), in, found)
	case *types.Struct:
		for i := range t.NumFields() {
			reach(t.Field(i).Type(), in, found)
		}
	case *types.Signature:
		for _, tuple := range []*types.Tuple{t.Params(), t.Results()} {
			for i := range tuple.Len() {
				reach(tuple.At(i).Type(), in, found)
			}
		}
	}
}
