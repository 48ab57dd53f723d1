package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// onExecution runs fn on the named database with the execution of an id, which may be its uuid alone.
func (a *app) onExecution(ctx context.Context, text string, fn func(*engine.Engine, id.ExecutionID) error) error {
	u, bare := id.ParseExecutionUUID(text)
	execution, err := id.ParseExecutionID(text)
	if err == nil {
		err = id.Partitions{}.CheckExecution(execution)
	}
	if err != nil && bare != nil {
		problem := err.Error()
		if refused, ok := errors.AsType[*id.ParseError](err); ok && refused.Reason == id.ReasonMissingTag {
			problem = fmt.Sprintf("%q is no execution id, neither a uuid nor one behind its partition, as '{fp:42}:'", refused.Detail)
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

// executionState is the JSON of the commands that change an execution: how it is now.
type executionState struct {
	ID         id.ExecutionID    `json:"id"`
	State      state.PublicState `json:"state"`
	DelayUntil string            `json:"delay_until,omitempty"`
}

// operate does something to an execution and says how it is then.
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
		_, err = fmt.Fprintf(a.stdout, "Execution %s is %s%s.\n", s.ID, s.State.Public, until)
		return err
	})
}

func (a *app) executionCancelCommand() *cobra.Command {
	var (
		asJSON bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End an execution as cancelled, whoever holds it",
		Long: `cancel ends an execution in whatever state it is. A worker that holds it is told, and what it returns is
discarded. Members of its flow that can no longer run because of it are skipped.`,
		Example: `  ff execution cancel 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --reason "sent twice"`,
		Args:    oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				return eng.CancelExecution(ctx, engine.CancelSpec{ID: x, Reason: reason})
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at it")
	return cmd
}

func (a *app) executionRetryCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Let an execution run again: one that has ended from its beginning, one that is delayed at once",
		Long: `retry replays an execution that has ended, in whatever way: the same payload, all its retries, and without
what it left. One that waits for its next attempt does not wait any longer.`,
		Example: `  ff execution retry 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10`,
		Args:    oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				_, err := eng.Operator().ReplayExecution(ctx, x)
				if !errors.Is(err, engine.ErrNotEnded) {
					return err
				}
				now, clockErr := eng.Now(ctx)
				if clockErr != nil {
					return clockErr
				}
				return eng.Operator().DelayExecution(ctx, x, now)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) executionDelayCommand() *cobra.Command {
	var (
		asJSON bool
		span   time.Duration
		until  string
	)
	cmd := &cobra.Command{
		Use:   "delay ID",
		Short: "Let an execution that waits, or is delayed, not be claimed before an instant",
		Example: `  ff execution delay 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --for 30m
  ff execution delay 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --until 2026-11-22T15:04:05Z`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			var at time.Time
			if until != "" {
				var err error
				if at, err = time.Parse(time.RFC3339, until); err != nil {
					return &usageError{problem: fmt.Sprintf("--until %q is no instant, as 2026-11-22T15:04:05Z", until)}
				}
			}
			if (span > 0) == (until != "") || span < 0 {
				return &usageError{problem: "ff execution delay takes either --for or --until"}
			}
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, x id.ExecutionID) error {
				if span > 0 {
					now, err := eng.Now(ctx)
					if err != nil {
						return err
					}
					at = now.Add(span)
				}
				return eng.Operator().DelayExecution(ctx, x, at)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&span, "for", 0, "how long from now on, as 30m")
	cmd.Flags().StringVar(&until, "until", "", "the instant, as 2026-11-22T15:04:05Z")
	return cmd
}
