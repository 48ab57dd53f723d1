package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// cancelPolicies are the policies of `ff flow cancel` by their names.
var cancelPolicies = map[string]state.FlowCancelPolicy{
	"all": state.CancelAll, "pending": state.CancelPending, "flow": state.CancelFlowOnly,
}

// cancelledView is the JSON of `ff flow cancel`.
type cancelledView struct {
	ID      id.FlowID              `json:"id"`
	Policy  state.FlowCancelPolicy `json:"policy"`
	Reason  string                 `json:"reason"`
	Already bool                   `json:"already"` // it was cancelled before, as strictly, and nothing was changed
	Members []id.ExecutionID       `json:"members"` // that were cancelled; of a flow that was already: see Engine.CancelFlow
}

func (a *app) flowCancelCommand() *cobra.Command {
	var (
		asJSON         bool
		policy, reason string
	)
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a flow, and its executions as the policy says",
		Long: `cancel cancels a flow: it takes no more executions. Those it has are cancelled as --policy says:

  all      all that have not ended; the handlers of those that run hear of it
  pending  those that nobody works on; what runs goes on to its end
  flow     none: everything it has runs to its end

What has ended is left as it is. A flow that is cancelled can be cancelled once more by a stricter policy.`,
		Example: `  ff flow cancel 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff flow cancel 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --policy pending --reason "wrong input"`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			flow, err := flowArgument(args[0])
			if err != nil {
				return err
			}
			chosen, ok := cancelPolicies[policy]
			if !ok {
				return &usageError{problem: fmt.Sprintf("there is no policy %q", policy), next: "use all, pending or flow"}
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				defer eng.Flush()
				cancelled, err := eng.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: chosen, Reason: reason})
				switch {
				case err != nil:
					return asUsage(err)
				case asJSON:
					return a.writeJSON(cancelledView{flow, cancelled.Policy, cancelled.Reason, cancelled.Already, append([]id.ExecutionID{}, cancelled.Members...)})
				}
				text := fmt.Sprintf("cancelled, with %d of its executions\n", len(cancelled.Members))
				if cancelled.Already {
					text = fmt.Sprintf("was cancelled before (%s: %s)\n", cancelled.Policy, printable(cancelled.Reason))
				}
				_, err = io.WriteString(a.stdout, text)
				return err
			})
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.StringVar(&policy, "policy", "all", "all, pending or flow")
	flags.StringVar(&reason, "reason", "", "why; the flow and its executions show it")
	return cmd
}
