package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"iter"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Attempt is one try at an execution. Fields without a value are zero.
type Attempt struct {
	Index   int
	ID      id.AttemptID
	Type    state.AttemptType
	Current bool // the execution's newest attempt

	// Worker and Instance are the last holder, "" between a lost lease and the next claim.
	Worker   id.WorkerID
	Instance id.WorkerInstanceID
	Epoch    int64          // the highest fencing token of the attempt
	Lease    *LeaseSnapshot // nil unless leased

	// Lost has the newest lost leases, at most 32, newest last, also from before a replay.
	Lost []LostLease

	StartedAt time.Time // start of the first lease
	ResumedAt time.Time // start of the last lease if an earlier one was interrupted, delayed or released
	EndedAt   time.Time
	TimeoutAt time.Time // when the worker's time is up, while leased and limited

	Outcome state.AttemptOutcome // none while leased
	Failure *Failure             // of a failed attempt, retried or not

	// NextAt is the earliest start of the retry, or of the continuation of a delayed or released attempt.
	NextAt time.Time

	// Frames counts the frames written to the output stream, also trimmed ones. FrameAt is the time of the newest.
	Frames  int64
	FrameAt time.Time

	// Err is a [*fferr.CorruptionError] if a stored value can't be read. Dependent fields are zero; other attempts are
	// still listed.
	Err error
}

// LostLease is a lease lost before the attempt ended. The worker may have caused effects until then.
type LostLease struct {
	Worker   id.WorkerID
	Instance id.WorkerInstanceID
	Epoch    int64                // the fencing token
	LostAt   time.Time            // an expired lease was invalid slightly earlier
	How      state.LeaseEventType // expired, revoked by an operator, or reclaimed by another worker
}

// ListAttempts returns a [Page] of an execution's attempts, oldest first, none before the first claim. A replay restarts
// the last attempt under the same index; earlier attempts stay.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput].
func (e *Engine) ListAttempts(ctx context.Context, x id.ExecutionID, after string, limit int) (Page[Attempt], error) {
	const op = "list attempts"
	page, err := e.listAttempts(ctx, x, after, limit)
	return page, core.Wrap(op, err)
}

// Attempts iterates over the attempts of [Engine.ListAttempts], a page at a time.
func (e *Engine) Attempts(ctx context.Context, x id.ExecutionID) iter.Seq2[Attempt, error] {
	return core.Pages(func(after string) (Page[Attempt], error) { return e.ListAttempts(ctx, x, after, MaxPage) })
}

func (e *Engine) listAttempts(ctx context.Context, x id.ExecutionID, after string, limit int) (page Page[Attempt], err error) {
	if err := e.c.CheckExecution(x); err != nil {
		return page, err
	}
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	list := "attempts of " + x.String()
	last, err := readAttemptCursor(list, after)
	if err != nil {
		return page, err
	}
	rows, err := e.c.Q.ListAttempts(ctx, e.c.Reader(), db.ListAttemptsParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(), AfterIndex: last, PageSize: int32(limit) + 1,
	})
	switch {
	case err != nil:
		return page, err
	case len(rows) == 0:
		return page, &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	case rows[0].AttemptIndex < 0:
		return page, nil
	}
	attempts := make([]Attempt, len(rows))
	for i := range rows {
		attempts[i] = attemptOf(&rows[i])
	}
	return Page[Attempt](core.PageOf(attempts, limit, func(a *Attempt) string {
		return core.CursorOf(list, binary.BigEndian.AppendUint32(nil, uint32(a.Index)))
	})), nil
}

// readAttemptCursor returns the index after which a page starts.
func readAttemptCursor(list, cursor string) (int32, error) {
	key, err := core.ReadCursor(list, cursor)
	switch {
	case err != nil:
		return 0, err
	case key == nil:
		return -1, nil
	case len(key) != 4 || binary.BigEndian.Uint32(key) > math.MaxInt32:
		return 0, core.Invalid("after", "is not a cursor of this listing")
	}
	return int32(binary.BigEndian.Uint32(key)), nil
}

// rawAttempt has the fields that reads use from an attempt's raw_fields or, for the failure that ended the execution, from
// the execution's.
type rawAttempt struct {
	ID          string `json:"attempt_id"`
	LeaseID     string `json:"lease_id"`
	Type        string `json:"attempt_type"`
	Reason      string `json:"failure_reason"`
	Category    string `json:"failure_category"`
	Class       string `json:"failure_class"`
	Detail      string `json:"failure_detail"`
	LastFailure string `json:"last_failure_message"`

	Lost []rawLostLease `json:"ffx_lost_leases"`
}

// rawLostLease is a lost lease as stored.
type rawLostLease struct {
	Worker   string `json:"worker"`
	Instance string `json:"instance"`
	Epoch    int64  `json:"epoch"`
	AtMs     int64  `json:"at"`
	How      string `json:"how"`
}

