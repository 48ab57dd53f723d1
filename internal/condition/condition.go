// Package condition has the conditions that suspended executions wait for: how they are checked, stored, and which
// waitpoints and names of signals they need. The database evaluates them, in ffx_satisfied_by.
package condition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a condition.
const (
	MaxNodes     = 1024
	MaxDepth     = 4 // nested composites
	MaxKeys      = 256
	MaxKey       = 512  // bytes of a waitpoint's key
	MaxName      = 256  // bytes of a signal's name
	MaxPredicate = 1024 // bytes
)

// Kind is the kind of a condition.
type Kind string

// The kinds.
const (
	Single       Kind = "Single"       // one signal with a name at a waitpoint
	AllOf        Kind = "AllOf"        // all members
	AnyOf        Kind = "AnyOf"        // one member
	Count        Kind = "Count"        // a number of distinct signals
	OperatorOnly Kind = "OperatorOnly" // a resume
	TimeoutOnly  Kind = "TimeoutOnly"  // the timeout
)

// Distinct is the property by which Count counts signals.
type Distinct string

// The properties.
const (
	Waitpoints Distinct = "DistinctWaitpoints"
	Signals    Distinct = "DistinctSignals"
	Sources    Distinct = "DistinctSources"
)

// Node is a condition, or a part of one.
type Node struct {
	Kind    Kind
	Keys    []string // waitpoints: one of Single, all of Count
	Name    string   // of the signal; "": any
	Where   string   // SQL/JSON path that holds for the payload; "": none
	N       int      // of Count
	By      Distinct // of Count
	Members []Node   // of AllOf and AnyOf
}

// Check returns an error that names the first mistake.
func (n Node) Check() error {
	nodes := 0
	if err := n.check(1, &nodes); err != nil {
		return err
	}
	if keys := len(n.Waitpoints()); keys > MaxKeys {
		return fmt.Errorf("waits at %d waitpoints, limit %d", keys, MaxKeys)
	}
	return nil
}

func (n Node) check(depth int, nodes *int) error {
	if *nodes++; *nodes > MaxNodes {
		return fmt.Errorf("has more than %d parts", MaxNodes)
	}
	for _, key := range n.Keys {
		if key == "" && n.Name == "" {
			return errors.New("waits for a signal that has no name")
		}
		if err := CheckKey(key); err != nil {
			return err
		}
	}
	switch n.Kind {
	case Single:
		if len(n.Keys) != 1 {
			return fmt.Errorf("waits for one signal at %d waitpoints, one is allowed", len(n.Keys))
		}
		return n.checkMatch()
	case Count:
		return n.checkCount()
	case AllOf, AnyOf:
		if depth > MaxDepth {
			return fmt.Errorf("is nested more than %d deep", MaxDepth)
		}
		if len(n.Members) == 0 {
			return fmt.Errorf("%s has no members", n.Kind)
		}
		if len(n.Keys) > 0 {
			return fmt.Errorf("%s has no waitpoint of its own, its members have", n.Kind)
		}
		for _, member := range n.Members {
			if member.Kind == OperatorOnly || member.Kind == TimeoutOnly {
				return fmt.Errorf("%s can't be a member of another condition", member.Kind)
			}
			if err := member.check(depth+1, nodes); err != nil {
				return err
			}
		}
	case OperatorOnly, TimeoutOnly:
	default:
		return errors.New("is empty")
	}
	return nil
}

func (n Node) checkCount() error {
	distinct := make(map[string]bool)
	for _, key := range n.Keys {
		distinct[key] = true
	}
	switch {
	case n.N < 1:
		return fmt.Errorf("counts to %d, at least 1 is needed", n.N)
	case len(n.Keys) == 0:
		return errors.New("counts signals of no waitpoint")
	case n.By != Waitpoints && n.By != Signals && n.By != Sources:
		return fmt.Errorf("counts by %q, which is none of the properties", n.By)
	case n.By == Waitpoints && n.N > len(distinct):
		return fmt.Errorf("counts to %d of %d waitpoints", n.N, len(distinct))
	}
	return n.checkMatch()
}

