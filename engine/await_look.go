package engine

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// maxLook and maxLookFlows limit the executions and flows in one polling statement.
const (
	maxLook      = 10_000
	maxLookFlows = 100
)

// lookItem is one execution of a poll.
type lookItem struct {
	execution id.ExecutionID
	waiters   []*waiter // waiters for the execution's end
	member    *lookFlow // the awaited flow that has the execution as a member; nil if the execution itself is awaited
}

// lookFlow is one flow of a poll, which reads the first of its open members before the others.
type lookFlow struct {
	*awaitedFlow
	id      id.FlowID
	waiters []*waiter
	ended   map[id.ExecutionID]bool // open members that have ended since
}

// look answers the waiters whose executions and flows have ended, and reports whether any waiter was polled for the
// first time.
//
// One statement reads all executions and one open member of each flow. If the member has ended, a second statement
// reads the other known open members. If none is left, a third statement finds more open members.
func (e *Engine) look(ctx context.Context) (fresh bool) {
	items, flows := e.awaiting.lookFor(e.cfg.Partitions)
	err := e.lookAtAll(ctx, items, flows)
	if err != nil && ctx.Err() != nil {
		return false // the next holder of the turn polls
	}
	note := func(waiters []*waiter) {
		for _, w := range waiters {
			if !w.seen && err != nil {
				w.answer(nil, err) // later waiters wait until the outage ends
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

func (a *awaiting) noteFailure(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
}

// lookFor returns the executions and flows with unanswered waiters.
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

// lookAt answers the waiters of ended executions, and records the ended members.
func (e *Engine) lookAt(ctx context.Context, items []lookItem) error {
	for some := range slices.Chunk(items, maxLook) {
		var params db.ListEndedParams
		for i, item := range some {
			params.PartitionKeys = append(params.PartitionKeys, item.execution.Partition())
			params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(item.execution.UUID()))
			params.WithResults = append(params.WithResults, item.member == nil)
			params.Ords = append(params.Ords, int32(i))
		}
		rows, err := core.ReadAgain(e.c, func() ([]db.ListEndedRow, error) { return e.c.Q.ListEnded(ctx, e.c.Reader(), params) })
		if err != nil {
			return err
		}
		for i := range rows {
			item := some[rows[i].Ord]
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

// lookForMembers reads open members of flows, and answers the waiters of flows without any.
func (e *Engine) lookForMembers(ctx context.Context, flows []*lookFlow) error {
	params := db.ListOpenMembersParams{PageSize: MaxPage}
	for i, f := range flows {
		params.PartitionKeys = append(params.PartitionKeys, e.cfg.Partitions.FlowPartition(f.id))
		params.FlowIDs = append(params.FlowIDs, core.PgUUID(f.id))
		params.Ords = append(params.Ords, int32(i))
	}
	rows, err := core.ReadAgain(e.c, func() ([]db.ListOpenMembersRow, error) { return e.c.Q.ListOpenMembers(ctx, e.c.Reader(), params) })
	if err != nil {
		return err
	}
	for _, row := range rows {
		f := flows[row.Ord]
		f.open = append(f.open, id.ExecutionIDFromRow(params.PartitionKeys[row.Ord], row.ExecutionID))
	}
	for _, f := range flows {
		if len(f.open) == 0 {
			for _, w := range f.waiters {
				w.answer(nil, nil)
			}
		}
		// In random order, so the first member outlasts half of the others on average, in whichever order members end.
		rand.Shuffle(len(f.open), func(i, j int) { f.open[i], f.open[j] = f.open[j], f.open[i] })
	}
	return nil
}
