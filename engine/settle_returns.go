package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Delay releases a lease and sets when the attempt continues: at a time, or after a duration from the call, by the
// database's clock. Neither, or a past time, means at once.
type Delay struct {
	Lease Lease
	Until time.Time
	For   time.Duration // in whole milliseconds
}

// DelayExecution releases the leased attempt, unfinished, until a given time. The same attempt then continues with the
// next claim. A delay is no failure and uses no retry. A past time means at once. The execution's deadline still
// applies.
//
// Errors: [*fferr.LeaseError]: nothing was written. [fferr.ErrNotFound] if the execution or attempt no longer exists;
// [fferr.ErrInvalidInput] for a time before 1970.
//
// Transaction: one. Locks the execution, then its attempt; waits for each up to two seconds, three times, then
// [fferr.ErrContention]. Emits a lease event. Safe to repeat with the same time, even after that time.
func (e *Engine) DelayExecution(ctx context.Context, l Lease, until time.Time) error {
	outcomes, err := e.delay(ctx, "delay executions", []Delay{{Lease: l, Until: until}})
	if err != nil {
		return err
	}
	return outcomes[0]
}

// DelayExecutions is [Engine.DelayExecution] for many leases, [MaxBatch] per transaction. Outcomes are in input order,
// nil for a released attempt; a lost lease affects only its own. If a lease is given twice, the first delay decides.
// An item with locked rows gets [fferr.ErrBusy] at once. A returned error means nothing happened.
func (e *Engine) DelayExecutions(ctx context.Context, delays []Delay) ([]error, error) {
	return e.shortWait().delay(ctx, "delay executions", delays)
}

// ReleaseLeases returns unfinished executions to their lanes at once, for example at a shutdown. It is
// [Engine.DelayExecutions] without a delay.
func (e *Engine) ReleaseLeases(ctx context.Context, leases []Lease) ([]error, error) {
	delays := make([]Delay, len(leases))
	for i, l := range leases {
		delays[i].Lease = l
	}
	return e.shortWait().delay(ctx, "release leases", delays)
}

func (e *Engine) delay(ctx context.Context, op string, delays []Delay) ([]error, error) {
	lease := func(n int) id.Fence { return delays[n].Lease.Fence }
	t := core.Settlement(e.c, op, lease,
		func(x *core.HeldLease) bool { return delays[x.N].given(x.Facts) },
		func(*core.HeldLease) (none struct{}) { return none },
	)
	t.Needs = func(*core.HeldLease) core.FlowLock { return core.NoFlow }
	t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldLease, _ []fferr.Outcome[struct{}]) error {
		var back returning
		nowMs := items[0].Facts.NowMs
		for _, x := range items {
			until, waitsFor := delays[x.N].untilMs(nowMs), waitsForWorker
			if until > nowMs {
				waitsFor = waitsForTime
			}
			back.add(x, waitsFor, until, delays[x.N].Lease.Trace)
		}
		return e.returnLeases(ctx, tx, &back, nowMs)
	}
	outcomes := make([]fferr.Outcome[struct{}], len(delays))
	valid := core.ValidItems(outcomes, func(n int) error { return cmp.Or(e.c.CheckLease(delays[n].Lease.Fence), delays[n].check()) })
	chunks := core.LeaseChunks(valid, lease, func(int) *id.FlowID { return nil }, func(int) int { return 0 })
	err := core.Settle(ctx, t, lease, chunks, outcomes)
	return core.ErrorsOf(outcomes), err
}

func (d *Delay) check() error {
	if _, err := core.Instant("until", d.Until); err != nil {
		return err
	}
	switch {
	case d.For < 0:
		return core.Invalid("for", "must not be negative")
	case d.For > 0 && !d.Until.IsZero():
		return core.Invalid("for", "can't be combined with until")
	}
	return nil
}

func (d *Delay) untilMs(nowMs int64) int64 {
	if d.Until.IsZero() {
		return core.AddTTL(nowMs, d.For.Milliseconds())
	}
	return d.Until.UnixMilli()
}

// given reports whether the delay was recorded earlier, under the lease's epoch. Any recorded delay counts for a
// relative one, because a lease is released only once.
func (d *Delay) given(f *core.LeaseFacts) bool {
	return f.AttemptOutcome == "interrupted" && f.LifecyclePhase != "active" &&
		(d.Until.IsZero() || f.FfxDelayUntilMs != nil && *f.FfxDelayUntilMs == d.Until.UnixMilli())
}

// The events that a released attempt waits for.
const (
	waitsForWorker   = ""
	waitsForTime     = "time"
	waitsForChildren = "children"
)

// returning is a set of attempts to release.
type returning struct {
	params  db.ReturnLeasesParams
	limited bool // some have limits
}

// add adds a lease. An untilMs of 0 means the holder waited for upstreams.
func (r *returning) add(x *core.HeldLease, waitsFor string, untilMs int64, trace string) {
	p := &r.params
	p.PartitionKeys = append(p.PartitionKeys, x.ID.Partition())
	p.ExecutionIDs = append(p.ExecutionIDs, core.PgUUID(x.ID.UUID()))
	p.AttemptIndexes = append(p.AttemptIndexes, int32(x.Attempt))
	p.WaitsFors = append(p.WaitsFors, waitsFor)
	p.DelaysUntilMs = append(p.DelaysUntilMs, untilMs)
	p.Traces = core.AddTrace(p.Traces, len(p.DelaysUntilMs)-1, trace)
	r.limited = r.limited || x.Row.HasLimits
}

// returnLeases writes the releases.
func (e *Engine) returnLeases(ctx context.Context, tx *core.Txn, r *returning, nowMs int64) error {
	r.params.NowMs = nowMs
	lanes, err := e.c.Q.ReturnLeases(ctx, tx, r.params)
	if err != nil {
		return err
	}
	tx.Due.Leases()
	for _, lane := range lanes {
		tx.Due.Resumed(lane)
	}
	if r.limited {
		tx.Due.Gated()
	}
	return nil
}