// checkMatch checks which signals a part counts.
func (n Node) checkMatch() error {
	if n.Name != "" {
		if err := CheckName(n.Name); err != nil {
			return err
		}
	}
	if len(n.Where) > MaxPredicate {
		return fmt.Errorf("has a predicate of %d bytes, limit %d", len(n.Where), MaxPredicate)
	}
	return checkStorable("predicate", n.Where)
}

// CheckKey checks the key of a waitpoint.
func CheckKey(key string) error {
	switch {
	case key == "" || len(key) > MaxKey:
		return fmt.Errorf("has a waitpoint key of %d bytes, between 1 and %d are allowed", len(key), MaxKey)
	case strings.HasPrefix(key, "__"):
		return errors.New("has a waitpoint key that begins with __, which is reserved")
	}
	return checkStorable("waitpoint key", key)
}

// CheckName checks the name of a signal.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("has a signal name of %d bytes, between 1 and %d are allowed", len(name), MaxName)
	}
	return checkStorable("signal name", name)
}

func checkStorable(what, text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("has a %s that is not UTF-8, or contains U+0000", what)
	}
	return nil
}

// A Waitpoint is a place where signals for a condition arrive.
type Waitpoint struct {
	Key   string
	Names []string // of the signals that can help to satisfy the condition; empty: any
}

// Waitpoints returns the waitpoints of the condition, in the order of its parts.
func (n Node) Waitpoints() []Waitpoint {
	var points []Waitpoint
	at := make(map[string]int)
	open := make(map[string]bool) // keys that take any signal
	n.walk(func(part Node) {
		for _, key := range part.Keys {
			i, known := at[key]
			if !known {
				i = len(points)
				at[key] = i
				points = append(points, Waitpoint{Key: key, Names: []string{}})
			}
			if part.Name == "" {
				open[key] = true
			} else if !slices.Contains(points[i].Names, part.Name) {
				points[i].Names = append(points[i].Names, part.Name)
			}
		}
	})
	for i := range points {
		if open[points[i].Key] {
			points[i].Names = []string{}
		}
	}
	return points
}

// Predicates returns the distinct predicates of the condition.
func (n Node) Predicates() []string {
	var paths []string
	n.walk(func(part Node) {
		if part.Where != "" && !slices.Contains(paths, part.Where) {
			paths = append(paths, part.Where)
		}
	})
	return paths
}

func (n Node) walk(visit func(Node)) {
	visit(n)
	for _, member := range n.Members {
		member.walk(visit)
	}
}

// The stored forms.
type (
	storedSingle struct {
		WaitpointKey string `json:"waitpoint_key"`
		Matcher      any    `json:"matcher"` // "Wildcard" or byName
		Predicate    string `json:"predicate,omitempty"`
	}
	storedComposite struct {
		Kind       Kind     `json:"kind"`
		Members    []Node   `json:"members,omitempty"`
		N          int      `json:"n,omitempty"`
		CountKind  Distinct `json:"count_kind,omitempty"`
		Matcher    any      `json:"matcher,omitempty"`
		Waitpoints []string `json:"waitpoints,omitempty"`
		Predicate  string   `json:"predicate,omitempty"`
	}
	byName struct {
		ByName string `json:"ByName"`
	}
)

// MarshalJSON returns the stored form.
func (n Node) MarshalJSON() ([]byte, error) {
	switch n.Kind {
	case Single:
		stored := storedSingle{WaitpointKey: n.Keys[0], Matcher: "Wildcard", Predicate: n.Where}
		if n.Name != "" {
			stored.Matcher = byName{n.Name}
		}
		return json.Marshal(map[string]storedSingle{"Single": stored})
	case AllOf, AnyOf, Count:
		stored := storedComposite{Kind: n.Kind, Members: n.Members, N: n.N, CountKind: n.By, Waitpoints: n.Keys, Predicate: n.Where}
		if n.Name != "" {
			stored.Matcher = byName{n.Name}
		}
		return json.Marshal(map[string]storedComposite{"Composite": stored})
	}
	return json.Marshal(n.Kind)
}

// Renamed returns the condition with other keys.
func (n Node) Renamed(rename func(key string) string) Node {
	keys, members := n.Keys, n.Members
	n.Keys, n.Members = nil, nil
	for _, key := range keys {
		n.Keys = append(n.Keys, rename(key))
	}
	for _, member := range members {
		n.Members = append(n.Members, member.Renamed(rename))
	}
	return n
}
