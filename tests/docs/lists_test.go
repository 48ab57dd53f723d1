package docs

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Lists in the documents have each folder that they are about, and no other. F7
func TestDocsListsMatchTheFolders(t *testing.T) {
	t.Parallel()
	for _, list := range []struct {
		document string
		names    func(d document) []string // of the document's list
		folders  []string
	}{
		{"docs/first-programs.md", linkNames("../examples/", "/main.go"), folders(t, "examples/*/main.go")},
		{"tests/README.md", linkNames("", ""), folders(t, "tests/*/*_test.go")},
		{"README.md", linkNames("", ""), publicPackages(t)},
		{"docs/versions.md", coded, publicPackages(t)},
	} {
		names := make(map[string]bool)
		for _, name := range list.names(readDocument(t, list.document)) {
			names[name] = true
		}
		for _, folder := range list.folders {
			if !names[folder] {
				t.Errorf("%s doesn't list %s", list.document, folder)
			}
		}
		if len(list.folders) < 5 {
			t.Errorf("%s: only %q exist", list.document, list.folders)
		}
	}
}

// linkNames returns the names between prefix and suffix in the links of a document.
func linkNames(prefix, suffix string) func(d document) []string {
	return func(d document) (names []string) {
		for _, link := range d.links() {
			if name, found := strings.CutPrefix(link.text, prefix); found {
				if name, found = strings.CutSuffix(name, suffix); found {
					names = append(names, name)
				}
			}
		}
		return names
	}
}

// coded returns the words in backticks of a document.
func coded(d document) (names []string) {
	for _, span := range d.code() {
		names = append(names, span.text)
	}
	return names
}

// folders returns the names of the folders that have a file of a pattern.
func folders(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, file := range files {
		names[filepath.Base(filepath.Dir(file))] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// publicPackages returns the public packages, from their lists of exported names.
func publicPackages(t *testing.T) (names []string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(root, "api"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".txt")
		if name == "wire" {
			name = path.Join("id", name)
		}
		names = append(names, name)
	}
	return names
}
