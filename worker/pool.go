package worker

import (
	"runtime/debug"
	"time"
)

// handleQueued runs queued tasks. Each goroutine of the pool runs it.
func (r *run) handleQueued() {
	ended, goroutine := false, thisGoroutine()
	defer func() {
		// If a handler has ended the goroutine, start another in its place.
		if !ended {
			r.pool.Go(r.handleQueued)
		}
	}()
	for t := range r.queue {
		r.perform(t, goroutine)
	}
	ended = true
}

// perform runs a task's handler and passes the task to the settler, even if the handler panics or exits.
func (r *run) perform(t *task, goroutine int64) {
	began := time.Now()
	t.startedAt.Store(int64(began.Sub(r.began)))
	t.goroutine.Store(goroutine)
	returned := false
	ctx := t.ctx
	defer func() {
		if !returned {
			if value := recover(); value != nil {
				t.decide(nil, &PanicError{Value: value, Stack: debug.Stack()})
			} else {
				t.decide(nil, errGoexit)
			}
		}
		t.goroutine.Store(0)
		t.ran = time.Since(began)
		r.ran.Add(int64(t.ran))
		r.flush(t)
		t.trace = r.eng.traceContext(ctx)
		t.end()
		free := r.limitsOf(t.work.Lease.Lane, t.work.Kind).giveBack(1)
		byFetcher := r.settleLater(t)
		if free {
			r.wakeFetcher()
		}
		if byFetcher {
			return // the fetcher reduces the load
		}
		if r.load.Add(-1) == r.refillAt.Load() {
			r.wakeFetcher()
		}
	}()
	if err := t.ctx.Err(); err != nil { // waited too long in the queue
		t.decide(nil, err)
		returned = true
		return
	}
	if r.cfg.Observer != nil {
		ctx, t.reportTo = r.cfg.Observer.BeginRun(ctx, &t.work)
	}
	t.decide(t.handle(ctx, &t.work, t.claimAsked))
	returned = true
}
