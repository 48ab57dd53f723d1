package reconcile

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

// Calls of jobs take no more connections at once than MaxConnections says. A job that has to wait is called when another one ends,
// the one first that has waited longest, and sweeps leave room for the rest. F3.
func TestRunCallsFewJobsAtOnce(t *testing.T) {
	t.Parallel()
	var running []upkeep.Job
	called := make(map[upkeep.Job]int)
	most, mostSweeps := 0, 0
	runFor(t, 40*time.Minute, Config{}, func(p *fakeProcess) {
		sweeps := make(map[upkeep.Job]bool)
		jobs := jobsOf(&upkeep.Upkeep{})
		for _, j := range jobs {
			sweeps[j.name] = j.sweep
			if !j.sweep {
				p.due[j.name] = time.Now()
			}
		}
		p.slow = func(ctx context.Context, job upkeep.Job) {
			p.mu.Lock()
			running, called[job] = append(running, job), called[job]+1
			most = max(most, len(running))
			n := 0
			for _, other := range running {
				if sweeps[other] {
					n++
				}
			}
			mostSweeps = max(mostSweeps, n)
			p.mu.Unlock()
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
			p.mu.Lock()
			running = slices.DeleteFunc(running, func(other upkeep.Job) bool { return other == job })
			p.mu.Unlock()
		}
	})
	if most != MaxConnections-1 || mostSweeps != sweepsAtOnce {
		t.Errorf("%d jobs ran at once, %d of them sweeps; want %d and %d", most, mostSweeps, MaxConnections-1, sweepsAtOnce)
	}
	for _, j := range jobsOf(&upkeep.Upkeep{}) {
		if called[j.name] == 0 {
			t.Errorf("%s was never called", j.name)
		}
	}
}

// A job whose batches stay full goes on at once, and lets others have a turn meanwhile.
func TestRunSharesItsCallsBetweenBusyJobs(t *testing.T) {
	t.Parallel()
	p := runFor(t, 20*time.Second, Config{Batch: 1}, func(p *fakeProcess) {
		for _, j := range jobsOf(&upkeep.Upkeep{}) {
			if !j.sweep && j.batch == 0 {
				p.due[j.name] = time.Now()
			}
		}
		p.act = func(upkeep.Job, int) (int, error) { return 1, nil } // always full
		p.slow = func(context.Context, upkeep.Job) { time.Sleep(10 * time.Millisecond) }
	})
	least, most := 1<<30, 0
	for name := range p.due {
		n := len(p.calls["process"][name])
		least, most = min(least, n), max(most, n)
	}
	if least < 100 || most > 2*least {
		t.Errorf("busy jobs are called %d to %d times in 20 seconds", least, most)
	}
}
