package events

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

const insertLeases = `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
	SELECT gen_random_uuid()::text, 'acquired', i, i % 256 FROM generate_series(1, $1::int) AS i`

// A reader that stops delays no other, and only its buffer is kept for it.
func TestOutboxIsNotHeldUpByAStoppedReader(t *testing.T) {
	f := fixture.NewCloned(t)
	n := int64(soak.Size(t, 20_000, 100_000)) // more than any buffer here in both cases
	stopped, busy := follow(t, f, outbox.Options{Buffer: 100}), follow(t, f, outbox.Options{})
	for range n / 5_000 {
		f.Exec(t, insertLeases, 5_000)
	}
	wantAll := func(s *outbox.Subscription) {
		t.Helper()
		ctx, step, stop := progress.Context(t, "the next events")
		defer stop()
		for seen := int64(0); seen < n; step() {
			rows, err := s.Batch(ctx, 1000)
			if err != nil {
				t.Fatalf("after %d: %v, %v", seen, err, context.Cause(ctx))
			}
			for _, row := range rows {
				if seen++; row.ID != seen {
					t.Fatalf("handed %d after %d", row.ID, seen-1)
				}
			}
			if waiting := s.Waiting(); waiting > 1024 {
				t.Fatalf("%d events wait", waiting)
			}
		}
	}
	wantAll(busy)
	if waiting, lag := stopped.Waiting(), stopped.Lag(); waiting != 100 || lag != n {
		t.Errorf("%d events wait, at a lag of %d; want 100 and %d", waiting, lag, n)
	}
	wantAll(stopped)
	last := insertLeasesInto(t, f, 1)
	want(t, stopped, last)
	want(t, busy, last)
	if stopped.Lag() != 0 || stopped.Position() != last {
		t.Errorf("at %d with a lag of %d, want at %d", stopped.Position(), stopped.Lag(), last)
	}
}

func TestOutboxPollsWithoutNotifications(t *testing.T) {
	for name, arrange := range map[string]func(t *testing.T, f *fixture.Fixture){
		"no listener": func(t *testing.T, f *fixture.Fixture) {
			f.Engine = f.EngineOn(t, f.Pool, engine.Config{NoListener: true})
		},
		"no trigger": func(t *testing.T, f *fixture.Fixture) {
			f.Exec(t, "DROP TRIGGER ff_lease_event_notify_trg ON ff_lease_event")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			arrange(t, f)
			s := follow(t, f, outbox.Options{})
			open := f.BeginTx(t)
			a := insertLease(t, f, open)
			b := insertLeasesInto(t, f, 1)
			awaitHolding(t, f, outbox.Lease)
			fixture.Commit(t, open)
			want(t, s, a, b, insertLeasesInto(t, f, 1))
		})
	}
}

func TestOutboxFilters(t *testing.T) {
	f := fixture.NewCloned(t)
	known := f.Create(t, func(s *engine.ExecutionSpec) {
		s.Namespace, s.Tags = "ours", map[string]string{outbox.InstanceTagKey: "i1"}
	})
	insert := func(execution string, namespace, tag any) (event int64) {
		err := f.Pool.QueryRow(t.Context(), `INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag)
			VALUES ($1, 'renewed', 1, $2, $3, $4) RETURNING event_id`, execution, known.Partition(), namespace, tag).Scan(&event)
		if err != nil {
			t.Fatal(err)
		}
		return event
	}
	all := follow(t, f, outbox.Options{})
	ours := follow(t, f, outbox.Options{Filter: outbox.Filter{Namespace: new("ours")}})
	first := follow(t, f, outbox.Options{Filter: outbox.Filter{InstanceTag: new("i1")}})
	both := follow(t, f, outbox.Options{Filter: outbox.Filter{Namespace: new("ours"), InstanceTag: new("i1")}})
	elsewhere := follow(t, f, outbox.Options{Filter: outbox.Filter{Partitions: []int16{int16(known.Partition()) ^ 1}}})
	const unknown = "00000000-0000-4000-8000-000000000000"
	bare := insert(known.UUID().String(), nil, nil)
	gone := insert(unknown, nil, nil)
	corrupt := insert("corrupt", nil, nil)
	stored := insert(unknown, "ours", "i1")
	foreign := insert(known.UUID().String(), "theirs", "i2") // the stored values count
	long := insert(unknown, "ours", outbox.InstanceTagKey+"=i1")
	half := insert(known.UUID().String(), "ours", nil)
	another := insert(unknown, "ours", "i2")
	last := insert(unknown, "theirs", "i10")
	want(t, all, bare, gone, corrupt, stored, foreign, long, half, another, last)
	want(t, ours, bare, stored, long, half, another)
	want(t, first, bare, stored, long, half)
	want(t, both, bare, stored, long, half)
	caught := follow(t, f, outbox.Options{After: new(bare - 1), Filter: outbox.Filter{Namespace: new("ours")}})
	want(t, caught, bare, stored, long, half, another)
	fixture.Await(t, "positions behind what did not match", func() bool {
		return elsewhere.Position() == last && ours.Position() == last && elsewhere.Waiting() == 0
	})
}

