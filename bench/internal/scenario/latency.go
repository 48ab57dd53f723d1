package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const (
	idleFor   = 250 * time.Millisecond // shortest time between two jobs, longer than River's default cooldown
	idleMore  = 50 * time.Millisecond  // random addition, so no timer keeps step
	warmUps   = 3
	idleTotal = 120 // jobs over all rounds
)

func latency(ctx context.Context, b *Bench) error {
	f := b.Field
	n := max(5, min(idleTotal, b.N/20)/b.Rounds)
	if b.Quick {
		n = max(5, n/2)
	}
	m := func(ctx context.Context, c contender.Contender) ([]reading, error) {
		waits, err := oneByOne(ctx, c, n)
		if err != nil {
			return nil, err
		}
		return latencies("commit to start, idle", waits), nil
	}
	measured := fmt.Sprintf("%d executions, one every %s while nothing else happens; from when the insert returned to the handler's start; the floor polls every millisecond", n, idleFor)
	err := b.compare(ctx, measured, b.Rounds, lineup{f.Worker, f.River.Tuned(contender.RiverDefaults()), f.Raw}, m)
	if err != nil || b.Quick {
		return err
	}
	m = func(ctx context.Context, c contender.Contender) ([]reading, error) {
		waits, err := oneByOne(ctx, c, n)
		if err != nil {
			return nil, err
		}
		return latencies("commit to start, idle, peer polling every millisecond", waits), nil
	}
	return b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker, peer: f.River.Tuned(contender.RiverFastest())}, m)
}

// oneByOne inserts each job long after the previous one is done, and returns how long each waited.
func oneByOne(ctx context.Context, c contender.Contender, n int) ([]time.Duration, error) {
	started := make(chan time.Time, 1)
	k := hire(ctx, c, contender.Work{Started: func(int) { started <- time.Now() }}, n+warmUps)
	waits, err := func() ([]time.Duration, error) {
		waits := make([]time.Duration, 0, n+warmUps)
		for num := range n + warmUps {
			if err := pause(ctx, idleFor+rand.N(idleMore)); err != nil {
				return nil, err
			}
			if err := c.Insert(ctx, []contender.Job{{Num: num}}); err != nil {
				return nil, err
			}
			committed := time.Now()
			select {
			case at := <-started:
				waits = append(waits, max(0, at.Sub(committed)))
			case <-time.After(stall):
				return nil, fmt.Errorf("not started in %s", stall)
			}
		}
		return waits[warmUps:], k.wait(ctx)
	}()
	return waits, errors.Join(err, k.dismiss())
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
