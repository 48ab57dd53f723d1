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

	// Observe receives an event. ctx is the operation's.
	Observe(ctx context.Context, e Event)
}

// Event is one of [Created], [Signalled], [Claimed], [Renewed] and [JobRan]. Later versions add others.
type Event interface{ event() }

// Created reports new executions of one lane and kind, after the commit. The engine sees the commits of its own
// transactions and of Engine.InTx. In another transaction, the event comes when the operation returns. Executions of a
// savepoint that the caller rolls back are reported too, duplicates are not.
type Created struct {
	Lane  id.LaneID
	Kind  string
	Count int
}

// Signalled reports the delivery of a signal.
type Signalled struct {
	Name      string
	Duplicate bool // an earlier call had delivered it
}

// Claimed reports one claim from a lane. Took includes the completions of the same transaction.
type Claimed struct {
	Lane       id.LaneID
	Executions int
	Took       time.Duration
	Err        error
}

// Renewed reports one renewal of leases.
type Renewed struct {
	Leases, Lost int
	Took         time.Duration
	Err          error
}

// JobRan reports one call of a background job, which acted on so many rows.
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
