package events

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func completions() events.Source[events.Completion] { return events.Completions(events.Filter{}) }

func TestConsumerRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	tx := f.BeginTx(t)
	for _, c := range []struct {
		field    string
		consumer events.Consumer
	}{
		{"Consumer.Name", events.Consumer{}},
		{"Consumer.Name", events.Consumer{Name: strings.Repeat("x", 256)}},
		{"Consumer.Name", events.Consumer{Name: "a\nb"}},
		{"Consumer.Name", events.Consumer{Name: "a\xff"}},
		{"Consumer.Batch", events.Consumer{Name: "a", Batch: -1}},
		{"Consumer.Batch", events.Consumer{Name: "a", Batch: 1025}},
		{"Consumer.MaxTries", events.Consumer{Name: "a", MaxTries: -2}},
		{"Consumer.MaxTries", events.Consumer{Name: "a", MaxTries: math.MaxInt32 + 1}},
		{"Consumer.Backoff", events.Consumer{Name: "a", Backoff: policy.Backoff{First: -1, Max: 1, Factor: 1}}},
		{"Consumer.Backoff", events.Consumer{Name: "a", Backoff: policy.Exponential(2, 1)}},
		{"Consumer.Backoff.Factor", events.Consumer{Name: "a", Backoff: policy.Backoff{Max: 1}}},
		{"Consumer.Backoff.Factor", events.Consumer{Name: "a", Backoff: policy.Backoff{Max: 1, Factor: math.Inf(1)}}},
		{"Consumer.Timeout", events.Consumer{Name: "a", Timeout: time.Millisecond}},
		{"Consumer.Timeout", events.Consumer{Name: "a", Timeout: 25 * time.Hour}},
		{"Consumer.Wake[1]", events.Consumer{Name: "a", Wake: []id.LaneID{"good", ""}}},
	} {
		for _, err := range []error{
			events.HandleWith(t.Context(), f.Engine, c.consumer, completions(), note),
			events.HandleBatches(t.Context(), f.Engine, c.consumer, completions(), func(context.Context, pgx.Tx, []events.Completion) error { return nil }),
		} {
			if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != c.field {
				t.Errorf("%+v: got %v, want %s", c.consumer, err, c.field)
			}
		}
	}
	for field, err := range map[string]error{
		"fn":            events.Handle(t.Context(), f.Engine, "a", completions(), nil),
		"fn ":           events.HandleBatches(t.Context(), f.Engine, events.Consumer{Name: "a"}, completions(), nil),
		"fn  ":          events.RetrySetAside(t.Context(), f.Engine, "a", completions(), cursorAt(t, 1), nil),
		"engine":        events.Handle(t.Context(), f.WithTx(tx), "a", completions(), note),
		"to":            events.MoveConsumer(t.Context(), f.Engine, "completion", "a", events.Cursor{}),
		"event":         events.ForgetSetAside(t.Context(), f.Engine, "completion", "a", events.Beginning),
		"event ":        events.RetrySetAside(t.Context(), f.Engine, "a", completions(), events.Cursor{}, note),
		"Consumer.Name": events.RemoveConsumer(t.Context(), f.Engine, "completion", ""),
	} {
		if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != strings.TrimSpace(field) {
			t.Errorf("got %v, want %s", err, field)
		}
	}
	for _, err := range []error{
		events.MoveConsumer(t.Context(), f.Engine, "elsewhere", "a", events.Beginning),
		events.RemoveConsumer(t.Context(), f.Engine, "", "a"),
	} {
		if !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := events.SetAside(t.Context(), f.Engine, "completion", "a", events.Beginning, -1); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("got %v", err)
	}
}

// One name in two outboxes is two consumers; with another filter it is the same one, which goes on where it stands.
func TestConsumerNamesBelongToAnOutbox(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 10)
	r := start1(t, func(ctx context.Context) error {
		return events.HandleWith(ctx, c.Engine, eager(), events.Completions(events.Filter{Namespace: "space 1"}), note)
	})
	c.awaitNoted(t, 5)
	// Events that the filter leaves out are passed as well.
	progress.Equal(t, "all to be examined", 0, func() int64 { return c.status(t).Lag })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	handle(t, c.Engine, eager(), note)
	c.emit(t, 4)
	c.awaitNoted(t, 9)
	c.Exec(t, "INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key) VALUES ('00000000-0000-0000-0000-000000000001', 'acquired', 1, 0)")
	var leases atomic.Int64
	start1(t, func(ctx context.Context) error {
		return events.HandleWith(ctx, c.Engine, eager(), events.Leases(events.Filter{}), func(ctx context.Context, tx pgx.Tx, e events.Lease) error {
			leases.Add(1)
			return nil
		})
	})
	fixture.Await(t, "the lease event", func() bool { return leases.Load() == 1 })
	all, err := events.Consumers(t.Context(), c.Engine)
	if err != nil || len(all) != 2 || all[0].Outbox != "completion" || all[1].Outbox != "lease" || all[0].Name != all[1].Name {
		t.Errorf("%+v, %v", all, err)
	}
}