func attemptOf(row *db.ListAttemptsRow) Attempt {
	var raw rawAttempt
	_ = json.Unmarshal(row.RawFields, &raw)
	ours := row.HighestEpoch != nil && *row.HighestEpoch == row.LeaseEpoch
	a := Attempt{
		Index:     int(row.AttemptIndex),
		ID:        core.Deref(row.AttemptID),
		Current:   row.AttemptIndex == row.CurrentIndex,
		Worker:    id.WorkerID(row.WorkerID),
		Instance:  id.WorkerInstanceID(row.WorkerInstanceID),
		Epoch:     max(row.LeaseEpoch, 0),
		StartedAt: core.OptionalTime(row.StartedAtMs),
		ResumedAt: core.OptionalTime(row.ResumedAtMs),
		Frames:    row.StreamFrames,
		FrameAt:   core.OptionalTime(row.StreamAtMs),
	}
	a.Outcome, a.Err = normalise.AttemptOutcome(row.Outcome)
	if a.Err != nil {
		a.Err = core.Corrupt("ff_attempt.outcome", a.Err)
	}
	a.setNames(row, &raw, ours)
	a.setLease(row, &raw, ours)
	if a.Outcome.Finished(row.TerminalAtMs != nil) {
		a.EndedAt = core.OptionalTime(row.TerminalAtMs)
	}
	if a.Outcome == state.AttemptOutcomeRetry || a.Outcome == state.AttemptOutcomeInterrupted {
		a.NextAt = core.OptionalTime(row.DelayUntilMs)
	}
	a.setFailure(row, &raw)
	for _, l := range raw.Lost {
		a.Lost = append(a.Lost, LostLease{
			Worker: id.WorkerID(l.Worker), Instance: id.WorkerInstanceID(l.Instance), Epoch: l.Epoch,
			LostAt: time.UnixMilli(l.AtMs), How: state.LeaseEventType(l.How),
		})
	}
	return a
}

// setNames prefers the document's values if another program wrote the row last.
func (a *Attempt) setNames(row *db.ListAttemptsRow, raw *rawAttempt, ours bool) {
	kind := row.AttemptType
	if !ours {
		kind = cmp.Or(raw.Type, kind)
		if raw.ID != "" {
			parsed, err := id.ParseAttemptID(raw.ID)
			if err != nil && a.Err == nil {
				a.Err = core.Corrupt("ff_attempt.raw_fields.attempt_id", err)
			}
			a.ID = parsed
		}
	}
	if kind == "" {
		return
	}
	var err error
	if a.Type, err = normalise.AttemptType(kind); err != nil && a.Err == nil {
		a.Err = core.Corrupt("ff_attempt.attempt_type", err)
	}
}

func (a *Attempt) setLease(row *db.ListAttemptsRow, raw *rawAttempt, ours bool) {
	ownership, err := normalise.OwnershipState(row.OwnershipState)
	held := err == nil && (ownership == state.Leased || ownership == state.LeaseExpiredReclaimable)
	if !held || !a.Current || row.LeaseExpiresAtMs == nil || a.Instance == "" {
		return
	}
	a.Lease = &LeaseSnapshot{
		ID: core.Deref(row.LeaseID), Epoch: a.Epoch, Attempt: a.Index, Instance: a.Instance,
		ExpiresAt: time.UnixMilli(*row.LeaseExpiresAtMs),
	}
	if ours {
		a.TimeoutAt = core.OptionalTime(row.TimeoutAtMs)
		return
	}
	if raw.LeaseID != "" {
		parsed, err := id.ParseLeaseID(raw.LeaseID)
		if err != nil && a.Err == nil {
			a.Err = core.Corrupt("ff_attempt.raw_fields.lease_id", err)
		}
		a.Lease.ID = parsed
	}
}

// setFailure reads the attempt's failure. A retried failure is stored with the attempt, and the failure that ended the
// execution with the execution.
func (a *Attempt) setFailure(row *db.ListAttemptsRow, raw *rawAttempt) {
	failed := rawAttempt{Reason: raw.Reason, Category: raw.Category, Class: raw.Class}
	if core.IsTerminalPhase(row.LifecyclePhase) && row.Pointer == row.AttemptIndex && failed.Reason == "" {
		_ = json.Unmarshal(row.ExecutionRawFields, &failed)
		failed.Reason = cmp.Or(failed.Reason, failed.LastFailure)
	}
	switch a.Outcome {
	case state.AttemptOutcomeFailed, state.AttemptOutcomeRetry, state.AttemptOutcomeExpired, state.AttemptOutcomeInterrupted:
	default:
		return // left behind by another program, from before a replay
	}
	if failed.Reason == "" && failed.Category == "" && failed.Class == "" {
		return
	}
	f := &Failure{Message: failed.Reason, Category: failed.Category, Class: policy.Class(failed.Class), Detail: raw.Detail}
	if f.Class == "" && isClass(f.Category) {
		f.Class = policy.Class(f.Category) // of a failure without a category
	}
	a.Failure = f
}

func isClass(category string) bool {
	switch policy.Class(category) {
	case policy.Transient, policy.Permanent, policy.InfraCrash, policy.TimedOut, policy.Cancelled:
		return true
	}
	return false
}
