package operator

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxRevokeReason is the longest reason for a revocation, in bytes.
const MaxRevokeReason = 1024

// RevokeSpec selects the lease to revoke. Zero values of Lease and Instance match any.
type RevokeSpec struct {
	ID id.ExecutionID

	// Lease is the expected lease: its id as in [engine.Lease] and [engine.LeaseSnapshot], its fence as printed by
	// [wire.LeaseTriple], or the label of an [ExpiredLease].
	Lease    wire.ExpectedLease
	Instance id.WorkerInstanceID // expected holder

	// Reason is stored with the execution, at most [MaxRevokeReason] bytes.
	Reason string
}

// NotRevoked is the reason no lease was revoked.
type NotRevoked string

// The reasons.
const (
	NoActiveLease   NotRevoked = "no_active_lease"              // the execution is not leased
	AnotherInstance NotRevoked = "different_worker_instance_id" // another instance holds the lease
	AnotherLease    NotRevoked = "lease_id_mismatch"            // the lease is newer than the expected one
)

// Revoked is the result of revoking a lease.
type Revoked struct {
	Lease    wire.LeaseTriple    // the revoked lease
	Instance id.WorkerInstanceID // the former holder
	Epoch    int64               // the execution's raised epoch, which refuses the former holder's writes

	// NotRevoked is "" if the lease was revoked. Otherwise nothing was revoked, and the other fields are empty.
	NotRevoked NotRevoked
}

// Revoke takes away the lease of a running execution. The execution returns to its lane at once, and the next claim continues
// the same attempt. All calls of the former holder fail with [fferr.ErrStaleLease]. The worker is notified after the commit,
// and cancels the handler at the next renewal at the latest. The loss does not count as an expired lease. If the execution
// has no lease or another one, also in a repetition, nothing is written and [Revoked.NotRevoked] has the reason.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound]; [fferr.ErrContention] if another transaction holds the execution or
// the attempt. Transaction: locks the execution, then the attempt; emits a lease event.
func Revoke(ctx context.Context, eng *engine.Engine, spec RevokeSpec) (Revoked, error) {
	const op = "revoke lease"
	c := core.Of(eng)
	if err := core.CheckText("reason", spec.Reason, MaxRevokeReason); err != nil {
		return Revoked{}, core.Wrap(op, err)
	}
	return core.Operate(ctx, c, spec.ID, core.Operation[Revoked]{
		Op: op,
		Judge: func(x *core.HeldExecution) (Revoked, bool, error) {
			if !x.Active() || !x.Leased() {
				return Revoked{NotRevoked: NoActiveLease}, false, nil
			}
			if spec.Instance != "" && string(spec.Instance) != x.WorkerInstanceID {
				return Revoked{NotRevoked: AnotherInstance}, false, nil
			}
			stored, err := id.ParseLeaseID(x.LeaseID)
			if err != nil {
				stored = id.LeaseID{} // another program stored none
			}
			if !spec.Lease.Matches(x.Lease(), stored) {
				return Revoked{NotRevoked: AnotherLease}, false, nil
			}
			return Revoked{}, true, nil
		},
		Write: func(tx *core.Txn, x *core.HeldExecution) (Revoked, error) {
			revoked := Revoked{Lease: x.Lease(), Instance: id.WorkerInstanceID(x.WorkerInstanceID), Epoch: x.RaisedEpoch()}
			lane, err := c.Q.RevokeLease(ctx, tx, db.RevokeLeaseParams{
				PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), AttemptIndex: x.CurrentIndex, RaisedEpoch: revoked.Epoch,
				Reason: spec.Reason, LeaseID: x.LeaseID, WorkerInstanceID: x.WorkerInstanceID, NowMs: x.NowMs,
			})
			tx.Due.Leases()
			tx.Due.Lane(lane)
			tx.Due.Lost(x.WorkerInstanceID)
			return revoked, err
		},
	})
}

// ExpiredLease is an expired lease that was not yet taken away.
type ExpiredLease struct {
	id.Fence
	Label     id.LeaseID // as listed by other programs; not unique, and no fence
	Instance  id.WorkerInstanceID
	ExpiresAt time.Time
}

// ExpiredLeaseFilter selects expired leases to list. The zero value selects all.
type ExpiredLeaseFilter struct {
	AsOf      time.Time    // leases expired by this time; default: now, by the database's clock
	Namespace id.Namespace // of the executions; default: any
}

// ExpiredLeases iterates over the expired leases, by expiry, then by execution, reading a page at a time. Background work
// returns such executions to their lanes within seconds. If the list stays long, no background work runs or other
// transactions hold the rows.
//
// Each page reads every lease due to expire by then, including renewed and released leases.
//
// Errors: [fferr.ErrInvalidInput] for a time before 1970. Takes no locks.
func ExpiredLeases(ctx context.Context, eng *engine.Engine, filter ExpiredLeaseFilter) iter.Seq2[ExpiredLease, error] {
	c := core.Of(eng)
	return core.All("list expired leases", func(after *db.ListExpiredLeasesRow) ([]db.ListExpiredLeasesRow, error) {
		params, err := filter.params()
		if err != nil {
			return nil, err
		}
		params.NowMs = c.NowMs()
		if after != nil {
			params.AfterMs, params.AfterExecutionID = after.LeaseExpiresAtMs, core.PgUUID(after.ExecutionID)
		}
		return c.Q.ListExpiredLeases(ctx, c.Reader(), params)
	}, func(row *db.ListExpiredLeasesRow) (ExpiredLease, bool, error) {
		lease := wire.LeaseTriple{Execution: row.ExecutionID, AttemptIndex: row.AttemptIndex, LeaseEpoch: row.LeaseEpoch}
		return ExpiredLease{
			Fence: id.Fence{
				Execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID),
				Attempt:   int(row.AttemptIndex), Epoch: row.LeaseEpoch,
			},
			Label: lease.Synthetic(), Instance: id.WorkerInstanceID(row.WorkerInstanceID), ExpiresAt: time.UnixMilli(row.LeaseExpiresAtMs),
		}, true, nil
	})
}

// params returns the parameters for the first page.
func (f *ExpiredLeaseFilter) params() (db.ListExpiredLeasesParams, error) {
	params := db.ListExpiredLeasesParams{AfterMs: math.MinInt64, AfterExecutionID: core.PgUUID(id.ExecutionUUID{}), PageSize: core.MaxPage}
	asOfMs, err := core.Instant("as of", f.AsOf)
	if err != nil {
		return params, err
	}
	if asOfMs != 0 {
		params.AsOfMs = &asOfMs
	}
	if f.Namespace != "" {
		if err := f.Namespace.Validate(); err != nil {
			return params, core.InvalidBecause("namespace", err)
		}
		params.Namespace = new(string(f.Namespace))
	}
	return params, nil
}