// A hundred subscriptions have one listening connection, and leave nothing behind.
func TestOutboxLeavesNothingBehind(t *testing.T) {
	f := fixture.Clone(t) // alone: it counts goroutines
	name := "ears"
	pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["application_name"] = name })
	eng := f.EngineOn(t, pool, engine.Config{})
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	sessions := func() int {
		return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var subs []*outbox.Subscription
	var waiting []func() error
	names := []outbox.Name{outbox.Completion, outbox.Lease, outbox.Signal, outbox.Operator}
	for i := range 100 {
		parent := t.Context()
		if i%2 == 0 {
			parent = ctx
		}
		s, err := fixture.Outboxes(eng).Subscribe(parent, names[i%4], outbox.Options{Buffer: 10})
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, s)
		waiting = append(waiting, fixture.Async(t, func(ctx context.Context) error { _, err := s.Next(ctx); return err }))
	}
	fixture.Await(t, "one to listen", func() bool { return f.Listening(t, name) == 1 })
	fixture.Await(t, "nobody else", func() bool { return sessions() <= int(pool.Stat().TotalConns())+1 && pool.Stat().AcquiredConns() == 0 })
	cancel()
	for i, s := range subs {
		s.Close()
		err := waiting[i]()
		if i%2 == 0 && !errors.Is(err, context.Canceled) && !errors.Is(err, outbox.ErrClosed) || i%2 == 1 && !errors.Is(err, outbox.ErrClosed) {
			t.Errorf("%d: got %v", i, err)
		}
	}
	if got := fixture.Outboxes(eng).Stats(); len(got) != 0 {
		t.Errorf("%v run", got)
	}
	var left string
	stacks := func() bool {
		buffer := make([]byte, 1<<22)
		left = ""
		for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
			if strings.Contains(stack, "internal/outbox.") && strings.Contains(stack, "nothing_is_left") {
				left += stack + "\n\n"
			}
		}
		return left == ""
	}
	if !stacks() {
		t.Errorf("these run:\n%s", left)
	}
	fixture.Await(t, "the listener to leave", func() bool { return f.Listening(t, name) == 0 })
	pool.Close()
	fixture.Await(t, "all sessions to end", func() bool { return sessions() == 0 })
}

// Close ends a Next that waits for another's transaction, in a statement as between two.
func TestOutboxCloseWakesReaders(t *testing.T) {
	for _, in := range []string{"a statement", "a wait"} {
		t.Run(in, func(t *testing.T) {
			f := fixture.NewCloned(t)
			log := fixture.NewLookLog()
			pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
			f.Engine = f.EngineOn(t, pool, engine.Config{})
			first := insertLeasesInto(t, f, 1)
			open := f.BeginTx(t)
			insertLease(t, f, open)
			last := insertLeasesInto(t, f, 1)
			other := follow(t, f, outbox.Options{After: &last})
			s := follow(t, f, outbox.Options{After: &first}) // whose next event is open's, if it commits
			goOn := log.Stop("ListOutboxWriters", 0)
			ended := fixture.Async(t, func(ctx context.Context) error { _, err := s.Next(ctx); return err })
			<-log.Held
			if in == "a wait" {
				log.Take()
				goOn()
				fixture.Await(t, "the next look at who writes", func() bool { return fixture.Count(log.Take(), "ListOutboxWriters") > 0 })
			}
			s.Close()
			if err := ended(); !errors.Is(err, outbox.ErrClosed) {
				t.Errorf("got %v, want closed", err)
			}
			fixture.Commit(t, open)
			want(t, other, insertLeasesInto(t, f, 1))
		})
	}
}

