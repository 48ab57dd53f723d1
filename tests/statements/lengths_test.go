package statements

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Limits of the statements as they are sent, with the passages that they include: lines that are neither blank nor a header.
// Remarks inside a statement count.
const (
	longest    = 250
	long       = 150
	mostLong   = 10
	mostTwins  = 20
	mostInPart = 130 // of a passage
)

// A statement is read as a whole in a review.
func TestStatementsStayShort(t *testing.T) {
	t.Parallel()
	above := 0
	for name, n := range statementLines(t, "../../db/sql/*.sql") {
		if n > longest {
			t.Errorf("%s has %d lines: split it into several in one round trip", name, n)
		}
		if n > long {
			above++
			t.Logf("%s has %d lines", name, n)
		}
	}
	if above > mostLong {
		t.Errorf("%d statements have more than %d lines", above, long)
	}
	for name, n := range statementLines(t, "../../queries/include/*.sql") {
		if n > mostInPart {
			t.Errorf("passage %s has %d lines", name, n)
		}
	}
	if n := len(twinStatements); n > mostTwins {
		t.Errorf("%d pairs are compared as twins: let them include a passage", n)
	}
}

// statementLines counts the lines of each statement, or of each file that has no names of statements.
func statementLines(t *testing.T, pattern string) map[string]int {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	lines := make(map[string]int)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(line, "-- name: "); ok {
				name, _, _ = strings.Cut(title, " ")
			} else if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "--") {
				lines[name]++
			}
		}
	}
	return lines
}

// The statements that queries/README.md shows stand in db/sql word for word.
func TestShownStatementsAreWhole(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../queries/README.md")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("../../db/sql/*.sql")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d files of statements (%v)", len(paths), err)
	}
	var sent strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sent.Write(text)
	}
	shown := regexp.MustCompile("(?s)```sql\n(-- name: .*?;\n)```").FindAllStringSubmatch(string(readme), -1)
	if len(shown) < 3 {
		t.Errorf("%d statements are shown", len(shown))
	}
	for _, statement := range shown {
		if !strings.Contains(sent.String(), statement[1]) {
			t.Errorf("this is no statement of db/sql:\n%s", statement[1])
		}
	}
}
