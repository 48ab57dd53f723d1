package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func (a *app) executionSignalCommand() *cobra.Command {
	var (
		asJSON              bool
		payload, from, once string
	)
	cmd := &cobra.Command{
		Use:   "signal ID NAME",
		Short: "Send a signal to an execution",
		Long: `signal sends a signal to an execution, whether it waits for it already or not. Signals
that nothing waits for are kept for a later wait.`,
		Example: `  ff execution signal 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 approved --from ada`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes an execution and the name of a signal", cmd.CommandPath())
			}
			return nil
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			spec := engine.SignalSpec{Name: args[1], IdempotencyKey: once, SourceType: "operator", Source: from}
			if payload != "" {
				if !json.Valid([]byte(payload)) {
					return &usageError{problem: "--payload is not JSON"}
				}
				spec.Payload = []byte(payload)
			}
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				defer eng.Flush()
				spec.Execution = execution
				signalled, err := eng.Signal(ctx, spec)
				if err != nil {
					return asUsage(err)
				}
				if asJSON {
					return a.writeJSON(newSignalView(signalled))
				}
				_, err = fmt.Fprintf(a.stdout, "Signal %s is %s.\n", printable(spec.Name), effectText(signalled))
				return err
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&payload, "payload", "", "the payload, as JSON")
	cmd.Flags().StringVar(&from, "from", "", "who sends it, shown with the signal")
	cmd.Flags().StringVar(&once, "once", "", "a key: signals with the same key are one signal")
	return cmd
}

// signalView is the JSON of `ff execution signal`.
type signalView struct {
	ID        id.SignalID         `json:"id"`
	Duplicate bool                `json:"duplicate"`
	Effect    engine.SignalEffect `json:"effect,omitempty"`
}

func newSignalView(s engine.Signalled) signalView {
	return signalView{ID: s.ID, Duplicate: s.Duplicate, Effect: s.Effect}
}

func effectText(s engine.Signalled) string {
	switch {
	case s.Duplicate:
		return "a duplicate: it was received before"
	case s.Effect == engine.SignalBuffered:
		return "kept for a later wait"
	case s.Effect == engine.SignalAppended:
		return "received; the execution waits for more"
	}
	return "received; the execution continues"
}

func (a *app) executionResumeCommand() *cobra.Command {
	var (
		asJSON bool
		after  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "resume ID",
		Short: "End the wait of a suspended execution without a signal",
		Example: `  ff execution resume 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff execution resume 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --after 10m`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.operate(ctx, args[0], asJSON, func(eng *engine.Engine, execution id.ExecutionID) error {
				return eng.Resume(ctx, execution, after)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&after, "after", 0, "how long from now its attempt continues")
	return cmd
}
