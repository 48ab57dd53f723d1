package budgets

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Kind is the stored kind of an [Outcome].
type Kind string

// The kinds.
const (
	Ok             Kind = "Ok"
	SoftBreach     Kind = "SoftBreach"     // applied, and above a soft limit
	HardBreach     Kind = "HardBreach"     // not applied, because of a hard limit
	AlreadyApplied Kind = "AlreadyApplied" // not applied again
)

// Outcome is the outcome of a report. A breach has the first dimension, the usage after the report, or before an
// unapplied report, the amount reserved by leases, and the limit.
type Outcome struct {
	Kind      Kind
	Dimension string
	Current   int64
	Reserved  int64
	Limit     int64

	ByReservations bool // a hard breach only with the reservations of other leases

	At    string // the budget of a breach of a reservation or settlement
	Lease string // with a reservation or settlement
}

// stored is the stored form of an outcome.
type stored struct {
	Kind      Kind   `json:"kind"`
	Dimension string `json:"dimension,omitempty"`
	Current   *int64 `json:"current_usage,omitempty"`
	Hard      *int64 `json:"hard_limit,omitempty"`
	Soft      *int64 `json:"soft_limit,omitempty"`
	Reserved  int64  `json:"reserved,omitempty"`
	Others    bool   `json:"by_reservations,omitempty"`
	At        string `json:"breached_budget_id,omitempty"`
	Lease     string `json:"lease,omitempty"`
	Budget    string `json:"budget_id"`
	Op        string `json:"op"`
}

// Encode returns the stored form of an outcome of an operation on a budget.
func (o Outcome) Encode(budget, op string) (string, error) {
	s := stored{Kind: o.Kind, Budget: budget, Op: op, Reserved: o.Reserved, Others: o.ByReservations, At: o.At, Lease: o.Lease}
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
	o := Outcome{Kind: s.Kind, Dimension: s.Dimension, Reserved: s.Reserved, ByReservations: s.Others, At: s.At, Lease: s.Lease}
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
	Policy   Policy
	Usage    map[string]int64
	Reserved map[string]int64 // by all leases

	Applied    map[string]int64 // the sum of the applied amounts, by dimension
	Hard, Soft int64            // breaches
	LastBreach string           // the dimension of the last hard one
	over       bool             // usage was too high for a hard limit
}

// Request is a request for amounts, which ascend by dimension.
type Request struct {
	Amounts  []Amount
	Reserves bool             // they are not used yet
	Held     map[string]int64 // reserved by the lease of the request
	Covered  map[string]int64 // the part of Held ended by a settlement, which fits; nil: no settlement
}

// Report decides a report of amounts, which ascend by dimension, and applies the report unless a hard limit would be
// exceeded.
func (a *Account) Report(amounts []Amount) Outcome {
	if refusal, refused := a.Refuses(Request{Amounts: amounts}); refused {
		return a.Breach(refusal)
	}
	return a.Apply(amounts)
}

// Refuses reports whether a request would exceed a hard limit. It notes whether the usage alone is too high.
func (a *Account) Refuses(r Request) (refusal Outcome, refused bool) {
	for _, m := range r.Amounts {
		used, reserved, limit := a.Usage[m.Dimension], a.Reserved[m.Dimension], a.Policy.Hard[m.Dimension]
		own := r.Covered[m.Dimension]
		if limit <= 0 || r.Covered != nil && m.N <= own || Add(Add(used, max(reserved-own, 0)), m.N) <= limit {
			continue
		}
		if !refused {
			refused = true
			refusal = Outcome{
				Kind: HardBreach, Dimension: m.Dimension, Current: used, Reserved: reserved, Limit: limit, ByReservations: true,
			}
		}
		if Add(Add(used, max(r.Held[m.Dimension]-own, 0)), m.N) > limit {
			refusal.ByReservations = false
		}
		a.over = a.over || used >= limit || !r.Reserves && Add(used, m.N) > limit
	}
	return refusal, refused
}

// Breach counts and returns a refusal.
func (a *Account) Breach(refusal Outcome) Outcome {
	a.Hard++
	a.LastBreach = refusal.Dimension
	return refusal
}

// Apply adds amounts, which ascend by dimension, to the usage.
func (a *Account) Apply(amounts []Amount) Outcome {
	outcome := Outcome{Kind: Ok}
	for _, m := range amounts {
		used := Add(a.Usage[m.Dimension], m.N)
		a.Usage[m.Dimension] = used
		a.Applied[m.Dimension] = Add(a.Applied[m.Dimension], m.N)
		if limit := a.Policy.Soft[m.Dimension]; limit > 0 && used > limit && outcome.Kind == Ok {
			a.Soft++
			outcome = Outcome{Kind: SoftBreach, Dimension: m.Dimension, Current: used, Limit: limit}
		}
	}
	return outcome
}

// Hold adds amounts, which ascend by dimension, to the reserved ones. The result is a soft breach if usage and
// reservations exceed a soft limit. Only a settled usage counts as a breach.
func (a *Account) Hold(amounts []Amount) Outcome {
	outcome := Outcome{Kind: Ok}
	for _, m := range amounts {
		used, reserved := a.Usage[m.Dimension], Add(a.Reserved[m.Dimension], m.N)
		a.Reserved[m.Dimension] = reserved
		if limit := a.Policy.Soft[m.Dimension]; limit > 0 && Add(used, reserved) > limit && outcome.Kind == Ok {
			outcome = Outcome{Kind: SoftBreach, Dimension: m.Dimension, Current: used, Reserved: reserved, Limit: limit}
		}
	}
	return outcome
}

// Free takes reserved amounts off.
func (a *Account) Free(reserved map[string]int64) {
	for dimension, n := range reserved {
		a.Reserved[dimension] = max(a.Reserved[dimension]-n, 0)
	}
}

// Over reports whether the usage, or a refused report with it, was too high for a hard limit, or has become so by the
// applied amounts. Reservations don't count here, as a lease may return them.
func (a *Account) Over() bool {
	if a.over {
		return true
	}
	for dimension := range a.Applied {
		if limit := a.Policy.Hard[dimension]; limit > 0 && a.Usage[dimension] >= limit {
			return true
		}
	}
	return false
}

// Left returns the rest in a dimension below the hard limit, or the soft limit without a hard one, and false without
// either.
func (a *Account) Left(dimension string) (int64, bool) {
	limit := a.Policy.Hard[dimension]
	if limit <= 0 {
		limit = a.Policy.Soft[dimension]
	}
	return max(limit-Add(a.Usage[dimension], a.Reserved[dimension]), 0), limit > 0
}
