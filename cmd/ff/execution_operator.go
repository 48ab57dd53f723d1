package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
)

// onExecution runs fn on the named database with the execution of an id, which may be only its uuid.
func (a *app) onExecution(ctx context.Context, text string, fn func(*engine.Engine, id.ExecutionID) error) error {
	u, bare := id.ParseExecutionUUID(text)
	execution, err := id.ParseExecutionID(text)
	if err == nil {
		err = id.Partitions{}.CheckExecution(execution)
	}
	if err != nil && bare != nil {
		problem := err.Error()
		if refused, ok := errors.AsType[*id.ParseError](err); ok && refused.Reason == id.ReasonMissingTag {
			problem = fmt.Sprintf("%q is not an execution id, neither a uuid nor one after its partition, such as '{fp:42}:'", refused.Detail)
		}
		return &usageError{problem: problem}
	}
	return a.withEngine(ctx, func(eng *engine.Engine) error {
		if bare == nil {
			if execution, err = eng.FindExecution(ctx, u); err != nil {
				return asUsage(err)
			}
		}
		return fn(eng, execution)
	})
}

// executionState is the JSON of the commands on one execution: its new state.
type executionState struct {
	ID         id.ExecutionID    `json:"id"`
	State      state.PublicState `json:"state"`
	DelayUntil string            `json:"delay_until,omitempty"`
}

// operate changes an execution and prints its new state.
func (a *app) operate(ctx context.Context, text string, asJSON bool, do func(*engine.Engine, id.ExecutionID) error) error {
	return a.onExecution(ctx, text, func(eng *engine.Engine, execution id.ExecutionID) error {
		defer eng.Flush()
		if err := do(eng, execution); err != nil {
			return asUsage(err)
		}
		s, err := eng.DescribeExecution(ctx, execution)
		if err != nil {
			return err
		}
		if asJSON {
			return a.writeJSON(executionState{s.ID, s.State.Public, timestamp(s.DelayUntil)})
		}
		until := ""
		if !s.DelayUntil.IsZero() {
			until = " until " + timestamp(s.DelayUntil)
		}
		if s.State.Blocking == state.PausedByOperator {
			until = ", blocked by an operator"
		}
		_, err = fmt.Fprintf(a.stdout, "Execution %s is %s%s.\n", s.ID, s.State.Public, until)
		return err
	})
}

func (a *app) executionCancelCommand() *cobra.Command {
	var (
		f      whereFlags
		asJSON bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "cancel ID | --where NAME=VALUE",
		Short: "End executions as cancelled, even if a worker holds them",
		Long: `cancel ends an execution in any state. If a worker holds it, the worker is notified and its result is
discarded. Flow members that can no longer run because of this are skipped.` + whereHelp,
		Example: `  ff execution cancel $ID --reason "sent twice"
  ff execution cancel --where lane=mail --where kind=newsletter --yes`,
		Args: idOrWhere(&f.where),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return a.changeWhere(ctx, f, asJSON, bulkChange{
					"Cancel", func(o *engine.Engine, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
						return operator.CancelWhere(ctx, o, filter, reason, bulk)
					},
				})
			}
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				return eng.CancelExecution(ctx, engine.CancelSpec{ID: x, Reason: reason})
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, to be shown later")
	f.add(cmd)
	return cmd
}