// An operator's change is part of the caller's transaction, and a refusal leaves that usable.
func TestConsumerOperatorInATransaction(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 10)
	ids := c.ids(t)
	r := handle(t, c.Engine, eager(func(c *events.Consumer) { c.MaxTries = 1 }), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if event.ID == ids[3] || event.ID == ids[4] {
			return errors.New("poison")
		}
		return note(ctx, tx, event)
	})
	aside := c.awaitSetAside(t, 2)
	c.awaitNoted(t, 8)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	before := c.state(t)
	for _, o := range []struct {
		name string
		do   func(eng *engine.Engine) error
		want string // the difference afterwards
	}{
		{"MoveConsumer", func(eng *engine.Engine) error {
			return events.MoveConsumer(t.Context(), eng, "completion", "billing", cursorAt(t, ids[2]))
		}, "billing 3, aside 4 5, noted 8"},
		{"ForgetSetAside", func(eng *engine.Engine) error {
			return events.ForgetSetAside(t.Context(), eng, "completion", "billing", aside[0].Cursor)
		}, "billing 3, aside 5, noted 8"},
		{"RetrySetAside", func(eng *engine.Engine) error {
			return events.RetrySetAside(t.Context(), eng, "billing", completions(), aside[1].Cursor, note)
		}, "billing 3, aside , noted 9"},
		{"RemoveConsumer", func(eng *engine.Engine) error {
			return events.RemoveConsumer(t.Context(), eng, "completion", "billing")
		}, ", aside , noted 9"},
	} {
		t.Run(o.name, func(t *testing.T) {
			// A refusal, and the same in a transaction that goes on.
			tx := fixture.BeginWith(t, c.Pool, pgx.TxOptions{})
			if err := events.MoveConsumer(t.Context(), c.WithTx(tx), "completion", "nobody", events.Beginning); !errors.Is(err, fferr.ErrNotFound) {
				t.Errorf("got %v", err)
			}
			if err := o.do(c.WithTx(tx)); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.state(t); got != before {
				t.Errorf("after it was rolled back: %s, want %s", got, before)
			}
			if o.name == "RetrySetAside" {
				tx := fixture.BeginWith(t, c.Pool, pgx.TxOptions{})
				if err := o.do(c.WithTx(tx)); err != nil {
					t.Fatal(err)
				}
				fixture.Commit(t, tx)
			} else if err := o.do(c.Engine); err != nil {
				t.Fatal(err)
			}
			if before = c.state(t); before != o.want {
				t.Errorf("%s, want %s", before, o.want)
			}
			if o.name == "MoveConsumer" {
				return
			}
			if err := o.do(c.Engine); !errors.Is(err, fferr.ErrNotFound) {
				t.Errorf("repeated: %v", err)
			}
		})
	}
}

func (c *consumed) state(t *testing.T) string {
	t.Helper()
	return fixture.Texts(t, c.Pool, `
		SELECT coalesce((SELECT string_agg(consumer || ' ' || event_id, ' ') FROM ffx_outbox_consumer), '')
			|| ', aside ' || coalesce((SELECT string_agg(event_id::text, ' ' ORDER BY event_id) FROM ffx_outbox_set_aside), '')
			|| ', noted ' || (SELECT count(*) FROM noted)`)[0]
}

// An event that was set aside is handled once after all, or stays where it is.
func TestConsumerRetriesASetAsideEvent(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 5)
	poison := c.ids(t)[2]
	handle(t, c.Engine, eager(func(c *events.Consumer) { c.MaxTries = 1 }), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if event.ID == poison {
			return errors.New("poison")
		}
		return note(ctx, tx, event)
	})
	aside := c.awaitSetAside(t, 1)
	c.awaitNoted(t, 4)
	reason := errors.New("still")
	retry := func(fn func(ctx context.Context, tx pgx.Tx, event events.Completion) error) error {
		return events.RetrySetAside(t.Context(), c.Engine, "billing", completions(), aside[0].Cursor, fn)
	}
	err := retry(func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if err := note(ctx, tx, event); err != nil {
			t.Error(err)
		}
		return reason
	})
	if !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	c.wantNoted(t, withoutIDs(c.ids(t), poison))
	c.awaitSetAside(t, 1)

	// Its row in the outbox may be gone.
	c.Exec(t, "DELETE FROM ff_completion_event WHERE event_id = $1", poison)
	var got events.Completion
	err = retry(func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		got = event
		if err := retry(note); !errors.Is(err, fferr.ErrNotFound) {
			t.Errorf("a second one at the same time: %v", err)
		}
		return note(ctx, tx, event)
	})
	if err != nil || got.ID != poison || got.Outcome != "success" || got.Execution.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	if got := len(c.noted(t)); got != 5 {
		t.Errorf("%d events are noted, want 5", got)
	}
	c.awaitSetAside(t, 0)
}

