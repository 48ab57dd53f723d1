package core

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// MaxHold is how long a key of a limit is held at most.
const MaxHold = 30 * 24 * time.Hour

// LimitHold is a hold of a key of a limit.
type LimitHold struct {
	Limit     LimitID // of an execution only with the name
	Key       string
	Until     time.Time // in the past: the hold ends
	By        string
	Execution *id.ExecutionID // must have the limit; nil: an operator holds the key
}

// field names a part of a hold in errors.
func (h *LimitHold) field(part string) string { return "limit " + strconv.Quote(h.Limit.Name) + part }

// HoldLimit holds a key and puts the executions back that have a place and don't run yet. It returns the end in force,
// zero if the key is not held.
//
// The statements are separate: the first waits for transactions that admit by the key, and the next ones see what these
// have admitted.
func (c *Core) HoldLimit(ctx context.Context, op string, h LimitHold) (time.Time, error) {
	until, err := Instant(h.field(" until"), h.Until)
	if err != nil {
		return time.Time{}, Wrap(op, err)
	}
	params := db.HoldLimitKeyParams{
		Namespace: h.Limit.Namespace, LimitName: h.Limit.Name, Key: h.Key, UntilMs: until, MaxHoldMs: MaxHold.Milliseconds(),
		HoldBy: h.By, NowMs: c.NowMs(),
	}
	if h.Execution != nil {
		params.PartitionKey, params.ExecutionID = new(h.Execution.Partition()), PgUUID(h.Execution.UUID())
	}
	return InTx(ctx, c, op, func(tx *Txn) (time.Time, error) {
		held, err := c.Q.HoldLimitKey(ctx, tx, params)
		switch {
		case err != nil:
			return time.Time{}, err
		case !held.Named:
			return time.Time{}, Invalid(h.field(""), "is no limit of the execution")
		case !held.Known:
			return time.Time{}, &fferr.NotFoundError{Entity: "limit", ID: h.Limit.Name}
		case !held.Near:
			return time.Time{}, Invalid(h.field(" until"), fmt.Sprintf("is more than %d days ahead", MaxHold/(24*time.Hour)))
		}
		tx.Due.Gated()
		if held.HoldUntilMs == 0 {
			return time.Time{}, nil
		}
		return time.UnixMilli(held.HoldUntilMs), c.withdrawAdmissions(ctx, tx, held.GateID)
	})
}

// withdrawAdmissions puts all claimable executions with a place at a locked key back.
func (c *Core) withdrawAdmissions(ctx context.Context, tx *Txn, g pgtype.UUID) error {
	for {
		found, err := c.Q.WithdrawAdmissions(ctx, tx, db.WithdrawAdmissionsParams{
			GatePartitionKey: GatePartition(g.Bytes), GateID: g, MaxItems: MaxBatch, NowMs: c.NowMs(),
		})
		if err != nil || found < MaxBatch {
			return err
		}
	}
}
