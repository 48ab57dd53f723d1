package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// The most reports that one transaction counts, and about how many amounts.
const (
	maxUsageBatch   = 256
	maxUsageAmounts = 10_000
)

// usageMemory has the reports that wait for the transaction on their budget to end.
type usageMemory struct {
	mu     sync.Mutex
	queues map[usagePlace]*usageQueue
}

// count returns how many reports wait.
func (m *usageMemory) count() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, queue := range m.queues {
		n += len(queue.waiting)
	}
	return n
}

// usagePlace are the budgets of reports, on the connections that they use.
type usagePlace struct {
	pool    *pgxpool.Pool
	budgets string // their ids, one after the other
}

func placeOfUsage(pool *pgxpool.Pool, budgets []id.BudgetID) usagePlace {
	ids := make([]byte, 0, len(budgets)*len(id.BudgetID{}))
	for _, b := range budgets {
		ids = append(ids, b[:]...)
	}
	return usagePlace{pool, string(ids)}
}

// usageQueue are the reports on the same budgets that the next transaction counts. It exists while there is any, or a
// transaction.
type usageQueue struct{ waiting []*usageItem }

// usageWaiting is the part of a report that its caller and the transaction share.
type usageWaiting struct {
	ctx   context.Context
	done  chan struct{}
	left  bool        // its caller has stopped waiting
	batch *usageBatch // that counts it; nil before
}

// usageBatch is a running transaction. It is cancelled when no caller waits for it any more.
type usageBatch struct {
	waiters int
	cancel  context.CancelFunc
}

// gatherUsage counts a report together with others on its budget: those that come during a transaction share the next one. The
// row of a budget is locked until a commit is on the disk, so that one transaction for each report would be slow.
func (e *Engine) gatherUsage(ctx context.Context, op string, item *usageItem) error {
	item.waiting = usageWaiting{ctx: ctx, done: make(chan struct{})}
	m, place := &e.usage, placeOfUsage(e.c.Pool, item.budgets)
	m.mu.Lock()
	queue, runs := m.queues[place]
	if !runs {
		queue = new(usageQueue)
		if m.queues == nil {
			m.queues = make(map[usagePlace]*usageQueue)
		}
		m.queues[place] = queue
	}
	queue.waiting = append(queue.waiting, item)
	m.mu.Unlock()
	if !runs {
		// It ends when no call waits any more.
		go e.serveUsage(place, queue)
	}
	select {
	case <-item.waiting.done:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-item.waiting.done:
		return nil
	default:
	}
	item.waiting.left = true
	if batch := item.waiting.batch; batch != nil {
		if batch.waiters--; batch.waiters == 0 {
			batch.cancel()
		}
	}
	return core.Wrap(op, ctx.Err())
}

// serveUsage counts the reports of a queue until it is empty.
func (e *Engine) serveUsage(place usagePlace, queue *usageQueue) {
	for {
		e.usage.gather(queue)
		items := e.usage.take(place, queue)
		if items == nil {
			return
		}
		if len(items) > 0 {
			e.countBatch(items)
		}
	}
}

// gather yields to the callers whose reports have just been counted, for as long as they come with their next ones.
func (m *usageMemory) gather(queue *usageQueue) {
	for before := -1; ; {
		m.mu.Lock()
		n := len(queue.waiting)
		m.mu.Unlock()
		if n == before || n >= maxUsageBatch {
			return
		}
		before = n
		runtime.Gosched()
	}
}

// take takes the reports of the next transaction, whose callers still wait. It returns nil, and forgets the queue, if it is
// empty.
func (m *usageMemory) take(place usagePlace, queue *usageQueue) []*usageItem {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(queue.waiting) == 0 {
		delete(m.queues, place)
		return nil
	}
	items := make([]*usageItem, 0, min(len(queue.waiting), maxUsageBatch))
	taken, amounts := 0, 0
	for _, item := range queue.waiting {
		if amounts += len(item.amounts); len(items) > 0 && (len(items) == maxUsageBatch || amounts > maxUsageAmounts) {
			break
		}
		taken++
		if item.waiting.ctx.Err() == nil { // its caller may not have noticed yet
			items = append(items, item)
		}
	}
	clear(queue.waiting[:taken])
	queue.waiting = queue.waiting[taken:]
	return items
}

// countBatch counts reports in one transaction. If the server refuses that, each is counted alone, so that only those fail
// which it can't accept. If the outcome is unknown, they must not be counted again.
func (e *Engine) countBatch(items []*usageItem) {
	err := e.countFor(items)
	if err != nil && len(items) > 1 && pgtx.SQLState(err) != "" && !pgtx.IsCut(err) && !errors.Is(err, fferr.ErrContention) {
		for _, item := range items {
			if err := e.countFor([]*usageItem{item}); err != nil {
				item.err = err
			}
			e.usage.answer(item)
		}
		return
	}
	for _, item := range items {
		if err != nil {
			item.err = err
		}
		e.usage.answer(item)
	}
}

// answer lets the caller of a report return.
func (m *usageMemory) answer(item *usageItem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(item.waiting.done)
}

// countFor counts reports for as long as a caller waits for one of them.
func (e *Engine) countFor(items []*usageItem) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(items[0].waiting.ctx))
	defer cancel()
	batch := &usageBatch{cancel: cancel}
	e.usage.mu.Lock()
	for _, item := range items {
		item.waiting.batch = batch
		if !item.waiting.left {
			batch.waiters++
		}
	}
	if batch.waiters == 0 {
		cancel()
	}
	e.usage.mu.Unlock()
	return e.countTogether(ctx, "count usage", items, false)
}
