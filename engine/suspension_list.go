package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"iter"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// OpenWait is an execution waiting for signals.
type OpenWait struct {
	Execution  id.ExecutionID
	Suspension id.SuspensionID
	Kind       string
	Namespace  id.Namespace
	Lane       id.LaneID
	Since      time.Time
	Until      time.Time // the time of the timeout; zero without one
	OnTimeout  OnTimeout // "" without a timeout
	Reason     state.BlockingReason
	Condition  string   // in words, for people: "an operator"
	Names      []string // of the expected signals; empty: any, or only an operator or the timeout
	Asked      string
	Received   int // signals received at its waitpoints and not used by an earlier wait
}

// setCondition describes a stored condition, and counts the signals received for it. unusedSignals has the number of
// unused signals by waitpoint key.
func (w *OpenWait) setCondition(stored, unusedSignals []byte) error {
	var node condition.Node
	if err := json.Unmarshal(stored, &node); err != nil {
		return core.Corrupt("ff_suspension_current.condition", err)
	}
	var unused map[string]int
	if len(unusedSignals) > 0 {
		if err := json.Unmarshal(unusedSignals, &unused); err != nil {
			return core.Corrupt("ff_suspension_current.member_map", err)
		}
	}
	w.Condition = node.InWords()
	for _, point := range node.Waitpoints() {
		w.Names = append(w.Names, point.Names...)
		w.Received += unused[point.Key]
	}
	return nil
}

// WaitFilter selects open waits that match all fields. The zero value selects all.
type WaitFilter struct {
	Name     string    // of an expected signal
	TagKey   string    // of the execution, with TagValue
	TagValue string    //
	Before   time.Time // waiting since before this time
}

// ListWaits returns a [Page] of the executions waiting for signals, the longest wait first.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) ListWaits(ctx context.Context, filter WaitFilter, after string, limit int) (Page[OpenWait], error) {
	const op, list = "list waits", "waits"
	var page Page[OpenWait]
	size, err := core.PageSize(limit)
	if err != nil {
		return page, core.Wrap(op, err)
	}
	params := db.ListWaitsParams{
		AfterSinceMs: math.MinInt64, AfterExecutionID: pgtype.UUID{Valid: true}, PageSize: int32(size + 1),
	}
	if params.BeforeMs, err = optionalMs("before", filter.Before); err != nil {
		return page, core.Wrap(op, err)
	}
	for field, text := range map[string]string{"name": filter.Name, "tag key": filter.TagKey, "tag value": filter.TagValue} {
		if err := core.CheckText(field, text, core.MaxFreeText); err != nil {
			return page, core.Wrap(op, err)
		}
	}
	if filter.Name != "" {
		params.Name = &filter.Name
	}
	if filter.TagKey != "" {
		params.TagKey, params.TagValue = &filter.TagKey, &filter.TagValue
	} else if filter.TagValue != "" {
		return page, core.Wrap(op, core.Invalid("tag key", "is missing for the tag's value"))
	}
	key, err := core.ReadCursor(list, after)
	switch {
	case err == nil && key != nil && len(key) != waitCursor:
		err = core.Invalid("after", "is not a cursor")
	case err == nil && key != nil:
		params.AfterSinceMs = int64(binary.BigEndian.Uint64(key))
		params.AfterPartitionKey = int16(binary.BigEndian.Uint16(key[8:]))
		copy(params.AfterExecutionID.Bytes[:], key[10:])
	}
	if err != nil {
		return page, core.Wrap(op, err)
	}
	rows, err := e.c.Q.ListWaits(ctx, e.c.Reader(), params)
	if err != nil {
		return page, core.Wrap(op, err)
	}
	waits := make([]OpenWait, len(rows))
	for i, row := range rows {
		waits[i] = OpenWait{
			Execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), Suspension: row.SuspensionID, Kind: row.Kind,
			Namespace: id.Namespace(row.Namespace), Lane: id.LaneID(row.LaneID),
			Since: time.UnixMilli(row.OpenSinceMs), Until: core.OptionalTime(row.TimeoutAtMs), OnTimeout: OnTimeout(row.TimeoutBehavior), Reason: state.BlockingReason(row.BlockingReason), Asked: row.Asked,
		}
		if err := waits[i].setCondition(row.Condition, row.UnusedSignals); err != nil {
			return page, core.Wrap(op, err)
		}
	}
	return Page[OpenWait](core.PageOf(waits, size, func(w *OpenWait) string {
		position := binary.BigEndian.AppendUint64(nil, uint64(w.Since.UnixMilli()))
		position = binary.BigEndian.AppendUint16(position, uint16(w.Execution.Partition()))
		x := w.Execution.UUID()
		return core.CursorOf(list, append(position, x[:]...))
	})), nil
}

const waitCursor = 8 + 2 + 16

// optionalMs converts an optional time; nil means none.
func optionalMs(field string, t time.Time) (*int64, error) {
	ms, err := core.Instant(field, t)
	if err != nil || ms == 0 {
		return nil, err
	}
	return &ms, nil
}

// Waits iterates over the results of [Engine.ListWaits], page by page.
func (e *Engine) Waits(ctx context.Context, filter WaitFilter) iter.Seq2[OpenWait, error] {
	return core.Pages(func(after string) (Page[OpenWait], error) { return e.ListWaits(ctx, filter, after, MaxPage) })
}
