// Package scenario has the measurements, one file for each scenario.
package scenario

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// Bench is one run of scenarios.
type Bench struct {
	Field    *contender.Field
	Create   func(ctx context.Context, name string) (databaseURL string, err error) // creates another database
	Report   *report.Report
	Progress io.Writer
	Log      *slog.Logger

	N      int           // executions in a burn-down; other sizes follow from it
	Rounds int           // per comparison
	Quick  bool          // only the first comparison of a scenario
	Span   time.Duration // for measurements that last for a time
	Hold   time.Duration // how long scenario f keeps a snapshot
	Stall  time.Duration // how long a reader of scenario t reads nothing

	scenario string
}

// Scenario is a group of comparisons.
type Scenario struct {
	Key   string
	Title string
	Quick bool // part of a quick run
	Asked bool // only run if selected by name
	run   func(context.Context, *Bench) error
}

// All returns the scenarios in order.
func All() []Scenario {
	return []Scenario{
		{Key: "a", Title: "burn-down", Quick: true, run: burnDown},
		{Key: "a-long", Title: "burn-down of twenty times as many, with inserts at the same rate", Asked: true, run: longBurnDown},
		{Key: "b", Title: "steady state at a fixed insert rate", run: steady},
		{Key: "c", Title: "insert", Quick: true, run: insert},
		{Key: "d", Title: "insert to start, idle", Quick: true, run: latency},
		{Key: "e", Title: "claim from a long queue", Quick: true, run: claim},
		{Key: "f", Title: "burn-down under an old snapshot", run: pinned},
		{Key: "g", Title: "flows", run: flows},
		{Key: "h", Title: "first rows fit nobody", run: mixed},
		{Key: "i", Title: "renewals", run: renewals},
		{Key: "j", Title: "memory of the worker process", run: memory},
		{Key: "k", Title: "cost of lease history and outbox", run: history},
		{Key: "m", Title: "one flow at a time", run: singleFlows},
		{Key: "n", Title: "cancel of a flow", run: cancels},
		{Key: "o", Title: "events: from commit to handler", run: eventLag},
		{Key: "p", Title: "events: replay", run: replay},
		{Key: "q", Title: "burn-down with notifications deferred, in the transactions, and none", run: notifications},
		{Key: "r", Title: "events: named consumers", run: consumers},
		{Key: "s", Title: "events: statements of an idle process", run: idleSubscribers},
		{Key: "t", Title: "events: memory beside a reader that stands still", run: stalledReader},
		{Key: "u", Title: "payloads of 1 and 16 KiB", run: payloads},
		{Key: "v", Title: "burn-down by four worker processes", run: processes},
		{Key: "w", Title: "many lanes with little in each", run: manyLanes},
		{Key: "x", Title: "a network of a millisecond", run: distant},
		{Key: "y", Title: "round trips of each operation", run: roundTrips},
		{Key: "z", Title: "signals: from sender to handler", run: signalLag},
		{Key: "aa", Title: "signals into one lane", run: signalRate},
		{Key: "ab", Title: "memory of waits", run: waitMemory},
		{Key: "ac", Title: "a signal beside many waits", run: signalBeside},
		{Key: "ad", Title: "steps", run: steps},
		{Key: "ae", Title: "resumed behind many steps", run: resumes},
		{Key: "af", Title: "turns", run: turns},
		{Key: "ag", Title: "beside queued workflows", run: besideDBOS},
		{Key: "ah", Title: "unique work", run: uniqueWork},
		{Key: "ai", Title: "schedules: ticks beside many that are idle", Asked: true, run: schedules},
		{Key: "aj", Title: "sequences", run: sequences},
		{Key: "ak", Title: "budget: reports of usage on one budget", run: budgets},
		{Key: "al", Title: "fairness: small tenants beside a large one, and weights", run: fairness},
		{Key: "am", Title: "limits that bind and that don't, and many keys", run: limits},
		{Key: "an", Title: "limits beside those of queued workflows", run: limitsBesideDBOS},
		{Key: "ao", Title: "streams: frames, and from append to tail", run: streams},
		{Key: "ap", Title: "streams: many that are open", run: openStreams},
		{Key: "aq", Title: "streams beside those of workflows", run: streamsBesideDBOS},
		{Key: "ar", Title: "telemetry: with OpenTelemetry's metrics and traces, and without", run: telemetry},
		{Key: "as", Title: "beside open pages of the console", run: watched},
		{Key: "at", Title: "as the work grows: finished, waiting, lanes, kinds, keys, members, waits, dead rows, sessions", Asked: true, run: growth},
	}
}

