package operator

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// WaitpointToken returns the token of an open waitpoint, for a program that authenticates people itself and signals on their
// behalf. The token is a credential, and [wire.WaitpointToken] keeps it out of logs.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound] if the waitpoint is closed, belongs to another execution or has no
// token, like a waitpoint opened by a wait. One statement.
func WaitpointToken(ctx context.Context, eng *engine.Engine, x id.ExecutionID, waitpoint id.WaitpointID) (wire.WaitpointToken, error) {
	const op = "read waitpoint token"
	c := core.Of(eng)
	if err := c.CheckExecution(x); err != nil {
		return "", core.Wrap(op, err)
	}
	token, err := c.Q.GetWaitpointToken(ctx, c.Reader(), db.GetWaitpointTokenParams{
		PartitionKey: x.Partition(), WaitpointID: waitpoint, ExecutionID: x.UUID(),
	})
	if core.IsNoRow(err) {
		err = &fferr.NotFoundError{Entity: "waitpoint", ID: waitpoint.String()}
	}
	return wire.WaitpointToken(token), core.Wrap(op, err)
}

// ReissueToken signs the token of an open waitpoint again, with the current signing key. The earlier token is then invalid.
// Use it for waitpoints that outlive a rotation of keys, and for a leaked link. The token depends only on the key and the
// ids, and stays the same while its key signs: rotate the key first.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound] for the execution, or if the waitpoint is closed, has expired, belongs
// to another execution or has no token; [*fferr.EndedError] after the end of the execution; [fferr.ErrUnsupported] if the
// keystore has no key; [fferr.ErrContention]. Transaction: locks the execution and its attempt, then the waitpoint. Emits
// nothing. Safe to repeat.
func ReissueToken(ctx context.Context, eng *engine.Engine, x id.ExecutionID, waitpoint id.WaitpointID) (wire.WaitpointToken, error) {
	c := core.Of(eng)
	return core.Operate(ctx, c, x, core.Operation[wire.WaitpointToken]{
		Op: "reissue token",
		Judge: func(x *core.HeldExecution) (none wire.WaitpointToken, acts bool, err error) {
			if x.Terminal() {
				return none, false, x.Ended()
			}
			return none, true, nil
		},
		Write: func(tx *core.Txn, x *core.HeldExecution) (wire.WaitpointToken, error) {
			token, err := c.Q.ReissueToken(ctx, tx, db.ReissueTokenParams{
				PartitionKey: x.ID.Partition(), WaitpointID: waitpoint, ExecutionID: x.ID.UUID(), NowMs: x.NowMs,
			})
			if !core.IsNoRow(err) {
				return wire.WaitpointToken(token), err
			}
			if _, err := c.SigningKeyOf(ctx, tx); err != nil {
				return "", err
			}
			return "", &fferr.NotFoundError{Entity: "waitpoint", ID: waitpoint.String()}
		},
	})
}
