package engine

import (
	"context"
	"encoding/json"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// TakeSignal takes the oldest signal with a name kept for a later wait of the leased execution: a signal that came
// while nothing waited for the name, or a signal no wait has used. ok is false if none is kept. Later waits don't get
// the signal; a repetition of the signal is still a duplicate.
//
// Call TakeSignal with [Engine.WithTx] in the transaction that uses the signal; otherwise a crash loses the signal.
//
// Errors: as [Engine.Suspend]; [fferr.ErrCorruption].
//
// Transaction: locks a member's flow, shared, then the execution and its attempt; waits for each up to two seconds,
// three times, then [fferr.ErrContention]. A repetition takes the next signal.
func (e *Engine) TakeSignal(ctx context.Context, l Lease, name string) (signal ReceivedSignal, ok bool, err error) {
	const op = "take signal"
	if err := condition.CheckName(name); err != nil {
		return signal, false, core.Wrap(op, core.Invalid("name", err.Error()))
	}
	// The flow comes first in the lock order, and the transaction may end the lease later.
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

// takenDocument renders the signals taken by a turn, by name. nil: none.
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
