package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
)

const (
	fairTenants  = 1000
	fairPerTick  = 10                    // executions of the small tenants every steadyTick
	fairHandlers = 32                    // so many and no more run at once
	fairTakes    = 10 * time.Millisecond // time of a handler
	fairMost     = 3200                  // starts in a second at most: handlers by their time
	fairWeights  = 3                     // tenants with weights of 1, 2 and 4
)

// fairness measures how long small tenants wait beside a large one, and whether starts follow the weights.
func fairness(ctx context.Context, b *Bench) error {
	if err := b.besideLargeTenant(ctx); err != nil {
		return err
	}
	return b.weightedTenants(ctx)
}

// besideLargeTenant compares the waits of small tenants beside the backlog of a large one with those in an empty system.
func (b *Bench) besideLargeTenant(ctx context.Context) error {
	// The backlog must outlast the measurement.
	span := min(b.Span, time.Duration(b.N)*time.Second*3/4/fairMost)
	feed := fairFeed{backlog: b.N, n: fairPerTick * max(1, int(span/steadyTick))}
	kind := contender.Kind{Name: "fair", Fair: engine.RoundRobin(func(a contender.Args) string {
		if a.Num < feed.backlog {
			return "large"
		}
		return strconv.Itoa((a.Num - feed.backlog) % (fairTenants - 1))
	})}
	l := lineup{
		ours: b.Field.Worker.As("one tenant with a backlog", kind),
		peer: b.Field.Worker.As("the same without the backlog", kind),
	}
	measured := fmt.Sprintf("%d tenants take turns: one has %d executions waiting, the others create %d executions every %s for %s; %d handlers of %s; from when the creation returned to the handler's start, of the others, without the first tenth; the peer is the same without the backlog",
		fairTenants, feed.backlog, fairPerTick, steadyTick, span.Round(time.Millisecond), fairHandlers, fairTakes)
	return b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		if c == l.ours {
			if err := enqueue(ctx, c, plain(feed.backlog)); err != nil {
				return nil, err
			}
		}
		waits, before, left, err := feed.run(ctx, c)
		if err != nil {
			return nil, err
		}
		if c == l.ours && left == 0 {
			fmt.Fprintln(b.Progress, "  the backlog did not outlast the measurement, so the small tenants were alone at the end: take more by -n")
		}
		readings := latencies("small tenants beside a large one, commit to start", waits[len(waits)/10:])
		if c == l.ours {
			slices.Sort(before)
			readings = append(readings,
				reading{name: "starts of the large tenant before it, p50", unit: "executions", value: float64(before[len(before)/2]), less: true},
				reading{name: "starts of the large tenant before it, p99", unit: "executions", value: float64(before[len(before)*99/100]), less: true})
		}
		return readings, nil
	})
}

// fairFeed creates executions of small tenants. Their numbers follow the backlog's.
type fairFeed struct{ backlog, n int }

// run returns how long each execution of a small tenant waited, how many of the large one started from before its creation
// until then, which doesn't depend on the machine's speed, and how many of the large one have not started.
func (f fairFeed) run(ctx context.Context, c contender.Contender) (waits []time.Duration, before []int64, left int, err error) {
	origin := time.Now()
	before = make([]int64, f.n)
	committed, started := make([]time.Duration, f.n), make([]atomic.Int64, f.n)
	var large, small atomic.Int64
	all := make(chan struct{})
	k := hire(ctx, c, contender.Work{Concurrency: fairHandlers, Started: func(num int) {
		if num < f.backlog {
			large.Add(1)
		} else {
			before[num-f.backlog] += large.Load()
			started[num-f.backlog].Store(int64(time.Since(origin)))
			if small.Add(1) == int64(f.n) {
				close(all)
			}
		}
		time.Sleep(fairTakes)
	}}, math.MaxInt)
	err = func() error {
		tick := time.NewTicker(steadyTick)
		defer tick.Stop()
		jobs := make([]contender.Job, fairPerTick)
		for at := 0; at < f.n; at += fairPerTick {
			<-tick.C
			for i := range jobs {
				jobs[i].Num, before[at+i] = f.backlog+at+i, -large.Load()
			}
			if err := c.Insert(ctx, jobs); err != nil {
				return err
			}
			for i := at; i < at+fairPerTick; i++ {
				committed[i] = time.Since(origin)
			}
		}
		return k.waitFor(ctx, all)
	}()
	if err := errors.Join(err, k.dismiss()); err != nil {
		return nil, nil, 0, err
	}
	waits = make([]time.Duration, f.n)
	for i := range waits {
		waits[i] = max(0, time.Duration(started[i].Load())-committed[i])
	}
	return waits, before, f.backlog - int(large.Load()), nil
}

