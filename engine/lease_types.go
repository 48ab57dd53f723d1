package engine

import (
	"errors"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Lease is a worker's time-limited ownership of one attempt. Its Fence is decisive; the other fields are informational.
// Equal leases are the same lease. A [wire.Handle] carries a lease to other processes.
type Lease struct {
	id.Fence
	ID        id.LeaseID
	AttemptID id.AttemptID
	Lane      id.LaneID
	Instance  id.WorkerInstanceID
	TTL       time.Duration // default extension of a renewal, in whole milliseconds

	// Trace is the trace context of the run that ends with the lease, a W3C traceparent, for [Claimed.PreviousTrace].
	// Workers set it from [Config.Observer]. Anything but up to 256 bytes of printable ASCII is ignored.
	Trace string
}

// LeaseFromHandle decodes a handle made by [Lease.Handle] or by another engine on the same database.
//
// Errors: [fferr.ErrInvalidInput] for a handle of another storage, or an attempt or epoch beyond the stored types;
// [fferr.ErrCorruption] for other bytes.
func LeaseFromHandle(h wire.Handle) (Lease, error) {
	fields, err := h.CheckPostgres()
	if err != nil {
		if _, foreign := errors.AsType[*wire.ForeignHandleError](err); foreign {
			return Lease{}, core.InvalidBecause("handle", err)
		}
		return Lease{}, core.Corrupt("handle", err)
	}
	attempt, err := wire.StoredAttemptIndex(fields.AttemptIndex)
	if err != nil {
		return Lease{}, core.InvalidBecause("handle: attempt index", err)
	}
	epoch, err := wire.StoredLeaseEpoch(fields.LeaseEpoch)
	if err != nil {
		return Lease{}, core.InvalidBecause("handle: lease epoch", err)
	}
	return Lease{
		Fence:     id.Fence{Execution: fields.Execution, Attempt: int(attempt), Epoch: epoch},
		ID:        fields.LeaseID,
		AttemptID: fields.AttemptID,
		Lane:      fields.Lane,
		Instance:  fields.WorkerInstance,
		TTL:       time.Duration(min(fields.LeaseTTLMs, math.MaxUint32)) * time.Millisecond,
	}, nil
}
