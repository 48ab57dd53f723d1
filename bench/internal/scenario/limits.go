package scenario

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

const (
	looseLimit = 1_000_000
	places     = 10                    // of a limit that binds
	placeTakes = 10 * time.Millisecond // time of a handler that has one

	activeKeys  = 1000 // keys with work, beside others
	inActive    = 10   // executions of each of these
	gatePasses  = 20   // that find no free place
	gateBatch   = 500
	waitMost    = 100 * inActive // passes until no more is let in, at most
	createBatch = 1000
)

// limits measures work with limits beside the same work without.
func limits(ctx context.Context, b *Bench) error {
	for _, part := range []func(*Bench, context.Context) error{(*Bench).looseLimits, (*Bench).busyPlaces, (*Bench).manyKeys} {
		if err := part(b, ctx); err != nil {
			return err
		}
	}
	return nil
}

// looseLimits measures the cost of a limit that never binds.
func (b *Bench) looseLimits(ctx context.Context) error {
	l := lineup{
		ours: b.Field.Worker.As("a limit that does not bind", contender.Kind{
			Name: "loose", Limits: []engine.Limit[contender.Args]{engine.Concurrency[contender.Args](looseLimit)},
		}),
		peer: b.Field.Worker.As("without limits", contender.Kind{Name: "unlimited"}),
	}
	measured := fmt.Sprintf("%d no-op executions, created in batches of %d by one caller, then burnt down by a worker; with a limit of %d that run at once; the peer is the same without it", b.N, createBatch, looseLimit)
	return b.compare(ctx, measured, b.Rounds, l, b.createAndBurn("with a limit that does not bind"))
}

// createAndBurn measures the creation of executions in batches, then their burn-down.
func (b *Bench) createAndBurn(with string) measure {
	return func(ctx context.Context, c contender.Contender) ([]reading, error) {
		jobs := plain(b.N)
		began := time.Now()
		for batch := range slices.Chunk(jobs, createBatch) {
			if err := c.Insert(ctx, batch); err != nil {
				return nil, err
			}
		}
		created := time.Since(began)
		if err := rest(ctx, c); err != nil {
			return nil, err
		}
		rate, course, err := drainWatched(ctx, c, contender.Work{}, len(jobs))
		if err != nil {
			return nil, err
		}
		return []reading{
			{name: "creation " + with, unit: "executions/s", value: float64(len(jobs)) / created.Seconds()},
			{name: "burn-down " + with, unit: "executions/s", value: rate, series: course},
		}, c.Check(ctx, len(jobs))
	}
}

// busyPlaces measures how much of a limit that binds is in use while work waits for it.
func (b *Bench) busyPlaces(ctx context.Context) error {
	most := int(b.Span / placeTakes * places)
	n := max(20*places, min(b.N/5, most))
	l := lineup{
		ours: b.Field.Worker.As("a limit of ten", contender.Kind{
			Name: "ten", Limits: []engine.Limit[contender.Args]{engine.Concurrency[contender.Args](places)},
		}),
		peer: b.Field.Worker.As("ten handlers, without limits", contender.Kind{Name: "unlimited"}),
	}
	measured := fmt.Sprintf("%d executions whose handlers take %s, all waiting, with a limit of %d at once; the part of the places with an attempt, by the stored starts and ends of attempts over the middle half of the run; the part with a handler, from the times of handlers; the peer is a worker of %d handlers without a limit",
		n, placeTakes, places, places)
	return b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		if err := enqueue(ctx, c, plain(n)); err != nil {
			return nil, err
		}
		w := contender.Work{}
		if c == l.peer {
			w.Concurrency = places
		}
		var handlers handlerTimes
		w.Started = handlers.handle
		if _, err := drain(ctx, c, w, n); err != nil {
			return nil, err
		}
		readings := []reading{{name: "places of a limit of ten with a handler", unit: "%", value: 100 * handlers.mean() / places}}
		if c == l.peer {
			return readings, c.Check(ctx, n)
		}
		busy, atOnce, err := attemptsAtOnce(ctx, c)
		if err != nil {
			return nil, err
		}
		return append(readings,
			reading{name: "places of a limit of ten with an attempt", unit: "%", value: 100 * busy / places},
			reading{name: "most attempts at once of a limit of ten", unit: "executions", value: float64(atOnce), less: true},
		), c.Check(ctx, n)
	})
}

// handlerTimes has the times of handlers that take placeTakes.
type handlerTimes struct {
	mu           sync.Mutex
	began, ended []time.Time
}

func (h *handlerTimes) handle(int) {
	began := time.Now()
	time.Sleep(placeTakes)
	ended := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began, h.ended = append(h.began, began), append(h.ended, ended)
}

