package policy

import (
	"fmt"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// FieldError reports a field of a policy that cannot be stored or applied, such as "Retry.MaxRetries", and its valid
// values.
type FieldError struct {
	Field   string
	Problem string
	err     error
}

func (e *FieldError) Error() string { return "policy: " + e.Field + ": " + e.Problem }

// Unwrap returns the [*id.ParseError] for a text, or nil.
func (e *FieldError) Unwrap() error { return e.err }

func refuse(field, format string, args ...any) error {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Validate returns an error for a policy that cannot be stored or applied. Creating an execution validates its policy too.
//
// Errors: [*FieldError].
func (e Execution) Validate() error {
	if e.Retry != nil {
		if err := e.Retry.validate(); err != nil {
			return err
		}
	}
	if err := checkCount("MaxReclaims", e.MaxReclaims, ReclaimLimit, "NoReclaims", NoReclaims); err != nil {
		return err
	}
	if err := checkCount("MaxReplays", e.MaxReplays, math.MaxInt32, "NoReplays", NoReplays); err != nil {
		return err
	}
	switch {
	case e.AttemptTimeout < 0:
		return refuse("AttemptTimeout", "%v, must not be negative; 0 is no limit", e.AttemptTimeout)
	case e.Deadline < 0:
		return refuse("Deadline", "%v, must not be negative; 0 is no limit", e.Deadline)
	case e.DedupWindow < 0 && e.DedupWindow != NoDedup:
		return refuse("DedupWindow", "%v, must not be negative, but for NoDedup", e.DedupWindow)
	case e.Retention != 0 && e.Retention != KeepForever && e.Retention < MinRetention:
		return refuse("Retention", "%v, must be KeepForever, 0 for the default, or at least %v", e.Retention, MinRetention)
	case !e.DelayUntil.IsZero() && (e.DelayUntil.Before(time.UnixMilli(1)) || e.DelayUntil.After(time.UnixMilli(math.MaxInt64))):
		return refuse("DelayUntil", "must be after 1970 and within the range of milliseconds in 64 bits")
	}
	if err := id.NewCapabilities(e.Capabilities...).Validate(); err != nil {
		return &FieldError{Field: "Capabilities", Problem: err.Error(), err: err}
	}
	return nil
}

func (r Retry) validate() error {
	if err := checkCount("Retry.MaxRetries", r.MaxRetries, math.MaxInt32, "NoRetries", NoRetries); err != nil {
		return err
	}
	for i, category := range r.Categories {
		if err := id.CheckText("category", category); err != nil {
			return &FieldError{Field: fmt.Sprintf("Retry.Categories[%d]", i), Problem: err.Error(), err: err}
		}
	}
	return r.Backoff.validate()
}

func (b Backoff) validate() error {
	switch {
	case b == Backoff{}:
		return nil
	case b.First < 0:
		return refuse("Retry.Backoff.First", "%v, must not be negative", b.First)
	case b.Max < b.First:
		return refuse("Retry.Backoff.Max", "%v, must be at least First, which is %v", b.Max, b.First)
	case !(b.Factor > 0) || math.IsInf(b.Factor, 0):
		return refuse("Retry.Backoff.Factor", "%v, must be finite and above 0; Fixed and Exponential set it", b.Factor)
	}
	return nil
}

// checkCount checks a number whose 0 is the default and whose value for none has a name.
func checkCount(field string, n, limit int, none string, noneIs int) error {
	if n != noneIs && (n < 0 || n > limit) {
		return refuse(field, "%d, must be %s, 0 for the default, or at most %d", n, none, limit)
	}
	return nil
}

// Validate returns an error for a quorum below 1 or above 2147483647, and for an unknown OnSatisfied.
//
// Errors: [*FieldError], for the field "AnyOf" or "Quorum".
func (g Group) Validate() error {
	field := "AnyOf"
	if g.kind == quorum {
		field = "Quorum"
	}
	switch {
	case g.kind == quorum && (g.k < 1 || g.k > math.MaxInt32):
		return refuse(field, "%d upstreams, must be 1 to %d", g.k, math.MaxInt32)
	case g.chooses() && g.onSatisfied != CancelRemaining && g.onSatisfied != LetRun:
		return refuse(field, "neither CancelRemaining nor LetRun")
	}
	return nil
}