// Where a consumer may be moved, and that a removed one ends.
func TestConsumerMovesWithinKeptEvents(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 10)
	ids := c.ids(t)
	c.Exec(t, "DELETE FROM ff_completion_event WHERE event_id <= $1", ids[4])
	first := handle(t, c.Engine, eager(), note)
	c.awaitNoted(t, 5)
	c.wantNoted(t, ids[5:])
	err := events.MoveConsumer(t.Context(), c.Engine, "completion", "billing", cursorAt(t, ids[3]))
	if gap, ok := errors.AsType[*events.GapError](err); !ok || gap.Oldest != cursorAt(t, ids[4]) {
		t.Errorf("got %v", err)
	}
	err = events.MoveConsumer(t.Context(), c.Engine, "completion", "billing", cursorAt(t, ids[9]+1))
	if !errors.Is(err, events.ErrCursorAhead) {
		t.Errorf("got %v", err)
	}
	var looks looks
	second := handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &looks }).Pool), eager(), note)
	looks.await(t, 1)
	if err := events.RemoveConsumer(t.Context(), c.Engine, "completion", "billing"); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{first, second} {
		if err := r.ended(); !errors.Is(err, fferr.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	}
}

// Events behind the position of a consumer are gone: it says so and ends, and goes on from where it is moved to.
func TestConsumerMeetsAGap(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 10)
	ids := c.ids(t)
	r := handle(t, c.Engine, eager(), note)
	c.awaitNoted(t, 10)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.Exec(t, "UPDATE ffx_outbox_consumer SET event_id = 1")
	c.Exec(t, "DELETE FROM ff_completion_event WHERE event_id <= $1", ids[4])
	if status := c.status(t); !status.Gone {
		t.Errorf("%+v", status)
	}
	err := events.HandleWith(t.Context(), c.Engine, eager(), completions(), note)
	gap, ok := errors.AsType[*events.GapError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	if status := c.status(t); status.Holder != "" {
		t.Errorf("%+v", status)
	}
	if err := events.MoveConsumer(t.Context(), c.Engine, "completion", "billing", gap.Oldest); err != nil {
		t.Fatal(err)
	}
	handle(t, c.Engine, eager(), note)
	c.awaitNoted(t, 15)
}

// Trimming stops at a consumer that was seen in the last week. It passes any other, and logs that.
func TestTrimmingStopsAtNamedConsumers_V17(t *testing.T) {
	c := newConsumed(t)
	var log logged
	eng, err := engine.New(c.Pool, engine.Config{OutboxRetention: policy.MinRetention, Log: slog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	c.emit(t, 20)
	ids := c.ids(t)
	c.Exec(t, "UPDATE ff_completion_event SET committed_at_ms = committed_at_ms - 7200000")
	c.Exec(t, "INSERT INTO ffx_retention (source, event_id) VALUES ('ends', 1000) ON CONFLICT (source) DO UPDATE SET event_id = 1000")
	trim := func(want ...int64) {
		t.Helper()
		if _, err := upkeep.Of(eng).TrimOutboxes(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if got := c.ids(t); !slices.Equal(got, want) {
			t.Errorf("events %d are there, want %d", got, want)
		}
	}
	// It fails at the tenth.
	failing := func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if event.ID == ids[9] {
			return errors.New("not yet")
		}
		return note(ctx, tx, event)
	}
	r := handle(t, c.Engine, eager(func(s *events.Consumer) { s.Backoff = policy.Fixed(time.Hour) }), failing)
	fixture.Await(t, "it to fail", func() bool { return c.status(t).Failing != nil })
	trim(ids[9:]...)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.Exec(t, "UPDATE ffx_outbox_consumer SET updated_at_ms = updated_at_ms - 604790000")
	trim(ids[9:]...)
	if log.count("week") != 0 {
		t.Error("the log was told too early")
	}
	c.Exec(t, "UPDATE ffx_outbox_consumer SET updated_at_ms = updated_at_ms - 20000")
	if status := c.status(t); !status.Stale {
		t.Errorf("%+v", status)
	}
	trim()
	trim()
	if got := log.count("week"); got != 1 {
		t.Errorf("the log was told %d times, want once", got)
	}
	err = events.HandleWith(t.Context(), c.Engine, eager(), completions(), failing)
	if !errors.Is(err, events.ErrGap) {
		t.Errorf("got %v", err)
	}
}

// logged counts messages.
type logged struct {
	slog.Handler
	mu       sync.Mutex
	messages []string
}

func (*logged) Enabled(context.Context, slog.Level) bool { return true }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, r.Message)
	return nil
}

func (l *logged) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		if strings.Contains(m, text) {
			n++
		}
	}
	return n
}
