package events

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// notedBy returns how many events each process noted, as "name: n".
func (c *consumed) notedBy(t *testing.T) string {
	t.Helper()
	return strings.Join(fixture.Texts(t, c.Pool, "SELECT by || ': ' || count(*) FROM noted GROUP BY by ORDER BY by"), ", ")
}

// expire ends the hold of the present holder.
func (c *consumed) expire(t *testing.T) {
	t.Helper()
	c.Exec(t, "UPDATE ffx_outbox_consumer SET held_until_ms = 1")
}

func (c *consumed) awaitExpired(t *testing.T) {
	t.Helper()
	fixture.Await(t, "the hold to be over", func() bool {
		return len(fixture.Texts(t, c.Pool, "SELECT holder FROM ffx_outbox_consumer WHERE held_until_ms < ffx_now_ms(NULL)")) == 1
	})
}

func by(name string) func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
	return func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		return noteAs(ctx, tx, event, name)
	}
}

// One works, the others wait; when it ends, one of them goes on at once.
func TestConsumerRunsInOneProcess(t *testing.T) {
	c := newConsumed(t)
	var inside, together atomic.Int64
	work := func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		if inside.Add(1) > 1 {
			together.Add(1)
		}
		defer inside.Add(-1)
		return note(ctx, tx, event)
	}
	var calls []*running
	for range 4 {
		calls = append(calls, handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t).Pool), eager(func(c *events.Consumer) { c.Batch = 3 }), work))
	}
	for i, r := range calls {
		c.emit(t, 200)
		c.awaitNoted(t, 50+200*i)
		if err := r.stop(); err != nil { // perhaps in the middle of it
			t.Error(err)
		}
		c.Exec(t, "UPDATE ffx_outbox_consumer SET holder = 'nobody any more', held_until_ms = 0")
	}
	handle(t, c.Engine, eager(), work)
	c.awaitNoted(t, 800)
	c.wantNoted(t, c.ids(t))
	if n := together.Load(); n > 0 {
		t.Errorf("%d times two handlers were at work", n)
	}
}

func TestConsumerIsReleasedWhenItsCallEnds(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 10)
	first := handle(t, c.Engine, eager(), by("first"))
	c.awaitNoted(t, 10)
	second := handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t).Pool), eager(), by("second"))
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	c.emit(t, 10)
	c.awaitNoted(t, 20)
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	if got := c.notedBy(t); got != "first: 10, second: 10" {
		t.Error(got)
	}
	c.wantNoted(t, c.ids(t))
}

// A process is frozen between two of its statements, for longer than its hold, another takes over, and it comes back.
func TestConsumerSurvivesAFrozenProcess(t *testing.T) {
	for _, at := range []struct {
		name, statement string
		cut             bool // it is in its transaction: the server has to end that first
		handler         bool
	}{
		{name: "before it locks its row", statement: "LockConsumer"},
		{name: "in the handler", statement: "handler", cut: true, handler: true},
		{name: "between the handler and the commit", statement: "AdvanceConsumer", cut: true},
		{name: "before it keeps what it holds", statement: "TakeConsumer"},
	} {
		t.Run(at.name, func(t *testing.T) {
			c := newConsumed(t)
			c.emit(t, 100)
			frozen := c.StoppedBefore(t, at.statement)
			if at.statement == "TakeConsumer" {
				// Of the first it knows nothing yet.
				r := handle(t, c.Engine, eager(), note)
				c.awaitNoted(t, 100)
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
				c.Exec(t, "DELETE FROM noted")
				c.Exec(t, "UPDATE ffx_outbox_consumer SET event_id = 0")
			}
			first := handle(t, byDatabaseClock(t, c.Fixture, frozen.Pool), eager(), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
				if at.handler {
					if err := noteAs(ctx, tx, event, "first"); err != nil {
						return err
					}
					frozen.Meet(ctx, "-- name: handler ")
				}
				return noteAs(ctx, tx, event, "first")
			})
			frozen.AwaitStop(t)
			if !at.cut {
				c.expire(t)
			} else {
				// Its hold has ended, and its row is locked: no process can take over, and none waits.
				c.awaitExpired(t)
				var looks looks
				watched := c.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &looks })
				r := handle(t, byDatabaseClock(t, c.Fixture, watched.Pool), eager(), by("too early"))
				looks.await(t, 2)
				if n := len(fixture.Texts(t, c.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", watched.Name)); n > 0 {
					t.Errorf("%d sessions wait for a lock", n)
				}
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
				c.wantNoted(t, nil)
				c.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND xact_start IS NOT NULL", frozen.Name)
			}
			second := handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t).Pool), eager(), by("second"))
			c.awaitNoted(t, 100)
			frozen.Resume()
			c.emit(t, 10)
			c.awaitNoted(t, 110)
			for _, r := range []*running{first, second} {
				if err := r.stop(); err != nil {
					t.Error(err)
				}
			}
			c.wantNoted(t, c.ids(t))
			if got := c.notedBy(t); got != "second: 110" {
				t.Error(got)
			}
		})
	}
}

