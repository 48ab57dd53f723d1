package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/observe"
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

// RenewLease extends l by ttl, or by the lease's own TTL if ttl is 0, from the database's present time. It returns the
// new expiry, in whole milliseconds, never earlier than the old one.
//
// Errors: [*fferr.LeaseError] with [fferr.ErrStaleLease], [fferr.ErrLeaseExpired], [fferr.ErrLeaseRevoked] or
// [fferr.ErrNotActive]: stop work and discard the result. [fferr.ErrNotFound] for a missing execution or attempt.
// [fferr.ErrBusy] if another transaction holds the attempt: retry before the lease expires. [fferr.ErrInvalidInput].
// Transaction: one; locks the attempt without waiting. Emits a lease event. Safe to repeat.
func (e *Engine) RenewLease(ctx context.Context, l Lease, ttl time.Duration) (time.Time, error) {
	results, err := e.RenewLeases(ctx, []Renewal{{Lease: l, TTL: ttl}})
	if err != nil {
		return time.Time{}, err
	}
	return results[0].Value, results[0].Err
}

// RenewLeases is [Engine.RenewLease] for many leases, [MaxBatch] per statement. Outcomes are in input order; a lost or
// locked lease affects only its own. If a lease is given twice, the longest TTL applies. After an error, nothing
// happened.
func (e *Engine) RenewLeases(ctx context.Context, renewals []Renewal) (results []fferr.Outcome[time.Time], err error) {
	const op = "renew leases"
	if e.c.Observer != nil {
		defer func(began time.Time) { e.observeRenewal(ctx, began, results, err) }(time.Now())
	}
	results = make([]fferr.Outcome[time.Time], len(renewals))
	err = core.InChunks(len(renewals), MaxBatch, func(from, to int) error {
		return e.renewChunk(ctx, op, renewals[from:to], results[from:to])
	}, func(i int, err error) { results[i].Err = err })
	return results, err
}

// observeRenewal reports a renewal to the observer.
func (e *Engine) observeRenewal(ctx context.Context, began time.Time, results []fferr.Outcome[time.Time], err error) {
	renewed := observe.Renewed{Leases: len(results), Took: time.Since(began), Err: err}
	for i := range results {
		lease, _ := errors.AsType[*fferr.LeaseError](results[i].Err)
		if lease != nil || errors.Is(results[i].Err, fferr.ErrNotFound) {
			renewed.Lost++
		}
	}
	e.c.Observe(ctx, renewed)
}

func (e *Engine) renewChunk(ctx context.Context, op string, renewals []Renewal, results []fferr.Outcome[time.Time]) error {
	order := core.ValidItems(results, func(n int) error { return e.checkRenewal(renewals[n]) })
	slices.SortStableFunc(order, func(a, b int) int {
		return renewals[a].Lease.Fence.Compare(renewals[b].Lease.Fence)
	})
	for len(order) > 0 {
		var leases []*renewing
		_, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) (struct{}, error) {
			leases = newRenewing(renewals, order)
			return struct{}{}, e.renewAll(ctx, conn, due, leases)
		})
		if err != nil && !errors.Is(err, core.ErrRefused) {
			return err
		}
		// In a caller's transaction a refused item must leave no lock behind, so the others start again.
		order = nil
		for _, r := range leases {
			outcome := fferr.Outcome[time.Time]{Value: time.UnixMilli(r.expiresAtMs)}
			if !r.renewed {
				outcome = fferr.Outcome[time.Time]{Err: cmp.Or(r.missed, error(core.ErrBusyRow))}
			}
			for _, n := range r.items {
				results[n] = outcome
			}
			if err != nil && r.renewed {
				order = append(order, r.items...)
			}
		}
		if err == nil && e.c.Tx == nil {
			renewed := make([]core.RenewedLease, 0, len(leases))
			for _, r := range leases {
				if r.renewed || r.missed != nil {
					renewed = append(renewed, core.RenewedLease{Fence: r.Fence, TTL: time.Duration(r.ttlMs) * time.Millisecond, Lost: !r.renewed})
				}
			}
			e.c.Leases.Renewed(renewed)
		}
	}
	return nil
}

// renewing is a lease to renew. Several renewals of a lease become one, with the longest TTL.
type renewing struct {
	id.Fence
	items []int // positions of its renewals
	ttlMs int64

	renewed     bool
	expiresAtMs int64 // if renewed
	missed      error // why the lease was not renewed; nil if locked
}

// newRenewing takes the renewals at the positions in order, sorted by lease.
func newRenewing(renewals []Renewal, order []int) (leases []*renewing) {
	for _, n := range order {
		ttl := cmp.Or(renewals[n].TTL, renewals[n].Lease.TTL).Milliseconds()
		if last := len(leases) - 1; last >= 0 && leases[last].Fence == renewals[n].Lease.Fence {
			leases[last].ttlMs = max(leases[last].ttlMs, ttl)
			leases[last].items = append(leases[last].items, n)
			continue
		}
		leases = append(leases, &renewing{Fence: renewals[n].Lease.Fence, items: []int{n}, ttlMs: ttl})
	}
	return leases
}

func (e *Engine) renewAll(ctx context.Context, conn db.DBTX, due *core.Notifications, leases []*renewing) error {
	renewed, err := e.renew(ctx, conn, leases, false)
	if err != nil {
		return err
	}
	if renewed < len(leases) {
		arrays := renewingArrays(leases)
		facts, err := e.c.ReadLeases(ctx, conn, arrays)
		if err != nil {
			return err
		}
		// If a lease was not renewed although its fence holds, it was changed a moment ago, is locked, or was written
		// by another program with a different pointer.
		var odd []*renewing
		for i, r := range leases {
			if r.missed = facts[i].Fence(r.Fence, nil); !r.renewed && r.missed == nil {
				odd = append(odd, r)
			}
		}
		n, err := e.renew(ctx, conn, odd, true)
		if err != nil {
			return err
		}
		renewed += n
	}
	if renewed > 0 {
		due.Leases()
	}
	if e.c.Tx != nil && renewed < len(leases) {
		return core.ErrRefused
	}
	return nil
}

// renew renews leases by one statement and returns how many it renewed.
func (e *Engine) renew(ctx context.Context, conn db.DBTX, leases []*renewing, judged bool) (int, error) {
	if len(leases) == 0 {
		return 0, nil
	}
	arrays := renewingArrays(leases)
	params := db.RenewLeasesParams{
		NowMs:          e.c.NowMs(),
		PartitionKeys:  arrays.Partitions,
		ExecutionIDs:   arrays.Executions,
		AttemptIndexes: arrays.Attempts,
		LeaseEpochs:    arrays.Epochs,
		TtlsMs:         make([]int64, len(leases)),
		Ords:           arrays.Ords(),
		Judged:         judged,
	}
	for i, r := range leases {
		params.TtlsMs[i] = r.ttlMs
	}
	rows, err := e.c.Q.RenewLeases(ctx, conn, params)
	for _, row := range rows {
		leases[row.Ord].renewed, leases[row.Ord].expiresAtMs = true, row.LeaseExpiresAtMs
	}
	return len(rows), err
}

func renewingArrays(leases []*renewing) core.LeaseArrays {
	arrays := core.NewLeaseArrays(len(leases))
	for _, r := range leases {
		arrays.Add(r.Fence)
	}
	return arrays
}

func (e *Engine) checkRenewal(r Renewal) error {
	if err := e.c.CheckLease(r.Lease.Fence); err != nil {
		return err
	}
	return core.CheckTTL("lease TTL", cmp.Or(r.TTL, r.Lease.TTL))
}
