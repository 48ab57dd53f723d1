package upkeep

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// writeIn makes an event of an outbox in a transaction, by the columns that FlowFabric's statements name.
func (o oneOutbox) writeIn(t *testing.T, tx pgx.Tx, atMs int64) (event int64) {
	t.Helper()
	var sql string
	switch o.name {
	case "completion":
		sql = `INSERT INTO ff_completion_event (partition_key, execution_id, flow_id, outcome, occurred_at_ms, committed_at_ms)
			VALUES (0, '00000000-0000-0000-0000-000000000001', NULL, 'success', $1, $1) RETURNING event_id`
	case "lease":
		sql = `INSERT INTO ff_lease_event (execution_id, lease_id, event_type, occurred_at_ms, partition_key)
			VALUES ('00000000-0000-0000-0000-000000000001', NULL, 'acquired', $1, 0) RETURNING event_id`
	case "operator":
		sql = `INSERT INTO ff_operator_event (execution_id, event_type, details, occurred_at_ms, partition_key)
			VALUES ('00000000-0000-0000-0000-000000000001', 'replayed', '{"branch":"normal"}', $1, 0) RETURNING event_id`
	case "signal":
		sql = `INSERT INTO ff_signal_event (execution_id, signal_id, waitpoint_id, source_identity, delivered_at_ms, partition_key)
			VALUES ('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002', NULL, 'x', $1, 0) RETURNING event_id`
	}
	if err := tx.QueryRow(t.Context(), sql, atMs).Scan(&event); err != nil {
		t.Fatal(err)
	}
	return event
}

// looked lets retention finish with all completions, which are not the subject of these tests.
func looked(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	f.Retain(t)
	f.Exec(t, "UPDATE ffx_retention SET event_id = 1000000 WHERE source = 'ends'")
}

// An open writer holds its readers back, and so the events committed after it. These must still exist when the
// readers get to them, however old they are by then.
func TestTrimOutboxesStopsAtOpenWriters(t *testing.T) {
	for _, o := range outboxes {
		t.Run(o.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			f.Engine = f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: fixture.Week})
			looked(t, f)
			longAgo := f.Time().Add(-fixture.Week).UnixMilli()
			write := func() (event int64) {
				tx := f.BeginTx(t)
				event = o.writeIn(t, tx, longAgo)
				fixture.Commit(t, tx)
				return event
			}
			write()
			if n := trim(t, f); n != 1 {
				t.Fatalf("trimmed %d before anybody wrote, want 1", n)
			}
			last := write()
			tx := f.BeginTx(t)
			between := o.writeIn(t, tx, longAgo)
			behind := write()
			for range 2 {
				if n := trim(t, f); n != 0 {
					t.Errorf("trimmed %d beside an open writer, want 0: which id it took is not known", n)
				}
			}
			// Another one that comes later does not keep the call from being answered.
			later := f.BeginTx(t)
			o.writeIn(t, later, longAgo)
			fixture.Commit(t, tx)
			if n := trim(t, f); n != 3 {
				t.Errorf("trimmed %d beside a writer that came later, want 3: %d, %d and %d", n, last, between, behind)
			}
			fixture.Commit(t, later)
			if n := trim(t, f); n != 1 {
				t.Errorf("trimmed %d at last, want 1", n)
			}
		})
	}
}

