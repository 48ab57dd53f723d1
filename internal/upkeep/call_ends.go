package upkeep

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ResumeCallers resumes executions whose called executions have ended, oldest end first. It handles at most batch ends
// and returns how many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one for each page of ends; locks the callers, and skips locked ones for
// the next call. Emits a completion event of the outcome "resumable" for each resumed caller. Safe to repeat and to run
// in any number of processes.
func (u *Upkeep) ResumeCallers(ctx context.Context, batch int) (int, error) {
	const op = "resume callers"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	position := db.ScanCallEndsParams{PageSize: core.ScanPage}
	for acted, more := 0, true; ; {
		if acted == batch || !more {
			return acted, nil
		}
		ends, err := u.c.Q.ScanCallEnds(ctx, u.c.Reader(), position)
		if err != nil || len(ends) == 0 {
			return acted, core.Wrap(op, err)
		}
		more = len(ends) == core.ScanPage
		ends = ends[:min(len(ends), batch-acted)]
		position.AfterID = ends[len(ends)-1].ID
		n, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (int, error) { return u.answerCallers(ctx, tx, ends) })
		if err != nil && !errors.Is(err, fferr.ErrBusy) {
			return acted, err
		}
		acted += n
	}
}

// CallEnded receives a value when a worker of this process has ended a called execution. Then call
// [Upkeep.ResumeCallers], whichever process holds the job.
func (u *Upkeep) CallEnded() <-chan struct{} { return u.c.CallEnded }

// answerCallers resumes the callers of ended executions, except for locked ones, and deletes the notes of the handled
// ends. It returns how many ends it handled.
func (u *Upkeep) answerCallers(ctx context.Context, tx *core.Txn, ends []db.ScanCallEndsRow) (int, error) {
	locked, err := u.takeCallers(ctx, tx, ends)
	if err != nil {
		return 0, err
	}
	nowMs, err := u.c.Q.GetNow(ctx, tx, u.c.NowMs())
	if err != nil {
		return 0, err
	}
	type call struct {
		caller id.ExecutionID
		step   string
	}
	seen := make(map[call]bool)
	var waiting core.Callers
	var looked []int64
	for _, end := range ends {
		c := call{id.ExecutionIDFromRow(end.PartitionKey, end.ExecutionID), end.Step}
		if !end.Gone && !locked[c.caller] {
			continue
		}
		looked = append(looked, end.ID)
		if !end.Gone && !seen[c] {
			seen[c] = true
			waiting.Add(c.caller, c.step)
		}
	}
	if len(looked) == 0 {
		return 0, nil
	}
	if err := u.c.ResumeCallers(ctx, tx, &waiting, nowMs); err != nil {
		return 0, err
	}
	_, err = u.c.Q.DropCallEnds(ctx, tx, looked)
	return len(looked), err
}

// takeCallers locks the callers of ended executions, and skips callers locked by another transaction.
func (u *Upkeep) takeCallers(ctx context.Context, tx *core.Txn, ends []db.ScanCallEndsRow) (map[id.ExecutionID]bool, error) {
	var executions []id.ExecutionID
	for _, end := range ends {
		if !end.Gone {
			executions = append(executions, id.ExecutionIDFromRow(end.PartitionKey, end.ExecutionID))
		}
	}
	slices.SortFunc(executions, func(a, b id.ExecutionID) int {
		return cmp.Or(cmp.Compare(a.Partition(), b.Partition()), core.CompareUUID(a.UUID(), b.UUID()))
	})
	executions = slices.Compact(executions)
	var arrays core.ExecutionArrays
	for _, x := range executions {
		arrays.Add(x.Partition(), x.UUID())
	}
	rows, err := u.c.Q.TakeExecutions(ctx, tx, db.TakeExecutionsParams{PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions})
	locked := make(map[id.ExecutionID]bool, len(rows))
	for _, row := range rows {
		locked[executions[row.Ord]] = true
	}
	return locked, err
}
