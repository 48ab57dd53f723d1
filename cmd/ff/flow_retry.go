package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/state"
)

func (a *app) flowRetryCommand() *cobra.Command {
	var (
		r         retryFlags
		cancelled bool
	)
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Retry failed executions of a flow, and those skipped below them",
		Long: `retry replays the executions of a flow that failed or expired, and those that were
skipped because of them, each before its dependents. Completed and running
executions don't change. With --cancelled, cancelled executions run again too.
--dry-run only lists them.

A flow that was cancelled itself is refused. Refused executions are printed, and
the exit code is then 1.`,
		Example: `  ff flow retry 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --dry-run
  ff flow retry 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			flow, err := flowArgument(args[0])
			if err != nil {
				return err
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				graph, err := eng.FlowGraph(ctx, flow)
				if err != nil {
					return err
				}
				b := newBulk(a, eng, r)
				for _, i := range toRetry(graph, cancelled) {
					n := &graph.Nodes[i]
					if err := b.retry(ctx, n.ID, drawing.NodeName(n)); err != nil {
						return err
					}
				}
				return b.end()
			})
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&cancelled, "cancelled", false, "also run cancelled executions again")
	flags.BoolVar(&r.dryRun, "dry-run", false, "list the executions to retry, without changing anything")
	flags.BoolVar(&r.asJSON, "json", false, "print JSON")
	return cmd
}

// toRetry returns the indexes of nodes that failed, and of nodes skipped because of the failed ones, each after its
// upstreams.
func toRetry(graph *engine.FlowGraph, cancelled bool) (places []int) {
	downstream := make([][]int, len(graph.Nodes))
	for _, e := range graph.Edges {
		downstream[e.From] = append(downstream[e.From], e.To)
	}
	below := make([]bool, len(graph.Nodes)) // downstream of a node to be run again
	for _, i := range byDepth(graph) {
		var again bool
		switch drawing.NodeState(&graph.Nodes[i]) {
		case state.PublicFailed, state.PublicExpired:
			again = true
		case state.PublicCancelled:
			again = cancelled
		case state.PublicSkipped:
			again = below[i]
		}
		if !again {
			continue
		}
		places = append(places, i)
		for _, d := range downstream[i] {
			below[d] = true
		}
	}
	return places
}
