package engine

import (
	"context"
	"encoding/binary"
	"iter"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

// MaxRevokeReason is the longest reason for a revocation in bytes.
const MaxRevokeReason = 1024

// RevokeSpec says which lease is to be taken away. The zero values of Lease and Instance accept whichever there is.
type RevokeSpec struct {
	ID id.ExecutionID

	// Lease is the lease that the caller has seen: its id, as [Lease] and [LeaseSnapshot] have it, its fence as
	// [wire.LeaseTriple] prints it, or the label of [ExpiredLease].
	Lease    wire.ExpectedLease
	Instance id.WorkerInstanceID // who is thought to hold it

	// Reason is stored with the execution, at most [MaxRevokeReason] bytes.
	Reason string
}

// NotRevoked is why nothing was revoked.
type NotRevoked string

// The reasons.
const (
	NoActiveLease   NotRevoked = "no_active_lease"              // nobody holds one
	AnotherInstance NotRevoked = "different_worker_instance_id" // another instance holds it
	AnotherLease    NotRevoked = "lease_id_mismatch"            // the lease is a newer one than the caller has seen
)

// Revoked is what became of a call for a lease to be revoked.
type Revoked struct {
	Lease    wire.LeaseTriple    // the lease that was taken away
	Instance id.WorkerInstanceID // who held it
	Epoch    int64               // the execution's, raised: what the former holder writes is refused by it

	// NotRevoked: nothing was revoked, and there are no other values; "": it was.
	NotRevoked NotRevoked
}

// RevokeLease takes the lease of a running execution away: it goes back to its lane at once, and the same attempt goes
// on with the next claim, by whomever. The former holder is refused whatever it still calls with [ErrStaleLease]; its
// worker is told after the commit and cancels the handler, at its next renewal at the latest. The loss does not count
// as one of a lease that ran out.
//
// Where the lease is not held any more, or not the one that is meant, [Revoked.NotRevoked] says so and nothing is
// written; so does a repetition.
//
// Errors: [ErrInvalidInput]; [ErrNotFound]; [ErrContention] where somebody else holds its row or its attempt's.
// Transaction: locks the execution, then its attempt; emits a lease event.
func (o Operator) RevokeLease(ctx context.Context, spec RevokeSpec) (Revoked, error) {
	const op = "revoke lease"
	if err := checkText("reason", spec.Reason, MaxRevokeReason); err != nil {
		return Revoked{}, wrap(op, err)
	}
	e := o.e
	return operate(ctx, e, spec.ID, operation[Revoked]{
		op: op,
		judge: func(x *heldExecution) (Revoked, bool, error) {
			if !x.active() || !x.leased() {
				return Revoked{NotRevoked: NoActiveLease}, false, nil
			}
			if spec.Instance != "" && string(spec.Instance) != x.WorkerInstanceID {
				return Revoked{NotRevoked: AnotherInstance}, false, nil
			}
			stored, err := id.ParseLeaseID(x.LeaseID)
			if err != nil {
				stored = id.LeaseID{} // another program kept none
			}
			if !spec.Lease.Matches(x.lease(), stored) {
				return Revoked{NotRevoked: AnotherLease}, false, nil
			}
			return Revoked{}, true, nil
		},
		write: func(tx *txn, x *heldExecution) (Revoked, error) {
			revoked := Revoked{Lease: x.lease(), Instance: id.WorkerInstanceID(x.WorkerInstanceID), Epoch: x.raisedEpoch()}
			lane, err := e.q.RevokeLease(ctx, tx, db.RevokeLeaseParams{
				PartitionKey: x.id.Partition(), ExecutionID: x.id.UUID(), AttemptIndex: x.CurrentIndex, RaisedEpoch: revoked.Epoch,
				Reason: spec.Reason, LeaseID: x.LeaseID, WorkerInstanceID: x.WorkerInstanceID, NowMs: x.NowMs,
			})
			tx.due.leases()
			tx.due.lane(lane)
			tx.due.lost(x.WorkerInstanceID)
			return revoked, err
		},
	})
}

// lease is the lease of the current attempt by where it is stored.
func (x *heldExecution) lease() wire.LeaseTriple {
	return wire.LeaseTriple{Execution: x.id.UUID(), AttemptIndex: x.CurrentIndex, LeaseEpoch: x.CurrentEpoch}
}

// ExpiredLease is a lease that has run out and that no job has taken away yet.
type ExpiredLease struct {
	Fence
	Label     id.LeaseID // what other programs list it as; several leases may share one, and it fences nothing
	Instance  id.WorkerInstanceID
	ExpiresAt time.Time
}

// ExpiredLeaseFilter says which expired leases are listed. The zero value lists all.
type ExpiredLeaseFilter struct {
	AsOf      time.Time    // those that have run out by then, at the latest; default: now, by the database's clock
	Namespace id.Namespace // of their executions; default: any
}

// ListExpiredLeases returns the leases that have run out, by when they did, then by execution, after a cursor:
// [Page.Next] of the page before, "" for the first page. A limit of 0, or above [MaxPage], is taken as that. Where the
// background work runs it gives such executions back within seconds; a list that stays long says that none runs, or
// that their rows are held by others.
//
// Errors: [ErrInvalidInput] for a negative limit, an instant before 1970, or a cursor of another listing or filter.
// One statement; looks at every lease that was to run out by then, those that were renewed or given back included;
// locks nothing.
func (o Operator) ListExpiredLeases(
	ctx context.Context, filter ExpiredLeaseFilter, after string, limit int,
) (Page[ExpiredLease], error) {
	const op = "list expired leases"
	page, err := o.listExpiredLeases(ctx, filter, after, limit)
	return page, wrap(op, err)
}

// ExpiredLeases goes through the expired leases as [Operator.ListExpiredLeases] lists them, a page at a time.
func (o Operator) ExpiredLeases(ctx context.Context, filter ExpiredLeaseFilter) iter.Seq2[ExpiredLease, error] {
	return pages(func(after string) (Page[ExpiredLease], error) {
		return o.ListExpiredLeases(ctx, filter, after, MaxPage)
	})
}

func (o Operator) listExpiredLeases(
	ctx context.Context, filter ExpiredLeaseFilter, after string, limit int,
) (page Page[ExpiredLease], err error) {
	e := o.e
	params := db.ListExpiredLeasesParams{NowMs: e.nowMs(), AfterMs: math.MinInt64, AfterExecutionID: pgUUID(id.ExecutionUUID{})}
	asOfMs, err := instant("as of", filter.AsOf)
	if err != nil {
		return page, err
	}
	if asOfMs != 0 {
		params.AsOfMs = &asOfMs
	}
	if filter.Namespace != "" {
		if err := filter.Namespace.Validate(); err != nil {
			return page, invalidBecause("namespace", err)
		}
		params.Namespace = new(string(filter.Namespace))
	}
	if limit, err = pageSize(limit); err != nil {
		return page, err
	}
	list := "expired leases of " + string(filter.Namespace)
	key, err := readCursor(list, after)
	if err != nil {
		return page, err
	}
	if key != nil {
		var x id.ExecutionUUID
		if len(key) != 8+len(x) {
			return page, invalid("after", "is no cursor of this listing")
		}
		copy(x[:], key[8:])
		params.AfterMs, params.AfterExecutionID = int64(binary.BigEndian.Uint64(key)), pgUUID(x)
	}
	params.PageSize = int32(limit) + 1
	rows, err := e.q.ListExpiredLeases(ctx, e.reader(), params)
	if err != nil {
		return page, err
	}
	leases := make([]ExpiredLease, len(rows))
	for i, row := range rows {
		lease := wire.LeaseTriple{Execution: row.ExecutionID, AttemptIndex: row.AttemptIndex, LeaseEpoch: row.LeaseEpoch}
		leases[i] = ExpiredLease{
			Fence: Fence{
				Execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID),
				Attempt:   int(row.AttemptIndex), Epoch: row.LeaseEpoch,
			},
			Label: lease.Synthetic(), Instance: id.WorkerInstanceID(row.WorkerInstanceID), ExpiresAt: time.UnixMilli(row.LeaseExpiresAtMs),
		}
	}
	return pageOf(leases, limit, func(l *ExpiredLease) string {
		x := l.Execution.UUID()
		return cursorOf(list, append(binary.BigEndian.AppendUint64(nil, uint64(l.ExpiresAt.UnixMilli())), x[:]...))
	}), nil
}
