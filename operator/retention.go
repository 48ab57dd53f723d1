package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// SetLaneRetention sets how long ended executions of a lane are kept unless their policies differ: at least
// [policy.MinRetention], or [policy.KeepForever]. 0 resets the lane to [engine.Config.Retention]. The setting is stored, and
// applies to all processes and to executions already ended. After a reduction the job retain restarts with the oldest end
// whose event is still stored; the sweep of the job repair_queue finds older executions later.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: one; waits for a running batch of retention. Safe to
// repeat.
func SetLaneRetention(ctx context.Context, eng *engine.Engine, lane id.LaneID, keep time.Duration) error {
	const op = "set lane retention"
	c := core.Of(eng)
	if err := lane.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("lane", err))
	}
	if keep != 0 {
		if err := core.CheckRetention("keep", keep); err != nil {
			return core.Wrap(op, err)
		}
	}
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (struct{}, error) {
		var none struct{}
		byDefault := core.RetentionMs(c.Retention)
		before, after := byDefault, byDefault
		if keep == 0 {
			dropped, err := c.Q.DropLaneRetention(ctx, tx, string(lane))
			if err != nil || len(dropped) == 0 {
				return none, err
			}
			before = dropped[0]
		} else {
			after = core.RetentionMs(keep)
			stored, err := c.Q.SetLaneRetention(ctx, tx, db.SetLaneRetentionParams{
				LaneID: string(lane), RetentionMs: after, NowMs: c.NowMs(),
			})
			if err != nil {
				return none, err
			}
			if stored != 0 {
				before = stored
			}
		}
		if after >= before {
			return none, nil
		}
		return none, c.Q.RestartRetention(ctx, tx)
	})
	return err
}

// KeepLeaseEvents sets which lease events all processes write: all, the default; events of lost leases; or none. The
// fewer, the cheaper is each claim and completion (docs/events.md has the figures). Executions, their attempts and the
// leases lost in them are stored in any case.
//
// A reader of events that are not all written gets [events.NotKeptError]. After a change to more events readers from
// before get [events.GapError]. A statement that runs meanwhile follows the former choice.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one; waits for a running batch of retention. Safe to repeat.
func KeepLeaseEvents(ctx context.Context, eng *engine.Engine, kept state.Kept) error {
	const op = "keep lease events"
	if !kept.Valid() {
		return core.Wrap(op, &fferr.InputError{Field: "kept", Reason: fmt.Sprintf("is %.20q: it is all, lost or none", string(kept))})
	}
	c := core.Of(eng)
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (struct{}, error) {
		return struct{}{}, c.Q.KeepLeaseEvents(ctx, tx, db.KeepLeaseEventsParams{Kept: string(kept), NowMs: c.NowMs()})
	})
	return err
}

// RetentionStatus is the progress of retention.
type RetentionStatus struct {
	// LookAfter is how long after its end an execution is first examined: the shortest retention of any execution, at most
	// the retention of events. Executions with longer retentions then wait.
	LookAfter time.Duration

	// NextEnd is the end of the next execution to examine; zero if all were examined. Behind is the delay; 0 if on time.
	NextEnd time.Time
	Behind  time.Duration

	// Waiting is how many examined executions wait for their time, or until they are no longer needed. NextDue is the time of
	// the next check.
	Waiting int64
	NextDue time.Time

	// Deleted and FlowsDeleted count all executions and flows deleted so far, and DeletedLately the executions of the
	// last full minute.
	Deleted       int64
	DeletedLately int64
	FlowsDeleted  int64

	// Lanes are the lanes with a retention of their own, by name, at most [engine.MaxPage].
	Lanes []LaneRetention

	// Outboxes are the four kinds of events: completion, lease, operator, signal.
	Outboxes []OutboxStatus
}

// LaneRetention is how long ended executions of a lane are kept.
type LaneRetention struct {
	Lane id.LaneID
	Keep time.Duration // or [policy.KeepForever]
}

// OutboxStatus is the progress of trimming an outbox.
type OutboxStatus struct {
	Outbox string
	Kept   state.Kept // of new events
	Floor  int64      // the greatest deleted id; 0 if none
	Oldest time.Time  // the oldest stored event; zero if there is none
}

// Retention returns the progress of retention in all processes, with this engine's defaults.
//
// Three statements; takes no locks.
func Retention(ctx context.Context, eng *engine.Engine) (RetentionStatus, error) {
	const op = "read retention"
	c := core.Of(eng)
	var status RetentionStatus
	row, err := c.Q.GetRetention(ctx, c.Reader(), db.GetRetentionParams{LookAfterMs: c.LookAfterMs(), NowMs: c.NowMs()})
	if err != nil {
		return status, core.Wrap(op, err)
	}
	status = RetentionStatus{
		LookAfter: core.RetentionOf(row.LookAfterMs), NextEnd: instantOf(row.NextEndMs), Waiting: row.Waiting, NextDue: instantOf(row.NextDueAtMs),
		Deleted: row.Deleted, DeletedLately: row.DeletedLately, FlowsDeleted: row.FlowsDeleted,
	}
	if late := row.NowMs - row.NextEndMs; row.NextEndMs > 0 && late > row.LookAfterMs {
		status.Behind = time.Duration(late-row.LookAfterMs) * time.Millisecond
	}
	lanes, err := c.Q.ListLaneRetentions(ctx, c.Reader(), engine.MaxPage)
	if err != nil {
		return status, core.Wrap(op, err)
	}
	for _, l := range lanes {
		status.Lanes = append(status.Lanes, LaneRetention{Lane: id.LaneID(l.LaneID), Keep: core.RetentionOf(l.RetentionMs)})
	}
	outboxes, err := c.Q.ListOutboxAges(ctx, c.Reader(), c.NowMs())
	if err != nil {
		return status, core.Wrap(op, err)
	}
	for _, o := range outboxes {
		status.Outboxes = append(status.Outboxes, OutboxStatus{Outbox: o.Outbox, Kept: state.Kept(o.Kept), Floor: o.FloorEventID, Oldest: instantOf(o.OldestAtMs)})
	}
	return status, nil
}

// instantOf converts a time in milliseconds; 0 is the zero time.
func instantOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
