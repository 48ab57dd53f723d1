package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

// forkView is the JSON of `ff execution fork`.
type forkView struct {
	ID         id.ExecutionID `json:"id"`
	ForkedFrom id.ExecutionID `json:"forked_from"`
}

func (a *app) executionForkCommand() *cobra.Command {
	var before string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Continue an execution's finished steps in a new execution",
		Long: `fork creates an execution with the payload, policy and tags of another one, and
with its finished steps. So the new one begins behind them. The other one may be
running, waiting or ended, and does not change.

--before STEP copies only the steps that began before this one. A step that runs
again has another idempotency key than in the other execution.`,
		Example: `  ff execution fork 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff execution fork 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --before charge`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				fork, err := operator.Fork(ctx, eng, execution, operator.ForkSpec{Before: before})
				if err != nil {
					return err
				}
				eng.Flush()
				if asJSON {
					return a.writeJSON(forkView{fork.ID, execution})
				}
				_, err = fmt.Fprintf(a.stdout, "%s continues as %s\n", execution.UUID(), fork.ID.UUID())
				return err
			})
		}),
	}
	cmd.Flags().StringVar(&before, "before", "", "copy only the steps that began before this one")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
