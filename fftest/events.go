package fftest

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/events"
)

// lookInterval is the pause between two looks at the position of a consumer.
const lookInterval = 2 * time.Millisecond

// CatchUp runs a consumer of events, as events.Handle does, until all present events are handled. A new consumer begins
// with the first event.
//
//	fftest.CatchUp(kit, "orders", events.Completions(events.Filter{}), project)
func CatchUp[E any](
	k *Kit, name string, source events.Source[E], fn func(ctx context.Context, tx pgx.Tx, event E) error,
) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- events.HandleWith(ctx, k.Engine, events.Consumer{Name: name, From: events.Beginning}, source, fn)
	}()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			k.t.Fatalf("fftest: consumer %q: %v", name, err)
		case <-ticker.C:
		}
		at, err := k.consumer(ctx, name)
		switch {
		case err != nil:
			k.t.Fatalf("fftest: consumer %q: %v", name, err)
		case at.Failing != nil:
			k.t.Fatalf("fftest: consumer %q fails on event %s: %s", name, at.Failing.Event, at.Failing.Error)
		case at.Name != "" && at.Lag == 0:
			cancel()
			if err := <-ended; err != nil {
				k.t.Fatalf("fftest: consumer %q: %v", name, err)
			}
			return
		}
	}
}

// consumer returns the state of a consumer, or an empty one.
func (k *Kit) consumer(ctx context.Context, name string) (events.ConsumerStatus, error) {
	all, err := events.Consumers(ctx, k.Engine)
	for _, c := range all {
		if c.Name == name {
			return c, err
		}
	}
	return events.ConsumerStatus{}, err
}
