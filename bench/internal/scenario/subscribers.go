package scenario

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
)

const (
	idleReaders = 100
	settled     = 3 * time.Second // after which the connection and its probe have ended
)

// idleSubscribers counts the statements of a process with subscriptions while nothing happens.
func idleSubscribers(ctx context.Context, b *Bench) error {
	for _, each := range []struct {
		name    string
		readers []reader
	}{
		{fmt.Sprintf("idle, %d subscriptions on completions", idleReaders), []reader{completions}},
		{fmt.Sprintf("idle, %d subscriptions on four outboxes", idleReaders), []reader{completions, leases, signals, operatorCalls}},
	} {
		measured := fmt.Sprintf("statements of a process without workers over %s, nothing being written", b.Span)
		err := b.compare(ctx, measured, 1, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			perMinute, err := countIdle(ctx, c, each.readers, min(settled, b.Span), b.Span)
			return []reading{{name: each.name, unit: "statements/minute", value: perMinute, less: true}}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// reader subscribes to an outbox from now on, and returns a function that ends it.
type reader func(ctx context.Context, eng *engine.Engine) (close func(), err error)

func subscribed[E any](ctx context.Context, eng *engine.Engine, src events.Source[E]) (func(), error) {
	sub, err := events.Subscribe(ctx, eng, src, events.Options{})
	if err != nil {
		return nil, err
	}
	return sub.Close, nil
}

func completions(ctx context.Context, eng *engine.Engine) (func(), error) {
	return subscribed(ctx, eng, events.Completions(events.Filter{}))
}

func leases(ctx context.Context, eng *engine.Engine) (func(), error) {
	return subscribed(ctx, eng, events.Leases(events.Filter{}))
}

func signals(ctx context.Context, eng *engine.Engine) (func(), error) {
	return subscribed(ctx, eng, events.Signals(events.Filter{}))
}

func operatorCalls(ctx context.Context, eng *engine.Engine) (func(), error) {
	return subscribed(ctx, eng, events.OperatorCalls(events.Filter{}))
}

// statements counts the statements of a pool.
type statements struct{ n atomic.Int64 }

// TraceQueryStart implements [pgx.QueryTracer].
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements [pgx.BatchTracer].
func (*statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.n.Add(1) }

// TraceBatchEnd implements [pgx.BatchTracer].
func (*statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// countIdle subscribes on a separate pool, which the server sees as another process, and counts for a while.
func countIdle(ctx context.Context, c contender.Contender, readers []reader, first, span time.Duration) (perMinute float64, err error) {
	var count statements
	config := c.Pool().Config()
	config.ConnConfig.Tracer = &count
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return 0, err
	}
	for i := range idleReaders {
		leave, err := readers[i%len(readers)](ctx, eng)
		if err != nil {
			return 0, err
		}
		defer leave()
	}
	if err := pause(ctx, first); err != nil {
		return 0, err
	}
	before, began := count.n.Load(), time.Now()
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	return float64(count.n.Load()-before) / time.Since(began).Minutes(), nil
}

const (
	eventsPerTick = 50 // every steadyTick: 5,000 a second
	backlogPause  = 100 * time.Millisecond
)

// stalledReader measures the cost of a reader that pauses, beside one that keeps up.
func stalledReader(ctx context.Context, b *Bench) error {
	rate := eventsPerTick * int(time.Second/steadyTick)
	measured := fmt.Sprintf("%d completion events a second for %s; one subscription reads them, another nothing until they are over; the process's heap after a collection, and at its largest", rate, b.Stall)
	return b.compare(ctx, measured, 1, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		source, ok := c.(contender.EventSource)
		if !ok {
			return nil, errNoEvents
		}
		return stallOne(ctx, source, b.Stall)
	})
}

func stallOne(ctx context.Context, c contender.EventSource, span time.Duration) (_ []reading, err error) {
	subscribe := func() (*events.Subscription[events.Completion], error) {
		return events.Subscribe(ctx, c.Events(), events.Completions(events.Filter{}), events.Options{})
	}
	quick, err := subscribe()
	if err != nil {
		return nil, err
	}
	defer quick.Close()
	slow, err := subscribe()
	if err != nil {
		return nil, err
	}
	defer slow.Close()
	var read atomic.Int64
	var others errgroup.Group
	others.Go(func() error {
		for _, err := range quick.All() {
			if err != nil {
				return err
			}
			read.Add(1)
		}
		return nil
	})
	before := heap()
	watching, stop := context.WithCancel(ctx)
	peak := make(chan uint64, 1)
	go func() { peak <- peakHeap(watching) }()
	n, took, err := writeSteadily(ctx, c, span)
	stop()
	largest := <-peak
	if err != nil {
		return nil, err
	}
	for since, was := time.Now(), int64(0); read.Load() < n; was = read.Load() {
		if read.Load() > was {
			since = time.Now()
		}
		if time.Since(since) > stall {
			return nil, fmt.Errorf("the reader beside it has read %d of %d", read.Load(), n)
		}
		if err := pause(ctx, backlogPause); err != nil {
			return nil, err
		}
	}
	after, lag := heap(), slow.Lag()
	began := time.Now()
	for range n {
		if _, err := slow.Next(ctx); err != nil {
			return nil, err
		}
	}
	caughtUp := time.Since(began)
	quick.Close()
	return []reading{
		{name: "stalled reader, heap that it holds", unit: "MB", value: max(0, (float64(after)-float64(before))/1e6), less: true},
		{name: "stalled reader, largest heap", unit: "MB", value: float64(largest) / 1e6, less: true},
		{name: "stalled reader, events behind", unit: "events", value: float64(lag)},
		{name: "stalled reader, then reads", unit: "events/s", value: float64(n) / caughtUp.Seconds()},
		{name: "stalled reader, rate written", unit: "events/s", value: float64(n) / took.Seconds()},
	}, others.Wait()
}

// writeSteadily writes events at a fixed rate and returns their number and the time taken.
func writeSteadily(ctx context.Context, c contender.EventSource, span time.Duration) (n int64, took time.Duration, err error) {
	tick := time.NewTicker(steadyTick)
	defer tick.Stop()
	began := time.Now()
	for range int(span / steadyTick) {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-tick.C:
		}
		if err := c.WriteEvents(ctx, eventsPerTick); err != nil {
			return 0, 0, err
		}
		n += eventsPerTick
	}
	return n, time.Since(began), nil
}

// heap returns the heap in use after a collection.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
