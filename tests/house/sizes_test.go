package house

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/api"
	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
)

// Package engine has grown beyond what a reader can survey. These bounds only go down, to 18,000 lines and 240 names.
const (
	maxEngineLines = 17_414
	maxEngineNames = 240
)

func TestEngineOnlyShrinks(t *testing.T) {
	t.Parallel()
	root := checkout.Root(t)
	paths, err := filepath.Glob(filepath.Join(root, "engine", "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files of engine (%v)", len(paths), err)
	}
	lines := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(source, []byte("\n"))
	}
	if lines > maxEngineLines {
		t.Errorf("engine has %d lines without its tests, at most %d are allowed", lines, maxEngineLines)
	}
	lists, err := api.Lists(root)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for line := range strings.Lines(lists["engine"]) {
		declaration := strings.Fields(strings.TrimPrefix(line, "pkg engine, "))
		switch declaration[0] {
		case "func", "type", "var", "const":
			name, _, _ := strings.Cut(declaration[1], "(")
			name, _, _ = strings.Cut(name, "[")
			names[name] = true
		}
	}
	if len(names) > maxEngineNames || len(names) < 100 {
		t.Errorf("engine exports %d names, at most %d are allowed", len(names), maxEngineNames)
	}
}
