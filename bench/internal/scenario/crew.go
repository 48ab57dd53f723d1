package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/report"
)

// stall is how long a crew may make no progress before it is stopped.
const stall = time.Minute

// crew is a running contender.
type crew struct {
	goal    int64
	reached chan struct{} // closed when goal jobs are done
	ended   chan error    // the error of Run
	cancel  context.CancelFunc

	done    atomic.Int64
	origin  time.Time
	begun   sync.Once
	begunAt time.Duration // since origin, like lastAt
	lastAt  time.Duration
}

// hire starts a contender until goal jobs are done. It does not forward w.Begun.
func hire(ctx context.Context, c contender.Contender, w contender.Work, goal int) *crew {
	ctx, cancel := context.WithCancel(ctx)
	k := &crew{
		goal:    int64(goal),
		reached: make(chan struct{}),
		ended:   make(chan error, 1),
		cancel:  cancel,
		origin:  time.Now(),
	}
	w.Begun = func() { k.begun.Do(func() { k.begunAt = time.Since(k.origin) }) }
	done := w.Done
	w.Done = func() {
		if k.done.Add(1) == k.goal {
			k.lastAt = time.Since(k.origin)
			close(k.reached)
		}
		if done != nil {
			done()
		}
	}
	go func() { k.ended <- c.Run(ctx, w) }()
	return k
}

// wait waits until the goal is reached.
func (k *crew) wait(ctx context.Context) error { return k.waitFor(ctx, k.reached) }

// waitFor waits until reached is closed.
func (k *crew) waitFor(ctx context.Context, reached <-chan struct{}) error {
	look := time.NewTicker(stall)
	defer look.Stop()
	before := int64(-1)
	for {
		select {
		case <-reached:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case err := <-k.ended:
			k.ended <- err
			return errors.Join(errors.New("it ended before its time"), err)
		case <-look.C:
			now := k.done.Load()
			if now == before {
				return fmt.Errorf("nothing done in %s; %d of %d are", stall, now, k.goal)
			}
			before = now
		}
	}
}

// dismiss stops the work and waits for its end.
func (k *crew) dismiss() error {
	k.cancel()
	err := <-k.ended
	k.ended <- err
	return err
}

// span returns the time in which the goal was reached. Call it after dismiss.
func (k *crew) span() time.Duration { return k.lastAt - k.begunAt }

// drain processes goal existing jobs and returns the jobs per second.
func drain(ctx context.Context, c contender.Contender, w contender.Work, goal int) (rate float64, err error) {
	rate, _, err = drainWatched(ctx, c, w, goal)
	return rate, err
}

// drainWatched also returns the number of finished jobs over time.
func drainWatched(ctx context.Context, c contender.Contender, w contender.Work, goal int) (rate float64, course *report.Series, err error) {
	k := hire(ctx, c, w, goal)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan []count, 1)
	go func() { watched <- k.counts(watching) }()
	err = k.wait(ctx)
	stop()
	counts := <-watched
	if err = errors.Join(err, k.dismiss()); err != nil {
		return 0, nil, err
	}
	return float64(goal) / k.span().Seconds(), k.course(counts), nil
}

// count is the number of jobs finished at a time.
type count struct {
	at   time.Duration // since origin
	done int64
}

const (
	countEvery   = 20 * time.Millisecond
	coursePoints = 20 // of a series, roughly
)

// counts counts until ctx ends.
func (k *crew) counts(ctx context.Context) (counts []count) {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return counts
		case <-tick.C:
			counts = append(counts, count{time.Since(k.origin), k.done.Load()})
		}
	}
}

// course returns some of the counts and the end, from the start of the work. Call it after dismiss.
func (k *crew) course(counts []count) *report.Series {
	course := &report.Series{}
	course.Add(0, 0)
	every := len(counts)/coursePoints + 1
	for i := every - 1; i < len(counts); i += every {
		if c := counts[i]; c.at > k.begunAt && c.at < k.lastAt {
			course.Add(c.at-k.begunAt, float64(min(c.done, k.goal)))
		}
	}
	course.Add(k.span(), float64(k.goal))
	return course
}
