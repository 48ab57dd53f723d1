package ffotel

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/reconcile"
)

// DefaultGaugesEvery is the default of [Options].GaugesEvery.
const DefaultGaugesEvery = time.Minute

// GaugesJob is the name of the job, among the background jobs, whose holder reports the gauges.
const GaugesJob = "ffotel.gauges"

const (
	asks        = 4 // questions for the job in the time of a reading
	readTimeout = 30 * time.Second
	stopTimeout = 2 * time.Second
)

// RunGauges reports the gauges of [Metrics] until ctx ends. Run it in every process with a worker: one process on
// the database reads, once a minute, and the others report no gauges. If the process dies another takes over within 75 s.
//
// A reading takes some ten statements without locks, by the indexes that [engine.Engine.ListLanes] uses. It counts up to
// [engine.MaxCounted] executions and looks at up to [engine.MaxCounted] budgets, however many there are. Failures of
// readings go to OpenTelemetry's error handler, and are retried. The program needs the rights of a worker.
//
// Errors: invalid options, and errors of the meter. RunGauges returns nil after the end of ctx.
func RunGauges(ctx context.Context, eng *engine.Engine, opts Options) error {
	if opts.GaugesEvery != 0 && opts.GaugesEvery < asks*time.Millisecond {
		return errors.New("run gauges: Options.GaugesEvery is below 4ms")
	}
	g := &gauges{
		eng: eng, instance: id.WorkerInstanceID("ffotel/" + rand.Text()), every: cmp.Or(opts.GaugesEvery, DefaultGaugesEvery),
		labels: make(map[string]*labelSets),
	}
	registration, err := g.register(opts.meter())
	if err != nil {
		return err
	}
	defer func() {
		if err := registration.Unregister(); err != nil {
			otel.Handle(err)
		}
	}()
	g.run(ctx)
	return nil
}

// gauges reads the gauges, and reports the last reading when the SDK collects.
type gauges struct {
	eng      *engine.Engine
	instance id.WorkerInstanceID
	every    time.Duration

	labels map[string]*labelSets // by metric
	last   atomic.Pointer[reading]
}

func (g *gauges) register(meter metric.Meter) (metric.Registration, error) {
	instruments := make(map[string]metric.Float64Observable)
	var all []metric.Observable
	for _, m := range Metrics() {
		if m.Instrument != Gauge {
			continue
		}
		gauge, err := meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
		if err != nil {
			return nil, err
		}
		instruments[m.Name] = gauge
		all = append(all, gauge)
		g.labels[m.Name] = newLabelSets(m.Labels)
	}
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		last := g.last.Load()
		if last == nil || time.Since(last.at) > 3*g.every {
			return nil // an old reading would hide that there is none
		}
		for name, points := range last.points {
			for set, value := range points {
				to.ObserveFloat64(instruments[name], value, set.observe...)
			}
		}
		return nil
	}, all...)
}

// run asks for the job and reads when due, until ctx ends.
func (g *gauges) run(ctx context.Context) {
	ticker := time.NewTicker(g.every / asks)
	defer ticker.Stop()
	defer g.release(ctx) // whatever the last answer was: it may be lost
	for due := time.Now(); ; {
		ours, err := g.hold(ctx)
		switch {
		case err != nil: // the hold may go on
		case !ours:
			g.last.Store(nil)
			due = time.Now()
		default:
			if time.Now().Before(due) {
				break
			}
			if err = g.read(ctx); err == nil {
				due = nextReading(due, time.Now(), g.every)
			}
		}
		if err != nil && ctx.Err() == nil {
			otel.Handle(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// nextReading returns when to read after a reading that was due. Readings missed in an outage are not made up for.
func nextReading(due, now time.Time, every time.Duration) time.Time {
	if due = due.Add(every); due.Before(now) {
		return now.Add(every)
	}
	return due
}

// hold asks for the job. The end of ctx ends the question some time later: the database would still answer a question
// that is no longer waited for, perhaps after release.
func (g *gauges) hold(ctx context.Context) (bool, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, cancel) })()
	return reconcile.Hold(asking, g.eng, GaugesJob, g.instance, g.every)
}

func (g *gauges) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r := newReading(g.labels)
	if err := r.read(ctx, g.eng); err != nil {
		return err
	}
	g.last.Store(r)
	return nil
}

// release lets another process report at once.
func (g *gauges) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := reconcile.Release(ctx, g.eng, g.instance); err != nil {
		otel.Handle(err)
	}
}
