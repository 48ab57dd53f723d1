// Package rule is the registry of the review's rules: each has its name, severities, documentation and advice here.
// The packages that find something take the names from here, and docs/schema-review.md lists them all.
//
// To add a rule, declare it in the file of its kind, add its row to the documentation and a case to testdata/corpus.
package rule

import "slices"

// Rule is one check. Its name is part of the report's format, and of the comments that accept findings.
type Rule struct {
	Name string
	// Severities are the severities a finding may have, by name, the usual one first.
	Severities []string
	// About says in one sentence, without a full stop, when the rule reports something.
	About string
	// Advice is the usual way out, in Markdown. A finding may have a better one for its statement. Empty: the advice
	// depends on the statement.
	Advice string
	// Guess marks rules about the text of a statement. If the statement was observed, the observation counts.
	Guess bool
}

var all []Rule

func add(r Rule) Rule {
	all = append(all, r)
	return r
}

// All returns the rules, by kind.
func All() []Rule { return slices.Clone(all) }

// ByName returns the rule of a name.
func ByName(name string) (Rule, bool) {
	at := slices.IndexFunc(all, func(r Rule) bool { return r.Name == name })
	if at < 0 {
		return Rule{}, false
	}
	return all[at], true
}
