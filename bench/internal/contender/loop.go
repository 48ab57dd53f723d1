package contender

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	loopWorkers = 2 // one can compute while the other waits for the server
	loopBatch   = 500
	loopPause   = time.Millisecond // after an empty claim
)

// loop is a minimal worker: claim a batch, decode the payloads, complete the batch, and nothing beside. With batches of
// one the loop completes in the transaction of the next claim, like package worker.
type loop[T any] struct {
	claim            func(ctx context.Context, n int) ([]T, error)
	complete         func(ctx context.Context, claimed []T) error
	completeAndClaim func(ctx context.Context, claimed []T, n int) ([]T, error)
	payload          func(T) []byte
}

// runLoops runs the number of loops in w until ctx ends.
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
	// Finish a begun statement, since the claimed work would be lost.
	calls := context.WithoutCancel(ctx)
	pause := time.NewTicker(loopPause)
	defer pause.Stop()
	if w.Begun != nil {
		w.Begun()
	}
	var held []T
	for ctx.Err() == nil {
		claimed, err := l.next(calls, held, batch)
		if err != nil {
			return err
		}
		done(w, held)
		held = claimed
		for _, job := range claimed {
			// Decoding 16 KiB costs more than the statements do, and the handlers of the others get decoded values.
			var a args
			if err := json.Unmarshal(l.payload(job), &a); err != nil {
				return err
			}
			if w.Started != nil {
				w.Started(a.Num)
			}
		}
		if len(claimed) == 0 {
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
		}
	}
	if len(held) > 0 {
		if err := l.complete(calls, held); err != nil {
			return err
		}
		done(w, held)
	}
	return nil
}

// next completes held and claims up to n more.
func (l loop[T]) next(ctx context.Context, held []T, n int) ([]T, error) {
	if len(held) > 0 {
		if n == 1 {
			return l.completeAndClaim(ctx, held, n)
		}
		if err := l.complete(ctx, held); err != nil {
			return nil, err
		}
	}
	return l.claim(ctx, n)
}

func done[T any](w Work, completed []T) {
	if w.Done != nil {
		for range completed {
			w.Done()
		}
	}
}
