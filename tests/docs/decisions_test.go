package docs

import (
	"regexp"
	"strings"
	"testing"
)

const decisions = "docs/internals/decisions.md"

var decisionInCode = regexp.MustCompile(`docs/internals/decisions\.md#([a-z0-9-]+)`)

// TestDocsHaveTheDecisionsOfCode: each of the ten decisions has a heading, and comments of the library refer to it. A
// comment refers to no other anchor of the page.
func TestDocsHaveTheDecisionsOfCode(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(string(readDocument(t, decisions).source), "\n## Ten decisions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	referred := make(map[string]bool) // by heading
	for line := range strings.Lines(section) {
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			referred[strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-")] = false
		}
	}
	if len(referred) != 10 {
		t.Errorf("%s has %d of the ten decisions", decisions, len(referred))
	}
	for _, p := range sources(t) {
		for _, file := range p.Syntax {
			for _, group := range file.Comments {
				for _, match := range decisionInCode.FindAllStringSubmatch(group.Text(), -1) {
					if _, ok := referred[match[1]]; !ok {
						t.Errorf("%s: %s is no decision of %s", p.Fset.Position(group.Pos()), match[1], decisions)
					}
					referred[match[1]] = true
				}
			}
		}
	}
	for heading, ok := range referred {
		if !ok {
			t.Errorf("no comment refers to %s#%s", decisions, heading)
		}
	}
}
