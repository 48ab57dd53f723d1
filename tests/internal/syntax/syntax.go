// Package syntax reads the files of the tests without types, for checks of how tests are written.
package syntax

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

// Folder is the test files of one folder, and the files that serve tests: those that import testing.
type Folder struct {
	Path  string // below the root
	Fset  *token.FileSet
	Files map[string]*ast.File // by path
}

// Read parses the test files below root, folder by folder.
func Read(root string) ([]*Folder, error) {
	folders, byPath := []*Folder(nil), make(map[string]*Folder)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(fset, path, nil, parser.ImportsOnly)
			if err != nil || !Imports(file, "testing") {
				return err
			}
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder := byPath[dir]
		if folder == nil {
			folder = &Folder{Path: filepath.ToSlash(dir), Fset: token.NewFileSet(), Files: make(map[string]*ast.File)}
			byPath[dir] = folder
			folders = append(folders, folder)
		}
		folder.Files[path], err = parser.ParseFile(folder.Fset, path, nil, parser.ParseComments)
		return err
	})
	return folders, err
}

// Imports reports whether a file imports a package.
func Imports(file *ast.File, path string) bool {
	for _, spec := range file.Imports {
		if strings.Trim(spec.Path.Value, `"`) == path {
			return true
		}
	}
	return false
}

// IsCall reports whether a node calls a function of a package by its usual name: IsCall(n, "time", "Sleep").
func IsCall(node ast.Node, pkg string, names ...string) bool {
	call, ok := node.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if x, ok := selector.X.(*ast.Ident); !ok || x.Name != pkg {
		return false
	}
	for _, name := range names {
		if selector.Sel.Name == name {
			return true
		}
	}
	return false
}

// Functions returns the functions and methods that a folder declares.
func (f *Folder) Functions() (all []*ast.FuncDecl) {
	for _, file := range f.Files {
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok {
				all = append(all, function)
			}
		}
	}
	return all
}

// Reaching returns the names of the tests that call a node accepted by direct, by themselves or through functions of
// their folder. Methods are known by their name alone, so the result may have a test too many.
func (f *Folder) Reaching(direct func(ast.Node) bool) (tests []string) {
	refers, reaches := make(map[string]map[string]bool), make(map[string]bool)
	for _, function := range f.Functions() {
		name := function.Name.Name
		if refers[name] == nil {
			refers[name] = make(map[string]bool)
		}
		for node := range ast.Preorder(function) {
			if direct(node) {
				reaches[name] = true
			}
			if ident, ok := node.(*ast.Ident); ok && ident.Name != name {
				refers[name][ident.Name] = true
			}
		}
	}
	for again := true; again; {
		again = false
		for name, others := range refers {
			for other := range others {
				if reaches[other] && !reaches[name] {
					reaches[name], again = true, true
				}
			}
		}
	}
	for name := range reaches {
		if strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	return tests
}
