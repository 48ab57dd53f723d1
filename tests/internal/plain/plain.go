// Package plain counts turns of phrase that make comments and documents hard to read.
package plain

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Turn is a turn of phrase, and the most a package may have in 1,000 words. A package above a goal has a budget.
type Turn struct {
	Name    string
	Goal    float64
	pattern *regexp.Regexp
}

// Turns are the counted turns, in the order of a Rate. The last counts words of another field: the words of a theatre
// or a belfry do not fit a queue or a worker.
var Turns = [...]Turn{
	{"nobody, somebody, who", 0.3, regexp.MustCompile(`(?i)\b(?:nobody|somebody|anybody|everybody|whoever|whomever|who)\b`)},
	{"tell, told", 0.3, regexp.MustCompile(`(?i)\b(?:tell|tells|told|telling)\b`)},
	{"what ...", 0.3, regexp.MustCompile("(?i)\\bwhat(?:['’]|\\s+)[`\\w(]")},
	{"of which, those of", 0.5, regexp.MustCompile(`(?i)\bof\s+(?:which|those|them)\b|\b(?:that|those)\s+of\b`)},
	{"that", 14, regexp.MustCompile(`(?i)\bthat\b`)},
	{"it, they, this", 28, regexp.MustCompile(`(?i)\b(?:it|its|they|them|those|these|this)\b`)},
	{"metaphor", 0.8, regexp.MustCompile(`(?i)\b(?:rooms?|seats?|seated|ears?|memory|aside|(?:stands?|stood)\s+for|hand(?:s|ed|ing)?\s+over|` +
		`judge[ds]?|judging|wakes?|woke|woken|waking|rouse[ds]?|stir(?:s|red)?|rings?|rang|ringing|pass(?:es|ed|ing)?\s+on)\b`)},
}

// Count is the number of words in the comments of a package, and the places of each turn.
type Count struct {
	Words  int
	Places [len(Turns)][]string
}

// Rate is the number of each turn in 1,000 words, rounded up to one decimal.
type Rate [len(Turns)]float64

// Rate returns the rates of a count.
func (c *Count) Rate() (rate Rate) {
	for i, places := range c.Places {
		rate[i] = per1000(len(places), c.Words)
	}
	return rate
}

// Fits reports whether a package could have one turn more within a budget.
func (c *Count) Fits(turn int, budget float64) bool {
	return per1000(len(c.Places[turn])+1, c.Words) <= budget
}

// per1000 takes a package with few words for one with 500, so a single "that" is not too much.
func per1000(n, words int) float64 {
	return math.Ceil(float64(n)*10_000/float64(max(words, 500))) / 10
}

// Counts returns the count of each package below a root: Go packages by their folder, "queries" for the comments in
// the SQL below queries/, and "docs" for all Markdown. Tests and generated files don't count.
func Counts(root string) (map[string]*Count, error) {
	counts := make(map[string]*Count)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"testdata", "bin"}, entry.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		path, err = filepath.Rel(root, path)
		if err != nil {
			return err
		}
		room, read := filepath.ToSlash(filepath.Dir(path)), readGo
		switch {
		case strings.HasSuffix(path, ".md"):
			room, read = "docs", readMarkdown
		case strings.HasSuffix(path, ".sql") && strings.HasPrefix(room+"/", "queries/"):
			room, read = "queries", readSQL
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return err
		}
		passages, err := read(source)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, p := range passages {
			if counts[room] == nil {
				counts[room] = new(Count)
			}
			counts[room].add(path, p)
		}
		return nil
	})
	return counts, err
}

// passage is a run of lines of a file, from a line on.
type passage struct {
	line int
	text string
}

var word = regexp.MustCompile(`^[A-Za-z]?[a-z'’-]*[a-z]$|^[AI]$`)

func (c *Count) add(path string, p passage) {
	for field := range strings.FieldsSeq(p.text) {
		if word.MatchString(strings.Trim(field, "`*_()[]{}|.,:;!?\"'")) {
			c.Words++
		}
	}
	for i, turn := range Turns {
		for _, at := range turn.pattern.FindAllStringIndex(p.text, -1) {
			before := p.text[:at[0]]
			line := before[strings.LastIndexByte(before, '\n')+1:] + p.text[at[0]:]
			line, _, _ = strings.Cut(line, "\n")
			c.Places[i] = append(c.Places[i], fmt.Sprintf("%s:%d: %s", path, p.line+strings.Count(before, "\n"), strings.TrimSpace(line)))
		}
	}
}

func readGo(source []byte) (passages []passage, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	directive := regexp.MustCompile(`^//\w+:\w`)
	for _, group := range file.Comments {
		p := passage{line: files.Position(group.Pos()).Line}
		for _, comment := range group.List {
			text := comment.Text[2:]
			if directive.MatchString(comment.Text) {
				text = ""
			}
			p.text += strings.TrimSuffix(text, "*/") + "\n"
		}
		passages = append(passages, p)
	}
	return passages, nil
}

// readSQL returns runs of lines with a comment. The name of a query is none.
func readSQL(source []byte) (passages []passage, err error) {
	previous := -1
	for i, line := range strings.Split(string(source), "\n") {
		_, text, ok := strings.Cut(line, "--")
		if !ok || strings.HasPrefix(line, "-- name: ") {
			continue
		}
		if previous != i-1 || len(passages) == 0 {
			passages = append(passages, passage{line: i + 1})
		}
		passages[len(passages)-1].text += text + "\n"
		previous = i
	}
	return passages, nil
}

// readMarkdown returns the text outside of fenced blocks.
func readMarkdown(source []byte) ([]passage, error) {
	lines := strings.Split(string(source), "\n")
	fenced := false
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			lines[i] = ""
		} else if fenced {
			lines[i] = ""
		}
	}
	return []passage{{line: 1, text: strings.Join(lines, "\n")}}, nil
}

// ReadBudgets reads a file of budgets: a package and its rates in each line. It returns nil if there is no file.
func ReadBudgets(path string) (map[string]Rate, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	budgets := make(map[string]Rate)
	for line := range strings.Lines(string(text)) {
		var room string
		var rate Rate
		fields := []any{&room}
		for i := range rate {
			fields = append(fields, &rate[i])
		}
		if _, err := fmt.Sscan(line, fields...); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		budgets[room] = rate
	}
	return budgets, nil
}

// Line returns the line of a package in a file of budgets.
func Line(room string, rate Rate) string {
	for _, r := range rate {
		room += fmt.Sprintf(" %.1f", r)
	}
	return room
}

// Lowered returns the lines of the packages above the goal, none above its former budget. With nil budgets it returns
// the lines of all such packages.
func Lowered(counts map[string]*Count, budgets map[string]Rate) (lines []string) {
	for room, count := range counts {
		rate, above := count.Rate(), false
		for i, turn := range Turns {
			if budgets != nil {
				rate[i] = min(rate[i], max(budgets[room][i], turn.Goal))
			}
			above = above || rate[i] > turn.Goal
		}
		if above {
			lines = append(lines, Line(room, rate))
		}
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return lines
}
