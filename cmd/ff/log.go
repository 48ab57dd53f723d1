package main

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
)

// logFlags has the flags of `ff log` as given.
type logFlags struct {
	execution, by, after string
	limit                int
	asJSON, wide         bool
}

func (a *app) logCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "log",
		Short: "List the actions of operators, the newest first",
		Long: `log prints changed priorities, replays, requests to cancel a flow, and the actions that a console recorded
with the name of the person. The commands of ff record no name. Entries are deleted with the other
events, after a week unless the engine is configured otherwise.

Neither --execution nor --by has an index, so log may read all entries to find a few. Of a deleted
execution give the id with its partition.`,
		Example: `  ff log
  ff log --by grace --limit 10
  ff log --execution $ID --json | jq -r '.entries[].action'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if f.limit < 0 {
				return &usageError{problem: "--limit is negative"}
			}
			list := func(eng *engine.Engine, execution id.ExecutionID) error {
				view, err := readLog(ctx, eng, operator.LogFilter{Execution: execution, By: f.by}, f.after, f.limit)
				switch {
				case err != nil:
					return asUsage(err)
				case f.asJSON:
					return a.writeJSON(view)
				}
				return view.print(a.stdout, f.wide)
			}
			if f.execution != "" {
				return a.onExecution(ctx, f.execution, list)
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error { return list(eng, id.ExecutionID{}) })
		}),
	}
	a.databaseFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.execution, "execution", "", "only on this execution")
	flags.StringVar(&f.by, "by", "", "only by the person of this name")
	flags.StringVar(&f.after, "after", "", "continue after the cursor that a run with the same flags printed")
	flags.IntVar(&f.limit, "limit", 50, "largest number to list, 0 for all")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.BoolVar(&f.wide, "wide", false, "print more than 80 columns: ids, whole names and particulars")
	return cmd
}

// logView is the JSON of `ff log`.
type logView struct {
	Entries []logEntryView `json:"entries"` // the newest first
	Next    string         `json:"next,omitempty"`
}

type logEntryView struct {
	ID        int64                   `json:"event_id"`
	At        string                  `json:"at"`
	Type      state.OperatorEventType `json:"type"`
	By        string                  `json:"by,omitempty"`
	Action    string                  `json:"action,omitempty"`
	Object    string                  `json:"object,omitempty"`
	Detail    string                  `json:"detail,omitempty"`
	Execution *id.ExecutionID         `json:"execution,omitempty"`
	Flow      *id.FlowID              `json:"flow,omitempty"`
	Error     string                  `json:"error,omitempty"` // why the entry can't be read
}

func newLogEntryView(e *operator.LogEntry) logEntryView {
	view := logEntryView{
		ID: e.ID, At: timestamp(e.At), Type: e.Type, By: e.By, Action: e.Action, Object: e.Object, Detail: e.Detail, Flow: e.Flow,
	}
	if !e.Execution.IsZero() {
		view.Execution = &e.Execution
	}
	if e.Err != nil {
		view.Error = e.Err.Error()
	}
	return view
}

// readLog reads pages until there are enough entries.
func readLog(ctx context.Context, eng *engine.Engine, filter operator.LogFilter, after string, limit int) (*logView, error) {
	view := &logView{Entries: []logEntryView{}, Next: after}
	for {
		page, err := operator.ListLog(ctx, eng, filter, view.Next, max(limit-len(view.Entries), 0))
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			view.Entries = append(view.Entries, newLogEntryView(&page.Items[i]))
		}
		view.Next = page.Next
		if view.Next == "" || limit > 0 && len(view.Entries) == limit {
			return view, nil
		}
	}
}

// subject returns the execution or the flow.
func (v *logEntryView) subject() string {
	switch {
	case v.Execution != nil:
		return v.Execution.Short()
	case v.Flow != nil:
		return v.Flow.String()
	}
	return ""
}

func (v *logView) print(to io.Writer, wide bool) error {
	if len(v.Entries) == 0 {
		_, err := io.WriteString(to, "Nothing is logged.\n")
		return err
	}
	header := table.Row{"AT", "BY", "ACTION", "OBJECT AND DETAIL"}
	fit := shortened
	if wide {
		header = append(header, "EXECUTION OR FLOW")
		fit = func(text string, _ int) string { return text }
	}
	t := newTable(header)
	for i := range v.Entries {
		e := &v.Entries[i]
		detail := strings.TrimSpace(e.Object + " " + e.Detail)
		if e.Error != "" {
			detail = e.Error
		}
		at := e.At
		if !wide {
			at = strings.Replace(at[:len("2006-01-02T15:04:05")], "T", " ", 1)
		}
		row := table.Row{at, fit(printable(e.By), 12), fit(printable(cmp.Or(e.Action, string(e.Type))), 21), fit(printable(detail), 22)}
		if wide {
			row = append(row, e.subject())
		}
		t.AppendRow(row)
	}
	text := t.Render() + "\n"
	if v.Next != "" {
		text += "There may be more: continue with --after " + v.Next + "\n"
	}
	_, err := io.WriteString(to, text)
	return err
}
