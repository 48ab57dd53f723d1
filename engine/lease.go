package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

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
		fences[n], ttls[n] = renewals[i].Lease.Fence, time.Duration(r.ttls[r.slot[i]])*time.Millisecond
	}
	e.leases.extend(fences, ttls)
	var lost []Fence
	for slot := range r.missed {
		if _, renewed := r.expires[slot]; !renewed {
			lost = append(lost, r.arrays.lease(slot).Fence)
		}
	}
	e.leases.forget(lost)
}

// A renewing is one try to renew leases. The same lease twice is one renewal, in one slot, with the longest TTL.
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
		r.slot[i] = len(r.ttls) - 1
	}
	return r
}

func (r *renewing) run(ctx context.Context, e *Engine, conn db.DBTX, due *notifications) error {
	all := make([]int, len(r.ttls))
	for n := range all {
		all[n] = n
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
		arrays.add(r.arrays.lease(slot))
		ttls[n] = r.ttls[slot]
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
		r.expires[slots[row.Ord]] = row.LeaseExpiresAtMs
	}
	return err
}

func (e *Engine) checkRenewal(r Renewal) error {
	if err := e.checkLease(r.Lease); err != nil {
		return err
	}
	return checkTTL("lease TTL", cmp.Or(r.TTL, r.Lease.TTL))
}

// addTTL returns atMs + ttlMs, at most the largest time of a column. ttlMs must not be negative.
func addTTL(atMs, ttlMs int64) int64 {
	if atMs > math.MaxInt64-ttlMs {
		return math.MaxInt64
	}
	return atMs + ttlMs
}

func (a *leaseArrays) add(l Lease) {
	a.ords = append(a.ords, int32(len(a.executions)))
	a.partitions = append(a.partitions, l.Execution.Partition())
	a.executions = append(a.executions, pgUUID(l.Execution.UUID()))
	a.attempts = append(a.attempts, int32(l.Attempt))
	a.epochs = append(a.epochs, l.Epoch)
}

func (a *leaseArrays) lease(i int) Lease {
	return Lease{Fence: Fence{
		Execution: id.ExecutionIDFromRow(a.partitions[i], id.ExecutionUUID(a.executions[i].Bytes)),
		Attempt:   int(a.attempts[i]),
		Epoch:     a.epochs[i],
	}}
}
