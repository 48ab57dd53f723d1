package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
)

var errNoEvents = errors.New("has no events to be read")

// eventLag measures the time from the commit of an execution's end, and from the handler's return, until a subscription in
// the process receives it. The commits of a peer are not visible from outside.
func eventLag(ctx context.Context, b *Bench) error {
	f := b.Field
	most := max(1, b.N/2000) // per tick: 5,000 a second
	for _, perTick := range slices.Compact([]int{max(1, most/50), max(1, most/5), most}) {
		rate := perTick * int(time.Second/steadyTick)
		name := fmt.Sprintf("events at %d/s", rate)
		measured := fmt.Sprintf("%d executions inserted every %s for %s and worked off; a subscription in the workers' process is handed each end", perTick, steadyTick, b.Span)
		ticks := int(b.Span / steadyTick)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker, peer: f.River}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			fromCommit, fromReturn, err := measureEvents(ctx, c, perTick, ticks)
			if err != nil {
				return nil, err
			}
			readings := latencies(name+", handler's return to subscription", fromReturn)
			if fromCommit != nil {
				readings = append(latencies(name+", commit to subscription", fromCommit), readings...)
			}
			return readings, c.Check(ctx, perTick*ticks)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hear inserts jobs at a fixed rate and processes them. It returns the times until a subscription received the end of each
// job: from its commit, if known, and from the start of its handler, which does nothing.
func measureEvents(ctx context.Context, c contender.Contender, perTick, ticks int) (fromCommit, fromReturn []time.Duration, err error) {
	n := perTick * ticks
	origin := time.Now()
	returned, committed, received := make([]atomic.Int64, n), make([]atomic.Int64, n), make([]atomic.Int64, n)
	note := func(at []atomic.Int64) func(int) {
		return func(num int) { at[num].Store(int64(time.Since(origin))) }
	}
	var count atomic.Int64
	all := make(chan struct{})
	k := hire(ctx, c, contender.Work{Started: note(returned), Committed: note(committed), Received: func(num int) {
		note(received)(num)
		if count.Add(1) == int64(n) {
			close(all)
		}
	}}, n)
	jobs := plain(n)
	err = func() error {
		tick := time.NewTicker(steadyTick)
		defer tick.Stop()
		for at := 0; at < n; at += perTick {
			<-tick.C
			if err := c.Insert(ctx, jobs[at:at+perTick]); err != nil {
				return err
			}
		}
		if err := k.wait(ctx); err != nil {
			return err
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(stall):
			return fmt.Errorf("%d of %d events heard", count.Load(), n)
		}
	}()
	if err := errors.Join(err, k.dismiss()); err != nil {
		return nil, nil, err
	}
	for i := range n {
		at := received[i].Load()
		fromReturn = append(fromReturn, max(0, time.Duration(at-returned[i].Load())))
		if after := committed[i].Load(); after > 0 {
			// A subscription may receive the event before the committing client gets its answer.
			fromCommit = append(fromCommit, max(0, time.Duration(at-after)))
		}
	}
	return fromCommit, fromReturn, nil
}

// writeEvents writes n events and returns the position before them.
func writeEvents(ctx context.Context, c contender.EventSource, n int) (events.Cursor, error) {
	sub, err := events.Subscribe(ctx, c.Events(), events.Completions(events.Filter{}), events.Options{})
	if err != nil {
		return events.Cursor{}, err
	}
	from := sub.Position()
	sub.Close()
	for left := n; left > 0; left -= 100_000 {
		if err := c.WriteEvents(ctx, min(left, 100_000)); err != nil {
			return from, err
		}
	}
	return from, rest(ctx, c)
}

// replay measures how fast a subscription reads existing events.
func replay(ctx context.Context, b *Bench) error {
	n := 10 * b.N
	measured := fmt.Sprintf("%d completion events that are there, read from the first to the last by one subscription, one call of Next for each", n)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		source, ok := c.(contender.EventSource)
		if !ok {
			return nil, errNoEvents
		}
		from, err := writeEvents(ctx, source, n)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		sub, err := events.Subscribe(ctx, source.Events(), events.Completions(events.Filter{}), events.Options{After: from})
		if err != nil {
			return nil, err
		}
		defer sub.Close()
		var last int64
		for range n {
			event, err := sub.Next(ctx)
			if err != nil {
				return nil, err
			}
			if event.ID <= last {
				return nil, fmt.Errorf("event %d after %d", event.ID, last)
			}
			last = event.ID
		}
		return []reading{{name: "replay", unit: "events/s", value: float64(n) / time.Since(began).Seconds()}}, nil
	})
}

