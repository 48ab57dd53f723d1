package document

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/flowfabric/flowfabric-go/policy"
)

// Group is a stored [policy.Group]. Its zero value needs all. Comparable.
type Group struct {
	kind        groupKind
	k           int64
	onSatisfied policy.OnSatisfied
}

type groupKind uint8

const (
	allOf groupKind = iota
	anyOf
	quorum
)

// OnSatisfiedValues lists the stored values in order.
func OnSatisfiedValues() []policy.OnSatisfied {
	return []policy.OnSatisfied{policy.CancelRemaining, policy.LetRun}
}

// GroupOf returns the document of a group that is valid.
func GroupOf(g policy.Group) Group {
	on := policy.LetRun
	if g.CancelsRemaining() {
		on = policy.CancelRemaining
	}
	switch g {
	case policy.AllOf():
		return Group{}
	case policy.AnyOf(on):
		return Group{kind: anyOf, onSatisfied: on}
	}
	return Group{kind: quorum, k: int64(g.Needs(0)), onSatisfied: on}
}

// Policy returns g as callers know it.
func (g Group) Policy() policy.Group {
	switch g.kind {
	case anyOf:
		return policy.AnyOf(g.onSatisfied)
	case quorum:
		return policy.Quorum(int(g.k), g.onSatisfied)
	}
	return policy.AllOf()
}

// CancelsRemaining reports whether deciding the group cancels the upstreams left over.
// It never does for one that needs all.
func (g Group) CancelsRemaining() bool {
	return g.kind != allOf && g.onSatisfied == policy.CancelRemaining
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
		Kind        string             `json:"kind"`
		K           *int64             `json:"k,omitempty"`
		OnSatisfied policy.OnSatisfied `json:"on_satisfied,omitempty"`
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
		p.onSatisfied = policy.OnSatisfied(o.text("on_satisfied", o.required("on_satisfied")))
	case kindQuorum:
		p.kind = quorum
		p.k = o.int64("k", o.required("k"), 64)
		p.onSatisfied = policy.OnSatisfied(o.text("on_satisfied", o.required("on_satisfied")))
	default:
		o.fail("kind", "unknown value")
	}
	if o.err != nil {
		return o.err
	}
	switch {
	case p.kind == quorum && (p.k < 1 || p.k > math.MaxInt32):
		return &DecodeError{Path: "k", Problem: "not in 1.." + strconv.Itoa(math.MaxInt32)}
	case p.kind != allOf && !slices.Contains(OnSatisfiedValues(), p.onSatisfied):
		return &DecodeError{Path: "on_satisfied", Problem: "unknown value"}
	}
	*g = p
	return nil
}

// GroupFromStored reads a stored document: a missing kind is all_of, a missing k is 1, a
// missing or unknown on_satisfied is cancel_remaining.
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
		p.onSatisfied = policy.CancelRemaining
		if string(o.members["on_satisfied"]) == strconv.Quote(string(policy.LetRun)) {
			p.onSatisfied = policy.LetRun
		}
	}
	if o.err != nil {
		return Group{}, o.err
	}
	return p, nil
}
