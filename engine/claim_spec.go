package engine

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// ClaimSpec configures a claim. Capabilities and Kinds are optional.
type ClaimSpec struct {
	Lane         id.LaneID
	Capabilities id.Capabilities // of the worker; executions requiring more are skipped
	Kinds        []string        // with a handler; others are skipped. Empty: any kind
	Worker       id.WorkerID
	Instance     id.WorkerInstanceID
	LeaseTTL     time.Duration // one millisecond to [MaxLeaseTTL]
}

// Claimed is an execution leased to the caller.
type Claimed struct {
	ID        id.ExecutionID
	Lease     Lease
	ExpiresAt time.Time // end of the lease
	Kind      string
	Payload   []byte // nil if none was given
	Tags      map[string]string
	Flow      *id.FlowID // nil outside a flow
	Priority  int
	CreatedAt time.Time // for fair work the place in the queue instead

	// ReadyAt is when the execution became claimable: at its creation or [ExecutionSpec.CreatedAt], or when a statement or
	// job put it into the queue after a pause, a wait or a lease. A later change of its priority, tags or lane counts as
	// well. For fair work it is the time, not the place. Zero for a claim by a grant, which takes it out of the queue.
	ReadyAt time.Time

	Type      state.AttemptType
	Resumed   bool      // an interrupted attempt continues, after a lost lease, a delay or a release
	Retries   int       // retries scheduled before this attempt
	TimeoutAt time.Time // of the attempt; zero without a timeout
	// PreviousTrace is the trace context of the last observed run, a W3C traceparent: see [Lease].Trace.
	PreviousTrace string

	Limited bool // occupies places in limits or a quota policy, for which others may wait

	limits []pgtype.UUID
}
