package operator

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// The largest lengths of an [Action]'s texts in bytes.
const (
	MaxActionBy     = 256
	MaxActionName   = 64
	MaxActionObject = 1024
	MaxActionDetail = 4096
)

// Action describes an act of a person at a console or in another program.
type Action struct {
	By     string // the person's name; required, at most [MaxActionBy]
	Name   string // such as "limit.set"; required, at most [MaxActionName]
	Object string // the target, such as "sync/tenant"; may be empty; at most [MaxActionObject]
	Detail string // the particulars, such as "--units 2"; may be empty; at most [MaxActionDetail]

	// Execution is the execution acted on. Zero: none, or many.
	Execution id.ExecutionID
}

// actionDetails are the stored details of an action.
type actionDetails struct {
	By     string `json:"by"`
	Name   string `json:"action"`
	Object string `json:"object,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// RecordAction writes an action to the operators' events. The operations of this library don't call it: a program that knows
// the person does, and in the transaction of the operation, so that both commit or neither does:
//
//	err := eng.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
//		if err := operator.PauseLane(ctx, eng, "images", operator.LanePause{}); err != nil {
//			return err
//		}
//		return operator.RecordAction(ctx, eng, operator.Action{By: "grace", Name: "lane.pause", Object: "images"})
//	})
//
// The event has the namespace and the instance tag of the execution, if one is given.
//
// Errors: [fferr.ErrInvalidInput] with the field; [fferr.ErrNotFound] if the execution does not exist. Transaction: one
// statement; takes no locks; emits an operator event. A repeated call records another action.
func RecordAction(ctx context.Context, eng *engine.Engine, a Action) error {
	const op = "record action"
	c := core.Of(eng)
	if err := a.check(c); err != nil {
		return core.Wrap(op, err)
	}
	details, err := json.Marshal(actionDetails{a.By, a.Name, a.Object, a.Detail})
	if err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) (int64, error) {
		due.OperatorEvents() // harmless if the execution does not exist
		if a.Execution.IsZero() {
			return 1, c.Q.InsertAction(ctx, conn, db.InsertActionParams{Details: string(details), NowMs: c.NowMs()})
		}
		return c.Q.InsertExecutionAction(ctx, conn, db.InsertExecutionActionParams{
			Details: string(details), NowMs: c.NowMs(), PartitionKey: a.Execution.Partition(), ExecutionID: a.Execution.UUID(),
		})
	})
	if err == nil && n == 0 {
		err = core.Wrap(op, &fferr.NotFoundError{Entity: "execution", ID: a.Execution.String()})
	}
	return err
}

func (a *Action) check(c *core.Core) error {
	switch {
	case a.By == "":
		return core.Invalid("By", "is empty")
	case a.Name == "":
		return core.Invalid("Name", "is empty")
	}
	if err := cmp.Or(
		core.CheckText("By", a.By, MaxActionBy), core.CheckText("Name", a.Name, MaxActionName),
		core.CheckText("Object", a.Object, MaxActionObject), core.CheckText("Detail", a.Detail, MaxActionDetail),
	); err != nil || a.Execution.IsZero() {
		return err
	}
	return c.CheckExecution(a.Execution)
}

// LogEntry is an entry of the operators' log.
type LogEntry struct {
	ID   int64     // unique; the id of the operator event
	At   time.Time // by the database's clock, in milliseconds
	Type state.OperatorEventType

	// By, Action and Object have the texts of an [Action]. They are empty for other types, whose events name no person.
	By     string
	Action string
	Object string

	// Detail has the particulars of an [Action]. For other types it is a text such as "priority 3 -> 5", and for a type
	// unknown to this library the stored details.
	Detail string

	Execution id.ExecutionID // zero: none
	Flow      *id.FlowID     // of a request to cancel a flow

	// Err is a [*fferr.CorruptionError] if a stored value can't be read. Other entries are still listed.
	Err error
}

// LogFilter selects entries. The zero value selects all. An entry must match all fields. Neither field has an index: a page
// examines up to [engine.MaxExamined] entries, and may be short or empty.
type LogFilter struct {
	Execution id.ExecutionID
	By        string // the name of the person, in full
}

// ListLog returns a [engine.Page] of the operators' log, newest first: recorded actions, changed priorities, replays and
// requests to cancel a flow. Entries are deleted with the other events, after engine.Config.OutboxRetention. Entries written
// in the meantime don't move the next page. An entry gets its place at the insert: an entry of a long transaction may appear
// above a cursor.
//
// Errors: [fferr.ErrInvalidInput]. One statement; takes no locks.
func ListLog(ctx context.Context, eng *engine.Engine, filter LogFilter, after string, limit int) (engine.Page[LogEntry], error) {
	const op = "list log"
	page, err := listLog(ctx, core.Of(eng), &filter, after, limit)
	return page, core.Wrap(op, err)
}

// Log iterates over the entries of [ListLog], a page at a time.
func Log(ctx context.Context, eng *engine.Engine, filter LogFilter) iter.Seq2[LogEntry, error] {
	return core.Pages(func(after string) (engine.Page[LogEntry], error) {
		return ListLog(ctx, eng, filter, after, engine.MaxPage)
	})
}

func listLog(ctx context.Context, c *core.Core, filter *LogFilter, after string, limit int) (page engine.Page[LogEntry], err error) {
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	params := db.ListOperatorEventsParams{ByWhom: filter.By, MaxExamined: int32(limit) + 1, PageSize: int32(limit) + 1}
	if err := core.CheckText("By", filter.By, MaxActionBy); err != nil {
		return page, err
	}
	if x := filter.Execution; !x.IsZero() {
		if err := c.CheckExecution(x); err != nil {
			return page, err
		}
		params.PartitionKey, params.ExecutionID = int32(x.Partition()), x.UUID().String()
	}
	if *filter != (LogFilter{}) {
		params.MaxExamined = engine.MaxExamined
	}
	list := fmt.Sprintf("log of %s %q", filter.Execution, filter.By)
	if params.BeforeEventID, err = readLogCursor(list, after); err != nil {
		return page, err
	}
	rows, err := c.Q.ListOperatorEvents(ctx, c.Reader(), params)
	if err != nil || len(rows) == 0 {
		return page, err
	}
	for i := range rows[:min(len(rows), limit)] {
		if rows[i].Found {
			page.Items = append(page.Items, logEntryOf(&rows[i]))
		}
	}
	switch last := &rows[len(rows)-1]; {
	case len(rows) > limit:
		page.Next = logCursor(list, rows[limit-1].EventID)
	case last.Examined == int64(params.MaxExamined):
		page.Next = logCursor(list, last.OldestEventID)
	}
	return page, nil
}

func logCursor(list string, event int64) string {
	return core.CursorOf(list, binary.BigEndian.AppendUint64(nil, uint64(event)))
}

// readLogCursor returns the id in a cursor, above all others for the start.
func readLogCursor(list, after string) (int64, error) {
	key, err := core.ReadCursor(list, after)
	switch {
	case err != nil:
		return 0, err
	case key == nil:
		return math.MaxInt64, nil
	case len(key) != 8:
		return 0, core.Invalid("after", "is not a cursor of this listing")
	}
	return int64(binary.BigEndian.Uint64(key)), nil
}
