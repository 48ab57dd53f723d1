package scenario

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const (
	workerProcesses    = 4
	processConnections = 10
)

// processes measures a burn-down by several processes, as in a service.
func processes(ctx context.Context, b *Bench) error {
	l := lineup{b.Field.Worker, b.Field.River, b.Field.Raw}
	for _, c := range []*contender.Contender{&l.ours, &l.peer, &l.floor} {
		fleet, err := contender.NewFleet(*c, workerProcesses, processConnections)
		if err != nil {
			return err
		}
		*c = fleet
	}
	measured := fmt.Sprintf("%d no-op executions, worked off by %d processes with a pool of %d connections each, to which the worker adds those it keeps for itself; from when the first process looks for them, all being connected, to the last commit, within 10 ms; every contender at its own settings in each process",
		b.N, workerProcesses, processConnections)
	return b.compare(ctx, measured, b.Rounds, l, burn(fmt.Sprintf("burn-down, %d processes", workerProcesses), b.N, contender.Work{}))
}
