package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// dimension is a growing quantity of a database.
type dimension struct {
	name  string
	sizes []int // the smallest first

	// grow makes a database of the size. undo, unless nil, undoes the part beyond [contender.Contender.Reset].
	grow func(ctx context.Context, size int) (undo func() error, err error)

	claimed bool // the executions to claim are members of it
}

const probeClaim = 10 // claimed and completed at once

// probes returns how many executions have their life measured.
func (b *Bench) probes() int { return max(2*probeClaim, min(1000, b.N/10)) }

// decades returns the powers of ten from low to high, and high.
func decades(low, high int) []int {
	var sizes []int
	for size := low; size < high; size *= 10 {
		sizes = append(sizes, size)
	}
	return append(sizes, high)
}

// dimensions returns all dimensions. Their sizes follow from N.
func (b *Bench) dimensions() []dimension {
	w := b.Field.Worker
	filled := func(fill func(ctx context.Context, size int) error) func(context.Context, int) (func() error, error) {
		return func(ctx context.Context, size int) (func() error, error) { return nil, fill(ctx, size) }
	}
	burnt := func(ctx context.Context, size int) error {
		if err := enqueue(ctx, w, plain(size)); err != nil {
			return err
		}
		_, err := drain(ctx, w, contender.Work{}, size)
		return err
	}
	return []dimension{
		{name: "finished executions", sizes: decades(b.N/10, 100*b.N), grow: filled(w.SeedFinished)},
		{name: "waiting executions", sizes: decades(b.N/100, 10*b.N), grow: filled(func(ctx context.Context, size int) error {
			return w.SeedQueue(ctx, size, 0, 0)
		})},
		{name: "lanes", sizes: decades(1, b.N/10), grow: filled(func(ctx context.Context, size int) error {
			return w.SeedQueue(ctx, b.N, size, 0)
		})},
		{name: "kinds", sizes: decades(1, b.N/100), grow: filled(func(ctx context.Context, size int) error {
			return w.SeedQueue(ctx, b.N, 0, size)
		})},
		{name: "keys of a limit", sizes: decades(1, b.N), grow: filled(w.SeedKeys)},
		{name: "members of a flow", sizes: decades(10, max(20, b.N/10)), grow: filled(func(ctx context.Context, size int) error {
			return enqueueFlows(ctx, w, contender.Graph{Nodes: size}, (b.probes()+size-1)/size)
		}), claimed: true},
		{name: "waits for signals", sizes: decades(b.N/100, 10*b.N), grow: filled(w.SeedWaits)},
		{name: "executions done beside an old snapshot", sizes: decades(b.N/100, 10*b.N), grow: func(ctx context.Context, size int) (func() error, error) {
			release, err := pin(ctx, w)
			if err != nil {
				return nil, err
			}
			return release, burnt(ctx, size)
		}},
		{name: "executions done without a vacuum", sizes: decades(b.N/100, 10*b.N), grow: func(ctx context.Context, size int) (func() error, error) {
			if err := w.Vacuum(ctx, false); err != nil {
				return nil, err
			}
			return func() error { return w.Vacuum(context.WithoutCancel(ctx), true) }, burnt(ctx, size)
		}},
		{name: "idle sessions", sizes: decades(10, max(20, b.N/200)), grow: w.Sessions},
	}
}

// growth measures the life of an execution, lists and explanations in databases of growing sizes.
func growth(ctx context.Context, b *Bench) error {
	for _, d := range b.dimensions() {
		if err := b.grow(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

// grow measures a dimension at all sizes. The result of each reading is the median at the largest size, the peer is the
// smallest, and the series has all sizes.
func (b *Bench) grow(ctx context.Context, d dimension) error {
	type curve struct {
		first, last reading
		series      report.Series
	}
	curves := make(map[string]*curve)
	var names []string
	for _, size := range d.sizes {
		samples := make(map[string][]float64)
		for round := range b.Rounds {
			got, err := b.probe(ctx, d, size)
			if err != nil {
				return fmt.Errorf("%d: %w", size, err)
			}
			for _, r := range got {
				samples[r.name] = append(samples[r.name], r.value)
				if round == b.Rounds-1 {
					r.value = median(samples[r.name])
					c := curves[r.name]
					if c == nil {
						c = &curve{first: r}
						curves[r.name] = c
						names = append(names, r.name)
					}
					c.last = r
					c.series.At, c.series.Values = append(c.series.At, float64(size)), append(c.series.Values, math.Round(r.value*1000)/1000)
				}
			}
		}
	}
	smallest, largest := d.sizes[0], d.sizes[len(d.sizes)-1]
	measured := fmt.Sprintf("%d creations one by one, claims and completions of %d, first pages and explanations, beside %d %s; the peer is the same beside %d", b.probes()/probeClaim, probeClaim, largest, d.name, smallest)
	for _, name := range names {
		c := curves[name]
		b.Report.Add(report.Result{
			Name: strconv.Itoa(largest) + " " + d.name + ": " + name, Unit: c.last.unit,
			Ours: &c.last.value, Peer: &c.first.value, RatioToPeer: ratio(&c.last.value, &c.first.value, c.last.less),
			Setup: report.Setup{
				Scenario: b.scenario, Measured: measured, Rounds: b.Rounds, At: time.Now().UTC().Truncate(time.Second),
				Ours: &report.Entrant{Name: fmt.Sprint(largest), Samples: []float64{c.last.value}, Series: &c.series},
				Peer: &report.Entrant{Name: fmt.Sprint(smallest), Samples: []float64{c.first.value}},
			},
		})
	}
	return nil
}

// probe measures once in a database of a size.
func (b *Bench) probe(ctx context.Context, d dimension, size int) ([]reading, error) {
	w := b.Field.Worker
	if err := w.Reset(ctx); err != nil {
		return nil, err
	}
	undo, err := d.grow(ctx, size)
	if undo == nil {
		undo = func() error { return nil }
	}
	var got []reading
	if err == nil {
		got, err = b.lives(ctx, d.claimed)
	}
	if err = errors.Join(err, undo()); err != nil {
		return nil, err
	}
	for _, r := range got {
		fmt.Fprintf(b.Progress, "  %d %s, %s: %s %s\n", size, d.name, r.name, report.Format(&r.value), r.unit)
	}
	return got, w.Reset(ctx)
}

// lives measures each operation of the life of executions: of existing ones, or of new ones.
func (b *Bench) lives(ctx context.Context, there bool) ([]reading, error) {
	n := b.probes()
	if there {
		n = 0
	}
	p, err := b.Field.Worker.Probe(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := rest(ctx, b.Field.Worker); err != nil {
		return nil, err
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"creation", p.Create},
		{fmt.Sprintf("claim of %d", probeClaim), func(ctx context.Context) error { return p.Claim(ctx, probeClaim) }},
		{fmt.Sprintf("completion of %d", probeClaim), p.Complete},
		{"first page of executions", p.List},
		{"explanation", p.Explain},
	}
	took := make([][]time.Duration, len(steps))
	for range b.probes() / probeClaim {
		for i, s := range steps {
			began := time.Now()
			if err := s.do(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	var got []reading
	for i, s := range steps {
		got = append(got, latencies(s.name, took[i][1:])...) // the first prepares the statements
	}
	return got, nil
}
