// Package observe has the types by which an engine reports its work to telemetry. An observer is set in
// engine.Config.Observer.
//
//	eng, err := engine.New(pool, engine.Config{Observer: metrics{}})
package observe

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// Observer observes an engine. Many goroutines call its methods, which must not block. After a panic, the engine logs
// and continues.
type Observer interface {
	// TraceContext returns the trace context in ctx as a W3C traceparent, or "" for none. The engine stores it with each
	// signal, and the worker with each run of a handler. Only up to 256 bytes of printable ASCII are stored.
	TraceContext(ctx context.Context) string

	// BeginCreation returns the context that the engine's middleware gets, derived from ctx. It is called once for each
	// operation that creates executions, so the middleware knows which executions are created together. Without
	// middleware it is not called.
	BeginCreation(ctx context.Context) context.Context

	// Observe receives an event. ctx is the operation's.
	Observe(ctx context.Context, e Event)
}

// Event is one of [Created], [Signalled], [Claimed], [Renewed] and [JobRan]. Later versions add others.
type Event interface{ event() }

// Created reports new executions of one lane and kind, once for each transaction, after the commit. In a caller's own
// transaction, whose commit the engine does not see, the event comes when the operation returns. Duplicates, replays and
// executions created by SQL functions don't count.
type Created struct {
	Lane  id.LaneID
	Kind  string
	Count int
}

// Signalled reports the delivery of a signal, after the commit, as [Created]. A refused signal is no event.
type Signalled struct {
	Name      string
	Duplicate bool // an earlier call had delivered it
}

// Claimed reports one claim from a lane, also one without executions. Took includes the completions before the claim in
// the same transaction, and the claims from other lanes beside it.
type Claimed struct {
	Lane       id.LaneID
	Executions int
	Took       time.Duration
	Err        error
}

// Renewed reports one renewal of leases. Lost counts the leases that the caller no longer held.
type Renewed struct {
	Leases, Lost int
	Took         time.Duration
	Err          error
}

// JobRan reports one call of a background job by this process, which acted on so many rows. Jobs are the names in
// operator.Jobs.
type JobRan struct {
	Job   string
	Acted int
	Took  time.Duration
	Err   error
}

func (Created) event()   {}
func (Signalled) event() {}
func (Claimed) event()   {}
func (Renewed) event()   {}
func (JobRan) event()    {}
