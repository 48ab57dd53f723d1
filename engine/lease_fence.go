package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// leaseFacts has the values that a fence checks. A nil pointer is an execution that does not exist.
type leaseFacts db.ReadLeasesRow

func (e *Engine) readLeases(ctx context.Context, conn db.DBTX, arrays leaseArrays) (map[int]*leaseFacts, error) {
	rows, err := e.c.Q.ReadLeases(ctx, conn, db.ReadLeasesParams{
		PartitionKeys:  arrays.Partitions,
		ExecutionIDs:   arrays.Executions,
		AttemptIndexes: arrays.attempts,
		Ords:           arrays.Ords(),
		NowMs:          e.c.NowMs(),
	})
	if err != nil {
		return nil, err
	}
	facts := make(map[int]*leaseFacts, len(rows))
	for _, row := range rows {
		facts[int(row.Ord)] = (*leaseFacts)(&row)
	}
	return facts, nil
}

// missing returns the error for a lease whose execution or attempt does not exist.
func (f *leaseFacts) missing(l Fence) error {
	switch {
	case f == nil:
		return &fferr.NotFoundError{Entity: "execution", ID: l.Execution.String()}
	case f.AttemptEpoch == nil:
		return &fferr.NotFoundError{Entity: "attempt", ID: l.Execution.String()}
	}
	return nil
}

// fence checks a holder's call. It checks in this order: the attempt exists; the epoch is the given one; this very call
// did not succeed before (only if repeated is given); the lease was not revoked; the execution is active; the attempt
// is the current one; the lease is live. It returns nil if the call may continue, and [core.ErrRepeated] if it succeeded
// before. See docs/internals/decisions.md#fences.
func (f *leaseFacts) fence(l Fence, repeated func(*leaseFacts) bool) error {
	if err := f.missing(l); err != nil {
		return err
	}
	phase, err := normalise.LifecyclePhase(f.LifecyclePhase)
	if err != nil {
		return core.Corrupt("ff_exec_core.lifecycle_phase", err)
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
		return core.ErrRepeated
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

func (f *leaseFacts) terminalOutcome(phase state.LifecyclePhase) state.TerminalOutcome {
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
