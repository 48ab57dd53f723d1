package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/worker"
)

const (
	ticksPerSecond = 200
	tickEvery      = 5 * time.Second // the interval of each schedule of the stream
	dueLead        = 3 * time.Second // until schedules that are due at once are due
)

// tick is the kind of the executions of schedules.
var tick = engine.Kind[struct{}, struct{}]{Name: "tick"}

// schedules measures ticks beside many idle schedules.
func schedules(ctx context.Context, b *Bench) error {
	beside := fmt.Sprintf("beside %d schedules whose next ticks are months away", b.N)
	for _, part := range []struct {
		measured string
		run      func(s *scheduling, ctx context.Context) ([]reading, error)
	}{
		{fmt.Sprintf("statements of a process that runs background work over %s, from three seconds after its start, %s; and without any", b.Span, beside), (*scheduling).idle},
		{fmt.Sprintf("%d ticks a second for %s, %s; to the insert of the execution, and to the handler's start; the clocks of server and machine must agree", ticksPerSecond, b.Span, beside), (*scheduling).stream},
		{fmt.Sprintf("%d schedules due at the same instant, %s, until all have their executions; without handlers", max(1, b.N/10), beside), (*scheduling).burst},
		{"the same, with schedules of twenty kinds on twenty lanes", (*scheduling).mixedBurst},
	} {
		err := b.compare(ctx, part.measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			s, err := newScheduling(ctx, b, c)
			if err != nil {
				return nil, err
			}
			defer s.pool.Close()
			return part.run(s, ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scheduling is a process beside idle schedules, with a pool of its own.
type scheduling struct {
	*Bench
	pool  *pgxpool.Pool
	eng   *engine.Engine
	count statements
}

func newScheduling(ctx context.Context, b *Bench, c contender.Contender) (*scheduling, error) {
	s := &scheduling{Bench: b}
	config := c.Pool().Config()
	config.ConnConfig.Tracer = &s.count
	config.MaxConns = 30 // a worker has a connection for each job of the background work, and for its handlers
	var err error
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if s.eng, err = engine.New(s.pool, engine.Config{Log: b.Log}); err == nil {
		err = s.declare(ctx, "idle", b.N, idleSchedule)
	}
	if err == nil {
		err = rest(ctx, c)
	}
	if err != nil {
		s.pool.Close()
	}
	return s, err
}

// declare declares n schedules in sets.
func (s *scheduling) declare(ctx context.Context, set string, n int, spec func(i int) schedule.Spec) error {
	for from := 0; from < n; from += schedule.MaxSet {
		specs := make([]schedule.Spec, min(schedule.MaxSet, n-from))
		for i := range specs {
			specs[i] = spec(from + i)
			specs[i].Name = fmt.Sprint(set, " ", from+i)
		}
		if _, err := schedule.Declare(ctx, s.eng, schedule.Set{
			Name: fmt.Sprint(set, " from ", from), Vanished: schedule.RemoveVanished, Schedules: specs,
		}); err != nil {
			return err
		}
	}
	return nil
}

// idleSchedule returns a schedule whose next tick is months away: one in three an interval, the others expressions in zones.
func idleSchedule(i int) schedule.Spec {
	zones := [...]string{"", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"}
	months := int(time.Now().Month()) + 2 + i%7
	spec := schedule.Spec{Zone: zones[i%len(zones)], Cron: fmt.Sprintf("%d %d %d %d *", i%60, i/60%24, 1+i%28, 1+months%12)}
	if i%3 == 0 {
		spec = schedule.Spec{
			Every: time.Duration(1+i%9) * 24 * time.Hour, Start: time.Now().AddDate(0, 3, 0).Add(time.Duration(i) * time.Second),
		}
	}
	spec.Execution = tick.Spec(struct{}{})
	return spec
}

// idle counts the statements of a process beside idle schedules, and then without them.
func (s *scheduling) idle(ctx context.Context) ([]reading, error) {
	with, err := s.countIdle(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.pool.Exec(ctx, "truncate ffx_schedule"); err != nil {
		return nil, err
	}
	without, err := s.countIdle(ctx)
	return []reading{
		{name: "idle beside schedules", unit: "statements/minute", value: with, less: true},
		{name: "idle without schedules", unit: "statements/minute", value: without, less: true},
	}, err
}

func (s *scheduling) countIdle(ctx context.Context) (perMinute float64, err error) {
	stop, err := s.reconcile(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	if err := pause(ctx, min(settled, s.Span)); err != nil {
		return 0, err
	}
	before, began := s.count.n.Load(), time.Now()
	if err := pause(ctx, s.Span); err != nil {
		return 0, err
	}
	return float64(s.count.n.Load()-before) / time.Since(began).Minutes(), nil
}

// reconcile runs background work until stop is called.
func (s *scheduling) reconcile(ctx context.Context) (stop func(), err error) {
	r, err := reconcile.New(s.eng, reconcile.Config{Log: s.Log})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(running)
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// stream measures how late ticks are that come one after the other.
func (s *scheduling) stream(ctx context.Context) ([]reading, error) {
	var mu sync.Mutex
	var waits []time.Duration
	w, err := worker.New(s.eng, worker.Config{Log: s.Log})
	if err != nil {
		return nil, err
	}
	worker.Handle(w, tick, func(_ context.Context, job worker.Job[struct{}]) (struct{}, error) {
		began := time.Now()
		at, err := time.Parse(time.RFC3339Nano, job.Tags[schedule.TimeTag])
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, max(0, began.Sub(at)))
		return struct{}{}, err
	})
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	start := time.Now().Add(dueLead).Truncate(time.Second)
	err = s.declare(ctx, "stream", ticksPerSecond*int(tickEvery/time.Second), func(i int) schedule.Spec {
		at := start.Add(time.Duration(i) * time.Second / ticksPerSecond).Truncate(time.Millisecond)
		return schedule.Spec{Every: tickEvery, Start: at, End: start.Add(max(s.Span, tickEvery)), Execution: tick.Spec(struct{}{})}
	})
	if err == nil {
		err = pause(ctx, time.Until(start.Add(s.Span+time.Second)))
	}
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	var p50, p99 float64
	err = s.pool.QueryRow(ctx, `
		select
			coalesce(percentile_cont(0.5) within group (order by late), 0),
			coalesce(percentile_cont(0.99) within group (order by late), 0)
		from (
			select created_at_ms - 1000 * extract(epoch from (raw_fields #>> '{tags,ffx.scheduled_for}')::timestamptz) as late
			from ff_exec_core
		) as e`).Scan(&p50, &p99)
	switch {
	case err != nil:
		return nil, err
	case len(waits) == 0:
		return nil, errors.New("no tick was started")
	}
	return append(latencies("tick to start", waits),
		reading{name: "tick to insert, p50", unit: "ms", value: max(0, p50), less: true},
		reading{name: "tick to insert, p99", unit: "ms", value: max(0, p99), less: true}), nil
}

// burst measures how long schedules take that are due at the same instant.
func (s *scheduling) burst(ctx context.Context) ([]reading, error) {
	return s.dueAtOnce(ctx, "due at once", 1)
}

func (s *scheduling) mixedBurst(ctx context.Context) ([]reading, error) {
	return s.dueAtOnce(ctx, "due at once, of twenty kinds", 20)
}

func (s *scheduling) dueAtOnce(ctx context.Context, name string, kinds int) ([]reading, error) {
	n := max(1, s.N/10)
	stop, err := s.reconcile(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	at := time.Now().Add(dueLead + time.Duration(n)*time.Millisecond/2).Truncate(time.Second)
	err = s.declare(ctx, "due", n, func(i int) schedule.Spec {
		spec := schedule.Spec{Every: 24 * time.Hour, Start: at, End: at, Execution: tick.Spec(struct{}{})}
		if kinds > 1 {
			spec.Execution.Kind = fmt.Sprint("tick-", i%kinds)
			spec.Execution.Lane = id.LaneID(fmt.Sprint("lane-", i%kinds))
		}
		return spec
	})
	if err != nil {
		return nil, err
	}
	if time.Now().After(at) {
		return nil, errors.New("the schedules were due before all were declared")
	}
	if err := pause(ctx, time.Until(at)); err != nil {
		return nil, err
	}
	for left := true; left; {
		if err := pause(ctx, steadyTick); err != nil {
			return nil, err
		}
		if err := s.pool.QueryRow(ctx, "select exists (select from ffx_schedule where next_ms <= $1)", at.UnixMilli()).Scan(&left); err != nil {
			return nil, err
		}
	}
	took := time.Since(at)
	var created int
	if err := s.pool.QueryRow(ctx, "select count(*) from ff_exec_core").Scan(&created); err != nil || created != n {
		return nil, cmp.Or(err, fmt.Errorf("%d executions of %d ticks", created, n))
	}
	return []reading{{name: name, unit: "ms", value: float64(took.Microseconds()) / 1000, less: true}}, nil
}
