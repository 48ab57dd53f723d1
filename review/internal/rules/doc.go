// Package rules checks migrations by their text. Some rules need no database; others are guesses, for cases without
// one. [rule] documents them.
//
// Migrations of the base branch are frozen. A change is compared with the base branch's own text, so there is no file
// of checksums to keep. Comments and white space may change.
package rules

import "github.com/flowfabric/flowfabric-go/review/internal/rule"

// Guesses are the rules decided better by internal/observe.
var Guesses = guessing()

func guessing() (names []string) {
	for _, r := range rule.All() {
		if r.Guess {
			names = append(names, r.Name)
		}
	}
	return names
}
