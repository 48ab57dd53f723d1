package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// maxLook is the most executions, and maxLookFlows the most flows, that one statement of a look asks about.
const (
	maxLook      = 10_000
	maxLookFlows = 100
)

// lookItem is an execution that a look asks about.
type lookItem struct {
	execution id.ExecutionID
	waiters   []*waiter // for its end
	member    *lookFlow // the flow of which it stands for the members; nil: it is waited for itself
}

// lookFlow is a flow that a look asks about. open is of the awaited flow: members that had not ended, the first of
// which stands for all.
type lookFlow struct {
	*awaitedFlow
	id      id.FlowID
	waiters []*waiter
	ended   map[id.ExecutionID]bool // of open
}

// look answers those whose executions and flows have ended. It says whether it looked for somebody for the first time.
//
// One statement asks about all executions, and about a member of each flow. Where that has ended, a second one asks
// about the others that were open, and where none of these is left a third one for more of them.
func (e *Engine) look(ctx context.Context) (fresh bool) {
	items, flows := e.awaiting.lookFor(e.cfg.Partitions)
	err := e.lookAtAll(ctx, items, flows)
	if err != nil && ctx.Err() != nil {
		return false // the next one looks
	}
	note := func(waiters []*waiter) {
		for _, w := range waiters {
			if !w.seen && err != nil {
				w.answer(nil, err) // later ones wait until it is over
			}
			fresh = fresh || !w.seen
			w.seen = true
		}
	}
	for i := range items {
		note(items[i].waiters)
	}
	for _, f := range flows {
		note(f.waiters)
	}
	e.awaiting.noteFailure(err)
	return fresh
}

// readAgain calls read, and again if its connection was cut. Connections that lay idle may all have been cut, and a try
// meets one of them: there are as many tries as the pool may have connections, and one more.
func readAgain[T any](e *Engine, read func() (T, error)) (T, error) {
	for left := e.pool.Config().MaxConns; ; left-- {
		result, err := read()
		if left == 0 || !pgtx.IsCut(err) || isOurs(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return result, err
		}
	}
}

func (a *awaiting) noteFailure(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
}

// lookFor returns what those who have no answer yet wait for.
func (a *awaiting) lookFor(counts id.Partitions) (items []lookItem, flows []*lookFlow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for x, waiters := range a.executions {
		if waiters = unanswered(waiters); len(waiters) > 0 {
			items = append(items, lookItem{execution: x, waiters: waiters})
		}
	}
	for flow, f := range a.flows {
		waiters := unanswered(f.waiters)
		if len(waiters) == 0 {
			continue
		}
		look := &lookFlow{awaitedFlow: f, id: flow, waiters: waiters, ended: make(map[id.ExecutionID]bool)}
		flows = append(flows, look)
		if len(f.open) > 0 {
			items = append(items, lookItem{execution: f.open[0], member: look})
		}
	}
	return items, flows
}

func unanswered(waiters []*waiter) []*waiter {
	return slices.DeleteFunc(slices.Clone(waiters), (*waiter).over)
}

func (e *Engine) lookAtAll(ctx context.Context, items []lookItem, flows []*lookFlow) error {
	if err := e.lookAt(ctx, items); err != nil {
		return err
	}
	var others []lookItem
	for _, f := range flows {
		if len(f.ended) > 0 {
			for _, x := range f.open[1:] {
				others = append(others, lookItem{execution: x, member: f})
			}
		}
	}
	if err := e.lookAt(ctx, others); err != nil {
		return err
	}
	var used []*lookFlow
	for _, f := range flows {
		f.open = slices.DeleteFunc(f.open, func(x id.ExecutionID) bool { return f.ended[x] })
		if len(f.open) == 0 {
			used = append(used, f)
		}
	}
	for some := range slices.Chunk(used, maxLookFlows) {
		if err := e.lookForMembers(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// lookAt answers those whose executions have ended, and notes which members have.
func (e *Engine) lookAt(ctx context.Context, items []lookItem) error {
	for some := range slices.Chunk(items, maxLook) {
		var params db.ListEndedParams
		for i, item := range some {
			params.PartitionKeys = append(params.PartitionKeys, item.execution.Partition())
			params.ExecutionIDs = append(params.ExecutionIDs, pgUUID(item.execution.UUID()))
			params.WithResults = append(params.WithResults, item.member == nil)
			params.Ords = append(params.Ords, int32(i+1))
		}
		rows, err := readAgain(e, func() ([]db.ListEndedRow, error) { return e.q.ListEnded(ctx, e.reader(), params) })
		if err != nil {
			return err
		}
		for i := range rows {
			item := some[rows[i].Ord-1]
			if item.member != nil {
				item.member.ended[item.execution] = true
				continue
			}
			result, err := endOf(item.execution, &rows[i])
			for _, w := range item.waiters {
				w.answer(result, err)
			}
		}
	}
	return nil
}

// lookForMembers finds members of flows that have not ended, and answers those whose flows have none.
func (e *Engine) lookForMembers(ctx context.Context, flows []*lookFlow) error {
	params := db.ListOpenMembersParams{PageSize: MaxPage}
	for i, f := range flows {
		params.PartitionKeys = append(params.PartitionKeys, e.cfg.Partitions.FlowPartition(f.id))
		params.FlowIDs = append(params.FlowIDs, pgUUID(f.id))
		params.Ords = append(params.Ords, int32(i+1))
	}
	rows, err := readAgain(e, func() ([]db.ListOpenMembersRow, error) { return e.q.ListOpenMembers(ctx, e.reader(), params) })
	if err != nil {
		return err
	}
	for _, row := range rows {
		f := flows[row.Ord-1]
		f.open = append(f.open, id.ExecutionIDFromRow(params.PartitionKeys[row.Ord-1], row.ExecutionID))
	}
	for _, f := range flows {
		if len(f.open) == 0 {
			for _, w := range f.waiters {
				w.answer(nil, nil)
			}
		}
		// Whichever order they end in, the first one outlives half of them.
		rand.Shuffle(len(f.open), func(i, j int) { f.open[i], f.open[j] = f.open[j], f.open[i] })
	}
	return nil
}

// endOf is what an execution that has ended left, and how.
func endOf(x id.ExecutionID, row *db.ListEndedRow) ([]byte, error) {
	if !row.Found {
		return nil, &NotFoundError{Entity: "execution", ID: x.String()}
	}
	return resultOf(x, &db.GetExecutionResultRow{
		Result:             row.Result,
		LifecyclePhase:     row.LifecyclePhase,
		EligibilityState:   row.EligibilityState,
		PublicState:        row.PublicState,
		CancellationReason: row.CancellationReason,
		RawTerminalOutcome: row.RawTerminalOutcome,
		LastFailureMessage: row.LastFailureMessage,
		FailureReason:      row.FailureReason,
		CurrentOutcome:     row.CurrentOutcome,
		PointerOutcome:     row.PointerOutcome,
	})
}
