package engine

import (
	"context"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// Delay releases a lease and sets when its attempt continues: at a time, or after a duration from the call, by the
// database's clock. Neither, or a time in the past, means at once.
type Delay struct {
	Lease Lease
	Until time.Time
	For   time.Duration // in whole milliseconds
}

// DelayExecution releases the attempt that l holds, unfinished, until a given time. Then the same attempt continues
// with the next claim. It uses no retry and is no failure. A time in the past means at once. The execution's deadline
// still applies.
//
// Errors: [*LeaseError] with [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] or [ErrNotActive]: nothing was
// written. [ErrNotFound] if the execution or attempt no longer exists; [ErrInvalidInput] for a time before 1970.
//
// Transaction: a constant number of statements; locks the execution, then its attempt; waits for each up to two
// seconds, three times, then fails with [ErrContention]. Emits a lease event. Safe to repeat with the same time after
// an unknown outcome, even after that time: a repetition succeeds.
func (e *Engine) DelayExecution(ctx context.Context, l Lease, until time.Time) error {
	outcomes, err := e.delay(ctx, "delay executions", []Delay{{Lease: l, Until: until}})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// DelayExecutions is [Engine.DelayExecution] for many leases, [MaxBatch] per transaction. Outcomes are in input order,
// nil for a released attempt; a lost lease affects only its own. If a lease is given twice, the first delay decides.
// The error means that nothing happened.
//
// It never waits for locks. If another transaction holds a row that an item needs, its outcome is [ErrBusy]; repeat
// that item.
func (e *Engine) DelayExecutions(ctx context.Context, delays []Delay) ([]error, error) {
	return e.impatient().delay(ctx, "delay executions", delays)
}

// ReleaseLeases returns unfinished executions to their lanes at once, for example at a shutdown. It is
// [Engine.DelayExecutions] without a delay.
//
// Errors of an item: as [Engine.RenewLease]; [ErrBusy] if another transaction holds its rows, repeat that item.
// Transaction: a constant number of statements; locks the executions, then their attempts, without waiting. Emits lease
// events. Safe to repeat.
func (e *Engine) ReleaseLeases(ctx context.Context, leases []Lease) ([]error, error) {
	delays := make([]Delay, len(leases))
	for i, l := range leases {
		delays[i].Lease = l
	}
	return e.impatient().delay(ctx, "release leases", delays)
}

func (e *Engine) delay(ctx context.Context, op string, delays []Delay) ([]error, error) {
	return settleEach(ctx, e, op, len(delays), func(i int) *Lease { return &delays[i].Lease }, settlingEach[error]{
		check: func(i int) error { return delays[i].check() },
		errOf: func(err error) error { return err },
		settling: func(chunk []int) settling[error] {
			of := func(n int) *Delay { return &delays[chunk[n]] }
			return settling[error]{
				repeated:       func(n int, f *leaseFacts) bool { return of(n).given(f) },
				again:          func(*leaseFacts, error) error { return nil },
				refused:        func(err error) error { return err },
				needsExclusive: func(int, db.LockExecutionsRow) bool { return false },
				write: func(tx *txn, batch *settlementBatch, _ []error) ([]endedExecution, error) {
					var back returning
					for _, n := range batch.acting {
						until, waitsFor := of(n).untilMs(batch.nowMs), waitsForWorker
						if until > batch.nowMs {
							waitsFor = waitsForTime
						}
						back.add(batch, n, waitsFor, until)
					}
					return nil, e.returnLeases(ctx, tx, &back, batch.nowMs)
				},
			}
		},
	})
}

func (d *Delay) check() error {
	if _, err := instant("until", d.Until); err != nil {
		return err
	}
	switch {
	case d.For < 0:
		return invalid("for", "must not be negative")
	case d.For > 0 && !d.Until.IsZero():
		return invalid("for", "can't be combined with until")
	}
	return nil
}

func (d *Delay) untilMs(nowMs int64) int64 {
	if d.Until.IsZero() {
		return addTTL(nowMs, d.For.Milliseconds())
	}
	return d.Until.UnixMilli()
}

// given reports whether this very delay was recorded before, under the lease's epoch. For a relative delay, any
// recorded one counts, because a lease is released only once.
func (d *Delay) given(f *leaseFacts) bool {
	return f.AttemptOutcome == "interrupted" && f.LifecyclePhase != "active" &&
		(d.Until.IsZero() || f.FfxDelayUntilMs != nil && *f.FfxDelayUntilMs == d.Until.UnixMilli())
}

// The things that a released attempt waits for.
const (
	waitsForWorker   = ""
	waitsForTime     = "time"
	waitsForChildren = "children"
)

// returning is a set of attempts that their holders release.
type returning struct {
	params db.ReturnLeasesParams
	slots  executionArrays
}

// add adds item n of a batch. An untilMs of 0 means that it waited for its upstreams.
func (r *returning) add(batch *settlementBatch, n int, waitsFor string, untilMs int64) {
	l, p := batch.leases[n], &r.params
	p.PartitionKeys = append(p.PartitionKeys, l.Execution.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, pgUUID(l.Execution.UUID()))
	p.AttemptIndexes = append(p.AttemptIndexes, int32(l.Attempt))
	p.WaitsFors = append(p.WaitsFors, waitsFor)
	p.DelaysUntilMs = append(p.DelaysUntilMs, untilMs)
	if batch.rows[n].HasQuota {
		r.slots.add(l.Execution.Partition(), l.Execution.UUID())
	}
}

// returnLeases writes the releases.
func (e *Engine) returnLeases(ctx context.Context, tx *txn, r *returning, nowMs int64) error {
	r.params.NowMs = nowMs
	lanes, err := e.q.ReturnLeases(ctx, tx, r.params)
	if err != nil {
		return err
	}
	for _, lane := range lanes {
		tx.due.lane(lane)
	}
	if r.slots.empty() {
		return nil
	}
	return e.q.ReleaseQuotaSlots(ctx, tx, db.ReleaseQuotaSlotsParams{
		PartitionKeys: r.slots.partitions, ExecutionIDs: r.slots.executions,
	})
}

// settlingEach describes how to settle a batch of leases in any order.
type settlingEach[R any] struct {
	check    func(i int) error
	errOf    func(R) error
	byFlow   bool                          // it locks the flows of members
	settling func(chunk []int) settling[R] // for the items at these indexes, in lock order
}

// settleEach settles n leases, per transaction up to [MaxBatch] leases and as many flows as one may lock. Results are
// in input order. The error means that nothing happened.
func settleEach[R any](ctx context.Context, e *Engine, op string, n int, lease func(i int) *Lease, s settlingEach[R]) ([]R, error) {
	results := make([]R, n)
	var order []int
	refused := s.settling(nil).refused
	for i := range n {
		err := e.checkLease(*lease(i))
		if err == nil && s.check != nil {
			err = s.check(i)
		}
		if err != nil {
			results[i] = refused(err)
			continue
		}
		order = append(order, i)
	}
	flows := make([]*id.FlowID, n)
	if s.byFlow {
		flows = e.leases.flowsOf(n, lease)
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareLeases(*lease(a), *lease(b)) })
	chunks := chunkByFlows(order, func(i int) *id.FlowID { return flows[i] }, func(int) int { return 0 })
	err := inChunks(len(chunks), 1, func(c, _ int) error {
		chunk := chunks[c]
		settled, err := settle(ctx, e, op, leasesOf(chunk, func(i int) Lease { return *lease(i) }), s.settling(chunk))
		if err != nil {
			return err
		}
		for n, i := range chunk {
			results[i] = settled[n]
		}
		e.forgetSettled(chunk, func(i int) (Fence, error) { return lease(i).Fence, s.errOf(results[i]) })
		return nil
	}, func(c int, err error) {
		for _, i := range chunks[c] {
			results[i] = refused(err)
		}
	})
	return results, err
}