// weightedTenants measures the shares of three tenants with different weights while all have waiting work.
func (b *Bench) weightedTenants(ctx context.Context) error {
	span := b.Span / 2
	kind := contender.Kind{Name: "weighted", Fair: engine.RoundRobin(func(a contender.Args) string {
		return strconv.Itoa(a.Num % fairWeights)
	}).Weigh(func(a contender.Args) int { return 1 << (a.Num % fairWeights) })}
	waiting := max(fairHandlers, b.N/100)
	measured := fmt.Sprintf("three tenants with weights of 1, 2 and 4, each with %d executions waiting, which are replaced as they start; %d handlers of %s; starts over %s; the largest deviation of a tenant's share from its weight's, in percent of that",
		waiting, fairHandlers, fairTakes, span)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker.As("three weights", kind)}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		f := &weightFeed{waiting: waiting}
		starts, err := f.run(ctx, c, span)
		if err != nil {
			return nil, err
		}
		return []reading{
			{name: "weights 1:2:4, largest deviation of a share", unit: "%", value: deviation(starts), less: true},
			{name: "weights 1:2:4, starts", unit: "executions/s", value: float64(starts[0]+starts[1]+starts[2]) / span.Seconds()},
		}, nil
	})
}

// deviation returns by how many percent a share deviates at most from the weight's share.
func deviation(starts [fairWeights]int64) float64 {
	var all, most float64
	for _, n := range starts {
		all += float64(n)
	}
	if all == 0 {
		return 100
	}
	for i, n := range starts {
		want := all * float64(int(1)<<i) / (1<<fairWeights - 1)
		most = max(most, math.Abs(float64(n)-want)/want*100)
	}
	return most
}

// weightFeed keeps the same number of executions of each tenant waiting. An execution's number modulo the tenants is its
// tenant.
type weightFeed struct {
	waiting int
	created [fairWeights]int64
	started [fairWeights]atomic.Int64
}

// run returns how many executions of each tenant start within the span, after a tenth of it.
func (f *weightFeed) run(ctx context.Context, c contender.Contender, span time.Duration) (starts [fairWeights]int64, err error) {
	if err := enqueue(ctx, c, f.due()); err != nil {
		return starts, err
	}
	k := hire(ctx, c, contender.Work{Concurrency: fairHandlers, Started: func(num int) {
		f.started[num%fairWeights].Add(1)
		time.Sleep(fairTakes)
	}}, math.MaxInt)
	err = func() error {
		if err := f.feed(ctx, c, span/10); err != nil {
			return err
		}
		before := f.starts()
		if err := f.feed(ctx, c, span); err != nil {
			return err
		}
		for i, n := range f.starts() {
			starts[i] = n - before[i]
		}
		return nil
	}()
	return starts, errors.Join(err, k.dismiss())
}

// feed replaces started executions for a time.
func (f *weightFeed) feed(ctx context.Context, c contender.Contender, span time.Duration) error {
	look := time.NewTicker(steadyTick)
	defer look.Stop()
	for end := time.After(span); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-look.C:
		}
		if jobs := f.due(); len(jobs) > 0 {
			if err := c.Insert(ctx, jobs); err != nil {
				return err
			}
		}
	}
}

// due returns the executions that are missing, and counts them as created.
func (f *weightFeed) due() []contender.Job {
	var jobs []contender.Job
	for tenant, started := range f.starts() {
		for ; f.created[tenant] < started+int64(f.waiting); f.created[tenant]++ {
			jobs = append(jobs, contender.Job{Num: int(f.created[tenant])*fairWeights + tenant})
		}
	}
	return jobs
}

func (f *weightFeed) starts() (n [fairWeights]int64) {
	for i := range n {
		n[i] = f.started[i].Load()
	}
	return n
}
