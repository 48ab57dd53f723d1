package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// retrier holds tasks whose first settlement failed because another transaction held a lock, or because the database
// was unreachable. The retrier tries again beside the settlers, which continue with later tasks. A task leaves when it
// is settled or its lease is lost.
//
// Each round settles all due tasks together and never waits for a lock. Besides, one task at a time waits for its locks,
// in turn, so rows that are locked again and again get settled too.
type retrier struct {
	*run
	ctx     context.Context // cancelled when the patience of a finished run is used up
	giveUp  context.CancelFunc
	inLine  chan *waiting
	changed chan struct{} // buffered; signals that a task has come or gone
	trying  sync.WaitGroup
	failing warn.Repeated
	waits   warn.Repeated

	mu      sync.Mutex
	waiting []*waiting
	size    int  // number of tasks, including tasks being tried
	closed  bool // no more tasks will come
}

// waiting is a task in the retrier. The goroutine trying it owns it.
type waiting struct {
	*task
	began   time.Time
	turn    time.Time // when it came, or last waited for its lock
	due     time.Time
	pause   time.Duration // from the last try until due
	failing backoff.Backoff
	company int // largest batch to settle it in, including itself; larger batches have failed
	reason  error
}

const (
	firstSettlePause = 50 * time.Millisecond // after a failure
	maxSettlePause   = 2 * time.Second
	maxRetrying      = engine.MaxBatch // at this size the worker stops claiming
	retryWarning     = 10 * time.Second

	// giveBackPatience limits retries for returned work, whose lease expires anyway.
	giveBackPatience = 3 * time.Second
)

func newRetrier(r *run) *retrier {
	a := &retrier{run: r, inLine: make(chan *waiting), changed: make(chan struct{}, 1)}
	a.ctx, a.giveUp = context.WithCancel(r.base)
	return a
}

func (a *retrier) begin() {
	a.trying.Go(a.settle)
	a.trying.Go(a.standInLine)
}

// end waits until the retrier is empty. After patience, end gives up the remaining tasks.
func (a *retrier) end(patience time.Duration) {
	a.mu.Lock()
	a.closed = true
	for _, w := range a.waiting {
		w.failing.Reset()
		w.due = time.Now()
	}
	a.mu.Unlock()
	a.notifyChange()
	defer time.AfterFunc(patience, a.giveUp).Stop()
	a.trying.Wait()
	a.giveUp()
}

// put takes over tasks that could not be settled, and the reason.
func (a *retrier) put(tasks []*task, reason error) {
	if len(tasks) == 0 {
		return
	}
	const message = "cannot settle; retrying: check the database and the rights of its role"
	if errors.Is(reason, fferr.ErrBusy) { // a lock passes quickly
		a.cfg.Log.Debug(message, "executions", len(tasks), "error", reason)
	} else {
		a.failing.Log(a.cfg.Log, message, "executions", len(tasks), "error", reason)
	}
	now, longest := time.Now(), min(maxSettlePause, a.cfg.LeaseTTL/4)
	added := make([]*waiting, len(tasks))
	for i, t := range tasks {
		added[i] = &waiting{
			task: t, began: now, turn: now, company: a.cfg.SettleBatch, reason: reason,
			failing: backoff.Backoff{First: min(firstSettlePause, longest), Max: longest},
		}
	}
	a.mu.Lock()
	a.size += len(added)
	a.mu.Unlock()
	a.postpone(added)
}

// takeBack removes the only task, and returns why it could not be settled, or nil if there is none. Nothing tries tasks
// meanwhile.
func (a *retrier) takeBack() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 {
		return nil
	}
	reason := a.waiting[0].reason
	a.waiting, a.size = nil, 0
	return reason
}

// postpone schedules the next try of tasks. Tasks that failed together stay together.
func (a *retrier) postpone(tasks []*waiting) {
	if len(tasks) == 0 {
		return
	}
	now := time.Now()
	a.mu.Lock()
	for _, w := range tasks {
		w.pause = w.failing.Next()
		w.due = now.Add(w.pause)
	}
	a.waiting = append(a.waiting, tasks...)
	a.mu.Unlock()
	a.notifyChange()
}

// release removes tasks that are settled or given up.
func (a *retrier) release(tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	a.forget(tasks)
	a.mu.Lock()
	a.size -= len(tasks)
	a.mu.Unlock()
	a.notifyChange()
	a.wakeFetcher()
}

// full reports whether too many tasks wait for the worker to claim more.
func (a *retrier) full() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.size >= maxRetrying
}

func (a *retrier) notifyChange() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// settle tries due tasks until the retrier is closed and empty.
func (a *retrier) settle() {
	defer close(a.inLine)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, next, over := a.take(time.Now())
		switch {
		case over:
			return
		case len(due) > 0:
			a.try(due)
			continue
		}
		var later <-chan time.Time
		if next > 0 {
			timer.Reset(next)
			later = timer.C
		}
		var ended <-chan struct{}
		if a.ctx.Err() == nil {
			ended = a.ctx.Done()
		}
		select {
		case <-a.changed:
		case <-later:
		case <-ended:
		}
	}
}