// mean returns how many handlers ran at once over the middle half of the run. Call it when all have ended.
func (h *handlerTimes) mean() float64 {
	first, last := slices.MinFunc(h.began, time.Time.Compare), slices.MaxFunc(h.ended, time.Time.Compare)
	quarter := last.Sub(first) / 4
	var sum time.Duration
	for i := range h.began {
		from, to := max(h.began[i].Sub(first), quarter), min(h.ended[i].Sub(first), 3*quarter)
		sum += max(0, to-from)
	}
	return sum.Seconds() / (2 * quarter).Seconds()
}

// attemptsAtOnce returns how many attempts were open at once, by their stored times: the mean over the middle half of the run,
// and the most. An attempt that ends in the millisecond in which another one starts has ended before.
func attemptsAtOnce(ctx context.Context, c contender.Contender) (mean float64, most int, err error) {
	err = c.Pool().QueryRow(ctx, `
		with run as (
			select
				min(started_at_ms) + (max(terminal_at_ms) - min(started_at_ms)) / 4 as from_ms,
				max(terminal_at_ms) - (max(terminal_at_ms) - min(started_at_ms)) / 4 as to_ms
			from ff_attempt
		),
		turns as (
			select sum(by) over (order by at_ms, by rows unbounded preceding) as open
			from ff_attempt as a
			cross join lateral (values (a.started_at_ms, 1), (a.terminal_at_ms, -1)) as t (at_ms, by)
		)
		select
			(select sum(greatest(0, least(a.terminal_at_ms, r.to_ms) - greatest(a.started_at_ms, r.from_ms)))::float8 / max(r.to_ms - r.from_ms)
				from ff_attempt as a cross join run as r),
			(select max(open) from turns)`).Scan(&mean, &most)
	return mean, most, err
}

// manyKeys measures limits with many keys, few with work.
func (b *Bench) manyKeys(ctx context.Context) error {
	active := max(1, min(activeKeys, b.N/100))
	idle := b.N - active
	key := func(a contender.Args) string {
		if a.Num < idle {
			return "idle " + strconv.Itoa(a.Num)
		}
		return strconv.Itoa((a.Num - idle) % active)
	}
	kind := contender.Kind{
		Name: "keyed", Limits: []engine.Limit[contender.Args]{engine.Concurrency[contender.Args](1).Per("key", key)},
	}
	l := lineup{
		ours: b.Field.Worker.As(fmt.Sprintf("%d keys", b.N), kind),
		peer: b.Field.Worker.As(fmt.Sprintf("%d keys", active), kind),
	}
	measured := fmt.Sprintf("%d keys with a limit of 1 and %d executions each, beside %d keys that have had one execution; a pass of the gate while all keys are full, then a burn-down; the peer is the same without the others", active, inActive, idle)
	return b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		var readings []reading
		jobs := plain(idle + active*inActive)
		used := 0
		if c == l.ours {
			used = idle
			if err := enqueue(ctx, c, jobs[:idle]); err != nil {
				return nil, err
			}
			rate, err := drain(ctx, c, contender.Work{}, idle)
			if err != nil {
				return nil, err
			}
			readings = append(readings, reading{name: "first execution of each of many keys", unit: "executions/s", value: rate})
		}
		if err := enqueue(ctx, c, jobs[idle:]); err != nil {
			return nil, err
		}
		letIn, pass, err := passes(ctx, b.Field.Worker.Events())
		if err != nil {
			return nil, err
		}
		rate, err := drain(ctx, c, contender.Work{}, active*inActive)
		if err != nil {
			return nil, err
		}
		return append(readings,
			reading{name: fmt.Sprintf("the gate lets in %d keys, beside others", active), unit: "ms", value: letIn, less: true},
			reading{name: fmt.Sprintf("a pass over %d full keys, beside others", active), unit: "ms", value: pass, less: true},
			reading{name: fmt.Sprintf("burn-down of %d keys, beside others", active), unit: "executions/s", value: rate},
		), c.Check(ctx, used+active*inActive)
	})
}

// passes returns the milliseconds the gate takes to admit everything that fits, and the median of a pass that admits
// nothing.
func passes(ctx context.Context, eng *engine.Engine) (letIn, full float64, err error) {
	began := time.Now()
	for range waitMost {
		n, err := upkeep.Of(eng).AdmitWaiting(ctx, gateBatch)
		if err != nil {
			return 0, 0, err
		}
		if n == 0 {
			break
		}
	}
	letIn = float64(time.Since(began).Microseconds()) / 1000
	took := make([]time.Duration, gatePasses)
	for i := range took {
		began := time.Now()
		n, err := upkeep.Of(eng).AdmitWaiting(ctx, gateBatch)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d were let in late", n)
		}
		if err != nil {
			return 0, 0, err
		}
		took[i] = time.Since(began)
	}
	return letIn, percentile(took, 0.5), nil
}
