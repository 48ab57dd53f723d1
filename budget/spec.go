package budget

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxBudgets is the largest number of budgets of one reservation.
const MaxBudgets = 16

// Limits of texts in bytes, and of the dimensions of a budget or a report.
const (
	maxDimension  = 256
	maxDimensions = 1000
	maxKey        = 512
	maxLabel      = 1024
)

// KeyKept is how long the key of a report is remembered.
const KeyKept = 24 * time.Hour

const (
	initDimension = "_init" // a row of FlowFabric that is no dimension
	usageKeyMs    = int64(KeyKept / time.Millisecond)
)

// The dimensions of the standard fields of [Usage].
const (
	InputTokens  = "input_tokens"
	OutputTokens = "output_tokens"
	WallMs       = "wall_ms"
)

// Spec describes a budget.
type Spec struct {
	// ID defaults to the id derived from the Key, or to a new one.
	ID id.BudgetID

	// Key names the budget in its namespace, as "tenant/acme", in place of an ID: see [id.BudgetIDOf]. At most 512 bytes.
	// Default: the budget has no key.
	Key string

	Namespace id.Namespace // of the Key. Default: the engine's

	// Limits are by dimension, at most 1,000. A dimension without limits counts too.
	Limits map[string]Limit

	// ResetEvery resets the budget in this interval, in whole milliseconds, counted from the creation or the last [Reset].
	// Default 0: only Reset resets.
	ResetEvery time.Duration

	// Retention deletes the budget after so long without a change, a breach or counted usage, in whole milliseconds, unless
	// an amount is reserved, an execution waits for the budget, or a breach would cancel one. Delayed executions naming the
	// budget don't prevent this, so choose more than their delays. Can't be combined with ResetEvery. Default 0: only
	// [Delete] deletes.
	Retention time.Duration

	// CancelOnBreach cancels executions that name the budget in [engine.ExecutionSpec.Budgets] and are running or claimable,
	// once the usage reaches a hard limit, or a report, a spend or a settlement would exceed one, reservations not counted.
	// Waiting executions stay. The source of the cancellations is [CancelSource]. Default: executions that were let in
	// continue.
	CancelOnBreach bool

	Labels Labels // each at most 1,024 bytes
}

// Limit limits the amount in one dimension. 0 means no limit.
type Limit struct {
	Hard int64 // a report that would exceed Hard is refused as a whole
	Soft int64 // a report above Soft is counted, as a [SoftBreach]
}

// Labels are texts stored and returned with a budget, for people and other programs. The library never interprets them.
type Labels struct {
	ScopeType   string // of the owner, as "tenant" or "flow"
	ScopeID     string
	Mode        string // as "strict"
	OnHardLimit string // as "fail"
	OnSoftLimit string // as "warn"
}

// Created is the result of [Create].
type Created struct {
	ID        id.BudgetID
	Duplicate bool // a budget with this id existed, and was not changed
	Matches   bool // key, limits, interval, retention, labels and CancelOnBreach are as in the call
}

// Usage is a report of used amounts. Report each amount once.
type Usage struct {
	Budget id.BudgetID

	// Amounts are by dimension: at most 1,000, with any name of 1 to 256 bytes without control characters. None is negative.
	Amounts map[string]int64

	// These are added to the dimensions [InputTokens], [OutputTokens] and [WallMs] unless 0. Amounts must then leave out the
	// dimension.
	InputTokens  int64
	OutputTokens int64
	Wall         time.Duration // rounded down to whole milliseconds

	// Key makes repetitions of the report safe: for [KeyKept] the same key on this budget returns the first outcome, and
	// counts nothing. At most 512 bytes. Default: each call counts.
	Key string
}

// Spend is a report of amounts used by an execution, to be given back by [Release].
type Spend struct {
	Budget    id.BudgetID
	Execution id.ExecutionID
	Amounts   map[string]int64 // as in [Usage]
	Key       string           // as in [Usage], with keys of its own
}

// Outcome says whether amounts were counted or reserved.
type Outcome string

// The outcomes of reports, reservations and settlements.
const (
	Ok             Outcome = "Ok"             // counted, or reserved
	SoftBreach     Outcome = "SoftBreach"     // the same, and above a soft limit
	HardBreach     Outcome = "HardBreach"     // neither: the amounts would exceed a hard limit
	AlreadyApplied Outcome = "AlreadyApplied" // not counted again: see [RecordSpend]
)

// Result is the result of [Report], [RecordSpend], [Reserve] and [Settle].
type Result struct {
	Outcome Outcome

	// Left is the rest after the call in the dimensions of the call: the hard limit, or without one the soft limit, less the
	// usage and all reservations. For several budgets Left has the smallest rest. A dimension without limits is missing.
	Left map[string]int64

	// Budget, Dimension and Limit name the limit of a breach: the first budget of the call, and the first dimension in byte
	// order. Current is the usage after the call, or without the call after a [HardBreach]. Reserved is the amount reserved by
	// leases, set by a [HardBreach], and by a [SoftBreach] of [Reserve] with the call's own amount.
	Budget    id.BudgetID
	Dimension string
	Current   int64
	Reserved  int64
	Limit     int64

	// ByReservations says that a [HardBreach] would fit on all budgets without the reservations of other leases: try again
	// later. Otherwise the usage, the caller's own reservations or the amount itself are too high.
	ByReservations bool
}

