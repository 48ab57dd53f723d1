package policy

import "strconv"

// Group says which ends of its upstreams an execution waits for. It is skipped once these cannot come any more. The zero
// value is [AllOf]. Comparable.
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

// OnSatisfied says what happens to the other upstreams once a group is decided.
type OnSatisfied string

// What may happen to them.
const (
	// CancelRemaining cancels the upstreams that are no longer needed, whether the group is satisfied or has become
	// impossible. One that another execution still waits for is spared. It is what an empty OnSatisfied means.
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

// OnFailure waits until every upstream has ended, and runs if one of them did not succeed: it failed, expired, or was
// cancelled or skipped. If all succeeded it is skipped. For error branches and compensations: behind a chain it runs
// although the last of the chain was only skipped.
func OnFailure() Group { return Group{kind: onFailure} }

// Always waits until every upstream has ended, and runs however each did. For clean-ups.
func Always() Group { return Group{kind: always} }

func (s OnSatisfied) orDefault() OnSatisfied {
	if s == "" {
		return CancelRemaining
	}
	return s
}

// Needs returns how many of that many upstreams must succeed: none for [OnFailure] and [Always].
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

// CancelsRemaining reports whether deciding the group cancels the upstreams left over. Only that of [AnyOf] and of
// [Quorum] may: the others need all, or wait for all.
func (g Group) CancelsRemaining() bool { return g.chooses() && g.onSatisfied == CancelRemaining }

// chooses: the group may be decided while upstreams are left that could still change it for the better.
func (g Group) chooses() bool { return g.kind == anyOf || g.kind == quorum }

// String describes g, such as "quorum of 2".
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
