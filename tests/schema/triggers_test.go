package schema_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/schema"
)

func lazyPool(t *testing.T, databaseURL string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// outbox has the names of one of the four outboxes, and FlowFabric's insert into it.
type outbox struct {
	name, table, channel string
	insert               string
}

var outboxes = []outbox{
	{
		"completion", "ff_completion_event", "ff_completion",
		`INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms)
			SELECT n, gen_random_uuid(), 'success', 1 FROM generate_series(1, $1::int) AS n`,
	},
	{
		"lease", "ff_lease_event", "ff_lease_event",
		`INSERT INTO ff_lease_event (execution_id, lease_id, event_type, occurred_at_ms, partition_key)
			SELECT 'x', NULL, 'acquired', 1, n FROM generate_series(1, $1::int) AS n`,
	},
	{
		"signal", "ff_signal_event", "ff_signal_event",
		`INSERT INTO ff_signal_event (execution_id, signal_id, delivered_at_ms, partition_key)
			SELECT 'x', 's', 1, n FROM generate_series(1, $1::int) AS n`,
	},
	{
		"operator", "ff_operator_event", "ff_operator_event",
		`INSERT INTO ff_operator_event (execution_id, event_type, details, occurred_at_ms, partition_key)
			SELECT 'x', 'replayed', '{}', 1, n FROM generate_series(1, $1::int) AS n`,
	},
}

// onEitherOrigin runs test on a database of ours and on a converted one.
func onEitherOrigin(t *testing.T, test func(t *testing.T, databaseURL string)) {
	t.Run("own", func(t *testing.T) {
		t.Parallel()
		databaseURL := pgtest.CloneURL(t)
		test(t, databaseURL)
	})
	t.Run("converted", func(t *testing.T) {
		t.Parallel()
		databaseURL := referenceDatabase(t, partitioned)
		adopt(t, databaseURL)
		test(t, databaseURL)
	})
}

// notifications returns the notifications of conn up to the one that this call sends itself.
func notifications(t *testing.T, conn, sender *pgx.Conn, channel string) []string {
	t.Helper()
	const end = "end of test"
	exec(t, sender, "SELECT pg_notify($1, $2)", channel, end)
	ctx, step, stop := progress.Context(t, "a notification on "+channel)
	defer stop()
	var received []string
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == end {
			return received
		}
		received = append(received, n.Channel+":"+n.Payload)
		step()
	}
}

// M34: the reference notifies once per row, with a payload of its own.
func TestOutboxInsertNotifiesOnceWithoutPayload_M34(t *testing.T) {
	t.Parallel()
	onEitherOrigin(t, func(t *testing.T, databaseURL string) {
		listener, writer := connect(t, databaseURL), connect(t, databaseURL)
		deferring := connect(t, databaseURL, "ffx.defer_notify", "on")
		for _, o := range outboxes {
			exec(t, listener, "LISTEN "+o.channel)
			exec(t, writer, o.insert, 5)
			if got, want := notifications(t, listener, writer, o.channel), []string{o.channel + ":"}; !slices.Equal(got, want) {
				t.Errorf("%s: five rows in one statement gave %q, want %q", o.name, got, want)
			}
			tx, err := writer.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			exec(t, tx, o.insert, 1)
			exec(t, tx, o.insert, 1)
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := notifications(t, listener, writer, o.channel); len(got) != 1 {
				t.Errorf("%s: two statements of one transaction gave %q, want one notification", o.name, got)
			}
			exec(t, deferring, o.insert, 2)
			exec(t, deferring, "BEGIN; SET LOCAL ffx.defer_notify = 'on'; COMMIT")
			if got := notifications(t, listener, writer, o.channel); len(got) != 0 {
				t.Errorf("%s: a deferring connection gave %q, want none", o.name, got)
			}
			exec(t, deferring, "SET ffx.defer_notify = ''")
			exec(t, deferring, o.insert, 1)
			if got := notifications(t, listener, writer, o.channel); len(got) != 1 {
				t.Errorf("%s: after the setting was taken back %q, want one notification", o.name, got)
			}
			exec(t, deferring, "SET ffx.defer_notify = 'on'")
		}
	})
}

