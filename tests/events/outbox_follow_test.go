package events

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// insertLease inserts a lease event, as another program would, and returns its id.
func insertLease(t *testing.T, f *fixture.Fixture, tx pgx.Tx) (event int64) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
		VALUES (gen_random_uuid()::text, 'acquired', 1, 7) RETURNING event_id`).Scan(&event)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// follow subscribes to the lease events until the test ends.
func follow(t *testing.T, f *fixture.Fixture, o outbox.Options) *outbox.Subscription {
	t.Helper()
	if o.Buffer == 0 {
		o.Buffer = 1024
	}
	s, err := fixture.Outboxes(f.Engine).Subscribe(t.Context(), outbox.Lease, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// next returns the ids of the next n events.
func next(t *testing.T, s *outbox.Subscription, n int) (events []int64) {
	t.Helper()
	ctx, step, stop := progress.Context(t, "the next event")
	defer stop()
	for range n {
		row, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("after %d: %v, %v", events, err, context.Cause(ctx))
		}
		events = append(events, row.ID)
		step()
	}
	return events
}

// An event that was inserted first and is committed last is handed on first.
func TestOutboxDeliversLateCommitsInIDOrder(t *testing.T) {
	f := fixture.NewCloned(t)
	s := follow(t, f, outbox.Options{})
	first, second := f.BeginTx(t), f.BeginTx(t)
	a := insertLease(t, f, first)
	b := insertLease(t, f, second)
	fixture.Commit(t, second)
	resumed := follow(t, f, outbox.Options{After: new(a - 1)})
	fixture.Commit(t, first)
	for _, s := range []*outbox.Subscription{s, resumed} {
		if got := next(t, s, 2); !slices.Equal(got, []int64{a, b}) {
			t.Errorf("handed %d, want %d and %d", got, a, b)
		}
	}
	if got := fmt.Sprint(fixture.Outboxes(f.Engine).Stats()); got == "" {
		t.Error(got)
	}
}

func TestOutboxSkipsRolledBackEvents(t *testing.T) {
	f := fixture.NewCloned(t)
	s := follow(t, f, outbox.Options{})
	first, second := f.BeginTx(t), f.BeginTx(t)
	insertLease(t, f, first)
	b := insertLease(t, f, second)
	fixture.Commit(t, second)
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := next(t, s, 1); !slices.Equal(got, []int64{b}) {
		t.Errorf("handed %d, want %d", got, b)
	}
}
