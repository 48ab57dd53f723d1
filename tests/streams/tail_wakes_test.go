package streams

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// listenTo returns the notifications of the channels of leases.
func listenTo(t *testing.T, f *fixture.Fixture, leases ...engine.Lease) (next func() string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), f.Url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, l := range leases {
		if _, err := conn.Exec(t.Context(), "listen "+pgx.Identifier{channelOf(l)}.Sanitize()); err != nil {
			t.Fatal(err)
		}
	}
	return func() string {
		t.Helper()
		n, err := conn.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n.Channel
	}
}

// A batch of frames notifies once, after its commit. So does the settlement of a lease that has written some, by whatever
// call. That of a lease without frames notifies no reader.
func TestSettlementsWakeReaders_S45_S55(t *testing.T) {
	for name, act := range map[string]func(f *fixture.Fixture, l engine.Lease) error{
		"complete": func(f *fixture.Fixture, l engine.Lease) error { return f.CompleteExecution(t.Context(), l, nil) },
		"complete many": func(f *fixture.Fixture, l engine.Lease) error {
			errs, err := f.CompleteExecutions(t.Context(), []engine.Completion{{Lease: l}})
			return firstOf(err, errs...)
		},
		"fail": func(f *fixture.Fixture, l engine.Lease) error {
			_, err := f.FailExecution(t.Context(), l, engine.Failure{})
			return err
		},
		"release": func(f *fixture.Fixture, l engine.Lease) error {
			errs, err := f.ReleaseLeases(t.Context(), []engine.Lease{l})
			return firstOf(err, errs...)
		},
		"suspend": func(f *fixture.Fixture, l engine.Lease) error {
			_, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: l, Condition: engine.Received("ready")})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			plain, work, marker := f.Start(t), f.Start(t, fixture.Retrying(*policy.ImmediateRetries(0))), f.Start(t)
			next := listenTo(t, f, plain.Lease, work.Lease, marker.Lease)
			want := func(l engine.Lease) {
				t.Helper()
				f.Flush()
				if got := next(); got != channelOf(l) {
					t.Errorf("%s was notified, want %s", got, channelOf(l))
				}
			}
			appendTexts(t, f.Engine, work.Lease, "a", "b", "c")
			want(work.Lease)
			for _, l := range []engine.Lease{work.Lease, plain.Lease} {
				if err := act(f, l); err != nil {
					t.Fatal(err)
				}
			}
			want(work.Lease)
			appendTexts(t, f.Engine, marker.Lease, "end")
			want(marker.Lease)
		})
	}
}

func firstOf(err error, more ...error) error {
	for _, other := range more {
		if err == nil {
			err = other
		}
	}
	return err
}

// tracer counts statements, and those that listen.
type tracer struct {
	mu   sync.Mutex
	sent []string
}

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, data.SQL)
	return ctx
}

func (c *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range data.Batch.QueuedQueries {
		c.sent = append(c.sent, q.SQL)
	}
	return ctx
}

func (c *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *tracer) count(part string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sql := range c.sent {
		if strings.Contains(sql, part) {
			n++
		}
	}
	return n
}

// Thousands of tails use one connection and few statements, and leave no channel and no connection behind.
func TestThousandsOfTails_S46(t *testing.T) {
	f := fixture.New(t)
	var c tracer
	r := f.Rival(t, func(config *pgxpool.Config) { config.MaxConns, config.ConnConfig.Tracer = 4, &c })
	const n = 2_000
	work := slices.Concat(f.StartMany(t, n/2), f.StartMany(t, n/2))
	keeper := follow(t, r.Engine, f.Start(t).ID, stream.TailOptions{})
	tails := make([]tail, n)
	for i, w := range work {
		tails[i] = follow(t, r.Engine, w.ID, stream.TailOptions{})
	}
	listening := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		open := make(map[string]bool)
		for _, sql := range c.sent {
			for command := range strings.SplitSeq(sql, "; ") {
				if channel, ok := strings.CutPrefix(command, "listen "); ok {
					open[channel] = true
				}
				if channel, ok := strings.CutPrefix(command, "unlisten "); ok {
					delete(open, channel)
				}
			}
		}
		return len(open)
	}
	fixture.Await(t, "the connection to listen to all channels", func() bool { return listening() >= n })
	if got := f.Listening(t, r.Name); got > 1 {
		t.Errorf("%d connections listen", got)
	}
	if got := c.count("listen "); got > n/10 {
		t.Errorf("%d messages for %d channels", got, n)
	}
	for chunk := range slices.Chunk(work, 500) {
		batches := make([]stream.Batch, len(chunk))
		for i, w := range chunk {
			batches[i] = stream.Batch{Lease: w.Lease, Frames: []stream.FrameSpec{{Payload: []byte("x")}}}
		}
		if _, err := stream.AppendEach(t.Context(), f.Engine, batches); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range tails {
		l.want(t, "0 x")
	}
	if got := c.count("ListFrames"); got > n/5 {
		t.Errorf("%d lists of frames for %d tails", got, n)
	}
	for _, l := range tails {
		l.end()
	}
	fixture.Await(t, "the connection to listen to few channels", func() bool { return listening() <= 2 })
	keeper.end()
	fixture.Await(t, "the connection to end", func() bool { return f.Listening(t, r.Name) == 0 })
}

// errorsSeen is a handler that counts warnings.
type errorsSeen struct {
	slog.Handler
	seen chan struct{}
}

func (h errorsSeen) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "streams cannot be read") {
		select {
		case h.seen <- struct{}{}:
		default:
		}
	}
	return nil
}

func (h errorsSeen) Enabled(context.Context, slog.Level) bool { return true }

// A tail survives an outage of the database, and then has all frames once.
func TestTailSurvivesAnOutage(t *testing.T) {
	f := fixture.NewCloned(t)
	work := f.Start(t)
	log := errorsSeen{slog.DiscardHandler, make(chan struct{}, 1)}
	pool := fixture.OpenPool(t, f.Url, nil)
	eng := f.EngineOn(t, pool, engine.Config{Log: slog.New(log)})
	l := follow(t, eng, work.ID, stream.TailOptions{})
	appendTexts(t, f.Engine, work.Lease, "before")
	l.want(t, "0 before")
	appendTexts(t, f.Engine, work.Lease, "meanwhile")
	l.want(t, "0 meanwhile")
	database := fixture.Texts(t, f.Pool, "SELECT current_database()::text")[0]
	outside := fixture.OpenPool(t, pgtest.URL(t), nil)
	allow := func(yes bool) {
		if _, err := outside.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %v", pgx.Identifier{database}.Sanitize(), yes)); err != nil {
			t.Fatal(err)
		}
	}
	allow(false)
	if _, err := outside.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", database); err != nil {
		t.Fatal(err)
	}
	<-log.seen // the tail's reads fail
	late := follow(t, eng, work.ID, stream.TailOptions{})
	if v := late.next(t); v.err == nil {
		t.Errorf("a tail that begins in an outage has %s, want an error", v)
	}
	allow(true)
	fixture.Await(t, "the database to be back", func() bool { return f.Pool.Ping(t.Context()) == nil })
	appendTexts(t, f.Engine, work.Lease, "after")
	complete(t, f.Engine, work.Lease)
	l.want(t, "0 after", "0 closed attempt_success last=true")
	l.wantEnd(t)
}
