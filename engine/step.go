package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// maxStepError limits the error of a step, in bytes.
const maxStepError = 16 << 10

const opRecordSteps = "record steps"

// StepForm is the call of package worker that made a step. Only code with a call of the same form can use a stored
// step.
type StepForm string

// The forms.
const (
	FormStep    StepForm = "step"     // Step or StepTx
	FormSleep   StepForm = "sleep"    // Sleep
	FormTurn    StepForm = "turn"     // Turn
	FormCall    StepForm = "call"     // Call
	FormCallAll StepForm = "call all" // CallAll
	FormWait    StepForm = "wait"     // a wait for signals
)

// StepOutcome is the outcome of a step. See also [StepCalled].
type StepOutcome string

// The outcomes. Failed steps are not stored and run again, except calls.
const (
	StepSucceeded StepOutcome = "success"
	StepSlept     StepOutcome = "slept"   // a pause; the result is the end, in milliseconds since the Unix epoch
	StepSignalled StepOutcome = "signal"  // a wait satisfied by signals: see [Step.Signals]
	StepTimedOut  StepOutcome = "timeout" // a wait ended by its timeout
	StepFailed    StepOutcome = "failure" // a call; the result names the unsuccessful executions, as JSON
)

// StepRecord is a finished step to store. Package worker makes these records: see worker.Step.
type StepRecord struct {
	Lease   Lease
	Name    string      // unique within the execution; 1 to [MaxStepName] bytes
	Seq     int         // position in the order of beginning, from 0; below [MaxSteps]
	Form    StepForm    // default [FormStep]; never [FormWait]
	Outcome StepOutcome // default [StepSucceeded]; otherwise [StepSlept], or [StepFailed] for a call
	Result  []byte      // at most [Config.MaxPayload] bytes; nil for none

	Tries int           // default 1
	Error string        // of the last failed try; at most 16 KiB
	Took  time.Duration // since the first try began

	// Taken are the signals taken by the caller's transaction with [Engine.TakeSignal], to show with the step. Ends
	// announces that the transaction will end the lease, so [Engine.RecordStep] takes the locks for both. Both are
	// refused in a batch, and outside a caller's transaction.
	Taken []ReceivedSignal
	Ends  bool
}

// Recorded is the result of recording a step.
type Recorded struct {
	Result   []byte
	Repeated bool // a step of this name existed; Result is the stored result
}

// RecordStep stores a finished step of the leased execution. If the execution has a step of this name already,
// RecordStep returns the stored result and writes nothing, so repeating is safe.
//
// Errors: [*fferr.LeaseError]: nothing was written. [fferr.ErrNotFound] if the execution or attempt no longer exists;
// [fferr.ErrInvalidInput].
//
// Transaction: one. Locks the attempt, or the execution and the attempt; waits for each up to two seconds, three
// times, then [fferr.ErrContention].
func (e *Engine) RecordStep(ctx context.Context, step StepRecord) (Recorded, error) {
	if step.Ends || len(step.Taken) > 0 {
		return e.recordInTurn(ctx, &step)
	}
	outcomes, err := e.recordSteps(ctx, []StepRecord{step})
	if err != nil {
		return Recorded{}, err
	}
	return outcomes[0].Value, outcomes[0].Err
}

// RecordSteps is [Engine.RecordStep] for many steps, [MaxBatch] per transaction. Outcomes are in input order; a lost
// lease affects only its own. An item with locked rows gets [fferr.ErrBusy] at once. A returned error means nothing
// happened, or the outcome is unknown.
func (e *Engine) RecordSteps(ctx context.Context, steps []StepRecord) ([]fferr.Outcome[Recorded], error) {
	return e.shortWait().recordSteps(ctx, steps)
}

func (e *Engine) recordSteps(ctx context.Context, steps []StepRecord) ([]fferr.Outcome[Recorded], error) {
	const op = opRecordSteps
	outcomes := make([]fferr.Outcome[Recorded], len(steps))
	valid := core.ValidItems(outcomes, func(n int) error {
		err := e.checkStep(&steps[n])
		if err == nil && steps[n].Ends {
			err = core.Invalid("ends", "has no effect in a batch")
		}
		if err == nil && len(steps[n].Taken) > 0 {
			err = core.Invalid("taken", "has no effect in a batch")
		}
		return core.Wrap(op, err)
	})
	done := make([]bool, len(steps))
	for _, chunk := range core.BySize(valid, MaxBatch, func(n int) int { return len(steps[n].Result) }) {
		stored, err := e.recordAtOnce(ctx, op, steps, chunk)
		if err != nil {
			if chunk[0] == valid[0] {
				return nil, err
			}
			for _, n := range chunk {
				outcomes[n].Err = err
			}
			continue
		}
		for _, n := range stored {
			outcomes[n].Value.Result, done[n] = steps[n].Result, true
		}
		for _, n := range chunk {
			if !done[n] {
				outcomes[n].Value, outcomes[n].Err = e.recordHeld(ctx, op, &steps[n])
			}
		}
	}
	return outcomes, nil
}

