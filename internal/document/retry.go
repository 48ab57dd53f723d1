package document

import (
	"encoding/json"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/policy"
)

// Retry says which failures are retried, how often and after which pause. The zero value is a document without members:
// three retries with the default [Backoff], for every category.
type Retry struct {
	MaxRetries          *uint32  `json:"max_retries"` // 3
	Backoff             Backoff  `json:"backoff"`
	RetryableCategories []string `json:"retryable_categories"` // empty: all
}

// RetryWhenAbsent is the retry policy of an execution without one, as [policy.Retry]'s zero value says.
func RetryWhenAbsent() Retry { return RetryOf(policy.Retry{}).WithDefaults() }

// patientPauses are the first pauses of [BackoffPatient], in milliseconds. The last one repeats.
var patientPauses = [...]int64{1_000, 5_000, 30_000, 2 * 60_000, 10 * 60_000, 60 * 60_000}

// WithDefaults returns r with open fields filled in.
func (r Retry) WithDefaults() Retry {
	r.MaxRetries = orNew(r.MaxRetries, DefaultMaxRetries)
	r.Backoff = r.Backoff.withDefaults()
	if r.RetryableCategories == nil {
		r.RetryableCategories = []string{}
	}
	return r
}

// MarshalJSON renders r as it is stored, defaults filled in.
func (r Retry) MarshalJSON() ([]byte, error) {
	type document Retry
	return json.Marshal(document(r.WithDefaults()))
}

// Backoff is the pause before a retry. The zero value is the default: exponential from one second, doubling, at most
// one minute, without jitter.
type Backoff struct {
	Type           BackoffType
	DelayMs        uint64 // fixed
	InitialDelayMs uint64 // exponential, as the rest
	MaxDelayMs     uint64
	Multiplier     float64
	Jitter         bool
}

// BackoffType distinguishes the forms of [Backoff].
type BackoffType string

// The backoff types.
const (
	BackoffFixed       BackoffType = "fixed"
	BackoffExponential BackoffType = "exponential"
	BackoffPatient     BackoffType = "patient" // of the library alone, for policies without a backoff; no members
)

const (
	defaultDelayMs    = 1000
	defaultMaxDelayMs = 60000
	defaultMultiplier = 2.0
)

// FixedBackoff pauses equally long before every retry.
func FixedBackoff(delayMs uint64) Backoff {
	return Backoff{Type: BackoffFixed, DelayMs: delayMs}
}

// ExponentialBackoff multiplies the pause before every further retry, up to a limit.
func ExponentialBackoff(initialDelayMs, maxDelayMs uint64, multiplier float64) Backoff {
	return Backoff{Type: BackoffExponential, InitialDelayMs: initialDelayMs, MaxDelayMs: maxDelayMs, Multiplier: multiplier}
}

func (b Backoff) withDefaults() Backoff {
	if b == (Backoff{}) {
		return ExponentialBackoff(defaultDelayMs, defaultMaxDelayMs, defaultMultiplier)
	}
	return b
}

// PauseMs is the pause, without jitter, before the retry after retryCount earlier ones, at most the int64 maximum.
func (b Backoff) PauseMs(retryCount int) int64 {
	b = b.withDefaults()
	switch b.Type {
	case BackoffFixed:
		return clampMs(b.DelayMs)
	case BackoffPatient:
		return patientPauses[min(max(retryCount, 0), len(patientPauses)-1)]
	}
	product := float64(b.InitialDelayMs) * math.Pow(b.Multiplier, float64(retryCount))
	switch {
	case b.InitialDelayMs == 0 || product <= 0:
		return 0
	case product < float64(b.MaxDelayMs):
		return clampMs(uint64(product))
	}
	return clampMs(b.MaxDelayMs)
}

func clampMs(ms uint64) int64 { return int64(min(ms, math.MaxInt64)) }

// PauseMs is [Backoff.PauseMs] with the policy's jitter, if any, drawn from random, a uniform number in [0, 1): the
// pause is then between half and all.
func (r Retry) PauseMs(retryCount int, random float64) int64 {
	delay := r.Backoff.PauseMs(retryCount)
	if !r.Backoff.Jitter {
		return delay
	}
	half := delay / 2
	return min(delay, half+int64(random*float64(delay-half+1)))
}

// Category is the category of a failure: the detail if a text, else the class.
func Category(class policy.Class, detail []byte) string {
	if len(detail) == 0 || !utf8.Valid(detail) || slices.Contains(detail, 0) {
		return string(class)
	}
	return string(detail)
}

// Retries reports whether a failure of this class and category is retried after retryCount retries. Transient failures,
// crashes and timeouts are, unless the policy lists categories without the failure's; permanent failures and
// cancellations never.
func (r Retry) Retries(class policy.Class, category string, retryCount int) bool {
	switch class {
	case policy.Transient, policy.InfraCrash, policy.TimedOut:
	default:
		return false
	}
	if len(r.RetryableCategories) > 0 && !slices.Contains(r.RetryableCategories, category) {
		return false
	}
	return int64(retryCount) < int64(*r.WithDefaults().MaxRetries)
}

