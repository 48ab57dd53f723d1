package budget

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// The most reports, and about the most amounts, of one transaction.
const (
	maxUsageBatch   = 256
	maxUsageAmounts = 10_000
)

// usageMemory has the reports waiting for the transaction on their budget to end.
type usageMemory struct {
	mu     sync.Mutex
	queues map[usagePlace]*usageQueue
}

func usageOf(c *core.Core) *usageMemory {
	return core.Memory(c, func() *usageMemory { return new(usageMemory) })
}

// usagePlace identifies the budgets of reports, and the connections used.
type usagePlace struct {
	pool    *pgxpool.Pool
	budgets string // ids, concatenated
}

func placeOfUsage(pool *pgxpool.Pool, budgets []id.BudgetID) usagePlace {
	ids := make([]byte, 0, len(budgets)*len(id.BudgetID{}))
	for _, b := range budgets {
		ids = append(ids, b[:]...)
	}
	return usagePlace{pool, string(ids)}
}

// usageQueue has the reports on the same budgets for the next transaction. The queue exists while there are reports or a
// transaction runs.
type usageQueue struct {
	waiting []*usageItem
	count   *budgets.Waiting // of waiting
}

// usageWaiting is the part of a report shared by the caller and the transaction.
type usageWaiting struct {
	ctx   context.Context
	done  chan struct{}
	left  bool        // the caller has stopped waiting
	batch *usageBatch // the transaction counting the report; nil before
}

// usageBatch is a running transaction, cancelled when no caller waits any more.
type usageBatch struct {
	waiters int
	cancel  context.CancelFunc
}

// gatherUsage counts a report together with others on its budget: reports made during a transaction share the next one. The
// row of a budget is locked until a commit is on the disk, so one transaction for each report would be slow.
func gatherUsage(ctx context.Context, c *core.Core, op string, item *usageItem) error {
	item.waiting = usageWaiting{ctx: ctx, done: make(chan struct{})}
	m, place := usageOf(c), placeOfUsage(c.Pool, item.budgets)
	m.mu.Lock()
	queue, runs := m.queues[place]
	if !runs {
		queue = &usageQueue{count: core.Memory(c, budgets.NewWaiting)}
		if m.queues == nil {
			m.queues = make(map[usagePlace]*usageQueue)
		}
		m.queues[place] = queue
	}
	queue.waiting = append(queue.waiting, item)
	queue.count.Add(1)
	m.mu.Unlock()
	if !runs {
		// The goroutine ends when no call waits any more.
		go serveUsage(c, place, queue)
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

// serveUsage counts the reports of a queue until the queue is empty.
func serveUsage(c *core.Core, place usagePlace, queue *usageQueue) {
	for {
		usageOf(c).gather(queue)
		items := usageOf(c).take(place, queue)
		if items == nil {
			return
		}
		if len(items) > 0 {
			countBatch(c, items)
		}
	}
}

// gather yields to the callers of the reports just counted, as long as they come with the next ones.
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

// take takes the reports of the next transaction whose callers still wait. If the queue is empty, take drops the queue and
// returns nil.
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
		if item.waiting.ctx.Err() == nil { // the caller may not have noticed yet
			items = append(items, item)
		}
	}
	clear(queue.waiting[:taken])
	queue.waiting = queue.waiting[taken:]
	queue.count.Add(int64(-taken))
	return items
}

// countBatch counts reports in one transaction. If the server refuses the transaction, each report is counted alone, so that
// only the refused reports fail. Reports with an unknown outcome are not counted again.
func countBatch(c *core.Core, items []*usageItem) {
	err := countFor(c, items)
	if err != nil && len(items) > 1 && pgtx.SQLState(err) != "" && !pgtx.IsCut(err) && !errors.Is(err, fferr.ErrContention) {
		for _, item := range items {
			if err := countFor(c, []*usageItem{item}); err != nil {
				item.err = err
			}
			usageOf(c).answer(item)
		}
		return
	}
	for _, item := range items {
		if err != nil {
			item.err = err
		}
		usageOf(c).answer(item)
	}
}

// answer lets the caller of a report return.
func (m *usageMemory) answer(item *usageItem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(item.waiting.done)
}

// countFor counts reports as long as a caller waits for a result.
func countFor(c *core.Core, items []*usageItem) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(items[0].waiting.ctx))
	defer cancel()
	batch := &usageBatch{cancel: cancel}
	usageOf(c).mu.Lock()
	for _, item := range items {
		item.waiting.batch = batch
		if !item.waiting.left {
			batch.waiters++
		}
	}
	if batch.waiters == 0 {
		cancel()
	}
	usageOf(c).mu.Unlock()
	return countTogether(ctx, c, "count usage", items, false)
}
