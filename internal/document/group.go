package document

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/flowfabric/flowfabric-go/policy"
)

// Group is a stored [policy.Group]. The zero value needs all. Comparable.
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
	onFailure
	always
)

// beyondReach makes FlowFabric leave a group with an unknown policy alone. FlowFabric reads the group as a quorum of
// this size. The quorum is neither reached nor out of reach, because the stored count of running upstreams is too high
// by the same number, which exceeds the number of upstreams a group may have.
const beyondReach = 1_000_000_000

// OnSatisfiedValues lists the stored values in order.
func OnSatisfiedValues() []policy.OnSatisfied {
	return []policy.OnSatisfied{policy.CancelRemaining, policy.LetRun}
}

// GroupOf returns the document of a valid group.
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
	case policy.OnFailure():
		return Group{kind: onFailure}
	case policy.Always():
		return Group{kind: always}
	}
	return Group{kind: quorum, k: int64(g.Needs(0)), onSatisfied: on}
}

// Policy returns g in the form of callers.
func (g Group) Policy() policy.Group {
	switch g.kind {
	case anyOf:
		return policy.AnyOf(g.onSatisfied)
	case quorum:
		return policy.Quorum(int(g.k), g.onSatisfied)
	case onFailure:
		return policy.OnFailure()
	case always:
		return policy.Always()
	}
	return policy.AllOf()
}

// CancelsRemaining reports whether deciding the group cancels the remaining upstreams: never for a group that needs
// all, or waits for all.
func (g Group) CancelsRemaining() bool {
	return g.chooses() && g.onSatisfied == policy.CancelRemaining
}

func (g Group) chooses() bool { return g.kind == anyOf || g.kind == quorum }

// KTarget returns how many of n upstreams must succeed, as FlowFabric understands it. The result is the stored target
// of the group's row, in the range of the column.
func (g Group) KTarget(n int64) int32 {
	needed := n
	switch g.kind {
	case anyOf:
		needed = 1
	case quorum:
		needed = g.k
	case onFailure, always:
		needed = beyondReach
	}
	return int32(min(needed, math.MaxInt32))
}

// Running returns how many upstreams of the group run, given the stored count.
func (g Group) Running(stored int64) int64 { return max(stored-g.excess(), 0) }

// StoredRunning returns the count to store for a number of running upstreams.
func (g Group) StoredRunning(running int64) int32 { return int32(running + g.excess()) }

func (g Group) excess() int64 {
	if g.kind == onFailure || g.kind == always {
		return beyondReach
	}
	return 0
}

// Decision is the outcome of a group's counters.
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

// Evaluate decides a group of n upstreams, where success, fail and skip count the ended ones. A group without upstreams
// is never decided; nor is a quorum of more than n before one has failed, since more may be added.
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
	case onFailure:
		switch {
		case success+lost < n:
		case lost >= 1:
			return Satisfied
		default:
			return Impossible
		}
	case always:
		if success+lost >= n {
			return Satisfied
		}
	}
	return Undecided
}

// Decide is Evaluate for the counters of the group's row. staged is the number of edges staged and not applied yet,
// which the row does not count.
func (g Group) Decide(success, fail, skip, running int32, staged int64) Decision {
	s, f, k := int64(success), int64(fail), int64(skip)
	return g.Evaluate(s+f+k+g.Running(int64(running))+staged, s, f, k)
}

// OpenedBy is the least number of further upstreams to make a decided group of these counts undecided again, at most
// the range of an int32; 0 if there is no such number.
func (g Group) OpenedBy(n, success, fail, skip int64) int64 {
	lost := fail + skip
	switch {
	case g.Evaluate(n, success, fail, skip) == Undecided:
		return 0
	case g.kind == allOf && lost == 0, g.kind == anyOf && success == 0, g.kind == onFailure, g.kind == always:
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

	// Values of ffx_when, which accompanies a quorum FlowFabric leaves alone.
	whenOnFailure = "on_failure"
	whenAlways    = "always"
)

// MarshalJSON renders the stored document: no key more than the kind needs.
func (g Group) MarshalJSON() ([]byte, error) {
	type document struct {
		Kind        string             `json:"kind"`
		K           *int64             `json:"k,omitempty"`
		OnSatisfied policy.OnSatisfied `json:"on_satisfied,omitempty"`
		When        string             `json:"ffx_when,omitempty"`
	}
	k := int64(beyondReach)
	switch g.kind {
	case anyOf:
		return json.Marshal(document{Kind: kindAnyOf, OnSatisfied: g.onSatisfied})
	case quorum:
		return json.Marshal(document{Kind: kindQuorum, K: &g.k, OnSatisfied: g.onSatisfied})
	case onFailure:
		return json.Marshal(document{Kind: kindQuorum, K: &k, OnSatisfied: policy.LetRun, When: whenOnFailure})
	case always:
		return json.Marshal(document{Kind: kindQuorum, K: &k, OnSatisfied: policy.LetRun, When: whenAlways})
	}
	return json.Marshal(document{Kind: kindAllOf})
}

// UnmarshalJSON reads a caller's document strictly: every key of the kind is required.
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
	if p = o.when(p); o.err != nil {
		return o.err
	}
	*g = p
	return nil
}

// when returns the policy in ffx_when, or the quorum if there is none. when rejects an unknown policy, and one with a
// target other than beyondReach: then the stored count of running upstreams is unreadable.
func (o *object) when(quorumRead Group) Group {
	raw, ok := o.members["ffx_when"]
	if !ok || quorumRead.kind != quorum {
		return quorumRead
	}
	if quorumRead.k != beyondReach {
		o.fail("k", "not "+strconv.Itoa(beyondReach))
	}
	switch o.text("ffx_when", raw) {
	case whenOnFailure:
		return Group{kind: onFailure}
	case whenAlways:
		return Group{kind: always}
	}
	o.fail("ffx_when", "unknown value")
	return Group{}
}

// GroupFromStored reads a stored document: a missing kind is all_of, a missing k is 1, a missing or unknown
// on_satisfied is cancel_remaining.
//
// Errors: [*DecodeError] if the kind or ffx_when is unknown, or k is no unsigned 32-bit integer; the row is corrupt.
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
	if p = o.when(p); o.err != nil {
		return Group{}, o.err
	}
	return p, nil
}
