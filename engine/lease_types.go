package engine

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Fence identifies a lease in the database. Each claim of an execution raises the epoch, and calls with an older one
// are refused. Comparable; no two leases share a Fence.
type Fence struct {
	Execution id.ExecutionID
	Attempt   int // index, from 0
	Epoch     int64
}

// Lease is a worker's time-limited ownership of one attempt. Its Fence is decisive; the other fields are informational.
// Comparable: two equal leases are the same lease.
//
// A Lease crosses process boundaries as a [wire.Handle].
type Lease struct {
	Fence
	ID        id.LeaseID
	AttemptID id.AttemptID
	Lane      id.LaneID
	Instance  id.WorkerInstanceID
	TTL       time.Duration // default extension of a renewal, in whole milliseconds
}

// LeaseFromHandle decodes a handle made by [Lease.Handle] or by another engine on the same database.
//
// Errors: [fferr.ErrInvalidInput] for a handle of another kind of storage, or whose attempt or epoch can't be stored;
// [fferr.ErrCorruption] for bytes that are not a handle.
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
		Fence:     Fence{Execution: fields.Execution, Attempt: int(attempt), Epoch: epoch},
		ID:        fields.LeaseID,
		AttemptID: fields.AttemptID,
		Lane:      fields.Lane,
		Instance:  fields.WorkerInstance,
		TTL:       time.Duration(min(fields.LeaseTTLMs, math.MaxUint32)) * time.Millisecond,
	}, nil
}

// leaseArrays are leases as the columns of an input table.
type leaseArrays struct {
	core.ExecutionArrays
	attempts []int32
	epochs   []int64
}

func newLeaseArrays(n int) leaseArrays {
	return leaseArrays{
		ExecutionArrays: core.ExecutionArrays{Partitions: make([]int16, 0, n), Executions: make([]pgtype.UUID, 0, n)},
		attempts:        make([]int32, 0, n),
		epochs:          make([]int64, 0, n),
	}
}

func (a *leaseArrays) add(f Fence) {
	a.ExecutionArrays.Add(f.Execution.Partition(), f.Execution.UUID())
	a.attempts = append(a.attempts, int32(f.Attempt))
	a.epochs = append(a.epochs, f.Epoch)
}

// compareLeases defines the order in which rows of several executions are locked.
func compareLeases(a, b Lease) int {
	return cmp.Or(
		a.Execution.Compare(b.Execution),
		cmp.Compare(a.Attempt, b.Attempt),
		cmp.Compare(a.Epoch, b.Epoch),
	)
}

func (e *Engine) checkLease(l Lease) error {
	switch {
	case l.Execution.IsZero():
		return core.Invalid("lease", "names no execution")
	case l.Attempt < 0 || l.Attempt > math.MaxInt32:
		return core.Invalid("lease", "attempt index must be between 0 and 2^31-1")
	}
	if err := e.cfg.Partitions.CheckExecution(l.Execution); err != nil {
		return core.InvalidBecause("lease", err)
	}
	return nil
}
