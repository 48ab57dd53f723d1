package demo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	graph, err := decode(strings.NewReader(`
		{"ImportPath": "unsafe", "Dir": "/src/unsafe", "GoFiles": ["unsafe.go"]}
		{"ImportPath": "vendor/x/y", "Dir": "/src/vendor/x/y", "GoFiles": ["y.go"], "Imports": ["unsafe"]}
		{
			"ImportPath": "net", "Dir": "/src/net", "GoFiles": ["net.go"], "CgoFiles": ["cgo.go"],
			"SFiles": ["asm.s"], "HFiles": ["asm.h"], "EmbedFiles": ["data.txt"],
			"TestGoFiles": ["net_test.go"], "IgnoredGoFiles": ["net_plan9.go"],
			"Imports": ["C", "unsafe", "x/y"], "ImportMap": {"x/y": "vendor/x/y"}
		}`))
	if err != nil {
		t.Fatal(err)
	}
	net := graph[2]
	if want := []string{"unsafe", "vendor/x/y"}; !slices.Equal(net.imports, want) {
		t.Errorf("imports = %q, want %q", net.imports, want)
	}
	if want := []string{"asm.h", "asm.s", "cgo.go", "data.txt", "net.go"}; !slices.Equal(net.Files, want) {
		t.Errorf("files = %q, want %q", net.Files, want)
	}
	if top := root("net", graph); !slices.Equal(top.imports, []string{"net"}) {
		t.Errorf("the root imports %q", top.imports)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	graph, err := Load(t.Context(), "std")
	if err != nil {
		t.Fatal(err)
	}
	if len(graph) < 200 || graph.Edges() < 2*len(graph) {
		t.Fatalf("%d packages and %d edges are not the standard library", len(graph), graph.Edges())
	}
	seen := make(map[string]bool)
	for _, p := range graph {
		for _, path := range p.imports {
			if !seen[path] {
				t.Errorf("%s imports %s, which does not come before it", p.Path, path)
			}
		}
		seen[p.Path] = true
	}

	if _, err := Load(t.Context(), "no/such/package"); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("an unknown package gives %v, want one line", err)
	}
}

func TestLoadWithoutToolchain(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Load(t.Context(), "std"); err != ErrNoToolchain {
		t.Errorf("Load() = %v, want %v", err, ErrNoToolchain)
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "package a\n")
	write("b.go", "package b\n")
	graph := Graph{
		{Path: "a", Dir: dir, Files: []string{"a.go"}},
		{Path: "b", Dir: dir, Files: []string{"b.go"}, imports: []string{"a"}},
		{Path: "(b)", imports: []string{"b"}},
	}
	digest := func() string {
		t.Helper()
		d, err := graph.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	before := digest()
	if again := digest(); again != before {
		t.Errorf("the same files give %s and %s", before, again)
	}
	write("a.go", "package a // changed\n")
	if digest() == before {
		t.Error("a change at the bottom does not reach the root")
	}

	if _, err := (Graph{graph[1]}).Digest(); err == nil {
		t.Error("an import that is not there is passed over")
	}
	if _, err := (Graph{{Path: "c", Dir: dir, Files: []string{"c.go"}}}).Digest(); err == nil {
		t.Error("a file that is not there is passed over")
	}
}

func TestHashIgnoresImportOrder(t *testing.T) {
	t.Parallel()
	a, b := Hashed{Path: "a", Digest: "01"}, Hashed{Path: "b", Digest: "02"}
	one, err := Package{Path: "p"}.hash([]Hashed{a, b})
	if err != nil {
		t.Fatal(err)
	}
	other, err := Package{Path: "p"}.hash([]Hashed{b, a})
	if err != nil {
		t.Fatal(err)
	}
	if one != other {
		t.Errorf("%v and %v differ", one, other)
	}
}
