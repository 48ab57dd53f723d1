package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// consumed is a database whose completions a consumer notes in a table of its own: once each, if all is well.
type consumed struct {
	*fixture.Fixture
	emitted atomic.Int64
}

func newConsumed(t *testing.T) *consumed {
	t.Helper()
	f := fixture.NewCloned(t)
	f.Engine = byDatabaseClock(t, f, f.Pool)
	// No key: an event recorded twice has two rows.
	f.Exec(t, "CREATE TABLE noted (event_id bigint, by text, at timestamptz DEFAULT clock_timestamp())")
	return &consumed{Fixture: f}
}

// byDatabaseClock is an engine as a program has it.
func byDatabaseClock(t *testing.T, f *fixture.Fixture, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	eng, err := engine.New(pool, engine.Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return eng
}

// emit writes n completions and returns the id of the last.
func (c *consumed) emit(t *testing.T, n int) int64 {
	t.Helper()
	c.emitted.Add(int64(n))
	return fixture.One[struct{ ID int64 }](t, c.Pool, `
		WITH written AS (
			INSERT INTO ff_completion_event (partition_key, execution_id, outcome, namespace, occurred_at_ms, dispatched_at_ms)
			SELECT i % 256, gen_random_uuid(), 'success', 'space ' || i % 2, ffx_now_ms(NULL), ffx_now_ms(NULL)
			FROM generate_series(1, $1::integer) AS i
			RETURNING event_id
		)
		SELECT max(event_id) AS id FROM written`, n).ID
}

// first returns the ids of the events, ascending.
func (c *consumed) ids(t *testing.T) []int64 {
	t.Helper()
	return idsOf(t, c.Pool, "SELECT event_id FROM ff_completion_event ORDER BY event_id")
}

func idsOf(t *testing.T, on fixture.Querier, sql string, args ...any) []int64 {
	t.Helper()
	var ids []int64
	for _, row := range fixture.All[struct{ ID int64 }](t, on, strings.Replace(sql, "event_id ", "event_id AS id ", 1), args...) {
		ids = append(ids, row.ID)
	}
	return ids
}

func (c *consumed) noted(t *testing.T) []int64 {
	t.Helper()
	return idsOf(t, c.Pool, "SELECT event_id FROM noted ORDER BY event_id")
}

// wantNoted compares the table that the handler wrote with the events, row for row.
func (c *consumed) wantNoted(t *testing.T, want []int64) {
	t.Helper()
	if got := c.noted(t); !slices.Equal(got, want) {
		t.Errorf("%d events are noted, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
}

func (c *consumed) awaitNoted(t *testing.T, n int) {
	t.Helper()
	progress.Wait(t, fmt.Sprintf("%d events to be noted", n), func() (int, bool) {
		noted := fixture.One[struct{ N int }](t, c.Pool, "SELECT count(*) AS n FROM noted").N
		return noted, noted >= n
	})
}

// note notes an event.
func note(ctx context.Context, tx pgx.Tx, event events.Completion) error {
	return noteAs(ctx, tx, event, "")
}

func noteAs(ctx context.Context, tx pgx.Tx, event events.Completion, by string) error {
	_, err := tx.Exec(ctx, "INSERT INTO noted (event_id, by) VALUES ($1, $2)", event.ID, by)
	return err
}

// eager is a consumer from the first event on, which tries again at once.
func eager(change ...func(*events.Consumer)) events.Consumer {
	c := events.Consumer{Name: "billing", From: events.Beginning, Backoff: policy.Fixed(time.Millisecond)}
	for _, ch := range change {
		ch(&c)
	}
	return c
}

// running is a call of Handle.
type running struct {
	cancel context.CancelFunc
	ended  func() error
}

// stop ends the call and returns its result.
func (r *running) stop() error {
	r.cancel()
	return r.ended()
}

// handle runs a consumer of an engine until the test is over.
func handle(
	t *testing.T, eng *engine.Engine, spec events.Consumer, fn func(ctx context.Context, tx pgx.Tx, event events.Completion) error,
) *running {
	t.Helper()
	return start1(t, func(ctx context.Context) error {
		return events.HandleWith(ctx, eng, spec, events.Completions(events.Filter{}), fn)
	})
}

func handleBatches(
	t *testing.T, eng *engine.Engine, spec events.Consumer, fn func(ctx context.Context, tx pgx.Tx, events []events.Completion) error,
) *running {
	t.Helper()
	return start1(t, func(ctx context.Context) error {
		return events.HandleBatches(ctx, eng, spec, events.Completions(events.Filter{}), fn)
	})
}

func start1(t *testing.T, call func(ctx context.Context) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, ended: sync.OnceValue(fixture.Async(t, func(context.Context) error { return call(ctx) }))}
	t.Cleanup(func() {
		cancel()
		if err := r.ended(); err != nil {
			t.Logf("a call of Handle ended with %v", err)
		}
	})
	return r
}

// awaitHeld returns once a process works.
func (c *consumed) awaitHeld(t *testing.T) {
	t.Helper()
	fixture.Await(t, "the consumer to be held", func() bool { return c.status(t).Holder != "" })
}

// status returns the status of the only consumer, or nothing before it exists.
func (c *consumed) status(t *testing.T) events.ConsumerStatus {
	t.Helper()
	all, err := events.Consumers(t.Context(), c.Engine)
	if err != nil || len(all) > 1 {
		t.Fatalf("%+v, %v; want one consumer", all, err)
	}
	return append(all, events.ConsumerStatus{})[0]
}

func TestConsumerHandlesEachEventOnceAndInOrder(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 600)
	r := handle(t, c.Engine, eager(), note)
	c.awaitNoted(t, 600)
	c.emit(t, 10)
	c.awaitNoted(t, 610)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if got := idsOf(t, c.Pool, "SELECT event_id FROM noted"); !slices.Equal(got, c.ids(t)) {
		t.Errorf("noted in this order: %v", got)
	}
	status := c.status(t)
	if status.Lag != 0 || status.Position != status.Head || status.Holder != "" || status.Failing != nil || status.SetAside != 0 || status.Gone || status.Stale {
		t.Errorf("%+v", status)
	}

	// It goes on where it stopped.
	c.emit(t, 5)
	handle(t, c.Engine, eager(), note)
	c.awaitNoted(t, 615)
	c.wantNoted(t, c.ids(t))
}

func TestConsumerStartsWithNewEvents(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 3)
	r := handle(t, c.Engine, eager(func(c *events.Consumer) { c.From = events.Cursor{} }), note)
	c.awaitHeld(t)
	last := c.emit(t, 1)
	c.awaitNoted(t, 1)
	c.wantNoted(t, []int64{last})
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// Everything that can go wrong goes wrong at random: the handler fails before and after it has written, leaves its
// transaction aborted, panics, the commit is refused, the connection is cut, by two processes that relieve each other.
func TestConsumerEffectsHappenOnceDespiteFailures(t *testing.T) {
	n := soak.Size(t, 1_200, 6_000)
	c := newConsumed(t)
	// Each fault happens a few times, however many events there are.
	c.Exec(t, fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF random() < %f THEN RAISE 'refused at the commit'; END IF;
			RETURN NULL;
		END $$`, 5/float64(n)))
	c.Exec(t, "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON noted DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()")
	c.emit(t, n/2)
	var calls atomic.Int64
	faulty := func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		calls.Add(1)
		fault := rand.IntN(n / 2)
		if fault == 0 {
			return errors.New("before it wrote")
		}
		if err := note(ctx, tx, event); err != nil {
			return err
		}
		switch fault {
		case 1:
			return errors.New("after it wrote")
		case 2:
			_, _ = tx.Exec(ctx, "SELECT 1 / 0")
		case 3:
			panic("at the disco")
		}
		return nil
	}
	spec := eager(func(c *events.Consumer) { c.MaxTries = events.TryForever; c.Batch = 50 })
	rivals := []*fixture.Rival{c.Rival(t), c.Rival(t)}
	for _, r := range rivals {
		handle(t, byDatabaseClock(t, c.Fixture, r.Pool), spec, faulty)
	}
	killed, looks := 0, 0
	progress.Equal(t, "all events to be noted", n, func() int {
		if looks++; looks == 3 {
			c.emit(t, n/2)
		}
		killed += fixture.One[struct{ N int }](t, c.Pool, `
			SELECT count(pg_terminate_backend(pid)) AS n FROM pg_stat_activity
			WHERE application_name IN ($1, $2) AND xact_start IS NOT NULL AND random() < 0.5`, rivals[0].Name, rivals[1].Name).N
		dawdle(60 * time.Millisecond)
		return fixture.One[struct{ N int }](t, c.Pool, "SELECT count(DISTINCT event_id) AS n FROM noted").N
	})
	t.Logf("%d calls for %d events, %d connections killed", calls.Load(), n, killed)
	c.wantNoted(t, c.ids(t))
	if status := c.status(t); status.SetAside != 0 || status.Lag != 0 {
		t.Errorf("%+v", status)
	}
}

func cursorAt(t *testing.T, id int64) events.Cursor {
	t.Helper()
	return events.Event{ID: id}.Cursor()
}
