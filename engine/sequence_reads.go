package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// SequencePlace is the place of an execution in a sequence.
type SequencePlace struct {
	Sequence

	// Place counts from 1; 0 means no place any more. The places of ended executions stay empty.
	Place int64

	Ahead     int            // number of executions before this one, at most 1,000
	First     id.ExecutionID // has the turn or has failed; zero without a place
	StoppedAt time.Time      // when the sequence stopped at First; zero unless stopped
}

// SequenceState is the state of a sequence. A sequence exists while it has executions.
type SequenceState struct {
	Key       string
	Namespace id.Namespace
	First     id.ExecutionID // has the turn, or stopped the sequence; zero for a moment after the last end
	StoppedAt time.Time      // zero unless stopped
	Size      int            // number of executions; 1,001 for more than 1,000
}

// SequenceMember is an execution in a sequence.
type SequenceMember struct {
	Place     int64
	Execution id.ExecutionID
	OnFailure OnFailure
	TurnAt    time.Time // when the turn began; zero while waiting
	Kind      string
	State     state.PublicState // "" if the execution was deleted
	CreatedAt time.Time
}

// SequenceFilter selects sequences that match all fields. The zero value selects all sequences.
type SequenceFilter struct {
	Namespace id.Namespace
	Stopped   bool // only stopped sequences
}

// DescribeSequence returns a sequence.
//
// Errors: [fferr.ErrNotFound] for a sequence without executions; [fferr.ErrInvalidInput]. Takes no locks.
func (e *Engine) DescribeSequence(ctx context.Context, name SequenceName) (SequenceState, error) {
	const op = "describe sequence"
	s, err := name.check(e)
	if err != nil {
		return SequenceState{}, core.Wrap(op, err)
	}
	row, err := e.c.Q.GetSequence(ctx, e.c.Reader(), db.GetSequenceParams{PartitionKey: s.Partition(), SequenceID: s.PG()})
	if err != nil {
		return SequenceState{}, core.Wrap(op, name.orNotFound(err))
	}
	return sequenceFrom((*db.ListSequencesRow)(&row)), nil
}

// Sequences iterates over the sequences that match a filter, in no useful order, reading a page at a time. Takes no locks.
func (e *Engine) Sequences(ctx context.Context, filter SequenceFilter) iter.Seq2[SequenceState, error] {
	return core.AllFrom("list sequences", 100, func(after *db.ListSequencesRow, n int32) ([]db.ListSequencesRow, error) {
		params := db.ListSequencesParams{AfterPartitionKey: -1, AfterSequenceID: pgtype.UUID{Valid: true}, PageSize: n}
		if after != nil {
			params.AfterPartitionKey, params.AfterSequenceID = after.PartitionKey, after.SequenceID
		}
		return e.c.Q.ListSequences(ctx, e.c.Reader(), params)
	}, func(row *db.ListSequencesRow) (SequenceState, bool, error) {
		s := sequenceFrom(row)
		return s, (filter.Namespace == "" || filter.Namespace == s.Namespace) && (!filter.Stopped || !s.StoppedAt.IsZero()), nil
	})
}

// ListSequenceMembers returns a [Page] of the executions in a sequence, in order. An unknown sequence has none. Takes
// no locks.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) ListSequenceMembers(ctx context.Context, name SequenceName, after string, limit int) (Page[SequenceMember], error) {
	const op = "list members of a sequence"
	page, err := e.listSequenceMembers(ctx, name, after, limit)
	return page, core.Wrap(op, err)
}

// SequenceMembers iterates over the results of [Engine.ListSequenceMembers], page by page.
func (e *Engine) SequenceMembers(ctx context.Context, name SequenceName) iter.Seq2[SequenceMember, error] {
	return core.Pages(func(after string) (Page[SequenceMember], error) {
		return e.ListSequenceMembers(ctx, name, after, MaxPage)
	})
}

func (e *Engine) listSequenceMembers(ctx context.Context, name SequenceName, after string, limit int) (page Page[SequenceMember], err error) {
	s, err := name.check(e)
	if err != nil {
		return page, err
	}
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	list := fmt.Sprintf("sequence members %x", s)
	last, err := core.ReadCursor(list, after)
	if err != nil {
		return page, err
	}
	params := db.ListSequenceMembersParams{PartitionKey: s.Partition(), SequenceID: s.PG(), PageSize: int32(limit) + 1}
	if last != nil {
		if len(last) != 8 {
			return page, core.Invalid("after", "is not a cursor")
		}
		params.AfterPlace = int64(binary.BigEndian.Uint64(last))
	}
	rows, err := e.c.Q.ListSequenceMembers(ctx, e.c.Reader(), params)
	if err != nil {
		return page, err
	}
	found := core.PageOf(rows, limit, func(row *db.ListSequenceMembersRow) string {
		return core.CursorOf(list, binary.BigEndian.AppendUint64(nil, uint64(row.Place)))
	})
	page.Next = found.Next
	for i := range found.Items {
		row := &found.Items[i]
		m := SequenceMember{
			Place: row.Place, Execution: id.ExecutionIDFromRow(row.ExecutionPartitionKey, row.ExecutionID),
			OnFailure: onFailureOf(row.Skips), TurnAt: core.OptionalTime(row.TurnAtMs),
		}
		if row.Found {
			m.Kind, m.CreatedAt = row.Kind, time.UnixMilli(row.CreatedAtMs)
			if m.State, err = normalise.PublicState(row.PublicState); err != nil {
				return page, core.Corrupt("ff_exec_core.public_state", err)
			}
		}
		page.Items = append(page.Items, m)
	}
	return page, nil
}

func sequenceFrom(row *db.ListSequencesRow) SequenceState {
	s := SequenceState{
		Key: row.Key, Namespace: id.Namespace(row.Namespace), StoppedAt: core.OptionalTime(row.StoppedAtMs), Size: int(row.Size),
	}
	if s.Size > 0 {
		s.First = id.ExecutionIDFromRow(row.FirstPartitionKey, row.FirstExecutionID.Bytes)
	}
	return s
}

// setSequence sets the place of an execution created in a sequence.
func (s *ExecutionSnapshot) setSequence(row *db.GetExecutionRow, raw rawSequence) {
	if raw.Key == "" {
		return
	}
	s.Sequence = &SequencePlace{
		Sequence: Sequence{Key: raw.Key, OnFailure: raw.onFailure()},
		Place:    row.SequencePlace, Ahead: int(row.SequenceAhead), StoppedAt: core.OptionalTime(row.SequenceStoppedAtMs),
	}
	if row.SequenceFirstExecutionID.Valid {
		s.Sequence.First = id.ExecutionIDFromRow(row.SequenceFirstPartitionKey, row.SequenceFirstExecutionID.Bytes)
	}
}
