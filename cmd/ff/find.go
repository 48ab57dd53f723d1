package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func (a *app) executionFindCommand() *cobra.Command {
	cmd, asJSON := findCommand("an execution", "an execution, as show does", "execution")
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		return a.withEngine(ctx, func(eng *engine.Engine) error {
			x, err := eng.FindExecutionByKey(ctx, args[0], args[1])
			if err != nil {
				return asUsage(err)
			}
			return a.showExecution(ctx, eng, x, *asJSON)
		})
	})
	return cmd
}

func (a *app) flowFindCommand() *cobra.Command {
	cmd, asJSON := findCommand("a flow", "a flow and its executions, as show does", "flow")
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		return a.withEngine(ctx, func(eng *engine.Engine) error {
			flow, err := eng.FindFlowByKey(ctx, args[0], args[1])
			if err != nil {
				return asUsage(err)
			}
			format := "text"
			if *asJSON {
				format = "json"
			}
			return a.showFlow(ctx, eng, flow, format, shownExecutions, false)
		})
	})
	return cmd
}

// findCommand is a command on a business key.
func findCommand(what, shown, group string) (cmd *cobra.Command, asJSON *bool) {
	cmd = &cobra.Command{
		Use:     "find NAME VALUE",
		Short:   "Show " + what + " by its business key",
		Long:    "find shows " + shown + ". It finds it by the name and the\nvalue of the business key that it was created with.",
		Example: "  ff " + group + " find order 4711",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes the name and the value of a business key", cmd.CommandPath())
			}
			return nil
		},
	}
	return cmd, cmd.Flags().Bool("json", false, "print JSON")
}

func (a *app) showExecution(ctx context.Context, eng *engine.Engine, x id.ExecutionID, asJSON bool) error {
	view, err := readExecution(ctx, eng, x)
	if err != nil {
		return err
	}
	if asJSON {
		return a.writeJSON(view)
	}
	return view.print(a.stdout)
}
