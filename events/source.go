package events

import (
	"fmt"
	"math"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/state"
)

// Outbox names one of the four outboxes.
type Outbox string

// The outboxes.
const (
	CompletionOutbox Outbox = "completion"
	LeaseOutbox      Outbox = "lease"
	SignalOutbox     Outbox = "signal"
	OperatorOutbox   Outbox = "operator"
)

// ops maps outboxes to the operation named in errors.
var ops = map[outbox.Name]string{
	outbox.Completion: "pg.subscribe_completion",
	outbox.Lease:      "pg.subscribe_lease_history",
	outbox.Signal:     "pg.subscribe_signal_delivery",
	outbox.Operator:   "pg.subscribe_operator_event",
}

func checkOutbox(o Outbox) error {
	switch o {
	case CompletionOutbox, LeaseOutbox, SignalOutbox, OperatorOutbox:
		return nil
	}
	return &fferr.InputError{Field: "outbox", Reason: fmt.Sprintf("is %.20q: it is completion, lease, signal or operator", string(o))}
}

// Source is an outbox with a filter, to be read by a consumer or a subscription.
type Source[E any] struct {
	outbox outbox.Name
	filter outbox.Filter
	decode func(*outbox.Row) (E, error)
	err    error
}

// Completions returns the source of completions: one event for the end of each execution.
func Completions(f Filter) Source[Completion] {
	s := sourceOf(outbox.Completion, f, completionOf)
	if !f.NonTerminal {
		s.filter.Without = string(state.CompletionResumable)
	}
	return s
}

// Leases returns the source of lease events: taken, renewed, and how leases ended.
func Leases(f Filter) Source[Lease] { return terminal(f, sourceOf(outbox.Lease, f, leaseOf)) }

// LostLeases returns the source of lease events about leases that their holder did not end: expired, reclaimed by
// another worker, or revoked by a cancel, an operator or the background work.
func LostLeases(f Filter) Source[Lease] {
	s := Leases(f)
	s.filter.Lost = true
	return s
}

// Signals returns the source of delivered signals.
func Signals(f Filter) Source[Signal] { return terminal(f, sourceOf(outbox.Signal, f, signalOf)) }

// OperatorCalls returns the source of operator calls.
func OperatorCalls(f Filter) Source[OperatorCall] {
	return terminal(f, sourceOf(outbox.Operator, f, operatorCallOf))
}

// InstanceTags returns a source that cannot be read yet: no program writes events of instance tags, so readers get
// [fferr.ErrUnsupported].
func InstanceTags(Filter) Source[InstanceTag] {
	return Source[InstanceTag]{err: &fferr.UnsupportedError{Reason: "subscribe_instance_tags: no program writes events of instance tags"}}
}

// Filter selects the events to deliver. The zero value selects all events, in every partition. The position also moves
// past other events.
type Filter struct {
	// Namespace is the namespace of the execution. Default: any.
	Namespace id.Namespace

	// Tag is the instance tag of the execution. Default: any or none.
	Tag Tag

	// Partitions are the partitions of the executions. Default: all.
	Partitions []int16

	// NonTerminal includes completions of suspended executions that may resume, with [state.CompletionResumable]. Only
	// the outbox of completions accepts it.
	NonTerminal bool
}

// InstanceTagKey is the only tag key for filters.
const InstanceTagKey = outbox.InstanceTagKey

// Tag is a tag of executions.
type Tag struct {
	Key   string // [InstanceTagKey]
	Value string
}

func sourceOf[E any](name outbox.Name, f Filter, decode func(*outbox.Row) (E, error)) Source[E] {
	s := Source[E]{outbox: name, decode: func(row *outbox.Row) (E, error) {
		event, err := decode(row)
		return event, named(name, err)
	}}
	if f.Namespace != "" {
		if err := f.Namespace.Validate(); err != nil {
			s.err = &fferr.InputError{Field: "Filter.Namespace", Reason: err.Error()}
		}
		s.filter.Namespace = new(string(f.Namespace))
	}
	switch {
	case f.Tag == Tag{}:
	case f.Tag.Key != InstanceTagKey:
		s.err = &fferr.InputError{Field: "Filter.Tag.Key", Reason: "is not " + InstanceTagKey + ", the only tag that events have"}
	case f.Tag.Value == "":
		s.err = &fferr.InputError{Field: "Filter.Tag.Value", Reason: "is empty: it would match events without a tag"}
	default:
		s.filter.InstanceTag = &f.Tag.Value
	}
	for _, p := range f.Partitions {
		if p < 0 {
			s.err = &fferr.InputError{Field: "Filter.Partitions", Reason: fmt.Sprintf("has %d: from 0 to %d", p, math.MaxInt16)}
		}
	}
	s.filter.Partitions = append(s.filter.Partitions, f.Partitions...)
	return s
}

func terminal[E any](f Filter, s Source[E]) Source[E] {
	if f.NonTerminal && s.err == nil {
		s.err = &fferr.InputError{Field: "Filter.NonTerminal", Reason: "is for completions"}
	}
	return s
}

// check returns an error for an unreadable source.
func (s *Source[E]) check(eng *engine.Engine) error {
	switch {
	case s.err != nil:
		return s.err
	case s.decode == nil:
		return &fferr.InputError{Field: "source", Reason: "is the zero value: use Completions, Leases, Signals or OperatorCalls"}
	case eng == nil:
		return &fferr.InputError{Field: "engine", Reason: "is nil"}
	case core.Of(eng).Tx != nil:
		return &fferr.InputError{Field: "engine", Reason: "is bound to a transaction, which does not see later commits"}
	}
	return nil
}