// looks counts the times that a process looks whether it may take a consumer.
type looks struct{ n atomic.Int64 }

func (l *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*looks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*looks) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *looks) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.HasPrefix(data.SQL, "-- name: TakeConsumer ") {
		l.n.Add(1)
	}
}

func (*looks) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (l *looks) await(t *testing.T, more int64) {
	t.Helper()
	from := l.n.Load()
	fixture.Await(t, "looks at a consumer", func() bool { return l.n.Load() >= from+more })
}

// A handler that takes longer than the hold keeps the consumer: its row is locked.
func TestConsumerKeepsItsHoldDuringALongHandler(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 3)
	reached, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := handle(t, c.Engine, eager(), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		once.Do(func() { close(reached); <-on })
		return noteAs(ctx, tx, event, "first")
	})
	<-reached
	c.awaitExpired(t)
	var looks looks
	second := handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &looks }).Pool), eager(), by("second"))
	looks.await(t, 2)
	c.wantNoted(t, nil)
	close(on)
	c.awaitNoted(t, 3)
	for _, r := range []*running{first, second} {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
	c.wantNoted(t, c.ids(t))
	if got := c.notedBy(t); !strings.HasPrefix(got, "first: ") {
		t.Error(got)
	}
}

// The row of the consumer is locked for long: no process waits for it, and nothing is handled; then all is.
func TestConsumerSkipsItsLockedRow(t *testing.T) {
	c := newConsumed(t)
	var looks looks
	watched := c.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &looks })
	handle(t, byDatabaseClock(t, c.Fixture, watched.Pool), eager(), note)
	c.emit(t, 1)
	c.awaitNoted(t, 1)
	somebody := c.BeginTx(t)
	fixture.ExecIn(t, somebody, "SELECT FROM ffx_outbox_consumer FOR UPDATE")
	c.emit(t, 10)
	looks.await(t, 3)
	if n := len(fixture.Texts(t, c.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", watched.Name)); n > 0 {
		t.Errorf("%d sessions wait for a lock", n)
	}
	if got := len(c.noted(t)); got != 1 {
		t.Errorf("%d events are noted, want 1", got)
	}
	fixture.Commit(t, somebody)
	c.awaitNoted(t, 11)
	c.wantNoted(t, c.ids(t))
}

// cutting is a connection that is cut at a commit: before the server has it, or after, when the answer is lost.
type cutting struct {
	net.Conn
	cuts *cuts
	cut  bool
}

type cuts struct {
	after bool
	left  atomic.Int64
	made  atomic.Int64
}

func (c *cutting) Write(b []byte) (int, error) {
	// The commit of a handler's transaction, by the simple protocol.
	if strings.HasPrefix(string(b), "Q") && strings.Contains(string(b), "commit") && c.cuts.left.Add(-1) >= 0 {
		c.cuts.made.Add(1)
		c.cut = true
		if !c.cuts.after {
			_ = c.Conn.Close()
			return 0, io.ErrClosedPipe
		}
	}
	return c.Conn.Write(b)
}

func (c *cutting) Read(b []byte) (int, error) {
	if c.cut {
		_, _ = c.Conn.Read(make([]byte, 4096)) // the server has committed
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return c.Conn.Read(b)
}

// If the answer of a commit is lost, the row shows whether it succeeded.
func TestConsumerSurvivesALostCommitAnswer(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed=%v", after), func(t *testing.T) {
			c := newConsumed(t)
			c.emit(t, 200)
			cuts := &cuts{after: after}
			cuts.left.Store(3)
			pool := c.Rival(t, func(config *pgxpool.Config) {
				config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, addr)
					return &cutting{Conn: conn, cuts: cuts}, err
				}
			}).Pool
			r := handle(t, byDatabaseClock(t, c.Fixture, pool), eager(func(c *events.Consumer) { c.Batch = 20 }), note)
			c.awaitNoted(t, 200)
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			c.wantNoted(t, c.ids(t))
			if got := cuts.made.Load(); got != 3 {
				t.Errorf("%d commits were cut, want 3", got)
			}
		})
	}
}

