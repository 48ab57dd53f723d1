package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// waitsView is the JSON of `ff wait list`.
type waitsView struct {
	Waits []*waitView `json:"waits"` // the longest wait first
}

type waitView struct {
	Execution id.ExecutionID `json:"execution"`
	Kind      string         `json:"kind"`
	Lane      id.LaneID      `json:"lane"`
	openWaitView

	since, until time.Time
}

// openWaitView is the JSON of a wait.
type openWaitView struct {
	Suspension id.SuspensionID      `json:"suspension"`
	Since      string               `json:"since"`
	Until      string               `json:"until,omitempty"`
	OnTimeout  engine.OnTimeout     `json:"on_timeout,omitempty"`
	Reason     state.BlockingReason `json:"reason"`
	Condition  string               `json:"condition"` // in words
	Signals    []string             `json:"signals"`   // their names; empty: any, or none
	Received   int                  `json:"received"`
	Asked      string               `json:"asked,omitempty"`
}

func newWaitView(w *engine.OpenWait) *waitView {
	return &waitView{
		Execution: w.Execution, Kind: w.Kind, Lane: w.Lane, openWaitView: *newOpenWaitView(w), since: w.Since, until: w.Until,
	}
}

// newOpenWaitView returns nil for no wait.
func newOpenWaitView(w *engine.OpenWait) *openWaitView {
	if w == nil {
		return nil
	}
	return &openWaitView{
		Suspension: w.Suspension, Since: timestamp(w.Since), Until: timestamp(w.Until), OnTimeout: w.OnTimeout, Reason: w.Reason,
		Condition: w.Condition, Signals: append([]string{}, w.Names...), Received: w.Received, Asked: w.Asked,
	}
}

// facts are the lines of `ff execution show` about a wait.
func (w *openWaitView) facts() []fact {
	if w == nil {
		return nil
	}
	timeout := ""
	if w.Until != "" {
		timeout = w.Until + ", then " + afterTimeout(w.OnTimeout)
	}
	return []fact{
		{"condition", w.Condition},
		{"asked", w.Asked},
		{"signals", fmt.Sprintf("%d received", w.Received)},
		{"waiting since", w.Since},
		{"timeout", timeout},
	}
}

// afterTimeout describes the effect of a timeout on the execution.
func afterTimeout(effect engine.OnTimeout) string {
	switch effect {
	case engine.FailOnTimeout:
		return "it fails"
	case engine.CancelOnTimeout:
		return "it is cancelled"
	case engine.ExpireOnTimeout:
		return "it expires"
	case engine.EscalateOnTimeout:
		return "it waits for an operator"
	}
	return "it continues"
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
		older  time.Duration
		filter engine.WaitFilter
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the executions that wait for signals, the longest wait first",
		Example: `  ff wait list --name approved
  ff wait list --older-than 48h
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
			if older < 0 {
				return &usageError{problem: fmt.Sprintf("--older-than %v is negative", older)}
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				if older > 0 {
					filter.Before = now.Add(-older)
				}
				page, err := eng.ListWaits(ctx, filter, "", limit)
				if err != nil {
					return asUsage(err)
				}
				view := waitsView{Waits: []*waitView{}}
				for i := range page.Items {
					view.Waits = append(view.Waits, newWaitView(&page.Items[i]))
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return a.printWaits(view, now, page.Next != "")
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&filter.Name, "name", "", "only those that wait for a signal of this name")
	cmd.Flags().StringVar(&tag, "tag", "", "only executions with this tag, key=value")
	cmd.Flags().DurationVar(&older, "older-than", 0, "only those that have waited longer")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most so many")
	return cmd
}

func (a *app) printWaits(view waitsView, now time.Time, more bool) error {
	if len(view.Waits) == 0 {
		_, err := io.WriteString(a.stdout, "None waits.\n")
		return err
	}
	t := newTable(table.Row{"EXECUTION", "WAITED", "LEFT", "WAITS FOR", "ASKED"})
	for _, w := range view.Waits {
		left := ""
		if !w.until.IsZero() {
			left = ago(w.until.Sub(now))
		}
		t.AppendRow(table.Row{
			w.Execution.UUID().String(), ago(now.Sub(w.since)), left, shortened(printable(w.Condition), 17), shortened(printable(w.Asked), 9),
		})
	}
	text := t.Render() + "\n"
	if more {
		text += "There are more: pass a larger --limit.\n"
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}
