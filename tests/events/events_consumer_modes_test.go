package events

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Otherwise a consumer behind a pooler that keeps no prepared statements stands at its first poison event for ever.
func TestConsumersSetEventsAsideInEachQueryMode(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 5)
	ids := c.ids(t)
	for _, mode := range fixture.QueryModes {
		name := "billing in mode " + mode.String()
		eng := byDatabaseClock(t, c.Fixture, fixture.OpenInMode(t, c.Url, mode))
		handle(t, eng, eager(func(c *events.Consumer) { c.Name, c.MaxTries = name, 2 }),
			func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
				if event.ID == ids[2] {
					return errors.New("poison")
				}
				return noteAs(ctx, tx, event, name)
			})
		progress.Equal(t, name+" to handle the others", 4, func() int {
			return len(idsOf(t, c.Pool, "SELECT event_id FROM noted WHERE by = $1", name))
		})
		aside, err := events.SetAside(t.Context(), eng, "completion", name, events.Beginning, 0)
		if err != nil || len(aside) != 1 || aside[0].Tries != 2 || aside[0].Error != "poison" {
			t.Fatalf("%s: set aside: %+v, %v", name, aside, err)
		}
		again := func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
			return noteAs(ctx, tx, event, name)
		}
		if err := events.RetrySetAside(t.Context(), eng, name, events.Completions(events.Filter{}), aside[0].Cursor, again); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := len(idsOf(t, c.Pool, "SELECT event_id FROM noted WHERE by = $1", name)); got != 5 {
			t.Errorf("%s: %d events noted, want 5", name, got)
		}
	}
}