// UnmarshalJSON reads a retry policy strictly and fills in the defaults.
//
// Errors: [*DecodeError].
func (r *Retry) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Retry{
		MaxRetries:          ifPresent("max_retries", o.defaulted("max_retries"), o.uint32),
		RetryableCategories: o.texts("retryable_categories", o.defaulted("retryable_categories")),
	}
	o.nested("backoff", o.defaulted("backoff"), &p.Backoff)
	if o.err != nil {
		return o.err
	}
	*r = p.WithDefaults()
	return nil
}

// UnmarshalJSON reads a backoff strictly: only jitter may be missing.
//
// Errors: [*DecodeError].
func (b *Backoff) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	p := Backoff{Type: BackoffType(o.text("type", o.required("type")))}
	switch p.Type {
	case BackoffFixed:
		p.DelayMs = o.uint64("delay_ms", o.required("delay_ms"))
	case BackoffExponential:
		p.InitialDelayMs = o.uint64("initial_delay_ms", o.required("initial_delay_ms"))
		p.MaxDelayMs = o.uint64("max_delay_ms", o.required("max_delay_ms"))
		p.Multiplier = o.float("multiplier", o.required("multiplier"))
		p.Jitter = o.boolean("jitter", o.defaulted("jitter"))
	case BackoffPatient:
	default:
		o.fail("type", "unknown value")
	}
	if o.err != nil {
		return o.err
	}
	*b = p
	return nil
}

// MarshalJSON renders the members of b's form, and no other.
func (b Backoff) MarshalJSON() ([]byte, error) {
	b = b.withDefaults()
	switch b.Type {
	case BackoffFixed:
		return json.Marshal(struct {
			Type    BackoffType `json:"type"`
			DelayMs uint64      `json:"delay_ms"`
		}{b.Type, b.DelayMs})
	case BackoffPatient:
		return json.Marshal(struct {
			Type BackoffType `json:"type"`
		}{b.Type})
	}
	return json.Marshal(struct {
		Type           BackoffType `json:"type"`
		InitialDelayMs uint64      `json:"initial_delay_ms"`
		MaxDelayMs     uint64      `json:"max_delay_ms"`
		Multiplier     float64     `json:"multiplier"`
		Jitter         bool        `json:"jitter"`
	}{b.Type, b.InitialDelayMs, b.MaxDelayMs, b.Multiplier, b.Jitter})
}

// RetryFromJSON leniently reads the retry policy in the text from a caller of the typed failure operation, or stored by
// another program. Empty text allows no retries; so does a policy without a number of retries.
// [BackoffFromJSON] reads the backoff.
//
// Errors: [*DecodeError] when text is not a JSON object.
func RetryFromJSON(text []byte) (Retry, error) {
	none := Retry{MaxRetries: new(uint32(0)), RetryableCategories: []string{}}
	if len(text) == 0 {
		return none, nil
	}
	o := openObject(text)
	if o.err != nil {
		return Retry{}, o.err
	}
	r := none
	if n, ok := parseUint(o.members["max_retries"]); ok {
		r.MaxRetries = new(uint32(min(n, math.MaxUint32)))
	}
	r.Backoff = BackoffFromJSON(o.members["backoff"])
	var categories []json.RawMessage
	if json.Unmarshal(o.members["retryable_categories"], &categories) == nil {
		for _, raw := range categories {
			var category *string
			if json.Unmarshal(raw, &category) == nil && category != nil {
				r.RetryableCategories = append(r.RetryableCategories, *category)
			}
		}
	}
	return r, nil
}

// BackoffFromJSON reads a backoff leniently: a part missing or of the wrong type takes the default (1000, 60000 and
// 2.0; 1000 for a fixed delay), and a document other than a backoff pauses for one second.
func BackoffFromJSON(document []byte) Backoff {
	o := openObject(document)
	kind := BackoffType("")
	if raw := o.members["type"]; raw != nil {
		kind = BackoffType((&object{}).text("type", raw))
	}
	uintOr := func(key string, fallback uint64) uint64 {
		if n, ok := parseUint(o.members[key]); ok {
			return n
		}
		return fallback
	}
	switch kind {
	case BackoffFixed:
		return FixedBackoff(uintOr("delay_ms", defaultDelayMs))
	case BackoffExponential:
		multiplier := defaultMultiplier
		if raw := o.members["multiplier"]; raw != nil {
			var given *float64
			if json.Unmarshal(raw, &given) == nil && given != nil {
				multiplier = *given
			}
		}
		b := ExponentialBackoff(uintOr("initial_delay_ms", defaultDelayMs), uintOr("max_delay_ms", defaultMaxDelayMs), multiplier)
		b.Jitter = string(o.members["jitter"]) == "true"
		return b
	case BackoffPatient:
		return Backoff{Type: BackoffPatient}
	}
	return FixedBackoff(defaultDelayMs)
}
