package events

import (
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// OutboxStats is how an engine reads an outbox.
type OutboxStats struct {
	Outbox        Outbox
	Position      Cursor    // up to which events have been handed to its subscriptions
	HeldSince     time.Time // since when the next event is held back; zero: it is not
	Holders       []int32   // process ids of the transactions that may still commit what is missing; 0: a prepared one
	GracePeriods  int       // so far
	Subscriptions int
}

// Stats returns how an engine reads the outboxes that are subscribed to by it, for metrics. It asks nothing of the database.
func Stats(eng *engine.Engine) []OutboxStats {
	var stats []OutboxStats
	for _, s := range eng.Outboxes().Stats() {
		stats = append(stats, OutboxStats{Outbox(s.Outbox), cursorOf(s.Low), s.Holding, s.Holders, s.GracePeriods, s.Subscriptions})
	}
	return stats
}
