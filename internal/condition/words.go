package condition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// InWords describes the condition for people: `2 of distinct sources "approved"`, `"approved" or "rejected"`,
// "an operator". A waitpoint is named if its key is not the name of the signal.
func (n Node) InWords() string {
	switch n.Kind {
	case Single:
		return n.signalInWords()
	case Count:
		by := "signals"
		switch n.By {
		case Sources:
			by = "sources"
		case Waitpoints:
			by = "waitpoints"
		}
		return fmt.Sprintf("%d of distinct %s %s", n.N, by, n.signalInWords())
	case AllOf, AnyOf:
		return n.membersInWords()
	case OperatorOnly:
		return "an operator"
	case TimeoutOnly:
		return "the timeout"
	}
	return "nothing"
}

func (n Node) membersInWords() string {
	and := " and "
	if n.Kind == AnyOf {
		and = " or "
	}
	parts := make([]string, len(n.Members))
	for i, member := range n.Members {
		parts[i] = member.InWords()
		if len(member.Members) > 1 && len(n.Members) > 1 {
			parts[i] = "(" + parts[i] + ")"
		}
	}
	return strings.Join(parts, and)
}

// signalInWords describes the signals that a part counts.
func (n Node) signalInWords() string {
	words := "any signal"
	if n.Name != "" {
		words = strconv.Quote(n.Name)
	}
	if !slices.Equal(n.Keys, []string{n.Name}) {
		keys := make([]string, len(n.Keys))
		for i, key := range n.Keys {
			keys[i] = strconv.Quote(key)
		}
		words += " at " + strings.Join(keys, ", ")
	}
	if n.Where != "" {
		words += " where " + n.Where
	}
	return words
}
