package policy

import "strconv"

// Group says how many of an execution's upstreams must succeed before it may run. The execution is skipped once that
// cannot happen any more. The zero value is [AllOf]. Comparable.
type Group struct {
	kind        groupKind
	k           int
	onSatisfied OnSatisfied
}

type groupKind uint8

const (
	allOf groupKind = iota
	anyOf
	quorum
)

// OnSatisfied says what happens to the other upstreams once a group is decided.
type OnSatisfied string

// What may happen to them.
const (
	// CancelRemaining cancels the upstreams that are no longer needed. Creating a flow with it is refused, until the
	// engine can cancel. It is what an empty OnSatisfied means.
	CancelRemaining OnSatisfied = "cancel_remaining"
	// LetRun leaves them alone.
	LetRun OnSatisfied = "let_run"
)

// AllOf needs every upstream to succeed.
func AllOf() Group { return Group{} }

// AnyOf needs one upstream to succeed.
func AnyOf(onSatisfied OnSatisfied) Group {
	return Group{kind: anyOf, onSatisfied: onSatisfied.orDefault()}
}

// Quorum needs k upstreams to succeed: at least 1, at most as many as there are.
func Quorum(k int, onSatisfied OnSatisfied) Group {
	return Group{kind: quorum, k: k, onSatisfied: onSatisfied.orDefault()}
}

func (s OnSatisfied) orDefault() OnSatisfied {
	if s == "" {
		return CancelRemaining
	}
	return s
}

// Needs returns how many of that many upstreams must succeed.
func (g Group) Needs(upstreams int) int {
	switch g.kind {
	case anyOf:
		return 1
	case quorum:
		return g.k
	}
	return upstreams
}

// CancelsRemaining reports whether deciding the group cancels the upstreams left over. That of [AllOf] never does.
func (g Group) CancelsRemaining() bool { return g.kind != allOf && g.onSatisfied == CancelRemaining }

// String describes g, such as "quorum of 2".
func (g Group) String() string {
	switch g.kind {
	case anyOf:
		return "any of"
	case quorum:
		return "quorum of " + strconv.Itoa(g.k)
	}
	return "all of"
}
