package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
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
		l := lineup{ours: ours, peer: b.Field.Worker}
		if err := b.compare(ctx, measured, b.Rounds, l, b.createAndBurn(of.with)); err != nil {
			return err
		}
		n := max(1, b.N/4)
		measured = fmt.Sprintf("burn-down of %d executions whose handlers run one statement each, %s; the peer is the same without telemetry", n, of.with)
		if err := b.compare(ctx, measured, b.Rounds, l, burnWithStatements(n, of.with)); err != nil {
			return err
		}
	}
	return nil
}

// burnWithStatements measures a burn-down with one statement in each handler: a handler with a database does no less.
func burnWithStatements(n int, with string) measure {
	return func(ctx context.Context, c contender.Contender) ([]reading, error) {
		if err := enqueue(ctx, c, plain(n)); err != nil {
			return nil, err
		}
		var failed atomic.Pointer[error]
		rate, err := drain(ctx, c, contender.Work{Started: func(int) {
			if _, err := c.Pool().Exec(ctx, "SELECT 1"); err != nil {
				failed.Store(&err)
			}
		}}, n)
		if first := failed.Load(); first != nil {
			err = errors.Join(err, *first)
		}
		return []reading{{name: "burn-down of handlers with a statement, " + with, unit: "executions/s", value: rate}}, err
	}
}
