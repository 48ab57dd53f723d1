package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

func (a *app) workerCommand() *cobra.Command {
	cmd := group("worker", "List workers, drain and resume them", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.workerListCommand(), a.workerShowCommand(), a.workerDrainCommand(), a.workerResumeCommand())
	return cmd
}

// workerState is the JSON of `ff worker drain` and `ff worker resume`.
type workerState struct {
	Instance id.WorkerInstanceID `json:"instance"`
	Drained  bool                `json:"drained"`
}

func (a *app) workerDrainCommand() *cobra.Command {
	return a.workerChange(&cobra.Command{
		Use:   "drain [INSTANCE]",
		Short: "Stop claims of a worker; running executions continue",
		Long: `drain stops the claims of a worker instance until "ff worker resume". Its running
executions continue and are settled. "ff worker list" shows it as draining, and as
drained once it runs nothing. An instance can be drained before it starts.

With --pool or --lane it drains the running workers of a pool, or those that claim
from a lane. Workers that start later claim.`,
		Example: `  ff worker drain worker-7f9c
  ff worker drain --pool images`,
	}, true, operator.DrainWorker, operator.DrainWorkers)
}

func (a *app) workerResumeCommand() *cobra.Command {
	return a.workerChange(&cobra.Command{
		Use:   "resume [INSTANCE]",
		Short: "Let a drained worker claim again",
		Example: `  ff worker resume worker-7f9c
  ff worker resume --pool images`,
	}, false, operator.ResumeWorker, operator.ResumeWorkers)
}

// workerChange builds a command for changing a worker instance, or the workers of a pool or a lane.
func (a *app) workerChange(
	cmd *cobra.Command, drained bool, one func(context.Context, *engine.Engine, id.WorkerInstanceID) error,
	many func(context.Context, *engine.Engine, engine.WorkerFilter) ([]id.WorkerInstanceID, error),
) *cobra.Command {
	var asJSON bool
	var pool, lane string
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch named := pool != "" || lane != ""; {
		case named && len(args) > 0:
			return fmt.Errorf("%s takes a worker instance, or --pool or --lane", cmd.CommandPath())
		case !named && len(args) != 1:
			return fmt.Errorf("%s takes one worker instance, not %d, or --pool or --lane", cmd.CommandPath(), len(args))
		}
		return nil
	}
	word := "claims again"
	if drained {
		word = "is drained"
	}
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		return a.withEngine(ctx, func(eng *engine.Engine) error {
			defer eng.Flush()
			if len(args) == 0 {
				filter := engine.WorkerFilter{Worker: id.WorkerID(pool), Lane: id.LaneID(lane)}
				instances, err := changeAll(ctx, eng, filter, many)
				if err != nil {
					return asUsage(err)
				}
				return a.writeChanged(instances, drained, asJSON, word)
			}
			instance := id.WorkerInstanceID(args[0])
			if err := one(ctx, eng, instance); err != nil {
				return asUsage(err)
			}
			if asJSON {
				return a.writeJSON(workerState{instance, drained})
			}
			_, err := fmt.Fprintf(a.stdout, "Worker instance %s %s.\n", printable(args[0]), word)
			return err
		})
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&pool, "pool", "", "the workers of a `POOL`, the name in worker.Config.Worker")
	cmd.Flags().StringVar(&lane, "lane", "", "the workers that claim from a `LANE`")
	return cmd
}

// changeAll changes all workers matching a filter.
func changeAll(
	ctx context.Context, o *engine.Engine, filter engine.WorkerFilter,
	many func(context.Context, *engine.Engine, engine.WorkerFilter) ([]id.WorkerInstanceID, error),
) (all []id.WorkerInstanceID, err error) {
	for {
		changed, err := many(ctx, o, filter)
		all = append(all, changed...)
		if err != nil || len(changed) < engine.MaxPage {
			return all, err
		}
	}
}

func (a *app) writeChanged(instances []id.WorkerInstanceID, drained, asJSON bool, word string) error {
	if asJSON {
		states := make([]workerState, len(instances))
		for i, instance := range instances {
			states[i] = workerState{instance, drained}
		}
		return a.writeJSON(map[string][]workerState{"workers": states})
	}
	for _, instance := range instances {
		if _, err := fmt.Fprintf(a.stdout, "Worker instance %s %s.\n", printable(string(instance)), word); err != nil {
			return err
		}
	}
	if len(instances) == 0 {
		_, err := io.WriteString(a.stdout, "There is no such worker.\n")
		return err
	}
	return nil
}
