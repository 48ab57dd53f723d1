package engine

import (
	"context"
	"encoding/json"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// TakeSignal takes the oldest signal of a name that is kept for a later wait of an execution, for the holder of its lease:
// one that came while nothing waited for the name, or that a wait received and did not use. No wait gets it any more, and
// a repetition of it is still a duplicate. ok is false if none is kept. Those that ended a wait belong to that wait.
//
// Call it with [Engine.WithTx] in the transaction that uses the signal; otherwise a crash loses it. See worker.TurnTx.
//
// Errors: the errors of a lease, as [Engine.Suspend]; [fferr.ErrInvalidInput]; [fferr.ErrCorruption].
// Transaction: locks the flow of a member, shared, then the execution and its attempt; waits for each up to two seconds,
// three times, then [fferr.ErrContention]. A repetition takes the next signal.
func (e *Engine) TakeSignal(ctx context.Context, l Lease, name string) (signal ReceivedSignal, ok bool, err error) {
	const op = "take signal"
	if err := condition.CheckName(name); err != nil {
		return signal, false, core.Wrap(op, core.Invalid("name", err.Error()))
	}
	// The flow: the transaction may end the lease later, and locks are taken in order.
	taken, err := core.UnderLocks(ctx, e.c, op, l.Fence, core.SharedFlow, func(ctx context.Context, tx *core.Txn, x *core.HeldLease) ([]ReceivedSignal, error) {
		stored, err := e.c.Q.TakeSignal(ctx, tx, db.TakeSignalParams{
			PartitionKey: x.ID.Partition(), ExecutionID: core.PgUUID(x.ID.UUID()), Name: name,
		})
		if err != nil || stored == nil {
			return nil, err
		}
		byName, err := json.Marshal(map[string][]json.RawMessage{name: {stored}})
		if err != nil {
			return nil, err
		}
		signals, err := readSignals(byName, func(string) bool { return false })
		if err != nil {
			return nil, core.Corrupt("ff_waitpoint_pending.condition", err)
		}
		return signals, nil
	})
	if err != nil || len(taken) == 0 {
		return signal, false, err
	}
	return taken[0], true, nil
}

// takenDocument renders the signals that a turn has taken, by their names. nil: none.
func takenDocument(signals []ReceivedSignal) (*string, error) {
	if len(signals) == 0 {
		return nil, nil
	}
	byName := make(map[string][]storedSignal)
	for _, signal := range signals {
		byName[signal.Name] = append(byName[signal.Name], signal.stored())
	}
	text, err := json.Marshal(byName)
	document := string(text)
	return &document, err
}
