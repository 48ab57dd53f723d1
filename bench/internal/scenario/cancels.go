package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// cancels measures the time to end all members of a flow. All flows exist before the first is cancelled.
func cancels(ctx context.Context, b *Bench) error {
	const perNode = 3 // edges per node
	small := max(4, b.N/100)
	few, many := max(3, b.N/3000), max(3, b.N/500)
	for _, c := range []struct {
		name  string
		flows int
		graph contender.Graph
		held  int
	}{
		{"waiting", many, contender.Graph{Nodes: small}, 0},
		{"worked on", many, contender.Graph{Nodes: small}, small},
		{"three edges each", many, mesh(small, max(1, small/20), perNode*small), 0},
		{"waiting", few, contender.Graph{Nodes: 10 * small}, 0},
		{"three edges each", few, mesh(10*small, small/2, perNode*10*small), 0},
	} {
		name := fmt.Sprintf("cancel of a flow of %d, %s", c.graph.Nodes, c.name)
		measured := fmt.Sprintf("%d flows of %d live executions and %d dependencies, cancelled one after the other; the peer has no flows", c.flows, c.graph.Nodes, len(c.graph.Edges))
		err := b.compare(ctx, measured, 1, lineup{ours: b.Field.Worker}, func(ctx context.Context, who contender.Contender) ([]reading, error) {
			took, err := cancelFlows(ctx, who, c.graph, c.held, c.flows)
			return latencies(name, took), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func cancelFlows(ctx context.Context, c contender.Contender, g contender.Graph, held, n int) ([]time.Duration, error) {
	with, ok := c.(contender.FlowCanceller)
	if !ok {
		return nil, errors.New("has no flows to cancel")
	}
	cancel := make([]func(context.Context) (int, error), n)
	for i := range cancel {
		var err error
		if cancel[i], err = with.Cancels(ctx, g, held); err != nil {
			return nil, err
		}
	}
	if err := rest(ctx, c); err != nil {
		return nil, err
	}
	took := make([]time.Duration, n)
	for i := range cancel {
		began := time.Now()
		ended, err := cancel[i](ctx)
		took[i] = time.Since(began)
		if err != nil {
			return nil, err
		}
		if ended != g.Nodes {
			return nil, fmt.Errorf("cancelled %d of %d", ended, g.Nodes)
		}
	}
	return took, nil
}
