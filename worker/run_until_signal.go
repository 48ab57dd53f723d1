package worker

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// RunUntilSignal runs workers until the process is interrupted (SIGINT, SIGTERM), ctx ends, or one of the workers can't
// start. Then all drain, as in [Worker.Run]. A second signal cancels the handlers at once instead of after
// [Config.DrainTimeout]. A third one ends the process, in case a handler ignores its context.
//
// Errors: as [Worker.Run], of all workers joined; [fferr.ErrInvalidInput] without a worker. A signal is none.
func RunUntilSignal(ctx context.Context, workers ...*Worker) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return runUntil(ctx, signals, func() { signal.Stop(signals) }, workers)
}

// runUntil runs workers until the first signal. After the second it calls noMore.
func runUntil(ctx context.Context, signals <-chan os.Signal, noMore func(), workers []*Worker) error {
	if len(workers) == 0 {
		return &fferr.InputError{Field: "workers", Reason: "are missing"}
	}
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	hurry := make(chan struct{})
	ended := make(chan error)
	for _, w := range workers {
		go func() { ended <- w.run(ctx, hurry) }()
	}
	var errs []error
	for received, running := 0, len(workers); running > 0; {
		select {
		case err := <-ended:
			errs = append(errs, err)
			running--
			drain() // the others too
		case <-signals:
			switch received++; received {
			case 1:
				drain()
			case 2:
				close(hurry)
				noMore()
			}
		}
	}
	return errors.Join(errs...)
}
