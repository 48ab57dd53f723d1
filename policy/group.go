package policy

import "strconv"

// Group says how many upstreams must succeed, or end, before an execution runs. The execution is skipped once that is
// impossible. The zero value is [AllOf]. Comparable.
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
	onFailure
	always
)

// OnSatisfied is the effect of a decided group on its remaining upstreams.
type OnSatisfied string

// Effects of a decided group.
const (
	// CancelRemaining cancels the remaining upstreams when the group is satisfied or impossible, except those another
	// execution still waits for. It is the default.
	CancelRemaining OnSatisfied = "cancel_remaining"
	// LetRun lets the remaining upstreams run.
	LetRun OnSatisfied = "let_run"
)

// AllOf returns a group that needs every upstream to succeed.
func AllOf() Group { return Group{} }

// AnyOf returns a group that needs one upstream to succeed.
func AnyOf(onSatisfied OnSatisfied) Group {
	return Group{kind: anyOf, onSatisfied: onSatisfied.orDefault()}
}

// Quorum returns a group that needs k upstreams to succeed: at least 1, at most the number of upstreams.
func Quorum(k int, onSatisfied OnSatisfied) Group {
	return Group{kind: quorum, k: k, onSatisfied: onSatisfied.orDefault()}
}

// OnFailure returns a group for error branches and compensations. It waits until every upstream has ended, and runs the
// execution if one did not succeed: it failed, expired, or was cancelled or skipped. If all succeeded, the execution is
// skipped. After a chain, it runs even if the last of the chain was only skipped.
func OnFailure() Group { return Group{kind: onFailure} }

// Always returns a group for clean-ups. It waits until every upstream has ended, and always runs the execution.
func Always() Group { return Group{kind: always} }

func (s OnSatisfied) orDefault() OnSatisfied {
	if s == "" {
		return CancelRemaining
	}
	return s
}

// Needs returns how many of the given number of upstreams must succeed: 0 for [OnFailure] and [Always].
func (g Group) Needs(upstreams int) int {
	switch g.kind {
	case anyOf:
		return 1
	case quorum:
		return g.k
	case onFailure, always:
		return 0
	}
	return upstreams
}

// CancelsRemaining reports whether deciding the group cancels the remaining upstreams. Only groups of [AnyOf] and [Quorum]
// can; the others need or await all upstreams.
func (g Group) CancelsRemaining() bool { return g.chooses() && g.onSatisfied == CancelRemaining }

// chooses reports whether the group may be satisfied without all of its upstreams.
func (g Group) chooses() bool { return g.kind == anyOf || g.kind == quorum }

// String returns a description of g, such as "quorum of 2".
func (g Group) String() string {
	switch g.kind {
	case anyOf:
		return "any of"
	case quorum:
		return "quorum of " + strconv.Itoa(g.k)
	case onFailure:
		return "on failure"
	case always:
		return "always"
	}
	return "all of"
}
