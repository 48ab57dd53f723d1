package demo

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hashed is the result of an execution: a package's Merkle digest, in hex.
type Hashed struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

// hash returns the digest of a package from the files and the digests of the imports, in any order.
//
// The hashed text has a line for the package, a line with the size and then the content for each file, and a line for each
// import. Files and imports are sorted by name.
func (p Package) hash(imports []Hashed) (Hashed, error) {
	h := sha256.New()
	fmt.Fprintf(h, "package %q\n", p.Path)
	for _, name := range p.Files {
		content, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return Hashed{}, err
		}
		fmt.Fprintf(h, "file %q %d\n", name, len(content))
		h.Write(content)
	}
	imports = slices.Clone(imports)
	slices.SortFunc(imports, func(a, b Hashed) int { return strings.Compare(a.Path, b.Path) })
	for _, i := range imports {
		fmt.Fprintf(h, "import %q %s\n", i.Path, i.Digest)
	}
	return Hashed{Path: p.Path, Digest: fmt.Sprintf("%x", h.Sum(nil))}, nil
}

// Digest computes the root's digest in the present process, one package after the other.
func (g Graph) Digest() (string, error) {
	done := make(map[string]Hashed, len(g))
	var last Hashed
	for _, p := range g {
		imports := make([]Hashed, len(p.imports))
		for i, path := range p.imports {
			hashed, ok := done[path]
			if !ok {
				return "", fmt.Errorf("%s imports %s, which does not come before it", p.Path, path)
			}
			imports[i] = hashed
		}
		var err error
		if last, err = p.hash(imports); err != nil {
			return "", fmt.Errorf("hash %s: %w", p.Path, err)
		}
		done[p.Path] = last
	}
	return last.Digest, nil
}
