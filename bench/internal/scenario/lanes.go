package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const (
	mostLanes    = 100
	waitingInOne = 10 // jobs in each lane
)

// manyLanes measures one worker, and one client of the peer, with many lanes and few jobs in each. There is no floor: the
// order of lanes is a scheduler's task, and a loop over them would be slower than both.
func manyLanes(ctx context.Context, b *Bench) error {
	f := b.Field
	lanes := max(2, min(mostLanes, b.N/(10*waitingInOne)))
	for _, side := range []struct {
		note string
		n    int
		peer contender.Contender
	}{
		{"", b.N / 2, f.River},
		{", peer at its client's defaults", b.N / 5, f.River.Tuned(contender.RiverDefaults())},
	} {
		n := max(side.n, 2*lanes*waitingInOne)
		name := fmt.Sprintf("%d lanes%s", lanes, side.note)
		measured := fmt.Sprintf("%d executions over %d lanes, of the peer queues of one client, %d waiting in each: every millisecond those that have started are replaced, in one transaction, as fast as that goes; from when the workers look for them to the last commit, and from when an insert returned to the handler's start; no floor",
			n, lanes, waitingInOne)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker, peer: side.peer}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			rate, waits, err := serveLanes(ctx, c, lanes, n)
			if err != nil {
				return nil, err
			}
			got := []reading{{name: name, unit: "executions/s", value: rate}}
			return append(got, latencies(name+", commit to start", waits)...), c.Check(ctx, n)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// laneFeed keeps lanes filled. Job number i is on lane i modulo the number of lanes, so each lane has its numbers in
// order, and lags behind the others only by the jobs that start.
type laneFeed struct {
	lanes, n  int
	begun     []atomic.Int64 // jobs started, by lane
	inserted  []int          // by lane
	origin    time.Time
	committed []atomic.Int64 // since origin, by number
	started   []atomic.Int64 // like committed
}

// serveLanes processes n jobs over the lanes. It returns the rate, and the time each job inserted meanwhile waited for
// its handler.
func serveLanes(ctx context.Context, c contender.Contender, lanes, n int) (rate float64, waits []time.Duration, err error) {
	f := &laneFeed{
		lanes:     lanes,
		n:         n,
		begun:     make([]atomic.Int64, lanes),
		inserted:  make([]int, lanes),
		origin:    time.Now(),
		committed: make([]atomic.Int64, n),
		started:   make([]atomic.Int64, n),
	}
	first := f.due()
	if err := enqueue(ctx, c, first); err != nil {
		return 0, nil, err
	}
	k := hire(ctx, c, contender.Work{Lanes: lanes, Started: func(num int) {
		f.started[num].Store(int64(time.Since(f.origin)))
		f.begun[num%lanes].Add(1)
	}}, n)
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan error, 1)
	go func() { fed <- f.feed(feeding, c) }()
	err = k.wait(ctx)
	stop()
	if err = errors.Join(err, <-fed, k.dismiss()); err != nil {
		return 0, nil, err
	}
	there := make(map[int]bool, len(first))
	for _, job := range first {
		there[job.Num] = true
	}
	for num := range n {
		if !there[num] {
			// A handler may begin before the insert has returned to its caller.
			waits = append(waits, max(0, time.Duration(f.started[num].Load()-f.committed[num].Load())))
		}
	}
	return float64(n) / k.span().Seconds(), waits, nil
}

// feed replaces started jobs until all are inserted or ctx ends.
func (f *laneFeed) feed(ctx context.Context, c contender.Contender) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !f.all() {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		jobs := f.due()
		if len(jobs) == 0 {
			continue
		}
		err := c.Insert(ctx, jobs)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := int64(time.Since(f.origin))
		for _, job := range jobs {
			f.committed[job.Num].Store(now)
		}
	}
	return nil
}

// due returns the jobs that fill each lane, and counts them as inserted.
func (f *laneFeed) due() []contender.Job {
	var jobs []contender.Job
	for lane := range f.lanes {
		full := int(f.begun[lane].Load()) + waitingInOne
		for ; f.inserted[lane] < full; f.inserted[lane]++ {
			num := f.inserted[lane]*f.lanes + lane
			if num >= f.n {
				break
			}
			jobs = append(jobs, contender.Job{Num: num, Lane: lane + 1})
		}
	}
	return jobs
}

func (f *laneFeed) all() bool {
	sum := 0
	for _, n := range f.inserted {
		sum += n
	}
	return sum == f.n
}
