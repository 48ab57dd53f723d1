package budget

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Kind is the kind of an [Outcome], as it is stored.
type Kind string

// The kinds.
const (
	Ok             Kind = "Ok"
	SoftBreach     Kind = "SoftBreach"     // applied, and above a soft limit
	HardBreach     Kind = "HardBreach"     // not applied, because of a hard limit
	AlreadyApplied Kind = "AlreadyApplied" // not applied again
)

// Outcome is the outcome of a report. Of a breach it has the first dimension, the usage after the report, or before it
// if it was not applied, and the limit.
type Outcome struct {
	Kind      Kind
	Dimension string
	Current   int64
	Limit     int64
}

// stored is the stored form of an outcome.
type stored struct {
	Kind      Kind   `json:"kind"`
	Dimension string `json:"dimension,omitempty"`
	Current   *int64 `json:"current_usage,omitempty"`
	Hard      *int64 `json:"hard_limit,omitempty"`
	Soft      *int64 `json:"soft_limit,omitempty"`
	Budget    string `json:"budget_id"`
	Op        string `json:"op"`
}

// Encode returns the stored form of an outcome of an operation on a budget.
func (o Outcome) Encode(budget, op string) (string, error) {
	s := stored{Kind: o.Kind, Budget: budget, Op: op}
	switch o.Kind {
	case SoftBreach:
		s.Dimension, s.Current, s.Soft = o.Dimension, &o.Current, &o.Limit
	case HardBreach:
		s.Dimension, s.Current, s.Hard = o.Dimension, &o.Current, &o.Limit
	}
	document, err := json.Marshal(s)
	return string(document), err
}

// ReadOutcome reads a stored outcome.
func ReadOutcome(document string) (Outcome, error) {
	var s stored
	if err := json.Unmarshal([]byte(document), &s); err != nil {
		return Outcome{}, errors.New("is no outcome of a report")
	}
	o := Outcome{Kind: s.Kind, Dimension: s.Dimension}
	limit := s.Soft
	switch s.Kind {
	case Ok, AlreadyApplied:
		return o, nil
	case HardBreach:
		limit = s.Hard
	case SoftBreach:
	default:
		return o, fmt.Errorf("has the unknown kind %q", s.Kind)
	}
	if s.Current == nil || limit == nil {
		return o, fmt.Errorf("lacks the usage or the limit of its %s", s.Kind)
	}
	o.Current, o.Limit = *s.Current, *limit
	return o, nil
}

// Amount is an amount in a dimension.
type Amount struct {
	Dimension string
	N         int64 // not negative
}

// Account is the usage of a budget while reports are decided one after the other.
type Account struct {
	Policy Policy
	Usage  map[string]int64

	Applied    map[string]int64 // the sum of the applied amounts, by dimension
	Hard, Soft int64            // breaches
	LastBreach string           // the dimension of the last hard one
}

// Report decides a report of amounts, which ascend by dimension, and applies it unless a hard limit would be exceeded.
func (a *Account) Report(amounts []Amount) Outcome {
	for _, m := range amounts {
		used, limit := a.Usage[m.Dimension], a.Policy.Hard[m.Dimension]
		if limit > 0 && Add(used, m.N) > limit {
			a.Hard++
			a.LastBreach = m.Dimension
			return Outcome{HardBreach, m.Dimension, used, limit}
		}
	}
	outcome := Outcome{Kind: Ok}
	for _, m := range amounts {
		used := Add(a.Usage[m.Dimension], m.N)
		a.Usage[m.Dimension] = used
		a.Applied[m.Dimension] = Add(a.Applied[m.Dimension], m.N)
		if limit := a.Policy.Soft[m.Dimension]; limit > 0 && used > limit && outcome.Kind == Ok {
			a.Soft++
			outcome = Outcome{SoftBreach, m.Dimension, used, limit}
		}
	}
	return outcome
}