// recordInTurn stores a step in the caller's transaction, under the locks for taking signals or ending the lease.
func (e *Engine) recordInTurn(ctx context.Context, s *StepRecord) (Recorded, error) {
	const op = opRecordSteps
	err := e.checkStep(s)
	switch {
	case err != nil || e.c.Tx != nil:
	case s.Ends:
		err = core.Invalid("ends", "has no effect outside a caller's transaction")
	default:
		err = core.Invalid("taken", "has no effect outside a caller's transaction")
	}
	if err != nil {
		return Recorded{}, core.Wrap(op, err)
	}
	return e.recordUnder(ctx, op, s, core.SharedFlow)
}

// recordAtOnce stores the steps with live leases by one statement. It returns the stored items: none if one of the
// steps exists already.
func (e *Engine) recordAtOnce(ctx context.Context, op string, steps []StepRecord, items []int) (stored []int, err error) {
	inLockOrder := func(a, b int) int {
		return cmp.Or(steps[a].Lease.Fence.Compare(steps[b].Lease.Fence), cmp.Compare(steps[a].Name, steps[b].Name))
	}
	items = slices.SortedStableFunc(slices.Values(items), inLockOrder)
	params := db.RecordStepsParams{NowMs: e.c.NowMs()}
	sent := make([]int, 0, len(items))
	for i, n := range items {
		s := &steps[n]
		if i > 0 && steps[items[i-1]].Name == s.Name && steps[items[i-1]].Lease.Execution == s.Lease.Execution {
			continue // a repetition within the batch finds the first one afterwards
		}
		sent = append(sent, n)
		params.PartitionKeys = append(params.PartitionKeys, s.Lease.Execution.Partition())
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(s.Lease.Execution.UUID()))
		params.AttemptIndexes = append(params.AttemptIndexes, int32(s.Lease.Attempt))
		params.LeaseEpochs = append(params.LeaseEpochs, s.Lease.Epoch)
		params.Names = append(params.Names, s.Name)
		params.Seqs = append(params.Seqs, int32(s.Seq))
		params.Forms = append(params.Forms, string(cmp.Or(s.Form, FormStep)))
		params.Outcomes = append(params.Outcomes, string(cmp.Or(s.Outcome, StepSucceeded)))
		params.Results = append(params.Results, s.Result)
		params.Errors = append(params.Errors, s.Error)
		params.Tries = append(params.Tries, int32(max(s.Tries, 1)))
		params.TooksMs = append(params.TooksMs, s.Took.Milliseconds())
	}
	if !slices.ContainsFunc(params.Errors, func(text string) bool { return text != "" }) {
		params.Errors = nil // each is null then
	}
	rows, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) ([]db.RecordStepsRow, error) {
		return e.c.Q.RecordSteps(ctx, conn, params)
	})
	switch {
	case errors.Is(err, core.ErrFellThrough):
		return nil, nil
	case err != nil:
		return nil, err
	case len(rows) == len(sent):
		return sent, nil
	}
	keys := make(map[db.RecordStepsRow]bool, len(rows))
	for _, key := range rows {
		keys[key] = true
	}
	return slices.DeleteFunc(sent, func(n int) bool {
		return !keys[db.RecordStepsRow{ExecutionID: steps[n].Lease.Execution.UUID(), Name: steps[n].Name}]
	}), nil
}

// recordHeld stores a step under the locks of its execution and attempt. It returns the result of an existing step, or
// the reason of a refusal.
func (e *Engine) recordHeld(ctx context.Context, op string, s *StepRecord) (Recorded, error) {
	return e.recordUnder(ctx, op, s, core.NoFlow)
}

func (e *Engine) recordUnder(ctx context.Context, op string, s *StepRecord, lock core.FlowLock) (Recorded, error) {
	return core.UnderLocks(ctx, e.c, op, s.Lease.Fence, lock, func(ctx context.Context, tx *core.Txn, x *core.HeldLease) (Recorded, error) {
		taken, err := takenDocument(s.Taken)
		if err != nil {
			return Recorded{}, err
		}
		added, err := e.c.Q.InsertStep(ctx, tx, db.InsertStepParams{
			PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), Name: s.Name, Seq: int32(s.Seq),
			AttemptIndex: int32(s.Lease.Attempt), Form: string(cmp.Or(s.Form, FormStep)),
			Outcome: string(cmp.Or(s.Outcome, StepSucceeded)), Result: s.Result,
			Taken: taken, Error: s.Error, Tries: int32(max(s.Tries, 1)),
			StartedAtMs: x.Facts.NowMs - s.Took.Milliseconds(), EndedAtMs: x.Facts.NowMs,
		})
		if err != nil || added == 1 {
			return Recorded{Result: s.Result}, err
		}
		result, err := e.c.Q.GetStepResult(ctx, tx, db.GetStepResultParams{
			PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), Name: s.Name,
		})
		return Recorded{Result: result, Repeated: true}, err
	})
}

