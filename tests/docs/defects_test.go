package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	rowSuffix    = regexp.MustCompile(`(?:_[EFVIMSB]\d+)+$`)
	defectRow    = regexp.MustCompile(`^(?:\| |- )([EFVIMSB]\d+)(?: \||:)`)
	testName     = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
)

// TestDocsDefectsMatchTheTests compares docs/internals/defects.md with the names of the tests. Each test is named beside the rows
// at the end of its name, and only beside them. Each test on the page exists, and no row stands there twice.
func TestDocsDefectsMatchTheTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "internals", "defects.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string][]string) // tests that the page names, by row
	for line := range strings.Lines(string(text)) {
		row := defectRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		if _, twice := named[row[1]]; twice {
			t.Errorf("row %s stands on the page twice", row[1])
		}
		named[row[1]] = testName.FindAllString(line, -1)
	}

	all := testFunctions(t)
	rows := 0
	for _, test := range slices.Sorted(maps.Keys(all)) {
		for row := range strings.SplitSeq(strings.TrimPrefix(rowSuffix.FindString(test), "_"), "_") {
			if row == "" {
				continue
			}
			rows++
			if !slices.Contains(named[row], test) {
				t.Errorf("row %s of the page does not name %s", row, test)
			}
		}
	}
	if rows < 150 {
		t.Errorf("%d rows at the end of names", rows)
	}
	for _, test := range testName.FindAllString(string(text), -1) {
		if !all[test] {
			t.Errorf("the page names %s, which does not exist", test)
		}
	}
	for row, tests := range named {
		for _, test := range tests {
			suffix := rowSuffix.FindString(test)
			if suffix != "" && !slices.Contains(strings.Split(suffix, "_"), row) {
				t.Errorf("row %s names %s, which has other rows", row, test)
			}
		}
	}
}

// testFunctions returns the names of all tests of all modules.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range testFunction.FindAllSubmatch(source, -1) {
			all[string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