// An operator moves a consumer while its process has read the next events, and waits for an open transaction.
func TestConsumerCanBeMovedWhileItRuns(t *testing.T) {
	t.Run("between two transactions", func(t *testing.T) {
		c := newConsumed(t)
		c.emit(t, 10)
		ids := c.ids(t)
		stopped := c.StoppedBefore(t, "LockConsumer")
		handle(t, byDatabaseClock(t, c.Fixture, stopped.Pool), eager(), note)
		stopped.AwaitStop(t)
		c.move(t, ids[6])
		stopped.Resume()
		c.awaitNoted(t, 3)
		c.emit(t, 1)
		c.awaitNoted(t, 4)
		c.wantNoted(t, c.ids(t)[7:])

		// And back, and to where it stands.
		c.move(t, ids[8])
		c.awaitNoted(t, 6)
		c.move(t, c.ids(t)[10])
		c.emit(t, 1)
		c.awaitNoted(t, 7)
		if got := c.status(t); got.Lag != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("in the middle of one", func(t *testing.T) {
		c := newConsumed(t)
		c.emit(t, 10)
		ids := c.ids(t)
		reached, on := make(chan struct{}), make(chan struct{})
		var once sync.Once
		handle(t, c.Engine, eager(), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
			once.Do(func() { close(reached); <-on })
			return note(ctx, tx, event)
		})
		<-reached
		operator := c.Rival(t)
		moved := fixture.Async(t, func(ctx context.Context) error {
			return events.MoveConsumer(ctx, byDatabaseClock(t, c.Fixture, operator.Pool), "completion", "billing", events.Beginning)
		})
		operator.AwaitBlocked(t, c.Fixture)
		close(on)
		if err := moved(); err != nil {
			t.Fatal(err)
		}
		// The later events are noted twice if one transaction read them with it: older transactions hold events back.
		fixture.Await(t, "the first to be noted twice, and all others", func() bool {
			got := fixture.One[struct{ First, All int }](t, c.Pool, "SELECT count(*) FILTER (WHERE event_id = $1) AS first, count(DISTINCT event_id) AS all FROM noted", ids[0])
			return got.First == 2 && got.All == len(ids)
		})
	})
}

func (c *consumed) move(t *testing.T, to int64) {
	t.Helper()
	if err := events.MoveConsumer(t.Context(), c.Engine, "completion", "billing", cursorAt(t, to)); err != nil {
		t.Fatal(err)
	}
}

// The database forgets all its connections, as in a restart, again and again.
func TestConsumerSurvivesRestarts(t *testing.T) {
	c := newConsumed(t)
	r := c.Rival(t)
	handle(t, byDatabaseClock(t, c.Fixture, r.Pool), eager(), note)
	c.awaitHeld(t) // before, it would end
	for i := range 5 {
		c.emit(t, 20)
		c.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", r.Name)
		c.emit(t, 20)
		c.awaitNoted(t, 40*(i+1))
	}
	c.wantNoted(t, c.ids(t))
}

// The server notices a process that has fallen silent in the middle of a handler, and another takes over.
func TestConsumerReplacesASilentProcess(t *testing.T) {
	c := newConsumed(t)
	c.emit(t, 5)
	spec := eager(func(c *events.Consumer) { c.Timeout = time.Second })
	reached, on := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t).Pool), spec, func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
		once.Do(func() { close(reached); <-on }) // in any state of ctx
		return noteAs(ctx, tx, event, "first")
	})
	<-reached
	second := handle(t, byDatabaseClock(t, c.Fixture, c.Rival(t).Pool), spec, by("second"))
	c.awaitNoted(t, 5)
	close(on)
	for _, r := range []*running{first, second} {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
	c.wantNoted(t, c.ids(t))
	if got := c.notedBy(t); got != "second: 5" {
		t.Error(got)
	}
}
