package ffotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// buckets are the boundaries of the histograms, in seconds: 5 ms to a day.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}

// histogram is a histogram of seconds with its label sets.
type histogram struct {
	metric.Float64Histogram
	labels *labelSets
}

func (h *histogram) record(ctx context.Context, d time.Duration, values ...string) {
	h.Record(ctx, seconds(d), h.labels.of(values...).record...)
}

// seconds returns a duration in seconds, at least 0: clocks differ.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }

// counter is a counter with its label sets.
type counter struct {
	metric.Int64Counter
	labels *labelSets
}

func (c *counter) add(ctx context.Context, n int, values ...string) {
	if n > 0 {
		c.Add(ctx, int64(n), c.labels.of(values...).add...)
	}
}

// instruments are the metrics of [Instrument].
type instruments struct {
	wait, run, step, claim                            *histogram
	created, settled, leasesLost, signals, jobsFailed *counter
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	var errs []error
	newHistogram := func(m Metric) *histogram {
		h, err := meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return &histogram{h, newLabelSets(m.Labels)}
	}
	newCounter := func(m Metric) *counter {
		c, err := meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
		errs = append(errs, err)
		return &counter{c, newLabelSets(m.Labels)}
	}
	i := &instruments{
		wait: newHistogram(metricWait), run: newHistogram(metricRun), step: newHistogram(metricStep), claim: newHistogram(metricClaim),
		created: newCounter(metricCreated), settled: newCounter(metricSettled), leasesLost: newCounter(metricLeasesLost),
		signals: newCounter(metricSignals), jobsFailed: newCounter(metricJobsFailed),
	}
	return i, errors.Join(errs...)
}
