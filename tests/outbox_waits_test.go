package tests

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

// leases inserts n lease events and commits each, and returns the last one's id.
func (f *fixture) leases(t *testing.T, n int) (last int64) {
	t.Helper()
	for range n {
		tx := f.begin(t)
		last = f.insertLease(t, tx)
		commit(t, tx)
	}
	return last
}

func (f *fixture) followOf(t *testing.T, name outbox.Name, o outbox.Options) *outbox.Subscription {
	t.Helper()
	o.Buffer = 1024
	s, err := f.Outboxes().Subscribe(t.Context(), name, o)
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
func (f *fixture) wantWaiting(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) //pace:allow it is to run out
	defer cancel()
	if _, err := f.Outboxes().Subscribe(ctx, outbox.Lease, outbox.Options{Buffer: 10}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestOutbox_01_two_partitions(t *testing.T) {
	f := cloneFixture(t)
	s := f.followOf(t, outbox.Completion, outbox.Options{})
	first, second := f.begin(t), f.begin(t)
	a, b := insertCompletion(t, first, 200), insertCompletion(t, second, 3)
	commit(t, second)
	resumed := f.followOf(t, outbox.Completion, outbox.Options{After: new(b - 1)})
	commit(t, first)
	want(t, resumed, b)
	want(t, s, a, b)
}

// From now: what is open then is waited for, and then neither lost nor in the way of who resumes.
func TestOutbox_01_open_before_subscribe(t *testing.T) {
	f := cloneFixture(t)
	before := f.leases(t, 3)
	open := f.begin(t)
	a := f.insertLease(t, open)
	f.wantWaiting(t)
	if got := f.Outboxes().Stats(); len(got) != 0 {
		t.Errorf("%v goes on for nobody", got)
	}
	type result struct {
		s   *outbox.Subscription
		err error
	}
	subscribed := async(t, func(ctx context.Context) result {
		s, err := f.Outboxes().Subscribe(ctx, outbox.Lease, outbox.Options{Buffer: 10})
		return result{s, err}
	})
	await(t, "a tailer", func() bool { return len(f.Outboxes().Stats()) == 1 })
	resumed := f.follow(t, outbox.Options{After: new(before - 2)}) // at once
	commit(t, open)
	now := subscribed()
	if now.err != nil {
		t.Fatal(now.err)
	}
	defer now.s.Close()
	want(t, resumed, before-1, before, a)
	c := f.leases(t, 1)
	want(t, resumed, c)
	for got := int64(0); got != c; { // a before it, perhaps
		if got = next(t, now.s, 1)[0]; got < a {
			t.Errorf("handed %d, of before", got)
		}
	}
}

// Who resumes where an earlier event is open does not have one who comes after him miss that.
func TestOutbox_01_behind_a_resumed_one(t *testing.T) {
	f := cloneFixture(t)
	open := f.begin(t)
	a := f.insertLease(t, open)
	b := f.leases(t, 1)
	resumed := f.follow(t, outbox.Options{After: &b})
	c := f.leases(t, 1)
	want(t, resumed, c)
	f.wantWaiting(t)
	commit(t, open)
	s := f.follow(t, outbox.Options{})
	d := f.leases(t, 1)
	want(t, resumed, d)
	want(t, f.follow(t, outbox.Options{After: new(a - 1)}), a, b, c, d)
	for got := int64(0); got != d; {
		got = next(t, s, 1)[0]
	}
}

func TestOutbox_02_savepoint(t *testing.T) {
	f := cloneFixture(t)
	s := f.follow(t, outbox.Options{})
	long := f.begin(t)
	execIn(t, long, "SAVEPOINT a")
	f.insertLease(t, long)
	execIn(t, long, "ROLLBACK TO SAVEPOINT a")
	b := f.leases(t, 1)
	want(t, s, b) // though long goes on
	execIn(t, long, "SAVEPOINT b")
	c := f.insertLease(t, long)
	execIn(t, long, "RELEASE SAVEPOINT b")
	d := f.leases(t, 1)
	f.awaitHolding(t, outbox.Lease)
	commit(t, long)
	want(t, s, c, d)
}

// awaitHolding returns once an outbox is held back by a transaction that has been found.
func (f *fixture) awaitHolding(t *testing.T, name outbox.Name) {
	t.Helper()
	await(t, "a hold-back", func() bool {
		return slices.ContainsFunc(f.Outboxes().Stats(), func(s outbox.Stats) bool {
			return s.Outbox == name && !s.Holding.IsZero() && len(s.Holders) > 0
		})
	})
}

func TestOutbox_03_long_transaction(t *testing.T) {
	f := cloneFixture(t)
	leases, signals := f.follow(t, outbox.Options{}), f.followOf(t, outbox.Signal, outbox.Options{})
	other, long := f.begin(t), f.begin(t)
	execIn(t, other, "UPDATE ffx_outbox_floor SET updated_at_ms = 0")
	execIn(t, other, "CREATE TABLE elsewhere AS SELECT pg_current_xact_id()")
	a := insertSignal(t, long)
	last, b := f.begin(t), int64(0)
	b = insertSignal(t, last)
	commit(t, last)
	f.awaitHolding(t, outbox.Signal)
	rolled := f.begin(t)
	f.insertLease(t, rolled)
	rollBack(t, rolled)
	c := f.leases(t, 1)
	want(t, leases, c)
	for _, s := range f.Outboxes().Stats() {
		if s.Outbox == outbox.Signal && s.Low >= a {
			t.Errorf("%+v has passed %d, which is open", s, a)
		}
	}
	commit(t, long)
	want(t, signals, a, b)
}

// Who holds events back for long is logged once, and told by Stats.
func TestOutbox_03_log(t *testing.T) {
	f := cloneFixture(t)
	log := new(lockedBuffer)
	f.Engine = f.engineOn(t, f.pool, engine.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
	s := f.follow(t, outbox.Options{})
	long := f.begin(t)
	var pid string
	if err := long.QueryRow(t.Context(), "SELECT pg_backend_pid()::text").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	a := f.insertLease(t, long)
	b := f.leases(t, 1)
	await(t, "a line", func() bool { return strings.Contains(log.String(), "["+pid+"]") })
	commit(t, long)
	want(t, s, a, b)
	await(t, "the end of the hold-back", func() bool { return f.Outboxes().Stats()[0].Holding.IsZero() })
	if n := strings.Count(log.String(), "held back"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

func TestOutbox_14_writers(t *testing.T) {
	f := cloneFixture(t)
	s := f.follow(t, outbox.Options{})
	long := f.begin(t)
	execIn(t, long, `PREPARE planned AS INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
		VALUES (gen_random_uuid()::text, 'acquired', 1, 7)`)
	for range 8 { // by a generic plan in the end
		execIn(t, long, "EXECUTE planned")
	}
	rows := [][]any{{"00000000-0000-4000-8000-000000000000", "renewed", int64(1), int32(7)}}
	if _, err := long.CopyFrom(t.Context(), pgx.Identifier{"ff_lease_event"},
		[]string{"execution_id", "event_type", "occurred_at_ms", "partition_key"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	last := f.leases(t, 1)
	f.awaitHolding(t, outbox.Lease)
	commit(t, long)
	var ids []int64
	for i := last - 9; i <= last; i++ {
		ids = append(ids, i)
	}
	want(t, s, ids...)

	copied := f.begin(t)
	if _, err := copied.CopyFrom(t.Context(), pgx.Identifier{"ff_lease_event"},
		[]string{"execution_id", "event_type", "occurred_at_ms", "partition_key"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	last = f.leases(t, 1)
	f.awaitHolding(t, outbox.Lease)
	commit(t, copied)
	want(t, s, last-1, last)
}
