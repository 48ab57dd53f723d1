package upkeep

import (
	"context"
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// AdvanceSequences gives the next executions of sequences their turn if a predecessor ended while another transaction
// held the sequence or the next execution, oldest end first. It handles at most batch ends and returns how many. If
// executions wait for budgets or limits, it also sends a value to [Upkeep.Gated].
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one for each page of ends; locks the sequences and their next
// executions, and leaves locked ones to the next call. Safe to repeat and to run in any number of processes.
func (u *Upkeep) AdvanceSequences(ctx context.Context, batch int) (int, error) {
	const op = "advance sequences"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	position := db.ScanSequenceEndsParams{PageSize: core.ScanPage}
	for acted, more := 0, true; ; {
		if acted == batch || !more {
			return acted, core.Wrap(op, u.notifyGate(ctx))
		}
		ends, err := u.c.Q.ScanSequenceEnds(ctx, u.c.Reader(), position)
		if err != nil {
			return acted, core.Wrap(op, err)
		}
		if more = len(ends) == core.ScanPage; len(ends) == 0 {
			continue
		}
		ends = ends[:min(len(ends), batch-acted)]
		position.AfterID = ends[len(ends)-1].ID
		n, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (int, error) { return u.answerEnds(ctx, tx, ends) })
		if err != nil && !errors.Is(err, fferr.ErrBusy) {
			return acted, err
		}
		acted += n
	}
}

// notifyGate sends a value to [Upkeep.Gated] if executions wait for budgets or limits, since some may just have got
// their turn.
func (u *Upkeep) notifyGate(ctx context.Context) error {
	gated, err := u.c.Q.GetGated(ctx, u.c.Reader())
	if gated {
		core.Remind(u.c.Gated)
	}
	return err
}

// SequenceEnded receives a value when a worker of this process has ended an execution of a sequence. Then call
// the job advance_sequences, whichever process holds the job.
func (u *Upkeep) SequenceEnded() <-chan struct{} { return u.c.MemberEnded }

// answerEnds advances the sequences of noted ends, except for locked ones, and deletes the notes of the handled ends.
// It returns how many ends it handled.
func (u *Upkeep) answerEnds(ctx context.Context, tx *core.Txn, ends []db.FfxSequenceEnd) (int, error) {
	nowMs, err := u.c.Q.GetNow(ctx, tx, u.c.NowMs())
	if err != nil {
		return 0, err
	}
	var sequences []core.SequenceID
	for _, end := range ends {
		sequences = append(sequences, end.SequenceID.Bytes)
	}
	slices.SortFunc(sequences, core.SequenceID.Compare)
	sequences = slices.Compact(sequences)
	busy, err := u.c.AdvanceSequences(ctx, tx, sequences, nowMs)
	if err != nil {
		return 0, err
	}
	var looked []int64
	for _, end := range ends {
		if !busy[end.SequenceID.Bytes] {
			looked = append(looked, end.ID)
		}
	}
	if len(looked) == 0 {
		return 0, nil
	}
	_, err = u.c.Q.DropSequenceEnds(ctx, tx, looked)
	return len(looked), err
}