func TestStreamFramesNotifyEachStreamOnce(t *testing.T) {
	t.Parallel()
	onEitherOrigin(t, func(t *testing.T, databaseURL string) {
		listener, writer := connect(t, databaseURL), connect(t, databaseURL)
		const (
			first  = "ff_stream_11111111-1111-1111-1111-111111111111_0"
			second = "ff_stream_11111111-1111-1111-1111-111111111111_2147483647"
			insert = `
				INSERT INTO ff_stream_frame (partition_key, execution_id, attempt_index, ts_ms, seq, fields, mode, created_at_ms)
				SELECT 3, '11111111-1111-1111-1111-111111111111', attempt, $1, seq, '{}', 'durable', $1
				FROM unnest(ARRAY[0, 2147483647]) AS attempt
				CROSS JOIN generate_series(1, 3) AS seq`
		)
		exec(t, listener, fmt.Sprintf(`LISTEN "%s"; LISTEN "%s"`, first, second))
		exec(t, writer, insert, 1)
		got := notifications(t, listener, writer, first)
		slices.Sort(got)
		if want := []string{first + ":", second + ":"}; !slices.Equal(got, want) {
			t.Errorf("six frames of two streams gave %q, want %q", got, want)
		}
		exec(t, writer, "SET ffx.defer_notify = 'on'")
		exec(t, writer, insert, 2)
		if got := notifications(t, listener, writer, first); len(got) != 0 {
			t.Errorf("a deferring connection gave %q, want none", got)
		}
	})
}

func floors(t *testing.T, db schema.Querier) map[string]int64 {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT outbox, floor_event_id FROM ffx_outbox_floor")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	var (
		name  string
		floor int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&name, &floor}, func() error {
		found[name] = floor
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestOutboxesRememberTheGreatestDeletedID(t *testing.T) {
	t.Parallel()
	onEitherOrigin(t, func(t *testing.T, databaseURL string) {
		conn := connect(t, databaseURL)
		for _, o := range outboxes {
			exec(t, conn, o.insert, 9)
		}
		for _, o := range outboxes {
			for _, step := range []struct {
				remove string
				floor  int64
			}{
				{"event_id = 0", 0},
				{"event_id IN (2, 5)", 5},
				{"event_id IN (1, 4)", 5},
				{"event_id > 6", 9},
			} {
				exec(t, conn, "DELETE FROM "+o.table+" WHERE "+step.remove)
				if got := floors(t, conn)[o.name]; got != step.floor {
					t.Errorf("%s: floor %d after the deletion of %s, want %d", o.name, got, step.remove, step.floor)
				}
			}
		}
	})
}

func TestOutboxesFloorFollowsTheDeletingTransaction(t *testing.T) {
	t.Parallel()
	databaseURL := pgtest.CloneURL(t)
	conn, other := connect(t, databaseURL), connect(t, databaseURL)
	o := outboxes[1]
	exec(t, conn, o.insert, 9)
	exec(t, conn, "BEGIN; DELETE FROM "+o.table+" WHERE event_id = 8; ROLLBACK")
	if got := floors(t, conn); len(got) != 0 {
		t.Errorf("a deletion that was rolled back left %v", got)
	}
	// A deletion below the floor neither writes nor waits for the one that is raising it.
	exec(t, conn, "DELETE FROM "+o.table+" WHERE event_id = 5")
	exec(t, conn, "BEGIN; DELETE FROM "+o.table+" WHERE event_id = 9")
	exec(t, other, "SET lock_timeout = '1s'; DELETE FROM "+o.table+" WHERE event_id = 3")
	exec(t, conn, "COMMIT")
	if got := floors(t, conn)[o.name]; got != 9 {
		t.Errorf("floor %d, want 9", got)
	}
	// Of two that raise it at once the greater id wins, whichever commits last.
	exec(t, conn, o.insert, 9)
	exec(t, conn, "BEGIN; DELETE FROM "+o.table+" WHERE event_id = 18")
	done := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), "SET lock_timeout = 0; DELETE FROM "+o.table+" WHERE event_id = 12")
		done <- err
	}()
	waitFor(t, connect(t, databaseURL), fmt.Sprintf("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = %d)", other.PgConn().PID()))
	exec(t, conn, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := floors(t, conn)[o.name]; got != 18 {
		t.Errorf("floor %d, want 18", got)
	}
}

func TestOutboxTruncationRaisesTheFloor(t *testing.T) {
	t.Parallel()
	onEitherOrigin(t, func(t *testing.T, databaseURL string) {
		conn := connect(t, databaseURL)
		for _, o := range outboxes {
			exec(t, conn, "TRUNCATE "+o.table)
			if got := floors(t, conn)[o.name]; got != 0 {
				t.Errorf("%s: floor %d after the truncation of a table never used, want 0", o.name, got)
			}
			exec(t, conn, o.insert, 4)
			// Ids that were given out and rolled back count too.
			exec(t, conn, "BEGIN")
			exec(t, conn, o.insert, 3)
			exec(t, conn, "ROLLBACK")
			exec(t, conn, "TRUNCATE "+o.table)
			if got := floors(t, conn)[o.name]; got != 7 {
				t.Errorf("%s: floor %d, want 7", o.name, got)
			}
		}
	})
}
