package core

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// LeaseFacts has the values checked by a fence. A nil pointer is a missing execution.
type LeaseFacts db.ReadLeasesRow

func (c *Core) ReadLeases(ctx context.Context, conn db.DBTX, arrays LeaseArrays) (map[int]*LeaseFacts, error) {
	rows, err := c.Q.ReadLeases(ctx, conn, db.ReadLeasesParams{
		PartitionKeys:  arrays.Partitions,
		ExecutionIDs:   arrays.Executions,
		AttemptIndexes: arrays.Attempts,
		Ords:           arrays.Ords(),
		NowMs:          c.NowMs(),
	})
	if err != nil {
		return nil, err
	}
	facts := make(map[int]*LeaseFacts, len(rows))
	for _, row := range rows {
		facts[int(row.Ord)] = (*LeaseFacts)(&row)
	}
	return facts, nil
}

// missing returns the error for a lease whose execution or attempt does not exist.
func (f *LeaseFacts) missing(l id.Fence) error {
	switch {
	case f == nil:
		return &fferr.NotFoundError{Entity: "execution", ID: l.Execution.String()}
	case f.AttemptEpoch == nil:
		return &fferr.NotFoundError{Entity: "attempt", ID: l.Execution.String()}
	}
	return nil
}

// Fence checks a holder's call, in order: the attempt exists; the epoch is the given one; the very same call did not
// succeed before (only if repeated is given); the lease was not revoked; the execution is active; the attempt is the
// current one; the lease is live. The result is nil if the call may continue, and [ErrRepeated] if the call succeeded
// before. See docs/internals/decisions.md#fences.
func (f *LeaseFacts) Fence(l id.Fence, repeated func(*LeaseFacts) bool) error {
	if err := f.missing(l); err != nil {
		return err
	}
	phase, err := normalise.LifecyclePhase(f.LifecyclePhase)
	if err != nil {
		return Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	refused := func(reason error) error {
		return &fferr.LeaseError{
			Execution: l.Execution,
			Attempt:   l.Attempt,
			Epoch:     max(*f.AttemptEpoch, 0),
			Phase:     phase,
			Outcome:   f.terminalOutcome(phase),
			Err:       reason,
		}
	}
	switch {
	case *f.AttemptEpoch != l.Epoch:
		return refused(fferr.ErrStaleLease)
	case repeated != nil && repeated(f):
		return ErrRepeated
	case f.OwnershipState == "lease_revoked":
		return refused(fferr.ErrLeaseRevoked)
	case phase != state.Active:
		return refused(fferr.ErrNotActive)
	case int(f.CurrentIndex) != l.Attempt:
		return refused(fferr.ErrStaleLease)
	case f.LeaseExpiresAtMs == nil || *f.LeaseExpiresAtMs <= f.NowMs:
		return refused(fferr.ErrLeaseExpired)
	}
	return nil
}

func (f *LeaseFacts) terminalOutcome(phase state.LifecyclePhase) state.TerminalOutcome {
	return normalise.TerminalOutcome(normalise.TerminalFacts{
		Phase:              phase,
		StoredPhase:        f.LifecyclePhase,
		PointerOutcome:     f.PointerOutcome,
		StoredPublicState:  f.PublicState,
		CurrentOutcome:     f.CurrentOutcome,
		RawTerminalOutcome: f.RawTerminalOutcome,
		CancellationReason: f.CancellationReason,
		LastFailureMessage: f.LastFailureMessage,
		FailureReason:      f.FailureReason,
	})
}

// LeaseArrays are leases as the columns of an input table.
type LeaseArrays struct {
	ExecutionArrays
	Attempts []int32
	Epochs   []int64
}

func NewLeaseArrays(n int) LeaseArrays {
	return LeaseArrays{
		ExecutionArrays: ExecutionArrays{Partitions: make([]int16, 0, n), Executions: make([]pgtype.UUID, 0, n)},
		Attempts:        make([]int32, 0, n),
		Epochs:          make([]int64, 0, n),
	}
}

func (a *LeaseArrays) Add(f id.Fence) {
	a.ExecutionArrays.Add(f.Execution.Partition(), f.Execution.UUID())
	a.Attempts = append(a.Attempts, int32(f.Attempt))
	a.Epochs = append(a.Epochs, f.Epoch)
}
