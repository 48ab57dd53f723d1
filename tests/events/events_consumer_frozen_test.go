package events

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An operator moves a consumer back, and its process ends at once. It gives the consumer up where the operator put it,
// not where the process had come to.
func TestConsumerStaysWhereItWasMovedWhenItsProcessEnds(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 3)
	ids := c.ids(t)
	process := c.StoppedBefore(t, "ReturnConsumer")
	r := handle(t, byDatabaseClock(t, c.Fixture, process.Pool), eager(), note)
	c.awaitNoted(t, 3)
	r.cancel()
	process.AwaitStop(t)
	c.move(t, ids[0])
	process.Resume()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if at := fixture.One[struct{ N int64 }](t, c.Pool, "SELECT event_id AS n FROM ffx_outbox_consumer").N; at != ids[0] {
		t.Errorf("the consumer stands at %d, want %d", at, ids[0])
	}
}

// A process is frozen before it records its first failed try. Another one then records two, and they stay counted.
func TestConsumerKeepsTheTriesOfOthersWhenAFrozenProcessResumes(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 1)
	spec := eager(func(s *events.Consumer) { s.MaxTries, s.Backoff = 10, policy.Fixed(time.Hour) })
	fail := func(context.Context, pgx.Tx, events.Completion) error { return errors.New("again") }
	frozen := c.StoppedBefore(t, "NoteFailedTry")
	handle(t, byDatabaseClock(t, c.Fixture, frozen.Pool), spec, fail)
	frozen.AwaitStop(t)
	c.expire(t)
	for tries := 1; tries <= 2; tries++ {
		second := handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t).Pool), spec, fail)
		fixture.Await(t, "the event to fail", func() bool {
			failing := c.status(t).Failing
			return failing != nil && failing.Tries == tries
		})
		if err := second.stop(); err != nil {
			t.Fatal(err)
		}
		if tries == 1 {
			c.Exec(t, "UPDATE ffx_outbox_consumer SET next_try_at_ms = 0")
		}
	}
	frozen.Resume()
	c.awaitHeld(t) // by the process that was frozen, with its next statement
	if failing := c.status(t).Failing; failing == nil || failing.Tries != 2 {
		t.Errorf("%+v, want 2 tries", failing)
	}
}

// An operator moves a consumer, if only to where it stands, and by that forgets its failed tries, while its process is
// about to set the event aside. It is tried again.
func TestConsumerSetsNothingAsideForTriesThatWereForgotten(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 1)
	process := c.StoppedBefore(t, "SetAsideEvent")
	tries := 0
	handle(t, byDatabaseClock(t, c.Fixture, process.Pool), eager(func(s *events.Consumer) { s.MaxTries = 2 }),
		func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
			if tries++; tries <= 2 {
				return errors.New("again")
			}
			return note(ctx, tx, event)
		})
	process.AwaitStop(t)
	if err := events.MoveConsumer(t.Context(), c.Engine, "completion", "billing", events.Beginning); err != nil {
		t.Fatal(err)
	}
	process.Resume()
	fixture.Await(t, "the event to be handled or set aside", func() bool { return c.status(t).SetAside > 0 || len(c.noted(t)) > 0 })
	c.wantNoted(t, c.ids(t))
	if status := c.status(t); status.SetAside != 0 {
		t.Errorf("%+v", status)
	}
}
