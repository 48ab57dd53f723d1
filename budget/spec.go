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

// Limits of budgets.
const (
	MaxDimension  = 256  // bytes of the name of a dimension
	MaxDimensions = 1000 // dimensions of a budget's limits, and of a report
	MaxKey        = 512  // bytes of the key of a budget, and of a report
	MaxLabel      = 1024 // bytes of each of [Labels]
	MaxBudgets    = 16   // budgets of one reservation
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

// Spec describes a budget: limits on amounts that add up, until it is reset.
type Spec struct {
	// ID is the id. Default: the id that follows from the Key, or a new one.
	ID id.BudgetID

	// Key names the budget in its namespace, as "tenant/acme", in place of an ID, which is derived from both: [id.BudgetIDOf].
	// At most [MaxKey] bytes. Default: the budget has no key.
	Key string

	Namespace id.Namespace // of the Key. Default: the engine's

	Limits map[string]Limit // by dimension; a dimension without limits is counted all the same

	// ResetEvery resets the budget in this interval, of whole milliseconds, counted from its creation or its last [Reset].
	// Default 0: only Reset does.
	ResetEvery time.Duration

	// Retention deletes the budget once it has been unused for this long, in whole milliseconds: its last change, breach or
	// counted usage is as old, and nothing is reserved, waits for it, or would be cancelled by its breach. Delayed work that
	// names it is no use, so choose more than its delays. It can't have ResetEvery. Default 0: only
	// [Delete] does.
	Retention time.Duration

	// CancelOnBreach cancels the executions that name the budget in [engine.ExecutionSpec.Budgets] and run, or may be claimed, once
	// the usage reaches a hard limit, or a report, a spend or a settlement would exceed it, whatever is reserved. Executions
	// that wait, for the budget or for anything else, stay. The source of the cancellations is [CancelSource]. Default:
	// executions that were let in go on.
	CancelOnBreach bool

	Labels Labels
}

// Limit limits the amount in one dimension. 0 means no limit.
type Limit struct {
	Hard int64 // a report that would exceed it is refused as a whole
	Soft int64 // a report that exceeds it is applied, and says so
}

// Labels are texts that are stored and returned with a budget, for people and other programs. The library never
// interprets them: a hard limit refuses and a soft limit warns, whatever they say. Each has at most [MaxLabel] bytes.
type Labels struct {
	ScopeType   string // of its owner, as "tenant" or "flow"
	ScopeID     string
	Mode        string // as "strict"
	OnHardLimit string // as "fail"
	OnSoftLimit string // as "warn"
}

// Created is the result of [Create].
type Created struct {
	ID        id.BudgetID
	Duplicate bool // a budget with this id existed, and was not changed
	Matches   bool // its key, limits, interval, retention, labels and CancelOnBreach are as in the call
}

// Usage is a report of amounts that were used. Report each amount once.
type Usage struct {
	Budget id.BudgetID

	// Amounts are by dimension: any name of 1 to [MaxDimension] bytes without control characters. At most [MaxDimensions],
	// none negative.
	Amounts map[string]int64

	// These are added to the dimensions [InputTokens], [OutputTokens] and [WallMs] unless they are 0. Then Amounts must not
	// have the same dimension.
	InputTokens  int64
	OutputTokens int64
	Wall         time.Duration // in whole milliseconds; the rest is dropped

	// Key makes repetitions of the report safe: for [KeyKept] the same key on this budget returns the first outcome, and
	// counts nothing. At most [MaxKey] bytes. Default: each call counts.
	Key string
}

// Spend is a report of amounts that an execution has used, and may give back: see [Release].
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
	HardBreach     Outcome = "HardBreach"     // neither: it would exceed a hard limit
	AlreadyApplied Outcome = "AlreadyApplied" // not counted again: see [RecordSpend]
)

// Result is the result of a report. For a breach it names the first dimension in byte order, with the usage and the limit.
type Result struct {
	Outcome   Outcome
	Dimension string
	Current   int64 // the usage after the report, or without it after a [HardBreach]
	Reserved  int64 // the amount that leases have reserved: after a [HardBreach], and in a [SoftBreach] of [Reserve] with its amount
	Limit     int64

	// ByReservations says that a [HardBreach] would fit without the reservations of other leases: try again later. If it is
	// false, the usage, the caller's own reservations or the amount itself are too high.
	ByReservations bool
}

func usageResult(o budgets.Outcome) Result {
	return Result{
		Outcome: Outcome(o.Kind), Dimension: o.Dimension, Current: o.Current, Reserved: o.Reserved, Limit: o.Limit,
		ByReservations: o.ByReservations,
	}
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
	if len(of) > MaxDimensions {
		return nil, core.Invalid("Amounts", fmt.Sprintf("has %d dimensions, limit %d", len(of), MaxDimensions))
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
	return core.CheckText(field, dimension, MaxDimension)
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
	return core.CheckText("Key", s.Key, MaxKey)
}

// policy checks the limits and the interval of a budget.
func (s *Spec) policy() (p budgets.Policy, err error) {
	switch {
	case len(s.Limits) > MaxDimensions:
		return p, core.Invalid("Limits", fmt.Sprintf("has %d dimensions, limit %d", len(s.Limits), MaxDimensions))
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
		if err := core.CheckText(label.field, label.text, MaxLabel); err != nil {
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
