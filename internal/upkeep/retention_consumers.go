package upkeep

import (
	"context"
	"sync"
	"time"
)

// staleConsumers are the logged consumers, whose positions trimming ignores.
type staleConsumers struct {
	mu     sync.Mutex
	logged map[string]bool
}

// logStaleConsumers logs, once, each consumer whose position trimming ignores.
func (u *Upkeep) logStaleConsumers(ctx context.Context) error {
	rows, err := u.c.Q.ListStaleConsumers(ctx, u.c.Reader(), u.c.NowMs())
	if err != nil {
		return err
	}
	s := &u.staleConsumers
	s.mu.Lock()
	defer s.mu.Unlock()
	stale := make(map[string]bool, len(rows))
	for _, row := range rows {
		key := row.Outbox + "\x00" + row.Consumer
		stale[key] = true
		if !s.logged[key] {
			u.c.Log.Warn("a consumer of events was not seen for a week, so events that it has not handled are trimmed: start it or remove it",
				"outbox", row.Outbox, "consumer", row.Consumer, "position", row.EventID, "seen", time.UnixMilli(row.UpdatedAtMs))
		}
	}
	s.logged = stale
	return nil
}
