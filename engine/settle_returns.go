package engine

import (
	"context"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// Delay is when the attempt of a lease goes on, which its holder gives back unfinished: at an instant, or a while after
// the call, by the database's clock. Neither, or what is over: at once.
type Delay struct {
	Lease Lease
	Until time.Time
	For   time.Duration // in whole milliseconds
}

// DelayExecution gives the attempt that l holds back, unfinished, until an instant. Then the same attempt goes on with
// the next claim: no retry is used up, and nothing has failed. An instant that is over means at once. The deadline of the
// execution stands.
//
// Errors, in a [*LeaseError]: [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] and [ErrNotActive]: nothing was
// written. [ErrNotFound] when the execution or attempt is gone; [ErrInvalidInput] for an instant before 1970.
//
// Transaction: a constant number of statements; locks the execution, then its attempt, and waits for each up to two
// seconds, three times; then [ErrContention]. Emits a lease event. Repeating it with the same instant after an unknown
// outcome is safe: a delay that took effect answers success again, also when its time has come since.
func (e *Engine) DelayExecution(ctx context.Context, l Lease, until time.Time) error {
	outcomes, err := e.delay(ctx, "delay executions", []Delay{{Lease: l, Until: until}})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// DelayExecutions is [Engine.DelayExecution] for many leases, [MaxBatch] to a transaction. Outcomes stand in input order,
// nil for an attempt that was given back; a lost lease affects only its own. Of one lease twice the first occurrence
// decides. The error means that nothing happened.
//
// It waits for nobody: what somebody else holds has the outcome [ErrBusy], and the caller repeats it.
func (e *Engine) DelayExecutions(ctx context.Context, delays []Delay) ([]error, error) {
	return e.impatient().delay(ctx, "delay executions", delays)
}

// ReleaseLeases gives unfinished work back to its lane at once: [Engine.DelayExecutions] without a delay, for what is
// under way at a shutdown.
//
// Errors of an item as [Engine.RenewLease]; [ErrBusy]: somebody else holds its rows, and the caller repeats it.
// Transaction: a constant number of statements; locks the executions, then their attempts, and waits for nobody.
// Emits lease events. Safe to repeat.
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
		return invalid("for", "is given beside until")
	}
	return nil
}

func (d *Delay) untilMs(nowMs int64) int64 {
	if d.Until.IsZero() {
		return addTTL(nowMs, d.For.Milliseconds())
	}
	return d.Until.UnixMilli()
}

// given tells whether this very delay was recorded before, whose epoch is still that of the lease. Of one that is counted
// from the call, any is: a lease is given back once.
func (d *Delay) given(f *leaseFacts) bool {
	return f.AttemptOutcome == "interrupted" && f.LifecyclePhase != "active" &&
		(d.Until.IsZero() || f.FfxDelayUntilMs != nil && *f.FfxDelayUntilMs == d.Until.UnixMilli())
}

// What an attempt that was given back waits for.
const (
	waitsForWorker   = ""
	waitsForTime     = "time"
	waitsForChildren = "children"
)

// returning is a set of attempts that their holders give back.
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

// returnLeases writes them.
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

// settlingEach is how a batch of leases is settled, in any order.
type settlingEach[R any] struct {
	check    func(i int) error
	errOf    func(R) error
	byFlow   bool                          // it locks the flows of members
	settling func(chunk []int) settling[R] // of the items at these indexes, in lock order
}

// settleEach settles n leases, [MaxBatch] and so many flows as one may lock to a transaction. Results stand in input
// order. The error means that nothing happened.
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
