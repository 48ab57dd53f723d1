package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
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

func newSignalView(s engine.Signalled) signalView { return signalView(s) }

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

// waitsView is the JSON of `ff wait list`.
type waitsView struct {
	Waits []waitView `json:"waits"` // the longest wait first
}

type waitView struct {
	Execution id.ExecutionID `json:"execution"`
	Kind      string         `json:"kind"`
	Lane      id.LaneID      `json:"lane"`
	Since     string         `json:"since"`
	Until     string         `json:"until,omitempty"`
	OnTimeout string         `json:"on_timeout,omitempty"`
	Signals   []string       `json:"signals"`
	Asked     string         `json:"asked,omitempty"`
}

func newWaitView(w engine.OpenWait) waitView {
	view := waitView{
		Execution: w.Execution, Kind: w.Kind, Lane: w.Lane, Since: timestamp(w.Since), OnTimeout: string(w.OnTimeout), Signals: w.Names, Asked: w.Asked,
	}
	if view.Signals == nil {
		view.Signals = []string{}
	}
	if !w.Until.IsZero() {
		view.Until = timestamp(w.Until)
	}
	return view
}

func (a *app) waitCommand() *cobra.Command {
	cmd := group("wait", "List the executions that wait for signals", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.waitListCommand())
	return cmd
}

func (a *app) waitListCommand() *cobra.Command {
	var (
		asJSON bool
		tag    string
		limit  int
		filter engine.WaitFilter
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the executions that wait for signals, the longest wait first",
		Example: `  ff wait list --name approved
  ff wait list --tag app.tenant=acme --json | jq -r '.waits[].execution'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if tag != "" {
				var ok bool
				if filter.TagKey, filter.TagValue, ok = strings.Cut(tag, "="); !ok || filter.TagKey == "" {
					return &usageError{problem: fmt.Sprintf("--tag %q is not of the form key=value", tag)}
				}
			}
			if limit < 1 || limit > engine.MaxPage {
				return &usageError{problem: fmt.Sprintf("--limit %d is not between 1 and %d", limit, engine.MaxPage)}
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				page, err := eng.ListWaits(ctx, filter, "", limit)
				if err != nil {
					return asUsage(err)
				}
				view := waitsView{Waits: []waitView{}}
				for _, w := range page.Items {
					view.Waits = append(view.Waits, newWaitView(w))
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return a.printWaits(view, page.Next != "")
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&filter.Name, "name", "", "only those that wait for a signal of this name")
	cmd.Flags().StringVar(&tag, "tag", "", "only executions with this tag, key=value")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most so many")
	return cmd
}

func (a *app) printWaits(view waitsView, more bool) error {
	if len(view.Waits) == 0 {
		_, err := io.WriteString(a.stdout, "None waits.\n")
		return err
	}
	t := newTable(table.Row{"EXECUTION", "SINCE", "SIGNALS", "ASKED"})
	for _, w := range view.Waits {
		t.AppendRow(table.Row{
			w.Execution.UUID().String(), w.Since, shortened(printable(strings.Join(w.Signals, ", ")), 12), shortened(printable(w.Asked), 12),
		})
	}
	text := t.Render() + "\n"
	if more {
		text += "There are more: pass a larger --limit.\n"
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}
