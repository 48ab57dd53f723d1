package ffotel

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/operator"
)

// reading has the values of the gauges at one time.
type reading struct {
	at     time.Time
	labels map[string]*labelSets
	points map[string]map[*labelSet]float64 // by metric
}

func newReading(labels map[string]*labelSets) *reading {
	return &reading{at: time.Now(), labels: labels, points: make(map[string]map[*labelSet]float64)}
}

// add adds to the value of the labels, since several things may have the same labels.
func (r *reading) add(m *Metric, value float64, labels ...string) {
	r.join(m, func(a, b float64) float64 { return a + b }, value, labels)
}

// largest keeps the largest value of the labels.
func (r *reading) largest(m *Metric, value float64, labels ...string) {
	r.join(m, func(a, b float64) float64 { return max(a, b) }, value, labels)
}

// least keeps the least value of the labels.
func (r *reading) least(m *Metric, value float64, labels ...string) {
	r.join(m, func(a, b float64) float64 { return min(a, b) }, value, labels)
}

func (r *reading) join(m *Metric, join func(a, b float64) float64, value float64, labels []string) {
	points := r.points[m.Name]
	if points == nil {
		points = make(map[*labelSet]float64)
		r.points[m.Name] = points
	}
	set := r.labels[m.Name].of(labels...)
	if before, ok := points[set]; ok {
		value = join(before, value)
	}
	points[set] = value
}

// read fills in all gauges.
func (r *reading) read(ctx context.Context, eng *engine.Engine) error {
	for _, read := range []func(context.Context, *engine.Engine) error{
		r.lanes, r.workers, r.limits, r.budgets, r.consumers, r.retention,
	} {
		if err := read(ctx, eng); err != nil {
			return err
		}
	}
	return nil
}

func (r *reading) lanes(ctx context.Context, eng *engine.Engine) error {
	now, err := eng.Now(ctx)
	if err != nil {
		return err
	}
	for lane, err := range eng.Lanes(ctx, engine.LaneFilter{}) {
		if err != nil {
			return err
		}
		name, oldest, paused := string(lane.ID), time.Duration(0), 0.0
		if !lane.WaitingSince.IsZero() {
			oldest = max(now.Sub(lane.WaitingSince), 0)
		}
		if !lane.PausedSince.IsZero() {
			paused = 1
		}
		r.add(&metricWaiting, float64(lane.Waiting.N), name)
		r.add(&metricActive, float64(lane.Active.N), name)
		r.add(&metricLimited, float64(lane.Limited.N), name)
		r.add(&metricPaused, paused, name)
		r.largest(&metricOldest, oldest.Seconds(), name)
	}
	return nil
}

func (r *reading) workers(ctx context.Context, eng *engine.Engine) error {
	r.add(&metricFree, 0)
	for worker, err := range eng.Workers(ctx, engine.WorkerFilter{}) {
		if err != nil {
			return err
		}
		if !worker.Stopping && worker.DrainedSince.IsZero() {
			r.add(&metricFree, float64(max(worker.Concurrency-worker.Running, 0)))
		}
	}
	return nil
}

func (r *reading) limits(ctx context.Context, eng *engine.Engine) error {
	for state, err := range limit.All(ctx, eng) {
		if err != nil {
			return err
		}
		namespace, name := string(state.Namespace), state.Name
		r.largest(&metricUnits, float64(state.Units), namespace, name)
		r.add(&metricUsed, 0, namespace, name)
		r.add(&metricQueued, 0, namespace, name)
	}
	used, err := limit.InUse(ctx, eng, 0)
	for i := range used {
		namespace, name := string(used[i].Namespace), used[i].Name.Name
		r.largest(&metricUsed, float64(used[i].InUse), namespace, name)
		r.add(&metricQueued, float64(used[i].Waiting), namespace, name)
	}
	return err
}

func (r *reading) budgets(ctx context.Context, eng *engine.Engine) error {
	n := 0
	for b, err := range budget.All(ctx, eng) {
		if err != nil {
			return err
		}
		for dimension, bounds := range b.Limits {
			if bounds.Hard <= 0 {
				continue
			}
			left := 1 - float64(b.Usage[dimension]+b.Reserved[dimension])/float64(bounds.Hard)
			exhausted := 0.0
			if b.Usage[dimension] >= bounds.Hard {
				exhausted = 1
			}
			r.least(&metricBudget, max(left, 0), dimension)
			r.add(&metricUsedUp, exhausted, dimension)
		}
		if n++; n >= engine.MaxCounted {
			break
		}
	}
	return nil
}

func (r *reading) consumers(ctx context.Context, eng *engine.Engine) error {
	all, err := events.Consumers(ctx, eng)
	for i := range all {
		r.largest(&metricLag, float64(all[i].Lag), all[i].Name)
	}
	return err
}

func (r *reading) retention(ctx context.Context, eng *engine.Engine) error {
	status, err := operator.Retention(ctx, eng)
	r.add(&metricRetention, status.Behind.Seconds())
	return err
}