// A subscription that an open writer holds back gets all events, and no gap is reported, although events after the
// writer became old enough to be trimmed.
func TestTrimmingStaysBehindDelayedReaders_V17(t *testing.T) {
	f := trimmingFixture(t)
	looked(t, f)
	o := outboxes[0]
	ctx := t.Context()
	sub, err := events.Subscribe(ctx, f.Engine, events.Completions(events.Filter{}), events.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	next := func(want int64) {
		t.Helper()
		event, err := sub.Next(ctx)
		if err != nil || event.ID != want {
			t.Fatalf("got %d, error %v, want %d", event.ID, err, want)
		}
	}
	longAgo := f.Time().Add(-fixture.Week).UnixMilli()
	tx := f.BeginTx(t)
	first := o.writeIn(t, tx, longAgo)
	fixture.Commit(t, tx)
	next(first)
	open, other := f.BeginTx(t), f.BeginTx(t)
	held, second := o.writeIn(t, open, longAgo), o.writeIn(t, other, longAgo)
	fixture.Commit(t, other)
	if n := trim(t, f); n != 0 {
		t.Errorf("trimmed %d, want 0", n)
	}
	fixture.Commit(t, open)
	next(held)
	next(second)
	if n := trim(t, f); n != 3 {
		t.Errorf("trimmed %d, want 3", n)
	}
}

// Writes of a caller's transaction itself do not keep it from trimming; another's do, without a wait.
func TestTrimOutboxesInATransactionWithOpenWriters(t *testing.T) {
	f := trimmingFixture(t)
	o := outboxes[1]
	longAgo := f.Time().Add(-fixture.Week).UnixMilli()
	o.write(t, f, 2, fixture.Week)
	tx := f.BeginTx(t)
	o.writeIn(t, tx, longAgo)
	if n, err := upkeep.Of(f.WithTx(tx)).TrimOutboxes(t.Context(), 100); n != 3 || err != nil {
		t.Errorf("trimmed %d, error %v, want its own too", n, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	writer := f.BeginTx(t)
	o.writeIn(t, writer, longAgo)
	tx = f.BeginTx(t)
	if n, err := upkeep.Of(f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: fixture.Week}).WithTx(tx)).TrimOutboxes(t.Context(), 100); n != 0 || err != nil {
		t.Errorf("trimmed %d, error %v beside another's", n, err)
	}
	fixture.ExecIn(t, tx, "SELECT 1") // goes on
	fixture.Commit(t, tx)
	fixture.Commit(t, writer)
}

// An id that was final may be given out again by a sequence that has stepped back.
func TestTrimOutboxesAfterASequenceWentBack(t *testing.T) {
	f := trimmingFixture(t)
	o := outboxes[1]
	o.write(t, f, 3, fixture.Week)
	trim(t, f)
	f.Exec(t, "SELECT setval('ff_lease_event_event_id_seq', 1)")
	tx := f.BeginTx(t)
	o.writeIn(t, tx, f.Time().Add(-fixture.Week).UnixMilli())
	f.Exec(t, "INSERT INTO ff_lease_event (event_id, execution_id, event_type, occurred_at_ms, partition_key) VALUES (3, 'x', 'acquired', 1, 0)")
	eng := f.Engine
	if _, err := upkeep.Of(eng).TrimOutboxes(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	o.wantStored(t, f, 3)
	fixture.Commit(t, tx)
}

// Two that delete events of several outboxes lock the floors in one order: FlowFabric's retention, by its statement, and this
// library's, whose turn the locked ones are left to the next time.
func TestTrimOutboxesBesideAnotherRetention(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: fixture.Week})
	looked(t, f)
	longAgo := f.Time().Add(-fixture.Week).UnixMilli()
	for range 2 {
		tx := f.BeginTx(t)
		for _, o := range outboxes {
			o.writeIn(t, tx, longAgo)
		}
		fixture.Commit(t, tx)
	}
	other := f.BeginTx(t)
	remove := func(o oneOutbox) {
		fixture.ExecIn(t, other, "DELETE FROM "+o.table+" WHERE event_id = (SELECT min(event_id) FROM "+o.table+")")
	}
	remove(outboxes[0])
	// It holds the lock of its table as a writer does, and the floor.
	n, err := upkeep.Of(f.Engine).TrimOutboxes(t.Context(), 100)
	if err != nil && !errors.Is(err, fferr.ErrBusy) || n != 6 {
		t.Errorf("trimmed %d, error %v, want 6 of the other three", n, err)
	}
	for _, o := range outboxes[1:] {
		remove(o)
	}
	fixture.Commit(t, other)
	if n := trim(t, f); n != 1 {
		t.Errorf("trimmed %d, want the completion that is left", n)
	}
	// A caller's transaction keeps the floors locked until it ends.
	for range 2 {
		tx := f.BeginTx(t)
		for _, o := range outboxes {
			o.writeIn(t, tx, longAgo)
		}
		fixture.Commit(t, tx)
	}
	one := f.BeginTx(t)
	if n, err := upkeep.Of(f.WithTx(one)).TrimOutboxes(t.Context(), 1); n != 8 || err != nil {
		t.Errorf("trimmed %d, error %v", n, err)
	}
	another := f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: fixture.Week})
	if n, err := upkeep.Of(another).TrimOutboxes(t.Context(), 1); n != 0 || err != nil && !errors.Is(err, fferr.ErrBusy) {
		t.Errorf("trimmed %d, error %v", n, err)
	}
	fixture.Commit(t, one)
}
