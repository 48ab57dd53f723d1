package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outgoing are terms that have a successor, which says the same in every place.
var outgoing = map[string]string{
	`full looks?`:                        "full scan",
	`in vain|vain (look|try|tries)`:      "fruitless, or for nothing",
	`behind (the|its|their) bounds?`:     "after the scan position",
	`behind an? (cursor|position|bound)`: "after it",
	`doorbells?`:                         "notifier, notification",
	`LookAgain`:                          "Wake",
	`lean (form|path|statement)s?`:       "fast path",
	`locked (form|path)s?`:               "slow path",
	`lease watch|watch on leases`:        "lease timers",
	`(queue|missing) hints?`:             "queue entry",
}

// TestDocsUseTheGlossary: documents, queries and Go speak of one thing by one term.
func TestDocsUseTheGlossary(t *testing.T) {
	t.Parallel()
	terms := make(map[*regexp.Regexp]string)
	var all []string
	for term, successor := range outgoing {
		// A term may be cut by the end of a line, in a comment or not.
		term = strings.ReplaceAll(term, " ", `(?: |\s*\n\s*(?://|--)?\s*)`)
		terms[regexp.MustCompile(`(?i)\b(?:`+term+`)\b`)] = successor
		all = append(all, term)
	}
	one := regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`) // most files have none: they are read once
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "migrations" || entry.Name() == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains([]string{".go", ".md", ".sql"}, filepath.Ext(path)) || entry.Name() == "words_test.go" || entry.Name() == "schema.sql":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !one.Match(text) {
			return nil
		}
		for term, successor := range terms {
			for _, at := range term.FindAllIndex(text, -1) {
				line := 1 + strings.Count(string(text[:at[0]]), "\n")
				t.Errorf("%s:%d: %q is now: %s", strings.TrimPrefix(path, root+"/"), line, text[at[0]:at[1]], successor)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
