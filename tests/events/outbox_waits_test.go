package events

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// insertCompletion inserts a completion event of a partition.
func insertCompletion(t *testing.T, tx pgx.Tx, partition int) (event int64) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms, dispatched_at_ms)
		VALUES ($1, gen_random_uuid(), 'success', 1, 1) RETURNING event_id`, partition).Scan(&event)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// insertSignal inserts a signal event.
func insertSignal(t *testing.T, tx pgx.Tx) (event int64) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `INSERT INTO ff_signal_event (execution_id, signal_id, delivered_at_ms, partition_key)
		VALUES (gen_random_uuid()::text, gen_random_uuid()::text, 1, 7) RETURNING event_id`).Scan(&event)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// insertLeasesInto inserts n lease events and commits each, and returns the last one's id.
func insertLeasesInto(t *testing.T, f *fixture.Fixture, n int) (last int64) {
	t.Helper()
	for range n {
		tx := f.BeginTx(t)
		last = insertLease(t, f, tx)
		fixture.Commit(t, tx)
	}
	return last
}

func followOf(t *testing.T, f *fixture.Fixture, name outbox.Name, o outbox.Options) *outbox.Subscription {
	t.Helper()
	o.Buffer = 1024
	s, err := fixture.Outboxes(f.Engine).Subscribe(t.Context(), name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func rollBack(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// want compares the next events with ids.
func want(t *testing.T, s *outbox.Subscription, ids ...int64) {
	t.Helper()
	if got := next(t, s, len(ids)); !slices.Equal(got, ids) {
		t.Errorf("handed %d, want %d", got, ids)
	}
}

// wantWaiting checks that a subscription from now waits as long as a transaction is open that has written.
func wantWaiting(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) //pace:allow it is to run out
	defer cancel()
	if _, err := fixture.Outboxes(f.Engine).Subscribe(ctx, outbox.Lease, outbox.Options{Buffer: 10}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestOutboxOrdersTwoPartitions(t *testing.T) {
	f := fixture.NewCloned(t)
	s := followOf(t, f, outbox.Completion, outbox.Options{})
	first, second := f.BeginTx(t), f.BeginTx(t)
	a, b := insertCompletion(t, first, 200), insertCompletion(t, second, 3)
	fixture.Commit(t, second)
	resumed := followOf(t, f, outbox.Completion, outbox.Options{After: new(b - 1)})
	fixture.Commit(t, first)
	want(t, resumed, b)
	want(t, s, a, b)
}

// From now: a subscription waits for events that are open then. They are neither lost nor in the way of readers that
// resume.
func TestOutboxWaitsForOpenTransactionsAtSubscribe(t *testing.T) {
	f := fixture.NewCloned(t)
	before := insertLeasesInto(t, f, 3)
	open := f.BeginTx(t)
	a := insertLease(t, f, open)
	wantWaiting(t, f)
	if got := fixture.Outboxes(f.Engine).Stats(); len(got) != 0 {
		t.Errorf("%v goes on for nobody", got)
	}
	type result struct {
		s   *outbox.Subscription
		err error
	}
	subscribed := fixture.Async(t, func(ctx context.Context) result {
		s, err := fixture.Outboxes(f.Engine).Subscribe(ctx, outbox.Lease, outbox.Options{Buffer: 10})
		return result{s, err}
	})
	fixture.Await(t, "a tailer", func() bool { return len(fixture.Outboxes(f.Engine).Stats()) == 1 })
	resumed := follow(t, f, outbox.Options{After: new(before - 2)}) // at once
	fixture.Commit(t, open)
	now := subscribed()
	if now.err != nil {
		t.Fatal(now.err)
	}
	defer now.s.Close()
	want(t, resumed, before-1, before, a)
	c := insertLeasesInto(t, f, 1)
	want(t, resumed, c)
	for got := int64(0); got != c; { // a before it, perhaps
		if got = next(t, now.s, 1)[0]; got < a {
			t.Errorf("handed %d, of before", got)
		}
	}
}

// A reader that resumes below an open event does not make a later subscription miss it.
func TestOutboxSubscribesBesideAResumedReader(t *testing.T) {
	f := fixture.NewCloned(t)
	open := f.BeginTx(t)
	a := insertLease(t, f, open)
	b := insertLeasesInto(t, f, 1)
	resumed := follow(t, f, outbox.Options{After: &b})
	c := insertLeasesInto(t, f, 1)
	want(t, resumed, c)
	wantWaiting(t, f)
	fixture.Commit(t, open)
	s := follow(t, f, outbox.Options{})
	d := insertLeasesInto(t, f, 1)
	want(t, resumed, d)
	want(t, follow(t, f, outbox.Options{After: new(a - 1)}), a, b, c, d)
	for got := int64(0); got != d; {
		got = next(t, s, 1)[0]
	}
}

func TestOutboxSkipsARolledBackSavepoint(t *testing.T) {
	f := fixture.NewCloned(t)
	s := follow(t, f, outbox.Options{})
	long := f.BeginTx(t)
	fixture.ExecIn(t, long, "SAVEPOINT a")
	insertLease(t, f, long)
	fixture.ExecIn(t, long, "ROLLBACK TO SAVEPOINT a")
	b := insertLeasesInto(t, f, 1)
	want(t, s, b) // though long goes on
	fixture.ExecIn(t, long, "SAVEPOINT b")
	c := insertLease(t, f, long)
	fixture.ExecIn(t, long, "RELEASE SAVEPOINT b")
	d := insertLeasesInto(t, f, 1)
	awaitHolding(t, f, outbox.Lease)
	fixture.Commit(t, long)
	want(t, s, c, d)
}

// awaitHolding returns once an outbox is held back by a transaction that has been found.
func awaitHolding(t *testing.T, f *fixture.Fixture, name outbox.Name) {
	t.Helper()
	fixture.Await(t, "a hold-back", func() bool {
		return slices.ContainsFunc(fixture.Outboxes(f.Engine).Stats(), func(s outbox.Stats) bool {
			return s.Outbox == name && !s.Holding.IsZero() && len(s.Holders) > 0
		})
	})
}

func TestOutboxWaitsForALongTransaction(t *testing.T) {
	f := fixture.NewCloned(t)
	leases, signals := follow(t, f, outbox.Options{}), followOf(t, f, outbox.Signal, outbox.Options{})
	other, long := f.BeginTx(t), f.BeginTx(t)
	fixture.ExecIn(t, other, "UPDATE ffx_outbox_floor SET updated_at_ms = 0")
	fixture.ExecIn(t, other, "CREATE TABLE elsewhere AS SELECT pg_current_xact_id()")
	a := insertSignal(t, long)
	last, b := f.BeginTx(t), int64(0)
	b = insertSignal(t, last)
	fixture.Commit(t, last)
	awaitHolding(t, f, outbox.Signal)
	rolled := f.BeginTx(t)
	insertLease(t, f, rolled)
	rollBack(t, rolled)
	c := insertLeasesInto(t, f, 1)
	want(t, leases, c)
	for _, s := range fixture.Outboxes(f.Engine).Stats() {
		if s.Outbox == outbox.Signal && s.Low >= a {
			t.Errorf("%+v has passed %d, which is open", s, a)
		}
	}
	fixture.Commit(t, long)
	want(t, signals, a, b)
}

// Transactions that hold events back for long are logged once, and reported by Stats.
func TestOutboxLogsALongWaitOnce(t *testing.T) {
	f := fixture.NewCloned(t)
	log := new(fixture.LockedBuffer)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
	s := follow(t, f, outbox.Options{})
	long := f.BeginTx(t)
	var pid string
	if err := long.QueryRow(t.Context(), "SELECT pg_backend_pid()::text").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	a := insertLease(t, f, long)
	b := insertLeasesInto(t, f, 1)
	fixture.Await(t, "a line", func() bool { return strings.Contains(log.String(), "["+pid+"]") })
	fixture.Commit(t, long)
	want(t, s, a, b)
	fixture.Await(t, "the end of the hold-back", func() bool { return fixture.Outboxes(f.Engine).Stats()[0].Holding.IsZero() })
	if n := strings.Count(log.String(), "held back"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

func TestOutboxNamesOpenWriters(t *testing.T) {
	f := fixture.NewCloned(t)
	s := follow(t, f, outbox.Options{})
	long := f.BeginTx(t)
	fixture.ExecIn(t, long, `PREPARE planned AS INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
		VALUES (gen_random_uuid()::text, 'acquired', 1, 7)`)
	for range 8 { // by a generic plan in the end
		fixture.ExecIn(t, long, "EXECUTE planned")
	}
	rows := [][]any{{"00000000-0000-4000-8000-000000000000", "renewed", int64(1), int32(7)}}
	if _, err := long.CopyFrom(t.Context(), pgx.Identifier{"ff_lease_event"},
		[]string{"execution_id", "event_type", "occurred_at_ms", "partition_key"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	last := insertLeasesInto(t, f, 1)
	awaitHolding(t, f, outbox.Lease)
	fixture.Commit(t, long)
	var ids []int64
	for i := last - 9; i <= last; i++ {
		ids = append(ids, i)
	}
	want(t, s, ids...)

	copied := f.BeginTx(t)
	if _, err := copied.CopyFrom(t.Context(), pgx.Identifier{"ff_lease_event"},
		[]string{"execution_id", "event_type", "occurred_at_ms", "partition_key"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	last = insertLeasesInto(t, f, 1)
	awaitHolding(t, f, outbox.Lease)
	fixture.Commit(t, copied)
	want(t, s, last-1, last)
}
