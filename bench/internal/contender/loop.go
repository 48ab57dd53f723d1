package contender

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	loopWorkers = 2 // enough to keep both sides busy: while one waits for the server the other computes
	loopBatch   = 500
	loopPause   = time.Millisecond // after an empty claim
)

// loop is a worker reduced to the least: it claims a batch and completes it. Nothing runs beside it.
type loop[T any] struct {
	claim    func(ctx context.Context, n int) ([]T, error)
	complete func(ctx context.Context, claimed []T) error
	num      func(T) int
}

// runLoops runs as many loops as w asks for until ctx ends.
func runLoops[T any](ctx context.Context, w Work, newLoop func() (loop[T], error)) error {
	workers, batch := w.Workers, w.Batch
	if workers == 0 {
		workers = loopWorkers
	}
	if batch == 0 {
		batch = loopBatch
	}
	running, stop := errgroup.WithContext(ctx)
	for range workers {
		running.Go(func() error {
			l, err := newLoop()
			if err != nil {
				return err
			}
			return l.run(stop, w, batch)
		})
	}
	return running.Wait()
}

func (l loop[T]) run(ctx context.Context, w Work, batch int) error {
	// A statement that has begun is finished: what it claimed would be lost.
	calls := context.WithoutCancel(ctx)
	pause := time.NewTicker(loopPause)
	defer pause.Stop()
	if w.Begun != nil {
		w.Begun()
	}
	for ctx.Err() == nil {
		claimed, err := l.claim(calls, batch)
		if err != nil {
			return err
		}
		if len(claimed) == 0 {
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			continue
		}
		if w.Started != nil {
			for _, job := range claimed {
				w.Started(l.num(job))
			}
		}
		if err := l.complete(calls, claimed); err != nil {
			return err
		}
		if w.Done != nil {
			for range claimed {
				w.Done()
			}
		}
	}
	return nil
}
