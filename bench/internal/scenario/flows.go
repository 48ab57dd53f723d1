package scenario

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

func flows(ctx context.Context, b *Bench) error {
	f := b.Field
	members := contender.Graph{Nodes: 10}
	measured := fmt.Sprintf("%d executions in flows of ten without dependencies; peer and floor: as many that belong to nothing", b.N/10*10)
	err := b.compare(ctx, measured, b.Rounds, lineup{f.Worker, f.River, f.Raw}, burnGraphs("members of flows of ten", "executions/s", members, b.N/10, members.Nodes))
	if err != nil || b.Quick {
		return err
	}
	n := max(1, b.N/10)
	measured = fmt.Sprintf("%d chains of ten executions, each waiting for the one before; the peer has no dependencies", n)
	err = b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker}, burnGraphs("chains of ten", "chains/s", chain(10), n, 1))
	if err != nil {
		return err
	}
	n = max(1, b.N/100)
	measured = fmt.Sprintf("%d fans: one execution, then a hundred, then one that waits for all of them; the peer has no dependencies", n)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker}, burnGraphs("fans of one to a hundred to one", "fans/s", fan(100), n, 1))
}

// burnGraphs measures how fast n graphs are processed, each counted as the given number.
func burnGraphs(name, unit string, g contender.Graph, n, each int) measure {
	return func(ctx context.Context, c contender.Contender) ([]reading, error) {
		jobs := n * g.Nodes
		var err error
		if with, ok := c.(contender.FlowInserter); ok {
			err = enqueueFlows(ctx, with, g, n)
		} else {
			err = enqueue(ctx, c, plain(jobs))
		}
		if err != nil {
			return nil, err
		}
		rate, err := drain(ctx, c, contender.Work{}, jobs)
		if err != nil {
			return nil, err
		}
		return []reading{{name: name, unit: unit, value: rate / float64(g.Nodes) * float64(each)}}, c.Check(ctx, jobs)
	}
}

// chain returns nodes in a row.
func chain(nodes int) contender.Graph {
	g := contender.Graph{Nodes: nodes}
	for i := range nodes - 1 {
		g.Edges = append(g.Edges, [2]int{i, i + 1})
	}
	return g
}

// fan returns one node, then many, then one.
func fan(many int) contender.Graph {
	g := contender.Graph{Nodes: many + 2}
	for i := 1; i <= many; i++ {
		g.Edges = append(g.Edges, [2]int{0, i}, [2]int{i, many + 1})
	}
	return g
}
