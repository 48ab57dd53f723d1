package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func (c *consumed) awaitSetAside(t *testing.T, n int64) []events.SetAsideEvent {
	t.Helper()
	progress.Equal(t, "events to be set aside", n, func() int64 { return c.status(t).SetAside })
	aside, err := events.SetAside(t.Context(), c.Engine, "completion", "billing", events.Beginning, 0)
	if err != nil {
		t.Fatal(err)
	}
	return aside
}

// without returns ids but some.
func withoutIDs(ids []int64, gone ...int64) []int64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(gone, id) })
}

// An event that the handler never gets through with is tried so often, alone, and set aside with its content; the others
// are handled, those behind it after that.
func TestConsumerSetsAsideAnEventThatAlwaysFails(t *testing.T) {
	for _, kind := range []struct {
		name, text string
		fail       func(ctx context.Context, tx pgx.Tx) error
	}{
		{"error", "no such customer", func(context.Context, pgx.Tx) error { return errors.New("no such customer") }},
		{"panic", "panic: no such customer\n\n", func(context.Context, pgx.Tx) error { panic("no such customer") }},
		{"text that no column holds", "a\uFFFDb\uFFFD" + strings.Repeat("x", 16<<10-8), func(context.Context, pgx.Tx) error {
			return errors.New("a\x00b\xff" + strings.Repeat("x", 20<<10))
		}},
		{"aborted transaction", "left its transaction aborted", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1 / 0")
			return nil
		}},
		{"ended transaction", "ended its transaction", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "ROLLBACK")
			return nil
		}},
		{"connection closed", "closed", func(ctx context.Context, tx pgx.Tx) error {
			_ = tx.Conn().Close(ctx)
			return nil
		}},
		{"refused commit", "refused at the commit", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO refused VALUES (1)")
			return err
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			c := newConsumed(t)
			c.Exec(t, "CREATE TABLE refused (n int)")
			c.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused at the commit'; END $$`)
			c.Exec(t, "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON refused DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()")
			c.emit(t, 20)
			ids := c.ids(t)
			poison := ids[7]
			handle(t, c.Engine, eager(func(c *events.Consumer) { c.MaxTries = 3 }), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
				if err := note(ctx, tx, event); err != nil {
					return err
				}
				if event.ID == poison {
					return kind.fail(ctx, tx)
				}
				return nil
			})
			aside := c.awaitSetAside(t, 1)
			c.awaitNoted(t, 19)
			c.wantNoted(t, withoutIDs(ids, poison))
			if len(aside) != 1 || aside[0].Tries != 3 || !strings.Contains(aside[0].Error, kind.text) || len(aside[0].Error) > 16<<10 {
				t.Fatalf("%+v", aside)
			}
			var event struct {
				EventID int64  `json:"event_id"`
				Outcome string `json:"outcome"`
			}
			if err := json.Unmarshal(aside[0].Event, &event); err != nil || event.EventID != poison || event.Outcome != "success" {
				t.Errorf("%s: %+v, %v", aside[0].Event, event, err)
			}
			if status := c.status(t); status.Failing != nil {
				t.Errorf("%+v", status)
			}
		})
	}
}

