package events

import (
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// OutboxStats describes how an engine reads an outbox.
type OutboxStats struct {
	Outbox        Outbox
	Position      Cursor    // the last event delivered to the subscriptions
	HeldSince     time.Time // since when an open transaction holds back the next event; zero if none does
	Holders       []int32   // process ids of the transactions that may still commit a missing event; 0 for a prepared one
	GracePeriods  int       // number of grace periods so far
	Subscriptions int
}

// Stats returns statistics about the outboxes read by an engine, for metrics. It does not query the database.
func Stats(eng *engine.Engine) []OutboxStats {
	var stats []OutboxStats
	for _, s := range outbox.Of(core.Of(eng)).Stats() {
		stats = append(stats, OutboxStats{Outbox(s.Outbox), cursorOf(s.Low), s.Holding, s.Holders, s.GracePeriods, s.Subscriptions})
	}
	return stats
}
