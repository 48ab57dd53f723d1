package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// ErrNoToolchain reports that there is no go command on PATH, so no standard library to hash.
var ErrNoToolchain = errors.New("no go command on PATH")

// Package is a node of the import graph, and the input of the package's execution.
type Package struct {
	Path  string   `json:"path"`
	Dir   string   `json:"dir"`
	Files []string `json:"files"` // names in Dir, sorted

	imports []string // sorted paths, left out of the input, since the edges have the paths
}

// Graph is an import graph. Each package comes after its imports. The last node is the root: the pattern, without
// files, which "imports" every package no other package does.
type Graph []Package

// Edges returns the number of imports, including the root's.
func (g Graph) Edges() int {
	n := 0
	for _, p := range g {
		n += len(p.imports)
	}
	return n
}

// Load reads the import graph of the packages matching pattern, and of all imports, from the go command.
//
// Errors: [ErrNoToolchain].
func Load(ctx context.Context, pattern string) (Graph, error) {
	program, err := exec.LookPath("go")
	if err != nil {
		return nil, ErrNoToolchain
	}
	cmd := exec.CommandContext(ctx, program, "list", "-deps", "-json", "--", pattern)
	cmd.Dir = os.TempDir() // outside any module, so no go.mod or vendor folder applies
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	listing, err := cmd.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n")
		return nil, fmt.Errorf("go list %s: %w: %s", pattern, err, line)
	}
	graph, err := decode(bytes.NewReader(listing))
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	return append(graph, root(pattern, graph)), nil
}

// listed is the go command's description of a package. The file lists are the inputs of a build.
type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	ImportMap  map[string]string // source paths that differ from package paths, as for vendored packages

	GoFiles, CgoFiles, CFiles, CXXFiles, MFiles, HFiles, FFiles []string
	SFiles, SwigFiles, SwigCXXFiles, SysoFiles, EmbedFiles      []string
}

func decode(listing io.Reader) (Graph, error) {
	var graph Graph
	for decoder := json.NewDecoder(listing); ; {
		var l listed
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			return graph, nil
		case err != nil:
			return nil, err
		}
		graph = append(graph, l.node())
	}
}

func (l listed) node() Package {
	p := Package{
		Path: l.ImportPath,
		Dir:  l.Dir,
		Files: slices.Concat(l.GoFiles, l.CgoFiles, l.CFiles, l.CXXFiles, l.MFiles, l.HFiles, l.FFiles,
			l.SFiles, l.SwigFiles, l.SwigCXXFiles, l.SysoFiles, l.EmbedFiles),
	}
	slices.Sort(p.Files)
	p.Files = slices.Compact(p.Files)
	for _, path := range l.Imports {
		if path == "C" { // cgo's name for a pseudo-package
			continue
		}
		if mapped, ok := l.ImportMap[path]; ok {
			path = mapped
		}
		p.imports = append(p.imports, path)
	}
	slices.Sort(p.imports)
	p.imports = slices.Compact(p.imports)
	return p
}

func root(pattern string, graph Graph) Package {
	imported := make(map[string]bool)
	for _, p := range graph {
		for _, path := range p.imports {
			imported[path] = true
		}
	}
	top := Package{Path: "(" + pattern + ")", Files: []string{}}
	for _, p := range graph {
		if !imported[p.Path] {
			top.imports = append(top.imports, p.Path)
		}
	}
	slices.Sort(top.imports)
	return top
}