// notifications measures the cost of notifying readers: deferred as in the library, in the transactions that write the
// events, and not at all.
func notifications(ctx context.Context, b *Bench) error {
	f := b.Field
	l := lineup{ours: f.Worker, peer: f.Notifying, floor: f.Silent}
	measured := fmt.Sprintf("burn-down of %d executions; the peer is the same library on a database whose triggers notify in the transactions, the floor one that notifies nobody", b.N)
	if err := b.compare(ctx, measured, b.Rounds, l, burn("burn-down, notifications deferred", b.N, contender.Work{})); err != nil {
		return err
	}
	one := contender.Work{Workers: 8, Concurrency: 1, Batch: 1}
	n := b.N / 10
	measured = fmt.Sprintf("the same of %d executions, one at a time in each of eight workers: a commit for each", n)
	return b.compare(ctx, measured, b.Rounds, l, burn("burn-down, notifications deferred, one per claim, eight workers", n, one))
}

// consumers measures named consumers whose handlers write a row for each event in the transaction that moves the position.
func consumers(ctx context.Context, b *Bench) error {
	for _, way := range []struct {
		name, how string
		n         int
		handle    func(context.Context, *engine.Engine, string, func(int)) error
	}{
		{"named consumer, in batches", "by the batch of up to 256, one statement and one transaction for each", b.N, effectsByBatch},
		{"named consumer, one by one", "one by one, up to 256 of them in a transaction", b.N / 5, effects(events.DefaultConsumerBatch)},
		{"named consumer, a transaction each", "one by one, each in a transaction of its own", b.N / 50, effects(1)},
	} {
		measured := fmt.Sprintf("%d completion events that are there, handled %s; the handler writes a row for each event", way.n, way.how)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			source, ok := c.(contender.EventSource)
			if !ok {
				return nil, errNoEvents
			}
			rate, err := consume(ctx, source, way.n, way.handle)
			return []reading{{name: way.name, unit: "events/s", value: rate}}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const benchConsumer = "bench"

// consume handles n events with a new consumer and returns the events per second.
func consume(
	ctx context.Context, c contender.EventSource, n int, handle func(context.Context, *engine.Engine, string, func(int)) error,
) (rate float64, err error) {
	pool, eng := c.Pool(), c.Events()
	if _, err := pool.Exec(ctx, "create table if not exists effect (event_id bigint not null); truncate effect"); err != nil {
		return 0, err
	}
	if _, err := writeEvents(ctx, c, n); err != nil {
		return 0, err
	}
	var last int64
	if err := pool.QueryRow(ctx, "select max(event_id) from ff_completion_event").Scan(&last); err != nil {
		return 0, err
	}
	handling, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	var first atomic.Int64
	go func() {
		ended <- handle(handling, eng, benchConsumer, func(int) { first.CompareAndSwap(0, time.Now().UnixNano()) })
	}()
	// An event is done when it is committed, which the stored position shows.
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for position, since := int64(0), time.Now(); position < last; {
		select {
		case err := <-ended:
			return 0, fmt.Errorf("at %d of %d: %w", position, last, err)
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-look.C:
		}
		before := position
		err := pool.QueryRow(ctx, "select coalesce(max(event_id), 0) from ffx_outbox_consumer where outbox = 'completion' and consumer = $1", benchConsumer).Scan(&position)
		if err != nil {
			return 0, err
		}
		if position > before {
			since = time.Now()
		} else if time.Since(since) > stall {
			return 0, fmt.Errorf("at %d of %d for %s", position, last, stall)
		}
	}
	took := time.Since(time.Unix(0, first.Load()))
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		return 0, err
	}
	var got, different int
	if err := pool.QueryRow(ctx, "select count(*), count(distinct event_id) from effect").Scan(&got, &different); err != nil {
		return 0, err
	}
	if got != n || different != n {
		return 0, fmt.Errorf("%d effects of %d events, want %d", got, different, n)
	}
	return float64(n) / took.Seconds(), events.RemoveConsumer(ctx, eng, events.CompletionOutbox, benchConsumer)
}

func effectsByBatch(ctx context.Context, eng *engine.Engine, name string, begun func(int)) error {
	spec := events.Consumer{Name: name, From: events.Beginning}
	return events.HandleBatches(ctx, eng, spec, events.Completions(events.Filter{}), func(ctx context.Context, tx pgx.Tx, batch []events.Completion) error {
		begun(len(batch))
		ids := make([]int64, len(batch))
		for i := range batch {
			ids[i] = batch[i].ID
		}
		_, err := tx.Exec(ctx, "insert into effect select unnest($1::bigint[])", ids)
		return err
	})
}

func effects(batch int) func(context.Context, *engine.Engine, string, func(int)) error {
	return func(ctx context.Context, eng *engine.Engine, name string, begun func(int)) error {
		spec := events.Consumer{Name: name, From: events.Beginning, Batch: batch}
		return events.HandleWith(ctx, eng, spec, events.Completions(events.Filter{}), func(ctx context.Context, tx pgx.Tx, event events.Completion) error {
			begun(1)
			_, err := tx.Exec(ctx, "insert into effect values ($1)", event.ID)
			return err
		})
	}
}
