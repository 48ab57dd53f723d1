package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// steadyTick is the time between two inserts.
const steadyTick = 10 * time.Millisecond

func steady(ctx context.Context, b *Bench) error {
	f := b.Field
	if err := b.steadyAt(ctx, "", max(1, b.N/2000), lineup{f.Worker, f.River, f.Raw}); err != nil {
		return err
	}
	// Above 1,000 a second River's defaults are too slow.
	defaults := f.River.Tuned(contender.RiverDefaults())
	return b.steadyAt(ctx, ", peer at its client's defaults", max(1, min(5, b.N/2000)), lineup{ours: f.Worker, peer: defaults})
}

func (b *Bench) steadyAt(ctx context.Context, note string, perTick int, l lineup) error {
	ticks := int(b.Span / steadyTick)
	rate := perTick * int(time.Second/steadyTick)
	name := fmt.Sprintf("steady at %d/s%s", rate, note)
	measured := fmt.Sprintf("%d executions inserted every %s for %s; from when the insert returned to the handler's start", perTick, steadyTick, b.Span)
	return b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		waits, inserting, err := keepUp(ctx, c, perTick, ticks)
		if err != nil {
			return nil, err
		}
		reached := reading{name: name + ", rate reached", unit: "executions/s", value: float64(len(waits)) / inserting.Seconds()}
		return append(latencies(name+", commit to start", waits), reached), c.Check(ctx, len(waits))
	})
}

// keepUp inserts jobs at a fixed rate. It returns how long each waited for its handler, and how long the inserts took:
// longer than planned if they were too slow.
func keepUp(ctx context.Context, c contender.Contender, perTick, ticks int) (waits []time.Duration, inserting time.Duration, err error) {
	n := perTick * ticks
	origin := time.Now()
	committed, started := make([]time.Duration, n), make([]atomic.Int64, n)
	k := hire(ctx, c, contender.Work{Started: func(num int) { started[num].Store(int64(time.Since(origin))) }}, n)
	jobs := plain(n)
	err = func() error {
		began := time.Now()
		tick := time.NewTicker(steadyTick)
		defer tick.Stop()
		for at := 0; at < n; at += perTick {
			<-tick.C
			if err := c.Insert(ctx, jobs[at:at+perTick]); err != nil {
				return err
			}
			for i := at; i < at+perTick; i++ {
				committed[i] = time.Since(origin)
			}
		}
		inserting = time.Since(began)
		return k.wait(ctx)
	}()
	if err := errors.Join(err, k.dismiss()); err != nil {
		return nil, 0, err
	}
	waits = make([]time.Duration, n)
	for i := range waits {
		// A handler may begin before the insert has returned to its caller.
		waits[i] = max(0, time.Duration(started[i].Load())-committed[i])
	}
	return waits, inserting, nil
}