// A connection that is cut while an event is handled is not the event's fault, however often that happens.
func TestConsumerCountsNoCutConnections(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 1)
	cuts := 0
	r := handle(t, c.Engine, eager(func(c *events.Consumer) { c.MaxTries = 1 }), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if cuts++; cuts < 6 {
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return fmt.Errorf("look: %w", err)
		}
		return note(ctx, tx, event)
	})
	fixture.Await(t, "the event to be handled or set aside", func() bool { return c.status(t).SetAside > 0 || len(c.noted(t)) > 0 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.wantNoted(t, c.ids(t))
	if status := c.status(t); status.SetAside != 0 || status.Failing != nil {
		t.Errorf("%+v", status)
	}
}

// A failing event is known in the database, so that another process goes on counting, and waits for the next try.
func TestConsumerCountsTriesAcrossRestarts(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 5)
	poison := c.ids(t)[2]
	var tried atomic.Int64
	fail := func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if event.ID == poison {
			tried.Add(1)
			return errors.New("again")
		}
		return note(ctx, tx, event)
	}
	spec := eager(func(c *events.Consumer) { c.MaxTries, c.Backoff = 4, policy.Exponential(time.Hour, 3*time.Hour) })
	for tries := 1; tries < 4; tries++ {
		before := tried.Load()
		r := handle(t, c.Engine, spec, fail)
		fixture.Await(t, "the event to fail", func() bool {
			failing := c.status(t).Failing
			return failing != nil && failing.Tries == tries
		})
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		failing := c.status(t).Failing
		pause := failing.NextTry.Sub(failing.FailedAt)
		if want := min(time.Hour<<(tries-1), 3*time.Hour); pause != want || failing.Error != "again" || failing.Event.String() == "" {
			t.Errorf("after %d tries: %+v, a pause of %v, want %v", tries, failing, pause, want)
		}
		// The first time in company too.
		if got := tried.Load() - before; got != 1 && (tries > 1 || got != 2) {
			t.Errorf("tried %d times", got)
		}
		c.wantNoted(t, c.ids(t)[:2])

		// Before its time nothing of it is tried, and nothing behind it is handled.
		r = handle(t, c.Engine, spec, fail)
		c.awaitHeld(t)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if status := c.status(t); status.Failing.Tries != tries {
			t.Errorf("%+v", status.Failing)
		}
		c.Exec(t, "UPDATE ffx_outbox_consumer SET next_try_at_ms = 0")
	}
	handle(t, c.Engine, spec, fail)
	if aside := c.awaitSetAside(t, 1); aside[0].Tries != 4 {
		t.Errorf("%+v", aside)
	}
	c.awaitNoted(t, 4)
	c.wantNoted(t, withoutIDs(c.ids(t), poison))
}

// An event that fails for a while is handled in the end, before those behind it.
func TestConsumerRetriesInOrder(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 10)
	sick := c.ids(t)[4]
	var failures atomic.Int64
	handle(t, c.Engine, eager(), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if event.ID == sick && failures.Add(1) < 6 {
			return errors.New("not yet")
		}
		return note(ctx, tx, event)
	})
	c.awaitNoted(t, 10)
	if got := idsOf(t, c.Pool, "SELECT event_id FROM noted"); !slices.Equal(got, c.ids(t)) {
		t.Errorf("noted in this order: %v", got)
	}
	if status := c.status(t); status.Failing != nil || status.SetAside != 0 {
		t.Errorf("%+v", status)
	}
}

// No later event comes before a failing one, if the consumer is configured so.
func TestConsumerRetriesForever(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 3)
	handle(t, c.Engine, eager(func(c *events.Consumer) { c.MaxTries = events.TryForever }), func(context.Context, pgx.Tx, events.Completion) error {
		return errors.New("never")
	})
	fixture.Await(t, "many tries", func() bool {
		failing := c.status(t).Failing
		return failing != nil && failing.Tries > 2*events.DefaultConsumerTries
	})
	if status := c.status(t); status.SetAside != 0 {
		t.Errorf("%+v", status)
	}
}

// A batch is halved until the failing event is alone.
func TestConsumerHalvesBatches(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 256)
	ids := c.ids(t)
	poison := []int64{ids[3], ids[100], ids[101], ids[255]}
	var mu sync.Mutex
	var sizes []int
	handleBatches(t, c.Engine, eager(func(c *events.Consumer) { c.MaxTries = 2 }), func(ctx context.Context, tx pgx.Tx, batch []events.Completion) error {
		mu.Lock()
		sizes = append(sizes, len(batch))
		mu.Unlock()
		for _, event := range batch {
			if err := note(ctx, tx, event); err != nil {
				return err
			}
		}
		for _, event := range batch {
			if slices.Contains(poison, event.ID) {
				return errors.New("poison")
			}
		}
		return nil
	})
	aside := c.awaitSetAside(t, 4)
	for i, a := range aside {
		if a.Tries != 2 || !strings.Contains(string(a.Event), fmt.Sprintf(`"event_id": %d`, poison[i])) {
			t.Errorf("%+v", a)
		}
	}
	c.awaitNoted(t, 252)
	c.wantNoted(t, withoutIDs(ids, poison...))
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(sizes[:8], []int{256, 128, 64, 32, 16, 8, 4, 2}) {
		t.Errorf("batches of %d", sizes)
	}
	t.Logf("batches of %d", sizes)
}

