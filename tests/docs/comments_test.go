package docs

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestDocsCoverEveryExportedName: each has a comment, in every package that others may import. In the generated code
// of db, types and functions need one, but fields do not.
func TestDocsCoverEveryExportedName(t *testing.T) {
	t.Parallel()
	for room, p := range sources(t) {
		if !isPublic(room) {
			continue
		}
		said := false
		for _, file := range p.Syntax {
			said = said || file.Doc.Text() != ""
			generated := ast.IsGenerated(file)
			for _, declaration := range file.Decls {
				for name, at := range undocumented(declaration, generated) {
					t.Errorf("%s: %s has no comment", p.Fset.Position(at), name)
				}
			}
		}
		if !said {
			t.Errorf("package %s has no comment", p.PkgPath)
		}
	}
}

// byGenerator are names of package db that sqlc makes without a comment; the package's explains them.
var byGenerator = []string{"DBTX", "New", "Queries", "Querier"}

// undocumented returns the exported names of a declaration that have no comment of their own or of their group.
func undocumented(declaration ast.Decl, generated bool) map[string]token.Pos {
	missing := make(map[string]token.Pos)
	need := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		for _, c := range comments {
			if c.Text() != "" {
				return
			}
		}
		if name.IsExported() {
			missing[name.Name] = name.Pos()
		}
	}
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		isError := d.Recv != nil && (name == "Error" || name == "Is" || name == "Unwrap")
		if !isError && (d.Recv == nil || ast.IsExported(receiver(d))) && !(generated && slices.Contains(byGenerator, name)) {
			need(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					need(name, d.Doc, s.Doc, s.Comment)
				}
			case *ast.TypeSpec:
				if generated && (slices.Contains(byGenerator, s.Name.Name) || strings.HasSuffix(s.Name.Name, "Params") || strings.HasSuffix(s.Name.Name, "Row")) {
					continue // its query has one
				}
				if d.Lparen.IsValid() {
					need(s.Name, s.Doc, s.Comment)
				} else {
					need(s.Name, d.Doc, s.Doc, s.Comment)
				}
			}
		}
	}
	return missing
}

// receiver returns the name of the type that a method belongs to.
func receiver(function *ast.FuncDecl) string {
	kind := function.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.Name
		default:
			return ""
		}
	}
}

// TestDocsLinksInCommentsExist: names that a comment puts in brackets, for go doc to link, exist.
func TestDocsLinksInCommentsExist(t *testing.T) {
	t.Parallel()
	rooms := sources(t)
	for room, p := range rooms {
		if !isPublic(room) {
			continue
		}
		imports := importedBy(p, rooms)
		for _, file := range p.Syntax {
			if ast.IsGenerated(file) {
				continue
			}
			for _, group := range file.Comments {
				for _, name := range bracketed(group.Text()) {
					if !linked(p.Types, imports, name) {
						t.Errorf("%s: there is no %s", p.Fset.Position(group.Pos()), name)
					}
				}
			}
		}
	}
}

// importedBy returns the packages that the comments of a package may name, by name and by path: those it imports, and
// those of this module.
func importedBy(p *packages.Package, rooms map[string]*packages.Package) map[string]*types.Package {
	imports := make(map[string]*types.Package)
	for _, other := range rooms {
		imports[other.Name], imports[other.PkgPath] = other.Types, other.Types
	}
	for path, imported := range p.Imports {
		imports[imported.Types.Name()], imports[path] = imported.Types, imported.Types
	}
	return imports
}

// bracketed returns the link targets in the text of a comment, whether they exist or not.
func bracketed(text string) (names []string) {
	parser := comment.Parser{
		LookupSym:     func(string, string) bool { return true },
		LookupPackage: func(name string) (string, bool) { return name, true },
	}
	of := func(texts []comment.Text) {
		for _, text := range texts {
			link, ok := text.(*comment.DocLink)
			if !ok {
				continue
			}
			name := link.Name
			if link.Recv != "" {
				name = link.Recv + "." + name
			}
			if link.ImportPath != "" {
				name = link.ImportPath + "." + name
			}
			names = append(names, strings.TrimSuffix(name, "."))
		}
	}
	for _, block := range parser.Parse(text).Content {
		switch b := block.(type) {
		case *comment.Paragraph:
			of(b.Text)
		case *comment.List:
			for _, item := range b.Items {
				for _, content := range item.Content {
					if paragraph, ok := content.(*comment.Paragraph); ok {
						of(paragraph.Text)
					}
				}
			}
		}
	}
	return names
}

// linked reports whether a name leads to something in a package, or to an exported name of one of its imports.
func linked(own *types.Package, imports map[string]*types.Package, name string) bool {
	if imports[name] != nil || doc.IsPredeclared(name) {
		return true
	}
	first, rest, nested := strings.Cut(name, ".")
	if object := own.Scope().Lookup(first); object != nil {
		if !nested {
			return true
		}
		member, _, _ := types.LookupFieldOrMethod(types.NewPointer(object.Type()), true, own, rest)
		return member != nil
	}
	folder := strings.LastIndex(name, "/") + 1
	imported, member, _ := strings.Cut(name[folder:], ".")
	found := imports[name[:folder]+imported]
	if found == nil {
		return false
	}
	path := strings.Split(member, ".")
	object := found.Scope().Lookup(path[0])
	return object != nil && object.Exported() && has(object, path[1:])
}
