package condition

import (
	"encoding/json"
	"errors"
	"fmt"
)

var errUnknown = errors.New("unknown form of a condition")

// UnmarshalJSON reads the stored form. Unknown keys are ignored; unknown forms and missing parts are errors.
func (n *Node) UnmarshalJSON(text []byte) error {
	var kind Kind
	if json.Unmarshal(text, &kind) == nil {
		if kind != OperatorOnly && kind != TimeoutOnly {
			return errUnknown
		}
		*n = Node{Kind: kind}
		return nil
	}
	var stored struct {
		Single *struct {
			WaitpointKey *string         `json:"waitpoint_key"`
			Matcher      json.RawMessage `json:"matcher"`
			Predicate    string          `json:"predicate"`
		}
		Composite *struct {
			Kind       Kind            `json:"kind"`
			Members    []Node          `json:"members"`
			N          int             `json:"n"`
			CountKind  Distinct        `json:"count_kind"`
			Matcher    json.RawMessage `json:"matcher"`
			Waitpoints []string        `json:"waitpoints"`
			Predicate  string          `json:"predicate"`
		}
	}
	if err := json.Unmarshal(text, &stored); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	switch s, c := stored.Single, stored.Composite; {
	case s != nil && s.WaitpointKey != nil:
		name, err := matched(s.Matcher)
		*n = Node{Kind: Single, Keys: []string{*s.WaitpointKey}, Name: name, Where: s.Predicate}
		if len(s.Matcher) == 0 {
			err = errUnknown
		}
		return err
	case c != nil && (c.Kind == AllOf || c.Kind == AnyOf):
		*n = Node{Kind: c.Kind, Members: c.Members}
		return nil
	case c != nil && c.Kind == Count:
		name, err := matched(c.Matcher)
		*n = Node{Kind: Count, Keys: c.Waitpoints, Name: name, Where: c.Predicate, N: c.N, By: c.CountKind}
		return err
	}
	return errUnknown
}

// matched reads a matcher: the name, or "" for any.
func matched(text json.RawMessage) (string, error) {
	if len(text) == 0 || string(text) == "null" || string(text) == `"Wildcard"` {
		return "", nil
	}
	var named struct{ ByName *string }
	if err := json.Unmarshal(text, &named); err != nil || named.ByName == nil {
		return "", errUnknown
	}
	return *named.ByName, nil
}
