package ffotel

import (
	"context"
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Instrument makes the engine and the worker with these configurations report spans and metrics: see [Spans] and [Metrics].
// Either may be nil. Observers and middleware in the configurations are called too, before ffotel's.
//
// The engine's part sets the tag [TraceparentTag] of new executions, so the worker of another process finds the creator's
// span. Call Instrument once for a configuration, or each run is reported twice.
//
// Errors: no configuration is given, and the errors of the meter. After an error the configurations are unchanged.
func Instrument(engineConfig *engine.Config, workerConfig *worker.Config, opts Options) error {
	if engineConfig == nil && workerConfig == nil {
		return errors.New("instrument: there is no configuration")
	}
	instruments, err := newInstruments(opts.meter())
	if err != nil {
		return err
	}
	tracer := opts.tracer()
	if engineConfig != nil {
		engineConfig.Observer = &engineObserver{next: engineConfig.Observer}
		engineConfig.Middleware = append(slices.Clip(engineConfig.Middleware), func(ctx context.Context, spec *engine.ExecutionSpec) error {
			create(ctx, tracer, spec)
			return nil
		})
	}
	if workerConfig != nil {
		workerConfig.Observer = &workerObserver{instruments: instruments, tracer: tracer, parent: opts.Parent, next: workerConfig.Observer}
	}
	return nil
}
