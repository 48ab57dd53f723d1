package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/plain"
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

// TestDocsArePlain counts turns of phrase in the comments of each package, in the headers of the queries and in the
// documents. A package above the goal has a budget in testdata/words.txt, which only goes down: make words lowers it.
func TestDocsArePlain(t *testing.T) {
	t.Parallel()
	counts, err := plain.Counts(root)
	if err != nil {
		t.Fatal(err)
	}
	budgets, err := plain.ReadBudgets("testdata/words.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []string{"docs", "queries", "engine"} {
		if counts[room] == nil || counts[room].Words < 1000 {
			t.Fatalf("%s has fewer than 1,000 words of comments", room)
		}
	}
	// A budget that is a tenth too large, or has room for none any more, is lowered.
	for room, count := range counts {
		rate, budget := count.Rate(), budgets[room]
		for i, turn := range plain.Turns {
			allowed := max(budget[i], turn.Goal)
			if rate[i] > allowed {
				places := count.Places[i]
				if more := len(places) - 20; more > 0 {
					places = append(places[:20:20], fmt.Sprintf("and %d more: make words ARGS=%s", more, room))
				}
				t.Errorf("%s: %q stands there %.1f times in 1,000 words, allowed %.1f:\n%s",
					room, turn.Name, rate[i], allowed, strings.Join(places, "\n"))
			}
			if budget[i] > turn.Goal && budget[i]-rate[i] > max(0.25, budget[i]/10) && (rate[i] == 0 || count.Fits(i, budget[i])) {
				t.Errorf("%s: %q stands there %.1f times in 1,000 words, allowed %.1f. Run make words, or write: %s",
					room, turn.Name, rate[i], budget[i], plain.Line(room, rate))
			}
		}
	}
	for room := range budgets {
		if counts[room] == nil {
			t.Errorf("there is no package %s any more: run make words", room)
		}
	}
}
