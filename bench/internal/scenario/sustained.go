package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// load is work refilled while it is processed.
type load struct {
	backlog int           // jobs waiting, roughly
	total   int           // total number of jobs; 0 to run until span is over
	span    time.Duration // 0 to run until total is done
	window  time.Duration // length of each rate's window
}

const refill = 1000 // jobs per transaction

// sustain processes a load and returns the rate of each complete window and of the whole.
func sustain(ctx context.Context, c contender.Contender, l load) (windows []float64, mean float64, err error) {
	goal := l.total
	if goal == 0 {
		goal = math.MaxInt
	}
	inserted := min(l.backlog, goal)
	if err := enqueue(ctx, c, plain(inserted)); err != nil {
		return nil, 0, err
	}
	k := hire(ctx, c, contender.Work{}, goal)
	filling, stopFilling := context.WithCancel(ctx)
	filled := make(chan error, 1)
	go func() { filled <- k.refill(filling, c, inserted, l) }()
	windows, err = k.watch(ctx, l)
	mean = float64(k.done.Load()) / time.Since(k.origin).Seconds()
	stopFilling()
	return windows, mean, errors.Join(err, <-filled, k.dismiss())
}

// refill keeps the backlog up until the total is inserted or ctx ends.
func (k *crew) refill(ctx context.Context, c contender.Contender, inserted int, l load) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for l.total == 0 || inserted < l.total {
		if inserted-int(k.done.Load()) >= l.backlog {
			select {
			case <-ctx.Done():
				return nil
			case <-look.C:
			}
			continue
		}
		n := refill
		if l.total > 0 {
			n = min(n, l.total-inserted)
		}
		err := c.Insert(ctx, plain(n))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		inserted += n
	}
	return nil
}

// watch counts until the load is done.
func (k *crew) watch(ctx context.Context, l load) (windows []float64, err error) {
	var over <-chan time.Time
	if l.span > 0 {
		timer := time.NewTimer(l.span)
		defer timer.Stop()
		over = timer.C
	}
	reached := make(chan error, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() { reached <- k.wait(waiting) }()
	tick := time.NewTicker(l.window)
	defer tick.Stop()
	since, before := time.Now(), k.done.Load()
	for {
		select {
		case err := <-reached:
			return windows, err
		case <-over:
			return windows, nil
		case <-tick.C:
			now, done := time.Now(), k.done.Load()
			windows = append(windows, float64(done-before)/now.Sub(since).Seconds())
			since, before = now, done
		}
	}
}

func longBurnDown(ctx context.Context, b *Bench) error {
	l := load{backlog: b.N, total: 20 * b.N, window: b.Span}
	measured := fmt.Sprintf("%d executions, %d waiting at any time, inserted %d at a time as fast as they are worked off; autovacuum as the server has it", l.total, l.backlog, refill)
	return b.compare(ctx, measured, 1, lineup{ours: b.Field.Worker, peer: b.Field.River}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		windows, mean, err := sustain(ctx, c, l)
		if err != nil {
			return nil, err
		}
		return []reading{
			{name: "long burn-down with inserts", unit: "executions/s", value: mean},
			// If the work ends before the first window does, it counts as one window.
			{name: "long burn-down with inserts, lowest window", unit: "executions/s", value: slices.Min(append(windows, mean))},
		}, c.Check(ctx, l.total)
	})
}

func pinned(ctx context.Context, b *Bench) error {
	l := load{backlog: b.N, span: b.Hold, window: b.Hold / 20}
	measured := fmt.Sprintf("work with inserts for %s, %d waiting at any time, while another session holds a snapshot from before it; rates over windows of %s", l.span, l.backlog, l.window)
	return b.compare(ctx, measured, 1, lineup{ours: b.Field.Worker, peer: b.Field.River}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		release, err := pin(ctx, c)
		if err != nil {
			return nil, err
		}
		windows, mean, err := sustain(ctx, c, l)
		if err = errors.Join(err, release()); err != nil {
			return nil, err
		}
		if len(windows) < 2 {
			return nil, fmt.Errorf("only %d windows in %s", len(windows), l.span)
		}
		course := &report.Series{}
		for i, rate := range windows {
			course.Add(time.Duration(i+1)*l.window, rate)
		}
		start, lowest := (windows[0]+windows[1])/2, slices.Min(windows)
		return []reading{
			{name: "under an old snapshot, at the start", unit: "executions/s", value: start},
			{name: "under an old snapshot, mean", unit: "executions/s", value: mean, series: course},
			{name: "under an old snapshot, lowest window", unit: "executions/s", value: lowest},
			{name: "under an old snapshot, lowest of the start", unit: "%", value: 100 * lowest / max(start, 1)},
		}, nil
	})
}

// pin takes a snapshot in a separate session and holds it until release is called.
func pin(ctx context.Context, c contender.Contender) (release func() error, err error) {
	conn, err := c.Pool().Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "begin isolation level repeatable read; select txid_current_snapshot()"); err != nil {
		conn.Release()
		return nil, err
	}
	return func() error {
		defer conn.Release()
		_, err := conn.Exec(context.WithoutCancel(ctx), "rollback")
		return err
	}, nil
}
