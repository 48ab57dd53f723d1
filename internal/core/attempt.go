package core

import (
	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// NextAttempt is the attempt continued or opened by a claim.
type NextAttempt struct {
	Index    int32
	Kind     state.AttemptType
	ID       id.AttemptID // zero for a new one
	Epoch    int64
	Inserted bool
	Resumed  bool
}

// ChooseAttempt picks the attempt for an execution's next lease. attempts are the execution's rows, ascending by index.
// An interrupted attempt continues. A pending one opens at the pointer, or after the last row if the attempt at the
// pointer has finished. The result is false if the row has a live lease and belongs to another holder.
func ChooseAttempt(row *db.TakeClaimableRow, attempts []db.TakeAttemptsOfRow, nowMs int64) (NextAttempt, bool) {
	next := NextAttempt{Index: row.AttemptIndex, Kind: state.InitialAttempt, Inserted: true}
	prior, err := normalise.AttemptState(row.AttemptState)
	if err != nil {
		return next, false
	}
	var at *db.TakeAttemptsOfRow // the row to lease
	switch prior {
	case state.AttemptInterrupted:
		for i := range attempts {
			if attempts[i].AttemptIndex <= row.AttemptIndex {
				at = &attempts[i]
			}
		}
	default:
		for i := range attempts {
			if attempts[i].AttemptIndex == row.AttemptIndex {
				at = &attempts[i]
			}
		}
		if at != nil && prior != state.PendingReplayAttempt && (at.TerminalAtMs != nil || at.Outcome != nil) {
			at = nil
			next.Index = attempts[len(attempts)-1].AttemptIndex + 1
		}
	}
	switch prior {
	case state.PendingRetryAttempt:
		next.Kind = state.RetryAttempt
	case state.PendingReplayAttempt:
		next.Kind = state.ReplayAttempt
	}
	highest := row.HighestEpoch
	if at != nil {
		if at.LeaseExpiresAtMs != nil && *at.LeaseExpiresAtMs > nowMs {
			return next, false
		}
		next.Index, next.Inserted = at.AttemptIndex, false
		next.Resumed = prior == state.AttemptInterrupted
		highest = max(highest, at.LeaseEpoch)
		if at.FfxAttemptID != nil {
			next.ID = *at.FfxAttemptID
		}
		if next.Resumed && at.FfxAttemptType != nil {
			if kind, err := normalise.AttemptType(*at.FfxAttemptType); err == nil {
				next.Kind = kind
			}
		}
	}
	next.Epoch = highest + 1
	return next, true
}