// A row that cannot be read is set aside in its turn, without having been tried.
func TestConsumerSetsAsideAnUnreadableEvent(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 3)
	c.Insert(t, "ff_completion_event", fixture.Columns{
		"partition_key": -5, "execution_id": "00000000-0000-0000-0000-000000000001", "outcome": "success",
		"occurred_at_ms": 1, "dispatched_at_ms": 1,
	}, nil)
	c.emit(t, 3)
	ids := c.ids(t)
	handle(t, c.Engine, eager(), note)
	c.awaitNoted(t, 6)
	c.wantNoted(t, withoutIDs(ids, ids[3]))
	aside := c.awaitSetAside(t, 1)
	if aside[0].Tries != 0 || !strings.Contains(string(aside[0].Event), `"partition_key": -5`) {
		t.Errorf("%+v", aside[0])
	}
	var corrupt *events.CorruptEventError
	err := events.RetrySetAside(t.Context(), c.Engine, "billing", events.Completions(events.Filter{}), aside[0].Cursor, note)
	if !errors.As(err, &corrupt) {
		t.Errorf("got %v", err)
	}
}

// The handler's time is over: its context ends, and that is a failure of the event.
func TestConsumerTimesOutItsHandler(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 3)
	slow := c.ids(t)[1]
	handle(t, c.Engine, eager(func(c *events.Consumer) { c.Timeout, c.MaxTries = time.Second, 1 }), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if event.ID == slow {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(3600)")
			return err
		}
		return note(ctx, tx, event)
	})
	aside := c.awaitSetAside(t, 1)
	if !strings.Contains(aside[0].Error, "took longer than 1s") {
		t.Errorf("%q", aside[0].Error)
	}
	c.awaitNoted(t, 2)
	c.wantNoted(t, withoutIDs(c.ids(t), slow))
}

// When ctx ends, an event whose handler returns an error is neither written nor counted, and finished events are
// committed.
func TestConsumerStopsInTheMiddleOfABatch(t *testing.T) {
	for _, fails := range []bool{true, false} {
		t.Run(fmt.Sprintf("fails=%v", fails), func(t *testing.T) {
			c := newConsumed(t)
			c.emit(t, 5)
			third := c.ids(t)[2]
			reached := make(chan struct{})
			r := handle(t, c.Engine, eager(), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
				if event.ID == third {
					close(reached)
					<-ctx.Done()
					if fails {
						return ctx.Err()
					}
					ctx = context.WithoutCancel(ctx)
				}
				return note(ctx, tx, event)
			})
			<-reached
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			want := c.ids(t)[:3]
			if fails {
				want = nil
			}
			c.wantNoted(t, want)
			if status := c.status(t); status.Holder != "" || status.Failing != nil {
				t.Errorf("%+v", status)
			}
			handle(t, c.Engine, eager(), note)
			c.awaitNoted(t, 5)
			c.wantNoted(t, c.ids(t))
		})
	}
}

// A handler may make any calls of the engine; all of them are committed together with the position, or not at all.
func TestConsumerHandlerCreatesExecutions(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 20)
	var calls atomic.Int64
	handle(t, c.Engine, eager(func(s *events.Consumer) { s.MaxTries = events.TryForever }), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if _, err := c.WithTx(tx).CreateExecution(ctx, engine.ExecutionSpec{Lane: c.Lane, Kind: "follow-up"}); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err == nil {
			t.Error("the handler committed the transaction")
		}
		if err := tx.Rollback(ctx); err == nil {
			t.Error("the handler rolled the transaction back")
		}
		if calls.Add(1)%7 == 0 {
			return errors.New("every seventh")
		}
		return note(ctx, tx, event)
	})
	c.awaitNoted(t, 20)
	c.wantNoted(t, c.ids(t))
	if got := fixture.One[struct{ N int }](t, c.Pool, "SELECT count(*) AS n FROM ff_exec_core WHERE lane_id = $1", c.Lane).N; got != 20 {
		t.Errorf("%d executions, want 20", got)
	}
}
