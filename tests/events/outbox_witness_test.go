package events

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// keepingNoConnections is an engine whose pool gives each statement a session of its own.
func keepingNoConnections(t *testing.T, f *fixture.Fixture) *engine.Engine {
	t.Helper()
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
		config.AfterRelease = func(*pgx.Conn) bool { return false }
	})
	return f.EngineOn(t, pool, engine.Config{NoListener: true})
}

// A reader whose every statement has a session of its own passes ids that were rolled back, and none that may still be
// committed.
func TestOutboxReadsOnAPoolThatKeepsNoConnections(t *testing.T) {
	f := fixture.NewCloned(t)
	clock := fixture.Start
	steps, err := fixture.Outboxes(keepingNoConnections(t, f)).Stepper(t.Context(), outbox.Lease, func() time.Time { return clock }, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var handed []int64
	passes := func() {
		t.Helper()
		for range 10 {
			rows, _, err := steps.Pass(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				handed = append(handed, row.ID)
			}
			clock = clock.Add(150 * time.Millisecond)
		}
	}
	gone, open := f.BeginTx(t), f.BeginTx(t)
	insertLease(t, f, gone)
	a := insertLeasesInto(t, f, 1)
	rollBack(t, gone)
	passes()
	if !slices.Equal(handed, []int64{a}) {
		t.Errorf("handed %d, want %d behind what was rolled back", handed, a)
	}
	b := insertLease(t, f, open)
	c := insertLeasesInto(t, f, 1)
	passes()
	if len(handed) > 1 {
		t.Errorf("handed %d while %d is open", handed, b)
	}
	fixture.Commit(t, open)
	passes()
	if !slices.Equal(handed, []int64{a, b, c}) {
		t.Errorf("handed %d, want %d, %d and %d", handed, a, b, c)
	}
}

// To subscribe from now on waits on such a pool for the writers that are open, and no longer.
func TestOutboxSubscribesOnAPoolThatKeepsNoConnections(t *testing.T) {
	f := fixture.NewCloned(t)
	writer := f.BeginTx(t)
	a := insertLease(t, f, writer)
	eng := keepingNoConnections(t, f)
	first, err := fixture.Outboxes(eng).Subscribe(t.Context(), outbox.Lease, outbox.Options{After: new(a - 1), Buffer: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var second *outbox.Subscription
	subscribed := fixture.Async(t, func(context.Context) (err error) {
		second, err = fixture.Outboxes(eng).Subscribe(t.Context(), outbox.Lease, outbox.Options{Buffer: 10})
		return err
	})
	b := insertLeasesInto(t, f, 1)
	fixture.Commit(t, writer)
	want(t, first, a, b)
	if err := subscribed(); err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	c := insertLeasesInto(t, f, 1)
	want(t, first, c)
	for last := int64(0); last != c; { // events committed just before may come too
		last = next(t, second, 1)[0]
	}
}
