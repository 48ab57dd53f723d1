package engine

import (
	"cmp"
	"context"
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
	Examined int       // the most waits examined for a page; default and limit [MaxExamined]
}

// ListWaits returns a [Page] of the executions waiting for signals, the longest wait first. With a name or a tag it may be
// short or empty: neither has an index.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) ListWaits(ctx context.Context, filter WaitFilter, after string, limit int) (Page[OpenWait], error) {
	const op, list = "list waits", "waits"
	var page Page[OpenWait]
	size, err := core.PageSize(limit)
	if err := cmp.Or(err, checkExamined(filter.Examined)); err != nil {
		return page, core.Wrap(op, err)
	}
	params := db.ListWaitsParams{
		AfterSinceMs: math.MinInt64, AfterExecutionID: pgtype.UUID{Valid: true},
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
	last, err := readListKey(list, after)
	if err != nil {
		return page, core.Wrap(op, err)
	}
	if last != nil {
		params.AfterSinceMs, params.AfterPartitionKey, params.AfterExecutionID = last.createdAtMs, last.id.Partition(), core.PgUUID(last.id.UUID())
	}
	var rows []db.ListWaitsRow
	next := func(ctx context.Context, n int) ([]listKey, error) {
		params.PageSize = int32(n)
		if rows, err = e.c.Q.ListWaits(ctx, e.c.Reader(), params); err != nil {
			return nil, err
		}
		keys := make([]listKey, len(rows))
		for i, row := range rows {
			keys[i] = listKey{id: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), createdAtMs: row.OpenSinceMs}
			params.AfterSinceMs, params.AfterPartitionKey, params.AfterExecutionID = row.OpenSinceMs, row.PartitionKey, core.PgUUID(row.ExecutionID)
		}
		return keys, nil
	}
	page, err = examine(ctx, list, last, size, size+1, 3, cmp.Or(filter.Examined, MaxExamined), next, func(keys []listKey) (map[id.ExecutionID]OpenWait, error) {
		waits := make(map[id.ExecutionID]OpenWait, len(rows))
		for i, row := range rows {
			if !row.Fits {
				continue
			}
			wait := OpenWait{
				Execution: keys[i].id, Suspension: row.SuspensionID, Kind: row.Kind, Namespace: id.Namespace(row.Namespace), Lane: id.LaneID(row.LaneID),
				Since: time.UnixMilli(row.OpenSinceMs), Until: core.OptionalTime(row.TimeoutAtMs), OnTimeout: OnTimeout(row.TimeoutBehavior),
				Reason: state.BlockingReason(row.BlockingReason), Asked: row.Asked,
			}
			if err := wait.setCondition(row.Condition, row.UnusedSignals); err != nil {
				return nil, err
			}
			waits[wait.Execution] = wait
		}
		return waits, nil
	})
	return page, core.Wrap(op, err)
}

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
