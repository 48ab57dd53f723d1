// Package warn logs repeated failures at a pace that a person can read.
package warn

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// pace is the time between two warnings of one kind.
const pace = time.Minute

// Repeated logs one kind of failure that may repeat. Its zero value is ready to use, by several goroutines at once.
type Repeated struct {
	mu     sync.Mutex
	last   time.Time
	hidden int // failures logged at Debug since last
}

// Log writes to log at Warn, at most once a minute, and at Debug in between. A warning says how many failures were logged
// at Debug since the one before.
func (r *Repeated) Log(log *slog.Logger, message string, args ...any) {
	now := time.Now()
	level, hidden := r.next(now)
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	var caller [1]uintptr
	runtime.Callers(2, caller[:])
	record := slog.NewRecord(now, level, message, caller[0])
	record.Add(args...)
	if hidden > 0 {
		record.Add("not_shown", hidden)
	}
	_ = log.Handler().Handle(ctx, record)
}

func (r *Repeated) next(now time.Time) (level slog.Level, hidden int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < pace {
		r.hidden++
		return slog.LevelDebug, 0
	}
	hidden = r.hidden
	r.last, r.hidden = now, 0
	return slog.LevelWarn, hidden
}