func (a *app) executionDelayCommand() *cobra.Command {
	var asJSON bool
	var end endFlags
	cmd := &cobra.Command{
		Use:   "delay ID",
		Short: "Keep an execution from being claimed before an instant",
		Example: `  ff execution delay $ID --for 30m
  ff execution delay $ID --until 2026-11-22T15:04:05Z`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if !end.given() {
				return &usageError{problem: "ff execution delay takes either --for or --until"}
			}
			if err := end.check("ff execution delay"); err != nil {
				return err
			}
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				at, err := end.at(ctx, eng)
				if err != nil {
					return err
				}
				return operator.Delay(ctx, eng, x, at)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	end.add(cmd)
	return cmd
}

func (a *app) executionPriorityCommand() *cobra.Command {
	var (
		f      whereFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "priority (ID | --where NAME=VALUE) PRIORITY",
		Short: "Change the priority of executions that are ready to be claimed",
		Long: fmt.Sprintf(`priority changes the priority of an execution that is ready to be claimed. It
ranges from 0, the lowest, to %d. Its place in the lane's queue changes at once.`, engine.MaxPriority) + whereHelp,
		Example: `  ff execution priority 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 100
  ff execution priority --where lane=images --where tag=app.customer=42 100`,
		Args: idOrWhere(&f.where, "a priority"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			text := args[len(args)-1]
			priority, err := strconv.Atoi(text)
			if err != nil || priority < 0 || priority > engine.MaxPriority {
				return &usageError{problem: fmt.Sprintf("%q is not a priority", text), next: fmt.Sprintf("use a number from 0 to %d", engine.MaxPriority)}
			}
			if len(args) == 1 {
				return a.changeWhere(ctx, f, asJSON, bulkChange{
					"Change the priority of", func(o *engine.Engine, filter engine.ExecutionFilter, bulk operator.Bulk) (operator.BulkProgress, error) {
						return operator.PrioritizeWhere(ctx, o, filter, priority, bulk)
					},
				})
			}
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				return operator.Prioritize(ctx, eng, x, priority)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	f.add(cmd)
	return cmd
}

func (a *app) executionRevokeCommand() *cobra.Command {
	var (
		asJSON                  bool
		lease, instance, reason string
	)
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Take the lease of an execution away; another worker may claim it",
		Long: `revoke takes away the lease of a running execution. The execution returns to its
lane, and the next claim continues the same attempt. Later calls of the former
holder are refused. --lease or --instance revokes only that lease, or the lease
of that worker instance; "ff execution show" prints both.`,
		Example: `  ff execution revoke $ID --reason "the handler hangs"`,
		Args:    oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			spec := operator.RevokeSpec{Lease: wire.ExpectedLease(lease), Instance: id.WorkerInstanceID(instance), Reason: reason}
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				spec.ID = x
				revoked, err := operator.Revoke(ctx, eng, spec)
				if err == nil && revoked.NotRevoked != "" {
					err = &stepError{fmt.Errorf("no lease was revoked: %s", notRevoked[revoked.NotRevoked]), "look at it with `ff execution show`", exitFailed}
				}
				return err
			})
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.StringVar(&lease, "lease", "", "revoke this lease only: its id")
	flags.StringVar(&instance, "instance", "", "revoke a lease of this worker instance only")
	flags.StringVar(&reason, "reason", "", "the reason, to be shown later")
	return cmd
}

// notRevoked maps the engine's reasons to text.
var notRevoked = map[operator.NotRevoked]string{
	operator.NoActiveLease: "it has no active lease", operator.AnotherInstance: "another instance holds it", operator.AnotherLease: "it has another lease",
}

func (a *app) executionBlockCommand() *cobra.Command {
	var (
		asJSON bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "block ID",
		Short: "Keep an execution that is ready from being claimed",
		Long: `block keeps an execution that is ready to be claimed from being claimed, until
"ff execution unblock". One that runs, or waits for something else, is refused.
A deadline ends a blocked execution as any other. "ff execution show" prints
the reason.`,
		Example: `  ff execution block $ID --reason "wait for the new price list"`,
		Args:    oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				blocking, err := operator.Block(ctx, eng, x, state.PausedByOperator, reason)
				if err == nil && blocking.Rejected != "" {
					err = &stepError{fmt.Errorf("it was not blocked: %s", rejected[blocking.Rejected]), "look at it with `ff execution show`", exitFailed}
				}
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at it")
	return cmd
}

// rejected are the reasons in words.
var rejected = map[operator.Rejection]string{
	operator.RejectedEnded: "it has ended", operator.RejectedNotEligible: "it runs, is granted to a worker, or waits for something else",
}

func (a *app) executionUnblockCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "unblock ID",
		Short: "Let a blocked execution be claimed",
		Long: `unblock makes an execution claimable that is blocked by a budget, a quota, its
route, its lane or an operator. "ff execution show" prints the reason.`,
		Example: `  ff execution unblock 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10`,
		Args:    oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				return operator.Unblock(ctx, eng, x, "")
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
