package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// maxWaitpoints limits the open waitpoints of an execution.
const maxWaitpoints = 1000

// WaitpointSpec describes a waitpoint whose token is needed before the execution waits there.
type WaitpointSpec struct {
	Lease Lease
	Key   id.WaitpointKey // required; of the later wait: see [Condition.At]

	// TTL is how long the waitpoint is open if nothing waits there. During a wait it stays open. Required; at least a
	// millisecond.
	TTL time.Duration
}

// Waitpoint is an open waitpoint, with the token for signalling it.
type Waitpoint struct {
	Execution id.ExecutionID
	ID        id.WaitpointID
	Key       id.WaitpointKey
	Token     wire.WaitpointToken
	ExpiresAt time.Time // if nothing waits there by then; zero during a wait
	Created   bool      // false if it was open already
}

// CreateWaitpoint opens a waitpoint of the leased execution and signs its token: the part of a link that lets a person
// without an account send a signal. If the execution has an open waitpoint with this key and a token, CreateWaitpoint
// returns it, so a repeated handler gets the same link. Early signals are kept for the wait.
//
// Errors: as [Engine.Suspend]; [fferr.ErrInvalidInput] also for more than 1,000 open waitpoints;
// [fferr.ErrUnsupported] if the keystore has no key. Transaction: locks the execution and its attempt. Safe to repeat.
func (e *Engine) CreateWaitpoint(ctx context.Context, spec WaitpointSpec) (Waitpoint, error) {
	const op = "create waitpoint"
	if err := condition.CheckKey(string(spec.Key)); err != nil {
		return Waitpoint{}, core.Wrap(op, core.Invalid("key", err.Error()))
	}
	if spec.TTL < time.Millisecond {
		return Waitpoint{}, core.Wrap(op, core.Invalid("ttl", "is shorter than a millisecond"))
	}
	return core.UnderLease(ctx, e.c, op, spec.Lease.Fence, func(ctx context.Context, tx *core.Txn, x *core.HeldLease) (Waitpoint, error) {
		nowMs := x.Facts.NowMs
		w := Waitpoint{Execution: x.ID, Key: spec.Key}
		row, err := e.c.Q.GetOpenWaitpoint(ctx, tx, db.GetOpenWaitpointParams{
			PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), WaitpointKey: string(spec.Key), NowMs: nowMs,
		})
		if err == nil {
			w.ID, w.Token, w.ExpiresAt = row.WaitpointID, wire.WaitpointToken(row.Token), core.OptionalTime(row.ExpiresAtMs)
			return w, nil
		} else if !core.IsNoRow(err) {
			return w, err
		}
		open, err := e.c.Q.CountWaitpoints(ctx, tx, db.CountWaitpointsParams{PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID()})
		if err != nil {
			return w, err
		}
		if open >= maxWaitpoints {
			return w, core.Invalid("key", fmt.Sprintf("the execution has %d open waitpoints, the most that it may have", open))
		}
		w.ID, w.Created = id.NewWaitpointID(), true
		expires := core.AddTTL(nowMs, spec.TTL.Milliseconds())
		w.ExpiresAt = time.UnixMilli(expires)
		token, err := e.c.Q.InsertWaitpoint(ctx, tx, db.InsertWaitpointParams{
			PartitionKey: x.ID.Partition(), WaitpointID: w.ID, ExecutionID: x.ID.UUID(), CreatedAtMs: nowMs, ExpiresAtMs: expires,
			WaitpointKey: string(spec.Key),
		})
		if core.IsNoRow(err) {
			err = core.ErrNoSigningKey()
		}
		w.Token = wire.WaitpointToken(token)
		return w, err
	})
}

// CloseWaitpoint closes a waitpoint without a wait, and deletes the signals kept there. The token becomes invalid.
// Nothing happens if the waitpoint is closed already, or belongs to another execution or to a wait.
//
// Errors: as [Engine.Suspend]. Transaction: locks the execution and its attempt. Safe to repeat.
func (e *Engine) CloseWaitpoint(ctx context.Context, l Lease, waitpoint id.WaitpointID) error {
	_, err := core.UnderLease(ctx, e.c, "close waitpoint", l.Fence, func(ctx context.Context, tx *core.Txn, x *core.HeldLease) (int64, error) {
		return e.c.Q.DropWaitpoint(ctx, tx, db.DropWaitpointParams{
			PartitionKey: x.ID.Partition(), WaitpointID: waitpoint, ExecutionID: x.ID.UUID(),
		})
	})
	return err
}

// OpenWaitpoint describes an open waitpoint without its token.
type OpenWaitpoint struct {
	ID          id.WaitpointID
	Key         id.WaitpointKey
	Active      bool     // the execution waits there
	Names       []string // of the expected signals; empty: any
	CreatedAt   time.Time
	ExpiresAt   time.Time // zero: not before the wait ends
	Buffered    int       // signals kept for a wait
	Kid         string    // key of the token's signature; "" without a token
	Fingerprint string    // first 16 digits of the token's digest
}

// ListWaitpoints returns a [Page] of an execution's open waitpoints, by id.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) ListWaitpoints(ctx context.Context, x id.ExecutionID, after string, limit int) (Page[OpenWaitpoint], error) {
	const op, list = "list waitpoints", "waitpoints"
	var page Page[OpenWaitpoint]
	if err := e.c.CheckExecution(x); err != nil {
		return page, core.Wrap(op, err)
	}
	size, err := core.PageSize(limit)
	if err != nil {
		return page, core.Wrap(op, err)
	}
	key, err := core.ReadCursor(list, after)
	if err == nil && key != nil && len(key) != len(id.WaitpointID{}) {
		err = core.Invalid("after", "is not a cursor")
	}
	if err != nil {
		return page, core.Wrap(op, err)
	}
	var from pgtype.UUID
	from.Valid = true
	copy(from.Bytes[:], key)
	rows, err := e.c.Q.ListWaitpoints(ctx, e.c.Reader(), db.ListWaitpointsParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(), AfterWaitpointID: from, PageSize: int32(size + 1),
	})
	if err != nil {
		return page, core.Wrap(op, err)
	}
	open := make([]OpenWaitpoint, len(rows))
	for i, row := range rows {
		open[i] = OpenWaitpoint{
			ID: row.WaitpointID, Key: id.WaitpointKey(row.WaitpointKey), Active: row.State == "active", Names: row.RequiredSignalNames,
			CreatedAt: time.UnixMilli(row.CreatedAtMs), Buffered: int(row.Buffered), Kid: row.TokenKid, Fingerprint: row.Fingerprint,
			ExpiresAt: core.OptionalTime(row.ExpiresAtMs),
		}
	}
	return Page[OpenWaitpoint](core.PageOf(open, size, func(w *OpenWaitpoint) string { return core.CursorOf(list, w.ID[:]) })), nil
}
