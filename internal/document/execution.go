// Package document has the JSON form in which the policies of executions and dependencies are stored and exchanged, and
// the resulting decisions. Package policy has the types for callers.
package document

import (
	"encoding/json"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Execution is the stored policy of an execution. The zero value is the default; a nil pointer takes the default the
// field's comment names, or means "none".
//
// Callers of this library cannot set Priority, Suspension, Fallback, BudgetIDs, Stream, MaxSignalsPerExecution and two
// fields of [Routing], and only the number of signals has an effect. Stored documents have all, so the decoder reads
// all.
//
// Decoding ignores unknown keys; code that rewrites a stored document must keep the unknown keys.
type Execution struct {
	Priority               int32         `json:"priority"`
	DelayUntilMs           *int64        `json:"delay_until,omitempty"` // Unix milliseconds
	Retry                  *Retry        `json:"retry_policy,omitempty"`
	Timeout                *Timeout      `json:"timeout_policy,omitempty"`
	MaxReclaimCount        *uint32       `json:"max_reclaim_count"` // 100
	Suspension             *Suspension   `json:"suspension_policy,omitempty"`
	Fallback               *Fallback     `json:"fallback_policy,omitempty"`
	MaxReplayCount         *uint32       `json:"max_replay_count"` // 10
	BudgetIDs              []id.BudgetID `json:"budget_ids"`
	Routing                *Routing      `json:"routing_requirements,omitempty"`
	DedupWindowMs          *uint64       `json:"dedup_window_ms,omitempty"` // 24 h
	Stream                 *Stream       `json:"stream_policy,omitempty"`
	MaxSignalsPerExecution *uint32       `json:"max_signals_per_execution"` // 10000

	// RetentionMs is how long the execution is kept after its end. Negative: for ever. FlowFabric does not know the field.
	RetentionMs *int64 `json:"ffx_retention_ms,omitempty"`
}

// The defaults of [Execution] and its parts.
const (
	DefaultMaxReclaimCount uint32 = 100
	DefaultMaxReplayCount  uint32 = policy.DefaultMaxReplays
	DefaultMaxSignals      uint32 = policy.DefaultMaxSignals
	DefaultMaxRetries      uint32 = 3
	DefaultStreamMaxLen    uint64 = 10000
)

// Timeout limits how long an attempt and the whole execution may take.
type Timeout struct {
	AttemptTimeoutMs    *uint64 `json:"attempt_timeout_ms,omitempty"`
	ExecutionDeadlineMs *uint64 `json:"execution_deadline_ms,omitempty"` // from creation
	MaxReclaimCount     *uint32 `json:"max_reclaim_count"`               // 100
}

// Suspension is the policy for a suspension not resolved in time.
type Suspension struct {
	DefaultTimeoutMs *uint64            `json:"default_timeout_ms,omitempty"`
	TimeoutBehavior  SuspensionBehavior `json:"timeout_behavior"` // SuspensionFail
}

// SuspensionBehavior is the effect of a suspension's timeout on the execution.
type SuspensionBehavior string

// The suspension behaviours.
const (
	SuspensionFail   SuspensionBehavior = "fail"
	SuspensionCancel SuspensionBehavior = "cancel"
)

// Fallback lists the providers to try in turn.
type Fallback struct {
	Tiers []Tier `json:"tiers"`
}

// Tier is one provider of a [Fallback].
type Tier struct {
	Provider  string  `json:"provider"`
	Model     string  `json:"model"`
	TimeoutMs *uint64 `json:"timeout_ms,omitempty"`
}

// Routing says which workers may take the execution.
type Routing struct {
	RequiredCapabilities id.Capabilities `json:"required_capabilities"`
	PreferredLocality    *string         `json:"preferred_locality,omitempty"`
	IsolationLevel       *string         `json:"isolation_level,omitempty"`
}

// Stream says how long the output of the execution's attempts is kept.
type Stream struct {
	DurabilityMode  DurabilityMode `json:"durability_mode"`  // StreamBuffered
	RetentionMaxLen *uint64        `json:"retention_maxlen"` // 10000
	RetentionTTLMs  *uint64        `json:"retention_ttl_ms,omitempty"`
}

// DurabilityMode is how an attempt's output is stored.
type DurabilityMode string

// The durability modes.
const (
	StreamBuffered DurabilityMode = "buffered"
	StreamDurable  DurabilityMode = "durable"
)

// DecodeExecution reads a policy document, strictly: see [Execution.UnmarshalJSON].
func DecodeExecution(document []byte) (Execution, error) {
	var e Execution
	err := e.UnmarshalJSON(document)
	return e, err
}

// UnmarshalJSON reads the policy document and fills in the defaults. Null means "absent" only if absent is the default.
//
// Errors: [*DecodeError].
func (e *Execution) UnmarshalJSON(document []byte) error {
	o := openObject(document)
	var p Execution
	p.Priority = int32(o.int64("priority", o.defaulted("priority"), 32))
	if raw := o.optional("delay_until"); raw != nil {
		p.DelayUntilMs = new(o.int64("delay_until", raw, 64))
	}
	p.Retry = part[Retry](o, "retry_policy")
	p.Timeout = part[Timeout](o, "timeout_policy")
	p.Suspension = part[Suspension](o, "suspension_policy")
	p.Fallback = part[Fallback](o, "fallback_policy")
	p.Routing = part[Routing](o, "routing_requirements")
	p.Stream = part[Stream](o, "stream_policy")
	p.MaxReclaimCount = ifPresent("max_reclaim_count", o.defaulted("max_reclaim_count"), o.uint32)
	p.MaxReplayCount = ifPresent("max_replay_count", o.defaulted("max_replay_count"), o.uint32)
	p.MaxSignalsPerExecution = ifPresent("max_signals_per_execution", o.defaulted("max_signals_per_execution"), o.uint32)
	if raw := o.optional("ffx_retention_ms"); raw != nil {
		p.RetentionMs = new(o.int64("ffx_retention_ms", raw, 64))
	}
	p.DedupWindowMs = ifPresent("dedup_window_ms", o.optional("dedup_window_ms"), o.uint64)
	for _, text := range o.texts("budget_ids", o.defaulted("budget_ids")) {
		budget, err := id.ParseBudgetID(text)
		if err != nil {
			o.fail("budget_ids", err.Error())
		}
		p.BudgetIDs = append(p.BudgetIDs, budget)
	}
	if o.err != nil {
		return o.err
	}
	*e = p.WithDefaults()
	return nil
}

// part decodes an optional member with a document of its own.
func part[T any, P interface {
	*T
	json.Unmarshaler
}](o *object, key string) *T {
	raw := o.optional(key)
	if raw == nil {
		return nil
	}
	into := new(T)
	o.nested(key, raw, P(into))
	return into
}

// MarshalJSON renders the document as it is stored, defaults filled in.
func (e Execution) MarshalJSON() ([]byte, error) {
	type document Execution
	return json.Marshal(document(e.WithDefaults()))
}

// WithDefaults returns e with the default for every nil pointer that has one, here and in the parts. Changed parts are
// not shared with e.
func (e Execution) WithDefaults() Execution {
	e.MaxReclaimCount = orNew(e.MaxReclaimCount, DefaultMaxReclaimCount)
	e.MaxReplayCount = orNew(e.MaxReplayCount, DefaultMaxReplayCount)
	e.MaxSignalsPerExecution = orNew(e.MaxSignalsPerExecution, DefaultMaxSignals)
	if e.BudgetIDs == nil {
		e.BudgetIDs = []id.BudgetID{}
	}
	e.Retry = mapPart(e.Retry, Retry.WithDefaults)
	e.Timeout = mapPart(e.Timeout, Timeout.withDefaults)
	e.Suspension = mapPart(e.Suspension, Suspension.withDefaults)
	e.Fallback = mapPart(e.Fallback, Fallback.withDefaults)
	e.Routing = mapPart(e.Routing, Routing.withDefaults)
	e.Stream = mapPart(e.Stream, Stream.withDefaults)
	return e
}

func orNew[T any](p *T, fallback T) *T {
	if p == nil {
		return &fallback
	}
	return p
}

func mapPart[T any](p *T, f func(T) T) *T {
	if p == nil {
		return nil
	}
	return new(f(*p))
}

func (t Timeout) withDefaults() Timeout {
	t.MaxReclaimCount = orNew(t.MaxReclaimCount, DefaultMaxReclaimCount)
	return t
}

func (s Suspension) withDefaults() Suspension {
	if s.TimeoutBehavior == "" {
		s.TimeoutBehavior = SuspensionFail
	}
	return s
}

func (b SuspensionBehavior) valid() bool { return b == SuspensionFail || b == SuspensionCancel }

func (f Fallback) withDefaults() Fallback {
	if f.Tiers == nil {
		f.Tiers = []Tier{}
	}
	return f
}

func (r Routing) withDefaults() Routing {
	r.RequiredCapabilities = id.NewCapabilities(r.RequiredCapabilities...)
	return r
}

func (s Stream) withDefaults() Stream {
	if s.DurabilityMode == "" {
		s.DurabilityMode = StreamBuffered
	}
	s.RetentionMaxLen = orNew(s.RetentionMaxLen, DefaultStreamMaxLen)
	return s
}

func (m DurabilityMode) valid() bool { return m == StreamBuffered || m == StreamDurable }