// take returns the due tasks, or the time until the next is due. If over is true, no more will come. To form batches,
// take adds tasks after half of their pause once one is due.
func (a *retrier) take(now time.Time) (due []*waiting, next time.Duration, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.size == 0 {
		return nil, 0, a.closed
	}
	if a.ctx.Err() != nil {
		due, a.waiting = a.waiting, nil
		return due, 0, false
	}
	for _, w := range a.waiting {
		if wait := max(w.due.Sub(now), time.Nanosecond); next == 0 || wait < next {
			next = wait
		}
	}
	if next > time.Nanosecond {
		return nil, next, false
	}
	rest := a.waiting[:0]
	for _, w := range a.waiting {
		if w.due.Sub(now) <= w.pause/2 {
			due = append(due, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(a.waiting[len(rest):])
	a.waiting = rest
	return due, 0, false
}

// try settles tasks together, and hands one of the rest to standInLine. A task whose lease was lost gets one last try,
// since its settlement may have succeeded without an answer.
func (a *retrier) try(due []*waiting) {
	over := a.ctx.Err() != nil
	lost := make([]error, len(due))
	for i, w := range due {
		lost[i] = w.lostBy()
	}
	if !over {
		for _, v := range []verdict{complete, suspend, fail, delay, await, giveBack} {
			a.together(v, due)
		}
	}
	var gone []*task
	var left []*waiting
	for i, w := range due {
		switch {
		case w.settlement != "":
		case lost[i] != nil:
			w.settlement, w.err = Abandoned, lost[i]
		case over, w.verdict == giveBack && time.Since(w.began) > giveBackPatience:
			w.settlement, w.err = Abandoned, w.reason
		default:
			left = append(left, w)
			continue
		}
		gone = append(gone, w.task)
	}
	a.release(gone)
	a.warn(left)
	a.postpone(a.offer(left))
}

// together settles tasks of one verdict in as few calls as possible. After a failed call, together leaves the rest to
// the next round and halves the batch size of the failed tasks. So a task that cannot be settled is alone in the end.
func (a *retrier) together(v verdict, due []*waiting) {
	var open []*waiting
	for _, w := range due {
		if w.verdict == v && w.settlement == "" {
			open = append(open, w)
		}
	}
	slices.SortStableFunc(open, func(x, y *waiting) int {
		return cmp.Or(cmp.Compare(y.company, x.company), x.turn.Compare(y.turn))
	})
	for len(open) > 0 {
		n := 1
		for n < len(open) && n < open[n].company {
			n++
		}
		tasks := make([]*task, n)
		for i, w := range open[:n] {
			tasks[i] = w.task
		}
		reasons, err := a.attempt(v, tasks)
		for i, w := range open[:n] {
			if err == nil {
				w.reason = reasons[i]
				continue
			}
			w.reason, w.company, w.turn = err, max(1, n/2), time.Now()
		}
		if err != nil {
			return
		}
		open = open[n:]
	}
}

// offer sends the task whose turn it is to the goroutine waiting for locks, if idle, and returns the others.
func (a *retrier) offer(left []*waiting) []*waiting {
	first := -1
	for i, w := range left {
		locked := errors.Is(w.reason, fferr.ErrBusy) || errors.Is(w.reason, fferr.ErrContention)
		if locked && (first < 0 || w.turn.Before(left[first].turn)) {
			first = i
		}
	}
	if first < 0 {
		return left
	}
	select {
	case a.inLine <- left[first]:
		return slices.Delete(left, first, first+1)
	default:
		return left
	}
}

// standInLine settles one task at a time with the calls that wait for locks.
func (a *retrier) standInLine() {
	for w := range a.inLine {
		lost := w.lostBy()
		w.reason = a.alone(w.task)
		w.turn = time.Now()
		if w.settlement == "" && lost != nil {
			w.settlement, w.err = Abandoned, lost
		}
		if w.settlement == "" {
			a.postpone([]*waiting{w})
			continue
		}
		a.release([]*task{w.task})
	}
}

// alone settles a task by itself. It returns the error if the task stays open.
func (a *retrier) alone(t *task) error {
	calling, cancel := context.WithTimeout(a.ctx, callTimeout)
	defer cancel()
	switch t.verdict {
	case complete:
		return t.completed(a.settling.CompleteExecution(calling, t.lease(), t.result))
	case fail:
		result, err := a.settling.FailExecution(calling, t.lease(), t.failure)
		return t.failed(result, err)
	case await:
		return t.awaits(a.settling.WaitForChildren(calling, t.lease()))
	}
	reasons, err := a.call(calling, t.verdict, []*task{t})
	if err != nil {
		return err
	}
	return reasons[0]
}

// attempt makes one call for tasks of one verdict.
func (a *retrier) attempt(v verdict, tasks []*task) ([]error, error) {
	calling, cancel := context.WithTimeout(a.ctx, callTimeout)
	defer cancel()
	return a.call(calling, v, tasks)
}

// warn logs the task with the longest wait, if longer than retryWarning.
func (a *retrier) warn(left []*waiting) {
	if len(left) == 0 {
		return
	}
	longest := slices.MinFunc(left, func(x, y *waiting) int { return x.began.Compare(y.began) })
	if waited := time.Since(longest.began); waited >= retryWarning {
		args := []any{"executions", len(left), "waited", waited, "error", longest.reason}
		for _, attr := range longest.attrs() {
			args = append(args, attr)
		}
		a.waits.Log(a.cfg.Log, "results are waiting to be settled: end the sessions that hold their rows, or fix the cause of the error", args...)
	}
}
