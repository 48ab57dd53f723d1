package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// singleFlows measures how soon single flows end.
func singleFlows(ctx context.Context, b *Bench) error {
	if err := b.idleChains(ctx); err != nil {
		return err
	}
	if err := b.largeFlow(ctx); err != nil {
		return err
	}
	return b.fanIn(ctx)
}

const chainLength = 10

func (b *Bench) idleChains(ctx context.Context) error {
	n := max(5, min(idleTotal, b.N/20)/b.Rounds)
	measured := fmt.Sprintf("%d chains of ten executions, one every %s while nothing else happens; from the call that creates it to the commit of its last end; the peer has no dependencies", n, idleFor)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		with, ok := c.(contender.FlowInserter)
		if !ok {
			return nil, errNoFlows
		}
		took, err := chainsOneByOne(ctx, with, n)
		if err != nil {
			return nil, err
		}
		return latencies("chain of ten, creation to end, idle", took), nil
	})
}

var errNoFlows = errors.New("has no dependencies")

// chainsOneByOne creates each chain long after the previous one has ended, and returns how long each took.
func chainsOneByOne(ctx context.Context, c contender.FlowInserter, n int) ([]time.Duration, error) {
	done := make(chan time.Time, chainLength)
	k := hire(ctx, c, contender.Work{Done: func() { done <- time.Now() }}, (n+warmUps)*chainLength)
	took, err := func() ([]time.Duration, error) {
		var took []time.Duration
		for range n + warmUps {
			if err := pause(ctx, idleFor); err != nil {
				return nil, err
			}
			began := time.Now()
			if err := c.InsertFlow(ctx, chain(chainLength)); err != nil {
				return nil, err
			}
			var last time.Time
			for range chainLength {
				select {
				case last = <-done:
				case <-time.After(stall):
					return nil, fmt.Errorf("not done in %s", stall)
				}
			}
			took = append(took, last.Sub(began))
		}
		return took[warmUps:], k.wait(ctx)
	}()
	return took, errors.Join(err, k.dismiss())
}

// largeFlow measures one flow of the largest size for one call.
func (b *Bench) largeFlow(ctx context.Context) error {
	nodes := max(20, b.N/10)
	g := mesh(nodes, max(1, nodes/20), 3*nodes)
	name := fmt.Sprintf("one flow of %d nodes and %d edges", g.Nodes, len(g.Edges))
	measured := fmt.Sprintf("%s in layers of %d, created by one call and run by one worker; the peer has no dependencies", name, nodes/20)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		with, ok := c.(contender.FlowInserter)
		if !ok {
			return nil, errNoFlows
		}
		began := time.Now()
		if err := with.InsertFlow(ctx, g); err != nil {
			return nil, err
		}
		created := time.Since(began)
		if err := rest(ctx, c); err != nil {
			return nil, err
		}
		rate, err := drain(ctx, c, contender.Work{}, g.Nodes)
		if err != nil {
			return nil, err
		}
		return []reading{
			{name: name + ", created", unit: "s", value: created.Seconds(), less: true},
			{name: name + ", run", unit: "s", value: float64(g.Nodes) / rate, less: true},
		}, c.Check(ctx, g.Nodes)
	})
}

// fanIn measures many executions that all count for one downstream, and as many that count for none.
func (b *Bench) fanIn(ctx context.Context) error {
	const workers = 8
	upstreams := max(10, b.N/100)
	joined := contender.Graph{Nodes: upstreams + 1}
	for i := range upstreams {
		joined.Edges = append(joined.Edges, [2]int{i, upstreams})
	}
	for _, side := range []struct {
		name  string
		graph contender.Graph
	}{
		{fmt.Sprintf("fan-in of %d, eight workers", upstreams), joined},
		{fmt.Sprintf("members of one flow, %d without dependencies, eight workers", upstreams), contender.Graph{Nodes: upstreams}},
		{fmt.Sprintf("plain executions, %d, eight workers", upstreams), contender.Graph{}},
	} {
		jobs := max(side.graph.Nodes, upstreams)
		measured := fmt.Sprintf("%d executions, %d dependencies, %d workers in one process, from when the first looks for them to the last commit; the peer has no dependencies", jobs, len(side.graph.Edges), workers)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			with, ok := c.(contender.FlowInserter)
			switch {
			case !ok:
				return nil, errNoFlows
			case side.graph.Nodes == 0:
				if err := enqueue(ctx, c, plain(jobs)); err != nil {
					return nil, err
				}
			default:
				if err := enqueueFlows(ctx, with, side.graph, 1); err != nil {
					return nil, err
				}
			}
			rate, err := drain(ctx, c, contender.Work{Workers: workers}, jobs)
			if err != nil {
				return nil, err
			}
			return []reading{{name: side.name, unit: "ms", value: 1000 * float64(jobs) / rate, less: true}}, c.Check(ctx, jobs)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mesh returns nodes in layers. Each node after the first layer waits for neighbours in earlier layers: first in the
// next one, then further away until there are enough edges.
func mesh(nodes, width, edges int) contender.Graph {
	g := contender.Graph{Nodes: nodes}
	for n := 0; len(g.Edges) < edges; n++ {
		before := len(g.Edges)
		for i := width; i < nodes && len(g.Edges) < edges; i++ {
			layer := i / width
			from := (layer-1-n/width)*width + (i+n)%width
			if from >= 0 {
				g.Edges = append(g.Edges, [2]int{from, i})
			}
		}
		if len(g.Edges) == before {
			break
		}
	}
	return g
}
