package policy

import (
	"encoding/json"
	"math"
	"strconv"
)

// Group says which of an execution's dependencies must succeed before it may run.
// Its zero value is [AllOf]. Comparable.
type Group struct {
	kind        groupKind
	k           int64
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

const (
	// CancelRemaining cancels the upstreams that are no longer needed. The default.
	CancelRemaining OnSatisfied = "cancel_remaining"
	// LetRun leaves them alone.
	LetRun OnSatisfied = "let_run"
)

// OnSatisfiedValues lists the values in order.
func OnSatisfiedValues() []OnSatisfied { return []OnSatisfied{CancelRemaining, LetRun} }

// AllOf needs every upstream to succeed.
func AllOf() Group { return Group{} }

// AnyOf needs one upstream to succeed. An empty onSatisfied means [CancelRemaining].
func AnyOf(onSatisfied OnSatisfied) Group {
	return Group{kind: anyOf, onSatisfied: onSatisfied.orDefault()}
}

// Quorum needs k upstreams to succeed; k is at least 1. An empty onSatisfied means
// [CancelRemaining].
func Quorum(k int, onSatisfied OnSatisfied) Group {
	return Group{kind: quorum, k: int64(k), onSatisfied: onSatisfied.orDefault()}
}

func (s OnSatisfied) orDefault() OnSatisfied {
	if s == "" {
		return CancelRemaining
	}
	return s
}

func (s OnSatisfied) valid() bool { return s == CancelRemaining || s == LetRun }

// CancelsRemaining reports whether deciding the group cancels the upstreams left over.
// It never does for [AllOf].
func (g Group) CancelsRemaining() bool { return g.kind != allOf && g.onSatisfied == CancelRemaining }

// IsAllOf reports whether g is [AllOf].
func (g Group) IsAllOf() bool { return g.kind == allOf }

// Validate refuses a quorum below 1 or above the int32 maximum, and an unknown onSatisfied.
//
// Errors: [*DecodeError].
func (g Group) Validate() error {
	switch {
	case g.kind == quorum && (g.k < 1 || g.k > math.MaxInt32):
		return &DecodeError{Path: "k", Problem: "not in 1.." + strconv.Itoa(math.MaxInt32)}
	case g.kind != allOf && !g.onSatisfied.valid():
		return &DecodeError{Path: "on_satisfied", Problem: "unknown value"}
	}
	return nil
}

// KTarget is how many of n upstreams must succeed. It is what the group's row holds as its
// target, in that column's range.
func (g Group) KTarget(n int64) int32 {
	needed := n
	switch g.kind {
	case anyOf:
		needed = 1
	case quorum:
		needed = g.k
	}
	return int32(min(needed, math.MaxInt32))
}

// Decision is what a group's counters say.
type Decision uint8

// The decisions.
const (
	Undecided Decision = iota
	Satisfied
	Impossible
)

// String names the decision.
func (d Decision) String() string {
	switch d {
	case Undecided:
		return "undecided"
	case Satisfied:
		return "satisfied"
	case Impossible:
		return "impossible"
	}
	return "Decision(" + strconv.Itoa(int(d)) + ")"
}

// Evaluate decides a group of n upstreams of which success, fail and skip have ended that
// way. A group without upstreams is never decided; nor is a quorum of more than n before
// one has failed, since more may be added.
func (g Group) Evaluate(n, success, fail, skip int64) Decision {
	lost := fail + skip
	if n == 0 {
		return Undecided
	}
	switch g.kind {
	case allOf:
		switch {
		case success == n:
			return Satisfied
		case lost >= 1:
			return Impossible
		}
	case anyOf:
		switch {
		case success >= 1:
			return Satisfied
		case lost == n:
			return Impossible
		}
	case quorum:
		switch {
		case success >= g.k:
			return Satisfied
		case lost >= 1 && n-lost < g.k:
			return Impossible
		}
	}
	return Undecided
}

// OpenedBy is the least number of further upstreams that would leave a decided group of these counts
// undecided, at most the range of an int32; 0 if no number would.
func (g Group) OpenedBy(n, success, fail, skip int64) int64 {
	lost := fail + skip
	switch {
	case g.Evaluate(n, success, fail, skip) == Undecided:
		return 0
	case g.kind == allOf && lost == 0, g.kind == anyOf && success == 0:
		return 1
	case g.kind == quorum && success < g.k:
		return min(g.k-(n-lost), math.MaxInt32)
	}
	return 0
}

const (
	kindAllOf  = "all_of"
	kindAnyOf  = "any_of"
	kindQuorum = "quorum"
)

// MarshalJSON renders the document as it is stored: no key more than the kind needs.
func (g Group) MarshalJSON() ([]byte, error) {
	type document struct {
		Kind        string      `json:"kind"`
		K           *int64      `json:"k,omitempty"`
		OnSatisfied OnSatisfied `json:"on_satisfied,omitempty"`
	}
	switch g.kind {
	case anyOf:
		return json.Marshal(document{Kind: kindAnyOf, OnSatisfied: g.onSatisfied})
	case quorum:
		return json.Marshal(document{Kind: kindQuorum, K: &g.k, OnSatisfied: g.onSatisfied})
	}
	return json.Marshal(document{Kind: kindAllOf})
}

// UnmarshalJSON reads a caller's document strictly: every key its kind has is required.
//
// Errors: [*DecodeError].
func (g *Group) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	var p Group
	switch o.text("kind", o.required("kind")) {
	case kindAllOf:
	case kindAnyOf:
		p.kind = anyOf
		p.onSatisfied = OnSatisfied(o.text("on_satisfied", o.required("on_satisfied")))
	case kindQuorum:
		p.kind = quorum
		p.k = o.int64("k", o.required("k"), 64)
		p.onSatisfied = OnSatisfied(o.text("on_satisfied", o.required("on_satisfied")))
	default:
		o.fail("kind", "unknown value")
	}
	if o.err != nil {
		return o.err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	*g = p
	return nil
}

// GroupFromStored reads a stored document: a missing kind is [AllOf], a missing k is 1, a
// missing or unknown on_satisfied is [CancelRemaining].
//
// Errors: [*DecodeError] when the kind is unknown or k is no unsigned 32-bit integer; the
// row is corrupt.
func GroupFromStored(document []byte) (Group, error) {
	o := openObject(document)
	var p Group
	switch orDefault("kind", o.defaulted("kind"), o.text, kindAllOf) {
	case kindAllOf:
	case kindAnyOf:
		p.kind = anyOf
	case kindQuorum:
		p.kind = quorum
		p.k = int64(orDefault("k", o.defaulted("k"), o.uint32, 1))
	default:
		o.fail("kind", "unknown value")
	}
	if p.kind != allOf {
		p.onSatisfied = CancelRemaining
		if string(o.members["on_satisfied"]) == strconv.Quote(string(LetRun)) {
			p.onSatisfied = LetRun
		}
	}
	if o.err != nil {
		return Group{}, o.err
	}
	return p, nil
}
