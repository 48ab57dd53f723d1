package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func (a *app) workerCommand() *cobra.Command {
	cmd := group("worker", "Drain and resume workers, list the drained ones", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.workerListCommand(), a.workerDrainCommand(), a.workerResumeCommand())
	return cmd
}

// workersView is the JSON of `ff worker list`.
type workersView struct {
	Drained []drainedView `json:"drained"` // in byte order
}

type drainedView struct {
	Instance id.WorkerInstanceID `json:"instance"`
	Since    string              `json:"since"`
}

func (a *app) workerListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the drained worker instances, whether they still run or not",
		Example: `  ff worker list
  ff worker list --json | jq -r '.drained[].instance'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				view := workersView{Drained: []drainedView{}}
				for w, err := range eng.Operator().DrainedWorkers(ctx) {
					if err != nil {
						return err
					}
					view.Drained = append(view.Drained, drainedView{w.Instance, timestamp(w.Since)})
				}
				if asJSON {
					return a.writeJSON(view)
				}
				if len(view.Drained) == 0 {
					_, err := io.WriteString(a.stdout, "No worker is drained.\n")
					return err
				}
				t := newTable(table.Row{"INSTANCE", "DRAINED SINCE"})
				for _, w := range view.Drained {
					t.AppendRow(table.Row{shortened(printable(string(w.Instance)), 50), w.Since})
				}
				_, err := io.WriteString(a.stdout, t.Render()+"\n")
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// workerState is the JSON of `ff worker drain` and `ff worker resume`.
type workerState struct {
	Instance id.WorkerInstanceID `json:"instance"`
	Drained  bool                `json:"drained"`
}

func (a *app) workerDrainCommand() *cobra.Command {
	return a.workerChange(&cobra.Command{
		Use:   "drain INSTANCE",
		Short: "Stop claims of a worker instance; running executions continue",
		Long: `drain stops the claims of a worker instance until "ff worker resume". Its running
executions continue and are settled. "ff execution list --instance INSTANCE" lists
them, and "ff execution show" prints the instance that holds an execution. An
instance can be drained before it starts.`,
		Example: `  ff worker drain worker-7f9c`,
	}, true, engine.Operator.DrainWorker)
}

func (a *app) workerResumeCommand() *cobra.Command {
	return a.workerChange(&cobra.Command{
		Use:     "resume INSTANCE",
		Short:   "Let a drained worker instance claim again",
		Example: `  ff worker resume worker-7f9c`,
	}, false, engine.Operator.ResumeWorker)
}

// workerChange builds a command that changes a worker instance.
func (a *app) workerChange(
	cmd *cobra.Command, drained bool, do func(engine.Operator, context.Context, id.WorkerInstanceID) error,
) *cobra.Command {
	var asJSON bool
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes one worker instance, not %d", cmd.CommandPath(), len(args))
		}
		return nil
	}
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		instance := id.WorkerInstanceID(args[0])
		return a.withEngine(ctx, func(eng *engine.Engine) error {
			defer eng.Flush()
			if err := do(eng.Operator(), ctx, instance); err != nil {
				return asUsage(err)
			}
			if asJSON {
				return a.writeJSON(workerState{instance, drained})
			}
			word := "claims again"
			if drained {
				word = "is drained"
			}
			_, err := fmt.Fprintf(a.stdout, "Worker instance %s %s.\n", printable(args[0]), word)
			return err
		})
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
