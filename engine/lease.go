package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

// MaxLeaseTTL is the longest lease: 2^32-1 milliseconds. The shortest is one millisecond.
const MaxLeaseTTL = math.MaxUint32 * time.Millisecond

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

// Handle encodes the lease for another process or language.
func (l Lease) Handle(kind wire.HandleKind) wire.Handle {
	return wire.EncodeHandle(kind, wire.HandleFields{
		Execution:      l.Execution,
		AttemptIndex:   uint32(l.Attempt),
		AttemptID:      l.AttemptID,
		LeaseID:        l.ID,
		LeaseEpoch:     uint64(l.Epoch),
		LeaseTTLMs:     uint64(l.TTL.Milliseconds()),
		Lane:           l.Lane,
		WorkerInstance: l.Instance,
	})
}

// LeaseFromHandle decodes a handle made by [Lease.Handle] or by another engine on the same database.
//
// Errors: [ErrInvalidInput] for a handle of another kind of storage, or whose attempt or epoch can't be stored;
// [ErrCorruption] for bytes that are not a handle.
func LeaseFromHandle(h wire.Handle) (Lease, error) {
	fields, err := h.CheckPostgres()
	if err != nil {
		if _, foreign := errors.AsType[*wire.ForeignHandleError](err); foreign {
			return Lease{}, invalidBecause("handle", err)
		}
		return Lease{}, corrupt("handle", err)
	}
	attempt, err := wire.StoredAttemptIndex(fields.AttemptIndex)
	if err != nil {
		return Lease{}, invalidBecause("handle: attempt index", err)
	}
	epoch, err := wire.StoredLeaseEpoch(fields.LeaseEpoch)
	if err != nil {
		return Lease{}, invalidBecause("handle: lease epoch", err)
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

// Renewal extends one lease. A zero TTL means the lease's own.
type Renewal struct {
	Lease Lease
	TTL   time.Duration
}

// RenewLease extends l by ttl, or by its own TTL if ttl is 0, from the database's present time. It returns the new
// expiry, in whole milliseconds, which is never earlier than the old one.
//
// Errors: [*LeaseError] with [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] or [ErrNotActive]: stop work on the
// execution and discard its result. [ErrNotFound] if the execution or attempt no longer exists. [ErrBusy] if another
// transaction holds the attempt: retry before the lease expires. [ErrInvalidInput].
//
// Transaction: one statement; locks the attempt's row without waiting; emits a lease event. Safe to repeat.
func (e *Engine) RenewLease(ctx context.Context, l Lease, ttl time.Duration) (time.Time, error) {
	results, err := e.RenewLeases(ctx, []Renewal{{Lease: l, TTL: ttl}})
	if err != nil {
		return time.Time{}, err
	}
	return results[0].Value, results[0].Err
}

// RenewLeases is [Engine.RenewLease] for many leases, [MaxBatch] per statement. Outcomes, the new expiries, are in
// input order; a lost or locked lease affects only its own. If a lease is given twice, the longest TTL applies to both.
// The error means that nothing happened.
func (e *Engine) RenewLeases(ctx context.Context, renewals []Renewal) ([]Outcome[time.Time], error) {
	const op = "renew leases"
	results := make([]Outcome[time.Time], len(renewals))
	err := inChunks(len(renewals), MaxBatch, func(from, to int) error {
		return e.renewChunk(ctx, op, renewals[from:to], results[from:to])
	}, func(i int, err error) { results[i].Err = err })
	return results, err
}

func (e *Engine) renewChunk(ctx context.Context, op string, renewals []Renewal, results []Outcome[time.Time]) error {
	var order []int
	for i, r := range renewals {
		if results[i].Err = e.checkRenewal(r); results[i].Err == nil {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return compareLeases(renewals[a].Lease, renewals[b].Lease)
	})
	for len(order) > 0 {
		var r *renewing
		_, err := inStatement(ctx, e, op, func(conn db.DBTX, due *notifications) (struct{}, error) {
			r = newRenewing(renewals, order)
			return struct{}{}, r.run(ctx, e, conn, due)
		})
		if err != nil && !errors.Is(err, errRefused) {
			return err
		}
		// In a caller's transaction a refused item must leave no lock behind, so the others start again.
		var accepted []int
		for _, i := range order {
			if ms, ok := r.expires[r.slot[i]]; ok {
				results[i] = Outcome[time.Time]{Value: time.UnixMilli(ms)}
				accepted = append(accepted, i)
				continue
			}
			results[i] = Outcome[time.Time]{Err: cmp.Or(r.missed[r.slot[i]], error(errBusyRow))}
		}
		if err == nil {
			e.rememberRenewals(renewals, accepted, r)
			return nil
		}
		order = accepted
	}
	return nil
}

// rememberRenewals records renewed and lost leases after the commit.
func (e *Engine) rememberRenewals(renewals []Renewal, accepted []int, r *renewing) {
	if e.tx != nil {
		return
	}
	fences, ttls := make([]Fence, len(accepted)), make([]time.Duration, len(accepted))
	for n, i := range accepted {
		fences[n], ttls[n] = renewals[i].Lease.Fence, time.Duration(r.ttls[r.slot[i]-1])*time.Millisecond
	}
	e.leases.extend(fences, ttls)
	var lost []Fence
	for slot := range r.missed {
		if _, renewed := r.expires[slot]; !renewed {
			lost = append(lost, r.arrays.lease(slot-1).Fence)
		}
	}
	e.leases.forget(lost)
}

// A renewing is one try to renew leases. Slots count from 1. The same lease twice is one renewal with the longest TTL.
type renewing struct {
	arrays leaseArrays
	ttls   []int64
	slot   map[int]int // of each renewal

	expires map[int]int64 // by slot, of the renewed ones
	missed  map[int]error // errors of the others; none for locked leases
}

// newRenewing takes the renewals at the indexes in order, which are sorted by lease.
func newRenewing(renewals []Renewal, order []int) *renewing {
	r := &renewing{arrays: newLeaseArrays(len(order)), slot: make(map[int]int, len(order)), expires: make(map[int]int64, len(order))}
	for n, i := range order {
		ttl := cmp.Or(renewals[i].TTL, renewals[i].Lease.TTL).Milliseconds()
		if n > 0 && renewals[i].Lease.Fence == renewals[order[n-1]].Lease.Fence {
			last := len(r.ttls) - 1
			r.ttls[last] = max(r.ttls[last], ttl)
		} else {
			r.arrays.add(renewals[i].Lease)
			r.ttls = append(r.ttls, ttl)
		}
		r.slot[i] = len(r.ttls)
	}
	return r
}

func (r *renewing) run(ctx context.Context, e *Engine, conn db.DBTX, due *notifications) error {
	all := make([]int, len(r.ttls))
	for n := range all {
		all[n] = n + 1
	}
	if err := r.renew(ctx, e, conn, all, false); err != nil {
		return err
	}
	if len(r.expires) < len(r.ttls) {
		var err error
		if r.missed, err = e.judge(ctx, conn, r.arrays); err != nil {
			return err
		}
		// If a lease was not renewed although its fence holds, it was changed a moment ago, is locked, or was written
		// by another program with a different pointer.
		var odd []int
		for _, slot := range all {
			if _, renewed := r.expires[slot]; !renewed && r.missed[slot] == nil {
				odd = append(odd, slot)
			}
		}
		if err := r.renew(ctx, e, conn, odd, true); err != nil {
			return err
		}
	}
	if len(r.expires) > 0 {
		due.leases()
	}
	if e.tx != nil && len(r.expires) < len(r.ttls) {
		return errRefused
	}
	return nil
}

func (r *renewing) renew(ctx context.Context, e *Engine, conn db.DBTX, slots []int, judged bool) error {
	if len(slots) == 0 {
		return nil
	}
	arrays := newLeaseArrays(len(slots))
	ttls := make([]int64, len(slots))
	for n, slot := range slots {
		arrays.add(r.arrays.lease(slot - 1))
		ttls[n] = r.ttls[slot-1]
	}
	rows, err := e.q.RenewLeases(ctx, conn, db.RenewLeasesParams{
		NowMs:          e.nowMs(),
		PartitionKeys:  arrays.partitions,
		ExecutionIDs:   arrays.executions,
		AttemptIndexes: arrays.attempts,
		LeaseEpochs:    arrays.epochs,
		TtlsMs:         ttls,
		Ords:           arrays.ords,
		Judged:         judged,
	})
	for _, row := range rows {
		r.expires[slots[row.Ord-1]] = row.LeaseExpiresAtMs
	}
	return err
}

func (e *Engine) checkRenewal(r Renewal) error {
	if err := e.checkLease(r.Lease); err != nil {
		return err
	}
	return checkTTL("lease TTL", cmp.Or(r.TTL, r.Lease.TTL))
}

func (e *Engine) checkLease(l Lease) error {
	switch {
	case l.Execution.IsZero():
		return invalid("lease", "names no execution")
	case l.Attempt < 0 || l.Attempt > math.MaxInt32:
		return invalid("lease", "attempt index must be between 0 and 2^31-1")
	}
	if err := e.cfg.Partitions.CheckExecution(l.Execution); err != nil {
		return invalidBecause("lease", err)
	}
	return nil
}

func checkTTL(field string, ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > MaxLeaseTTL {
		return invalid(field, "must be between 1ms and 2^32-1 ms")
	}
	return nil
}

// addTTL returns atMs + ttlMs, at most the largest time of a column. ttlMs must not be negative.
func addTTL(atMs, ttlMs int64) int64 {
	if atMs > math.MaxInt64-ttlMs {
		return math.MaxInt64
	}
	return atMs + ttlMs
}

// leaseArrays are leases as the columns of an input table.
type leaseArrays struct {
	partitions []int16
	executions []pgtype.UUID
	attempts   []int32
	epochs     []int64
	ords       []int32 // positions from 1
}

func newLeaseArrays(n int) leaseArrays {
	return leaseArrays{
		partitions: make([]int16, 0, n),
		executions: make([]pgtype.UUID, 0, n),
		attempts:   make([]int32, 0, n),
		epochs:     make([]int64, 0, n),
		ords:       make([]int32, 0, n),
	}
}

func (a *leaseArrays) add(l Lease) {
	a.partitions = append(a.partitions, l.Execution.Partition())
	a.executions = append(a.executions, pgUUID(l.Execution.UUID()))
	a.attempts = append(a.attempts, int32(l.Attempt))
	a.epochs = append(a.epochs, l.Epoch)
	a.ords = append(a.ords, int32(len(a.executions)))
}

func (a *leaseArrays) lease(i int) Lease {
	return Lease{Fence: Fence{
		Execution: id.ExecutionIDFromRow(a.partitions[i], id.ExecutionUUID(a.executions[i].Bytes)),
		Attempt:   int(a.attempts[i]),
		Epoch:     a.epochs[i],
	}}
}

// compareLeases defines the order in which rows of several executions are locked.
func compareLeases(a, b Lease) int {
	return cmp.Or(
		a.Execution.Compare(b.Execution),
		cmp.Compare(a.Attempt, b.Attempt),
		cmp.Compare(a.Epoch, b.Epoch),
	)
}

// inChunks runs work on consecutive ranges of at most size of n items. If the first range fails, its error is returned.
// An error of a later range applies to all items from there on, because earlier ranges are committed.
func inChunks(n, size int, work func(from, to int) error, fail func(i int, err error)) error {
	for from := 0; from < n; from += size {
		to := min(from+size, n)
		err := work(from, to)
		switch {
		case err == nil:
		case from == 0:
			return err
		default:
			for i := from; i < n; i++ {
				fail(i, err)
			}
			return nil
		}
	}
	return nil
}

// pgUUID converts a typed id to the type of parameters.
func pgUUID[K any](u id.UUID[K]) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }

func pgUUIDs[K any](ids []id.UUID[K]) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, u := range ids {
		out[i] = pgUUID(u)
	}
	return out
}

// pgFlow returns the flow of a member, or NULL.
func pgFlow(flow *id.FlowID) pgtype.UUID {
	if flow == nil {
		return pgtype.UUID{}
	}
	return pgUUID(*flow)
}

func flowOf(u pgtype.UUID) *id.FlowID {
	if !u.Valid {
		return nil
	}
	return new(id.FlowID(u.Bytes))
}

func compareUUID(a, b id.ExecutionUUID) int { return bytes.Compare(a[:], b[:]) }