func (e *Engine) checkStep(s *StepRecord) error {
	if err := e.c.CheckLease(s.Lease.Fence); err != nil {
		return err
	}
	if err := checkStepPlace(s.Name, s.Seq); err != nil {
		return err
	}
	switch {
	case len(s.Result) > e.cfg.MaxPayload:
		return core.Invalid("result", fmt.Sprintf("%d bytes, limit %d", len(s.Result), e.cfg.MaxPayload))
	case s.Tries < 0:
		return core.Invalid("tries", "is negative")
	case s.Took < 0:
		return core.Invalid("took", "is negative")
	case !s.Form.isRecorded():
		return core.Invalid("form", fmt.Sprintf("is %q", s.Form))
	case !s.hasOutcome():
		return core.Invalid("outcome", fmt.Sprintf("is %q", s.Outcome))
	}
	return core.CheckText("error", s.Error, maxStepError)
}

// isRecorded reports whether lease holders store steps of this form. The end of a wait stores the step of the wait.
func (f StepForm) isRecorded() bool {
	return slices.Contains([]StepForm{"", FormStep, FormSleep, FormTurn, FormCall, FormCallAll}, f)
}

// hasOutcome reports whether the step's form allows its outcome.
func (s *StepRecord) hasOutcome() bool {
	switch s.Outcome {
	case "", StepSucceeded, StepSlept:
		return true
	case StepFailed:
		return s.Form == FormCall || s.Form == FormCallAll
	}
	return false
}

// Step is a finished step of an execution.
type Step struct {
	Name       string
	Seq        int // position in the order of beginning, waits included
	Form       StepForm
	Outcome    StepOutcome
	Result     []byte // only from [Engine.StepResults]
	ResultSize int    // bytes
	Attempt    int    // the attempt that finished the step
	Tries      int    // in that attempt
	Error      string // of the last failed try
	StartedAt  time.Time
	EndedAt    time.Time // for a call without results yet: when the executions were created

	Called []id.ExecutionID // the executions called: see [Engine.Call]

	taken []byte // the signals taken by a turn
}

// Signals returns the signals that ended a wait or were taken by a turn, in order of arrival. The step must come from
// [Engine.StepResults]. A timeout is one signal, as in [Engine.ReceivedSignals]. Signals taken by a turn have their
// name as key, and are not Matched.
//
// Errors: [fferr.ErrCorruption].
func (s Step) Signals() ([]ReceivedSignal, error) {
	const op = "read the signals of a step"
	if s.Outcome != StepSignalled && s.Outcome != StepTimedOut {
		if s.taken == nil {
			return nil, nil
		}
		signals, err := readSignals(s.taken, func(string) bool { return false })
		if err != nil {
			return nil, core.Wrap(op, core.Corrupt("ffx_step.taken", err))
		}
		return signals, nil
	}
	signals, err := readSignals(s.Result, func(string) bool { return s.Outcome == StepSignalled })
	if err != nil {
		return nil, core.Wrap(op, core.Corrupt("ffx_step.result", err))
	}
	return signals, nil
}

// Steps returns the finished steps and waits of an execution, in order of beginning, without results. An unknown
// execution has none.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) Steps(ctx context.Context, x id.ExecutionID) ([]Step, error) {
	return e.listSteps(ctx, x, false)
}

// StepResults is [Engine.Steps] with results.
func (e *Engine) StepResults(ctx context.Context, x id.ExecutionID) ([]Step, error) {
	return e.listSteps(ctx, x, true)
}

func (e *Engine) listSteps(ctx context.Context, x id.ExecutionID, results bool) ([]Step, error) {
	const op = "list steps"
	if err := e.c.CheckExecution(x); err != nil {
		return nil, core.Wrap(op, err)
	}
	rows, err := e.c.Q.ListSteps(ctx, e.c.Reader(), db.ListStepsParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(), WithResults: results,
	})
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	steps := make([]Step, len(rows))
	for i, row := range rows {
		steps[i] = Step{
			Name: row.Name, Seq: int(row.Seq), Form: StepForm(row.Form), Outcome: StepOutcome(row.Outcome),
			Result: row.Result, ResultSize: int(row.ResultSize),
			Attempt: int(row.AttemptIndex), Tries: int(row.Tries), Error: row.Error,
			StartedAt: time.UnixMilli(row.StartedAtMs), EndedAt: time.UnixMilli(row.EndedAtMs),
			Called: calledBy(row.CalledPartitionKeys, row.CalledExecutionIDs), taken: row.Taken,
		}
	}
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Name, b.Name))
	})
	return steps, nil
}
