package seed

import (
	"regexp/syntax"
	"strconv"
	"strings"
)

// matching returns texts that match the first of the patterns; the check itself tests the others.
func matching(patterns []string, rows int64, unique bool) []string {
	if len(patterns) == 0 {
		return nil
	}
	tree, err := syntax.Parse(patterns[0], syntax.Perl)
	if err != nil {
		return nil
	}
	count := 50
	if unique {
		count = int(min(rows, 5000))
	}
	var texts []string
	seen := make(map[string]bool)
	tree = tree.Simplify()
	for i := range 4 * count {
		var b writing
		b.write(tree, uint32(i))
		if b.steps > maxPatternSteps {
			return nil // such as nested repetitions: a pattern may require more than a text can hold
		}
		if text := b.String(); !seen[text] && len(texts) < count {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	return texts
}

const maxPatternSteps = 10_000

// writing is a text for an expression, and the number of parts followed so far.
type writing struct {
	strings.Builder
	steps int
}

// write appends a text for the expression, different for each seed, in at most maxPatternSteps.
func (b *writing) write(tree *syntax.Regexp, seed uint32) {
	if b.steps++; b.steps > maxPatternSteps {
		return
	}
	switch tree.Op {
	case syntax.OpLiteral:
		b.WriteString(string(tree.Rune))
	case syntax.OpCharClass:
		var usual []rune
		for i := 0; i < len(tree.Rune); i += 2 {
			for r := max(tree.Rune[i], '!'); r <= min(tree.Rune[i+1], '~'); r++ {
				if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
					usual = append(usual, r)
				}
			}
		}
		if len(usual) == 0 && len(tree.Rune) > 0 {
			usual = []rune{tree.Rune[0]}
		}
		if len(usual) > 0 {
			b.WriteRune(usual[int(salt(strconv.Itoa(b.Len()), strconv.Itoa(int(seed))))%len(usual)])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[salt(strconv.Itoa(b.Len()), strconv.Itoa(int(seed)))%36])
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range tree.Sub {
			b.write(sub, seed)
		}
	case syntax.OpAlternate:
		b.write(tree.Sub[int(seed)%len(tree.Sub)], seed)
	case syntax.OpStar, syntax.OpPlus:
		for range 4 {
			b.write(tree.Sub[0], seed)
		}
	case syntax.OpQuest:
		if seed%2 == 0 {
			b.write(tree.Sub[0], seed)
		}
	case syntax.OpRepeat:
		times := tree.Min
		if tree.Max < 0 {
			times = max(4, tree.Min)
		}
		for range min(times, maxPatternSteps) {
			b.write(tree.Sub[0], seed)
		}
	}
}
