package ffotel

import (
	"errors"
	"slices"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Instrument makes the engine and the worker with these configurations report spans and metrics: see [Spans] and [Metrics].
// Either may be nil. Observers and middleware in the configurations are called too, before ffotel's.
//
// The engine's part sets the tag [TraceparentTag] of new executions, so the worker of another process finds the creator's
// span. A span that is not sampled is not stored, unless [Options.Parent] is set: then its executions are not sampled either.
//
// Errors: no configuration is given, or one is instrumented already; the errors of the meter. After an error the
// configurations are unchanged.
func Instrument(engineConfig *engine.Config, workerConfig *worker.Config, opts Options) error {
	if engineConfig == nil && workerConfig == nil {
		return errors.New("instrument: there is no configuration")
	}
	if engineConfig != nil && isOurs(engineConfig.Observer) || workerConfig != nil && isOurs(workerConfig.Observer) {
		return errors.New("instrument: the configuration is instrumented already")
	}
	instruments, err := newInstruments(opts.meter())
	if err != nil {
		return err
	}
	if engineConfig != nil {
		o := &engineObserver{instruments: instruments, tracer: opts.tracer(), parent: opts.Parent, next: engineConfig.Observer}
		engineConfig.Observer = o
		engineConfig.Middleware = append(slices.Clip(engineConfig.Middleware), o.create)
	}
	if workerConfig != nil {
		workerConfig.Observer = &workerObserver{
			kinds: kinds{instruments: instruments}, tracer: opts.tracer(), parent: opts.Parent, next: workerConfig.Observer,
		}
	}
	return nil
}

func isOurs(observer any) bool {
	switch observer.(type) {
	case *engineObserver, *workerObserver:
		return true
	}
	return false
}
