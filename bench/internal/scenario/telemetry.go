package scenario

import (
	"context"
	"fmt"
)

// telemetry measures no-op work with telemetry beside the same work without.
func telemetry(ctx context.Context, b *Bench) error {
	for _, of := range []struct {
		with   string
		traces float64
	}{{"with metrics", 0}, {"with metrics and one trace in a hundred", 0.01}, {"with metrics and all traces", 1}} {
		ours, err := b.Field.Worker.Instrumented(of.with, of.traces)
		if err != nil {
			return err
		}
		measured := fmt.Sprintf("%d no-op executions, created in batches of %d by one caller, then burnt down by a worker, %s, which are dropped; the peer is the same without telemetry", b.N, createBatch, of.with)
		if err := b.compare(ctx, measured, b.Rounds, lineup{ours: ours, peer: b.Field.Worker}, b.createAndBurn(of.with)); err != nil {
			return err
		}
	}
	return nil
}