// nextError returns the error that comes behind n events.
func nextError(t *testing.T, s *outbox.Subscription) error {
	t.Helper()
	ctx, _, stop := progress.Context(t, "an error")
	defer stop()
	row, err := s.Next(ctx)
	if err == nil {
		t.Fatalf("handed %d, want an error", row.ID)
	}
	return err
}

// A deletion that the tailer does not limit, like one of the reference.
func TestOutboxReportsDeletionsAboveAPosition(t *testing.T) {
	f := fixture.NewCloned(t)
	base := insertLeasesInto(t, f, 1)
	s := follow(t, f, outbox.Options{})
	behind := follow(t, f, outbox.Options{After: new(base - 1), Buffer: 1})
	open := f.BeginTx(t)
	insertLease(t, f, open)
	gone, last := insertLeasesInto(t, f, 1), insertLeasesInto(t, f, 1)
	awaitHolding(t, f, outbox.Lease)
	ahead := follow(t, f, outbox.Options{After: &gone})
	f.Exec(t, "DELETE FROM ff_lease_event WHERE event_id = $1", gone)
	wantGap := func(err error, position int64) {
		t.Helper()
		gap, ok := errors.AsType[*outbox.GapError](err)
		if !ok || *gap != (outbox.GapError{Outbox: outbox.Lease, Position: position, Floor: gone}) {
			t.Errorf("got %v, want a gap after %d", err, position)
		}
	}
	_, err := fixture.Outboxes(f.Engine).Subscribe(t.Context(), outbox.Lease, outbox.Options{After: &base, Buffer: 10})
	wantGap(err, base)
	fixture.Commit(t, open) // after a gap a reader looks at the present state: nothing before the floor may come any more
	wantGap(nextError(t, s), base)
	wantGap(nextError(t, s), base) // it has ended
	want(t, ahead, last)
	wantGap(nextError(t, behind), base-1) // the one that read its own pages
	again := follow(t, f, outbox.Options{After: &gone})
	want(t, again, last, insertLeasesInto(t, f, 1))
}

func TestOutboxWithTwoRetentions(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, insertLeases, 20)
	tx := f.BeginTx(t)
	for range 20 {
		insertSignal(t, tx)
		insertCompletion(t, tx, 7)
	}
	fixture.Commit(t, tx)
	var ends []func() error
	for half := range 2 {
		ends = append(ends, fixture.Async(t, func(ctx context.Context) error {
			for i := half; i < 20; i += 2 {
				err := pgx.BeginFunc(ctx, f.Pool, func(tx pgx.Tx) error {
					for _, table := range []string{"ff_completion_event", "ff_lease_event", "ff_signal_event"} {
						if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE event_id = $1", i+1); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, end := range ends {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	want(t, follow(t, f, outbox.Options{After: new(int64(20))}), insertLeasesInto(t, f, 1))
}

// A database that was restored and has since taken another course.
func TestOutboxReportsAnotherHistory(t *testing.T) {
	ahead := func(t *testing.T, err error, position int64) {
		t.Helper()
		if got, ok := errors.AsType[*outbox.AheadError](err); !ok || got.Position != position {
			t.Errorf("got %v, want one ahead at %d", err, position)
		}
	}
	t.Run("another event has the id", func(t *testing.T) {
		f := fixture.NewCloned(t)
		s := follow(t, f, outbox.Options{})
		last := insertLeasesInto(t, f, 1)
		want(t, s, last)
		f.Exec(t, "UPDATE ff_lease_event SET execution_id = gen_random_uuid()::text WHERE event_id = $1", last)
		insertLeasesInto(t, f, 1)
		ahead(t, nextError(t, s), last)
		want(t, follow(t, f, outbox.Options{After: &last}), last+1) // by another tailer
	})
	t.Run("it was set back behind a floor", func(t *testing.T) {
		f := fixture.NewCloned(t)
		last := insertLeasesInto(t, f, 5)
		f.Exec(t, "DELETE FROM ff_lease_event")
		s := follow(t, f, outbox.Options{})
		f.Exec(t, "UPDATE ffx_outbox_floor SET floor_event_id = 0 WHERE outbox = 'lease'")
		f.Exec(t, "SELECT setval(pg_get_serial_sequence('ff_lease_event', 'event_id'), 1)")
		insertLeasesInto(t, f, 1)
		ahead(t, nextError(t, s), last)
		_, err := fixture.Outboxes(f.Engine).Subscribe(t.Context(), outbox.Lease, outbox.Options{After: &last, Buffer: 10})
		ahead(t, err, last)
	})
}