// amounts returns the amounts of a report in the order of their dimensions.
func (u *Usage) amounts() ([]budgets.Amount, error) {
	all := u.Amounts
	for _, standard := range []struct {
		field, dimension string
		n                int64
	}{
		{"InputTokens", InputTokens, u.InputTokens}, {"OutputTokens", OutputTokens, u.OutputTokens}, {"Wall", WallMs, u.Wall.Milliseconds()},
	} {
		if standard.n == 0 {
			continue
		}
		if _, twice := u.Amounts[standard.dimension]; twice {
			return nil, core.Invalid(standard.field, fmt.Sprintf("is set, and so is %q in Amounts", standard.dimension))
		}
		if len(all) == len(u.Amounts) {
			all = maps.Clone(all)
		}
		if all == nil {
			all = make(map[string]int64)
		}
		all[standard.dimension] = standard.n
	}
	return sortedAmounts(all)
}

// sortedAmounts checks amounts and returns them in the byte order of their dimensions.
func sortedAmounts(of map[string]int64) ([]budgets.Amount, error) {
	if len(of) > maxDimensions {
		return nil, core.Invalid("Amounts", fmt.Sprintf("has %d dimensions, limit %d", len(of), maxDimensions))
	}
	amounts := make([]budgets.Amount, 0, len(of))
	for _, dimension := range slices.Sorted(maps.Keys(of)) {
		if err := checkDimension("Amounts", dimension); err != nil {
			return nil, err
		}
		if of[dimension] < 0 {
			return nil, core.Invalid("Amounts", fmt.Sprintf("of %q is negative", dimension))
		}
		amounts = append(amounts, budgets.Amount{Dimension: dimension, N: of[dimension]})
	}
	return amounts, nil
}

func checkDimension(field, dimension string) error {
	switch {
	case dimension == "":
		return core.Invalid(field, "has a dimension without a name")
	case dimension == initDimension:
		return core.Invalid(field, fmt.Sprintf("has the dimension %q, which is reserved", dimension))
	case strings.ContainsFunc(dimension, unicode.IsControl):
		return core.Invalid(field, fmt.Sprintf("has the dimension %q with a control character", dimension))
	}
	return core.CheckText(field, dimension, maxDimension)
}

// named checks the id and the key of a budget, and derives the id from the key.
func (s *Spec) named(c *core.Core) error {
	if s.Key == "" {
		if s.Namespace != "" {
			return core.Invalid("Namespace", "is set, but no Key")
		}
		return nil
	}
	s.Namespace = cmp.Or(s.Namespace, c.Namespace)
	if err := s.Namespace.Validate(); err != nil {
		return core.InvalidBecause("Namespace", err)
	}
	derived := id.BudgetIDOf(s.Namespace, s.Key)
	if !s.ID.IsZero() && s.ID != derived {
		return core.Invalid("Key", "is set, and so is an ID that is not its own")
	}
	s.ID = derived
	return core.CheckText("Key", s.Key, maxKey)
}

// policy checks the limits and the interval of a budget.
func (s *Spec) policy() (p budgets.Policy, err error) {
	switch {
	case len(s.Limits) > maxDimensions:
		return p, core.Invalid("Limits", fmt.Sprintf("has %d dimensions, limit %d", len(s.Limits), maxDimensions))
	case s.ResetEvery < 0:
		return p, core.Invalid("ResetEvery", "is negative")
	case s.ResetEvery%time.Millisecond != 0:
		return p, core.Invalid("ResetEvery", "has a fraction of a millisecond")
	case s.Retention < 0 || s.Retention%time.Millisecond != 0:
		return p, core.Invalid("Retention", "is not whole milliseconds from 0 on")
	case s.Retention > 0 && s.ResetEvery > 0:
		return p, core.Invalid("Retention", "is set, and so is ResetEvery")
	}
	p = budgets.Policy{
		Hard: make(map[string]int64, len(s.Limits)), Soft: make(map[string]int64, len(s.Limits)),
		ResetIntervalMs: s.ResetEvery.Milliseconds(), RetentionMs: s.Retention.Milliseconds(), OnHard: s.Labels.OnHardLimit, OnSoft: s.Labels.OnSoftLimit,
		CancelOnBreach: s.CancelOnBreach, Key: s.Key, Namespace: string(s.Namespace),
	}
	for dimension, limit := range s.Limits {
		if err := checkDimension("Limits", dimension); err != nil {
			return p, err
		}
		if limit.Hard < 0 || limit.Soft < 0 {
			return p, core.Invalid("Limits", fmt.Sprintf("of %q are negative", dimension))
		}
		p.Hard[dimension], p.Soft[dimension] = limit.Hard, limit.Soft
	}
	for _, label := range []struct{ field, text string }{
		{"Labels.ScopeType", s.Labels.ScopeType},
		{"Labels.ScopeID", s.Labels.ScopeID},
		{"Labels.Mode", s.Labels.Mode},
		{"Labels.OnHardLimit", s.Labels.OnHardLimit},
		{"Labels.OnSoftLimit", s.Labels.OnSoftLimit},
	} {
		if err := core.CheckText(label.field, label.text, maxLabel); err != nil {
			return p, err
		}
	}
	return p, nil
}

func checkBudget(b id.BudgetID) error {
	if b.IsZero() {
		return core.Invalid("budget", "is empty")
	}
	return nil
}

func budgetNotFound(b id.BudgetID) error {
	return &fferr.NotFoundError{Entity: "budget", ID: b.String()}
}
