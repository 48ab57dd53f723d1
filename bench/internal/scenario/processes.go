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

// processes measures a burn-down by several processes, as a service runs them.
func processes(ctx context.Context, b *Bench) error {
	fleet := func(c contender.Contender) contender.Contender {
		f, err := contender.NewFleet(c, workerProcesses, processConnections)
		if err != nil {
			panic(err) // these three have processes
		}
		return f
	}
	l := lineup{fleet(b.Field.Worker), fleet(b.Field.River), fleet(b.Field.Raw)}
	measured := fmt.Sprintf("%d no-op executions, worked off by %d processes with a pool of %d connections each, to which the worker adds those it keeps for itself; from when the first process looks for them, all being connected, to the last commit, within 10 ms; every contender at its own settings in each process",
		b.N, workerProcesses, processConnections)
	return b.compare(ctx, measured, b.Rounds, l, burn(fmt.Sprintf("burn-down, %d processes", workerProcesses), b.N, contender.Work{}))
}