// Run runs a scenario.
func (b *Bench) Run(ctx context.Context, s Scenario) error {
	b.scenario = s.Key
	fmt.Fprintf(b.Progress, "%s: %s\n", s.Key, s.Title)
	if err := s.run(ctx, b); err != nil {
		return fmt.Errorf("scenario %s: %w", s.Key, err)
	}
	return nil
}

// lineup has the contenders of a comparison. A place may be empty.
type lineup struct {
	ours, peer, floor contender.Contender
}

// reading is one measured value of one contender.
type reading struct {
	name, unit string
	value      float64
	less       bool // less is better

	series *report.Series // nil if not recorded
}

// measure measures one contender once. The tables are empty at the start; the caller empties them afterwards.
type measure func(ctx context.Context, c contender.Contender) ([]reading, error)

// compare measures the lineup in turns, starting each round with another contender, and reports the median of each
// reading.
func (b *Bench) compare(ctx context.Context, measured string, rounds int, l lineup, m measure) error {
	places := []contender.Contender{l.ours, l.peer, l.floor}
	var readings []reading // of any contender: names, units and directions
	rounded := make([]map[string][]reading, len(places))
	for i := range rounded {
		rounded[i] = make(map[string][]reading)
	}
	for round := range rounds {
		for turn := range places {
			place := (turn + round) % len(places)
			c := places[place]
			if c == nil {
				continue
			}
			got, err := b.once(ctx, c, m)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", measured, c.Name(), err)
			}
			for _, r := range got {
				rounded[place][r.name] = append(rounded[place][r.name], r)
				if !slices.ContainsFunc(readings, func(seen reading) bool { return seen.name == r.name }) {
					readings = append(readings, r)
				}
				fmt.Fprintf(b.Progress, "  %d/%d %s, %s: %s %s\n", round+1, rounds, c.Name(), r.name, report.Format(&r.value), r.unit)
			}
		}
	}
	for _, r := range readings {
		b.add(measured, rounds, l, r, rounded)
	}
	return nil
}

// once measures a contender between empty tables, so the server has no leftover work during the next one.
func (b *Bench) once(ctx context.Context, c contender.Contender, m measure) ([]reading, error) {
	if err := c.Reset(ctx); err != nil {
		return nil, err
	}
	got, err := m(ctx, c)
	if err != nil {
		return nil, err
	}
	return got, c.Reset(ctx)
}

func (b *Bench) add(measured string, rounds int, l lineup, r reading, rounded []map[string][]reading) {
	entrant := func(c contender.Contender, place int) (*report.Entrant, *float64) {
		got := rounded[place][r.name]
		if c == nil || len(got) == 0 {
			return nil, nil
		}
		e := &report.Entrant{Name: c.Name()}
		for _, r := range got {
			e.Samples = append(e.Samples, r.value)
		}
		m := median(e.Samples)
		e.Series = slices.MinFunc(got, func(a, b reading) int {
			return cmp.Compare(math.Abs(a.value-m), math.Abs(b.value-m))
		}).series
		return e, &m
	}
	result := report.Result{
		Name:  r.name,
		Unit:  r.unit,
		Setup: report.Setup{Scenario: b.scenario, Measured: measured, Rounds: rounds, At: time.Now().UTC().Truncate(time.Second)},
	}
	result.Setup.Ours, result.Ours = entrant(l.ours, 0)
	result.Setup.Peer, result.Peer = entrant(l.peer, 1)
	result.Setup.Floor, result.Floor = entrant(l.floor, 2)
	result.RatioToPeer = ratio(result.Ours, result.Peer, r.less)
	result.RatioToFloor = ratio(result.Ours, result.Floor, r.less)
	b.Report.Add(result)
}

// ratio returns how many times better ours is, or nil if there is nothing to compare.
func ratio(ours, other *float64, less bool) *float64 {
	if ours == nil || other == nil || *ours <= 0 || *other <= 0 {
		return nil
	}
	if less {
		return new(*other / *ours)
	}
	return new(*ours / *other)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// percentile returns the duration below which the fraction p of the durations lies, in milliseconds.
func percentile(durations []time.Duration, p float64) float64 {
	sorted := slices.Sorted(slices.Values(durations))
	at := min(int(p*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[at].Microseconds()) / 1000
}

// latencies returns the readings of a distribution.
func latencies(name string, durations []time.Duration) []reading {
	return []reading{
		{name: name + ", p50", unit: "ms", value: percentile(durations, 0.50), less: true},
		{name: name + ", p99", unit: "ms", value: percentile(durations, 0.99), less: true},
	}
}
