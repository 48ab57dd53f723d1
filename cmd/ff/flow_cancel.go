package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/state"
)

// cancelPolicies maps the names for `ff flow cancel` to policies.
var cancelPolicies = map[string]state.FlowCancelPolicy{
	"all": state.CancelAll, "pending": state.CancelPending, "flow": state.CancelFlowOnly, "everything": state.CancelEverything,
}

// cancelledView is the JSON of `ff flow cancel`.
type cancelledView struct {
	ID           id.FlowID              `json:"id"`
	Policy       state.FlowCancelPolicy `json:"policy"`
	Reason       string                 `json:"reason"`
	Already      bool                   `json:"already"`       // cancelled before, as strictly, and nothing changed
	Members      []id.ExecutionID       `json:"members"`       // cancelled ones; after an earlier cancel, see Engine.CancelFlow
	StillRunning []id.ExecutionID       `json:"still_running"` // unfinished ones
	DryRun       bool                   `json:"dry_run"`       // nothing changed
}

func (a *app) flowCancelCommand() *cobra.Command {
	var (
		asJSON, dryRun bool
		policy, reason string
	)
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a flow, and its executions according to a policy",
		Long: `cancel cancels a flow, which then accepts no more executions. --policy selects the executions to cancel:

  all         all that have not ended, except clean-ups; handlers of running ones
              are cancelled
  pending     those that no worker holds, except clean-ups; running ones continue
  everything  all that have not ended, including clean-ups
  flow        none: all its executions run to their end

Clean-ups are executions that run when others fail or end (OnFailure, Always),
and those that depend only on clean-ups: the refund of an order runs when the order
is cancelled. --dry-run lists the executions that would be cancelled or continue.

Ended executions don't change. A cancelled flow can be cancelled again with a stricter policy.`,
		Example: `  ff flow cancel $ID --dry-run
  ff flow cancel $ID
  ff flow cancel $ID --policy pending --reason "wrong input"`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			flow, err := flowArgument(args[0])
			if err != nil {
				return err
			}
			chosen, ok := cancelPolicies[policy]
			if !ok {
				return &usageError{problem: fmt.Sprintf("--policy: there is no policy %q", policy), next: "use all, pending, everything or flow"}
			}
			spec := engine.CancelFlowSpec{ID: flow, Policy: chosen, Reason: reason}
			return a.withPool(ctx, func(pool *pgxpool.Pool, eng *engine.Engine) error {
				if dryRun {
					return a.previewFlowCancel(ctx, pool, eng, spec, asJSON)
				}
				defer eng.Flush()
				return a.cancelFlow(ctx, eng, spec, asJSON)
			})
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.BoolVar(&dryRun, "dry-run", false, "list the executions to cancel, without changing anything")
	flags.StringVar(&policy, "policy", "all", "all, pending, everything or flow")
	flags.StringVar(&reason, "reason", "", "the reason, shown for the flow and its executions")
	return cmd
}

func (a *app) cancelFlow(ctx context.Context, eng *engine.Engine, spec engine.CancelFlowSpec, asJSON bool) error {
	cancelled, err := eng.CancelFlow(ctx, spec)
	switch {
	case err != nil:
		return asUsage(err)
	case asJSON:
		return a.writeJSON(viewOfCancel(spec.ID, cancelled, false))
	}
	text := fmt.Sprintf("cancelled, with %d of its executions\n", len(cancelled.Members))
	if cancelled.Already {
		text = fmt.Sprintf("was cancelled before (%s: %s)\n", cancelled.Policy, printable(cancelled.Reason))
	}
	if len(cancelled.StillRunning) > 0 {
		graph, err := eng.FlowGraph(ctx, spec.ID)
		if err != nil {
			return err
		}
		text += goOn(graph, cancelled.StillRunning)
	}
	_, err = io.WriteString(a.stdout, text)
	return err
}

func viewOfCancel(flow id.FlowID, cancelled engine.CancelledFlow, dryRun bool) cancelledView {
	return cancelledView{
		ID: flow, Policy: cancelled.Policy, Reason: cancelled.Reason, Already: cancelled.Already, DryRun: dryRun,
		Members:      append([]id.ExecutionID{}, cancelled.Members...),
		StillRunning: append([]id.ExecutionID{}, cancelled.StillRunning...),
	}
}

// goOn lists the executions of a flow still running.
func goOn(graph *engine.FlowGraph, running []id.ExecutionID) string {
	const most = 5
	names := make(map[id.ExecutionID]string, len(graph.Nodes))
	for i := range graph.Nodes {
		names[graph.Nodes[i].ID] = printable(drawing.NodeName(&graph.Nodes[i]))
	}
	var some []string
	for _, x := range running[:min(len(running), most)] {
		some = append(some, shortened(names[x], columns/2))
	}
	if left := len(running) - most; left > 0 {
		some = append(some, fmt.Sprintf("and %d more", left))
	}
	return fmt.Sprintf("not ended yet: %d\n  %s\n", len(running), strings.Join(some, "\n  "))
}

// previewFlowCancel cancels a flow in a transaction, rolls it back, and lists the changes.
func (a *app) previewFlowCancel(
	ctx context.Context, pool *pgxpool.Pool, eng *engine.Engine, spec engine.CancelFlowSpec, asJSON bool,
) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// Wait for a lock no longer than each try of a real cancel does.
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
		return err
	}
	bound := eng.WithTx(tx)
	before, err := bound.FlowGraph(ctx, spec.ID)
	if err != nil {
		return err
	}
	cancelled, err := bound.CancelFlow(ctx, spec)
	switch {
	case err != nil:
		return asUsage(err)
	case asJSON:
		return a.writeJSON(viewOfCancel(spec.ID, cancelled, true))
	}
	after, err := bound.FlowGraph(ctx, spec.ID)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("would be cancelled, with %d of its executions; %d would still run\n", len(cancelled.Members), len(cancelled.StillRunning))
	if cancelled.Already {
		text = fmt.Sprintf("was cancelled before (%s: %s); nothing would change\n", cancelled.Policy, printable(cancelled.Reason))
	}
	_, err = io.WriteString(a.stdout, text+previewTable(before, after))
	return err
}

// previewTable lists the unfinished executions of a flow, with their states before and after.
func previewTable(before, after *engine.FlowGraph) string {
	then := make(map[id.ExecutionID]state.PublicState, len(after.Nodes))
	for i := range after.Nodes {
		then[after.Nodes[i].ID] = drawing.NodeState(&after.Nodes[i])
	}
	t := newTable(table.Row{"NODE", "NOW", "THEN"})
	listed := false
	for _, i := range byDepth(before) {
		n := &before.Nodes[i]
		if now := drawing.NodeState(n); !now.Terminal() {
			t.AppendRow(table.Row{shortened(printable(drawing.NodeName(n)), columns/2), now, then[n.ID]})
			listed = true
		}
	}
	if !listed {
		return ""
	}
	return "\n" + t.Render() + "\n"
}
