package worker

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"time"
)

// StuckHandlers counts the handlers that have continued for [Config.StuckAfter] after their context had ended. The log
// has each with its stack.
func (w *Worker) StuckHandlers() int64 { return w.stuckHandlers.Load() }

const (
	maxStackExcerpt = 4 << 10  // bytes of a logged stack
	maxStacks       = 16 << 20 // bytes of all stacks of the process
)

// watchStuck reports handlers that ignore the end of their context, until stop is closed. It looks at all held tasks
// from time to time, so other handlers cost nothing.
func (r *run) watchStuck(stop <-chan struct{}) {
	ticker := time.NewTicker(max(r.cfg.StuckAfter/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		now := time.Now()
		if stuck := r.held.stuck(now, r.cfg.StuckAfter, func(t *task) bool { return r.isOver(t, now) }); len(stuck) > 0 {
			r.reportStuck(stuck, now)
		}
	}
}

// isOver reports whether the context of a task's handler has ended.
func (r *run) isOver(t *task, now time.Time) bool {
	if t.ctx.Err() != nil {
		return true
	}
	limit, limited := r.timeouts[t.work.Kind]
	return limited && now.Sub(r.began)-time.Duration(t.startedAt.Load()) >= limit
}

// stuck returns the tasks whose handlers have run for a time after isOver first held, each once.
func (h *holding) stuck(now time.Time, after time.Duration, isOver func(*task) bool) []*task {
	h.mu.Lock()
	defer h.mu.Unlock()
	var stuck []*task
	for _, t := range h.tasks {
		switch {
		case t.saidStuck || t.goroutine.Load() == 0 || !isOver(t):
		case t.overSince.IsZero():
			t.overSince = now
		case now.Sub(t.overSince) >= after:
			t.saidStuck = true
			stuck = append(stuck, t)
		}
	}
	return stuck
}

// stuckNow returns how many handlers are stuck.
func (h *holding) stuckNow() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tasks {
		if t.saidStuck && t.goroutine.Load() != 0 {
			n++
		}
	}
	return n
}

// reportStuck logs and counts handlers that are stuck.
func (r *run) reportStuck(stuck []*task, now time.Time) {
	stacks := allStacks()
	for _, t := range stuck {
		goroutine := t.goroutine.Load()
		if goroutine == 0 {
			continue // returned in the meantime
		}
		cause := context.Cause(t.ctx)
		if cause == nil {
			cause = ErrHandlerTimeout
		}
		r.cfg.Log.LogAttrs(r.base, slog.LevelWarn, "handler runs on although its context has ended: let it return then",
			append(t.attrs(), slog.Any("cause", cause), slog.Duration("for", now.Sub(t.overSince)),
				slog.Int64("stuck", r.stuckHandlers.Add(1)), slog.String("stack", stackOf(stacks, goroutine)))...)
	}
}

// allStacks returns the stacks of all goroutines, as far as they fit.
func allStacks() []byte {
	for size := 1 << 20; ; size *= 4 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size || size >= maxStacks {
			return stacks[:n]
		}
	}
}

// stackOf returns the beginning of a goroutine's stack.
func stackOf(stacks []byte, goroutine int64) string {
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if idOf(stack) == goroutine {
			return storable(string(stack), maxStackExcerpt)
		}
	}
	return ""
}

// thisGoroutine returns the id of the calling goroutine, which identifies its stack.
func thisGoroutine() int64 {
	var stack [64]byte
	return idOf(stack[:runtime.Stack(stack[:], false)])
}

// idOf returns the id at the beginning of a stack, or 0.
func idOf(stack []byte) int64 {
	rest, ok := bytes.CutPrefix(stack, []byte("goroutine "))
	if !ok {
		return 0
	}
	digits, _, _ := bytes.Cut(rest, []byte(" "))
	n, _ := strconv.ParseInt(string(digits), 10, 64)
	return n
}
