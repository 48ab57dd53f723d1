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

// flowListFlags has the flags of `ff flow list` as given.
type flowListFlags struct {
	kind, namespace, state, tag, since, until, order, after string

	limit        int
	asJSON, wide bool
}

func (a *app) flowListCommand() *cobra.Command {
	var f flowListFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List flows",
		Long: `list lists the flows that match all flags, newest first. --state is one of open, running, blocked,
completed, failed and cancelled: the state of a flow's executions when it was last computed, which is
at most half a minute ago if a worker runs.
--since and --until take a duration, 2h for two hours ago, or an instant, 2026-11-22T15:04:05Z.

list reads flows one by one, up to a million in one run. Use --since to read fewer.`,
		Example: `  ff flow list --state failed --since 24h
  ff flow list --kind import --tag app.tenant=acme
  ff flow list --json | jq -r '.flows[].id'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if _, err := f.filter(time.Now()); err != nil {
				return err
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				filter, err := f.filter(now)
				if err != nil {
					return err
				}
				view, err := readFlows(ctx, eng, filter, f.after, f.limit)
				if err != nil {
					return err
				}
				if f.asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, now, f.wide)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "kind", "", "only this kind")
	flags.StringVar(&f.namespace, "namespace", "", "only this namespace")
	flags.StringVar(&f.state, "state", "", "only this state")
	flags.StringVar(&f.tag, "tag", "", "only with this tag, key=value")
	flags.StringVar(&f.since, "since", "", "only created since then")
	flags.StringVar(&f.until, "until", "", "only created before then")
	flags.StringVar(&f.order, "order", "newest", "newest, oldest or id")
	flags.StringVar(&f.after, "after", "", "continue after the cursor that a run with the same flags printed")
	flags.IntVar(&f.limit, "limit", 50, "largest number to list, 0 for all")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.BoolVar(&f.wide, "wide", false, "print more than 80 columns: whole names, namespaces and tags")
	return cmd
}

// filter converts the flags to a filter. The engine checks the rest.
func (f *flowListFlags) filter(now time.Time) (filter engine.FlowFilter, err error) {
	order, ok := orders[f.order]
	switch {
	case !ok || order == engine.ClaimOrder || order == engine.LastEnded:
		return filter, &usageError{problem: fmt.Sprintf("--order: there is no order %q", f.order), next: "use newest, oldest or id"}
	case f.limit < 0:
		return filter, &usageError{problem: "--limit is negative"}
	}
	filter = engine.FlowFilter{
		Kind: f.kind, Namespace: id.Namespace(f.namespace), State: state.FlowState(f.state), Order: order,
	}
	if f.tag != "" {
		if filter.Tag.Key, filter.Tag.Value, ok = strings.Cut(f.tag, "="); !ok || filter.Tag.Key == "" {
			return filter, &usageError{problem: fmt.Sprintf("--tag %q is not key=value", f.tag)}
		}
	}
	if filter.CreatedFrom, err = pastInstant("--since", f.since, now); err != nil {
		return filter, err
	}
	filter.CreatedBefore, err = pastInstant("--until", f.until, now)
	return filter, err
}

// flowsView is the JSON of `ff flow list`.
type flowsView struct {
	Flows []flowSummaryView `json:"flows"`
	Next  string            `json:"next"` // the cursor to continue after; empty if there are no more
}

type flowSummaryView struct {
	ID          id.FlowID         `json:"id"`
	Kind        string            `json:"kind"`
	Namespace   id.Namespace      `json:"namespace"`
	State       state.FlowState   `json:"state"`
	Nodes       int               `json:"nodes"`
	Edges       int               `json:"edges"`
	Tags        map[string]string `json:"tags"`
	CreatedAt   string            `json:"created_at"`
	CancelledAt string            `json:"cancelled_at,omitempty"`
	SummedAt    string            `json:"summed_at,omitempty"` // when State was last derived from the executions

	created time.Time
}

func readFlows(ctx context.Context, eng *engine.Engine, filter engine.FlowFilter, after string, limit int) (*flowsView, error) {
	view := &flowsView{Flows: []flowSummaryView{}, Next: after}
	for range maxPages {
		size := engine.MaxPage
		if limit > 0 {
			size = min(size, limit-len(view.Flows))
		}
		page, err := eng.ListFlows(ctx, filter, view.Next, size)
		if err != nil {
			return nil, asUsage(err)
		}
		for _, f := range page.Items {
			if f.Err != nil {
				f.State = state.FlowState(unreadable)
			}
			view.Flows = append(view.Flows, flowSummaryView{
				f.ID, f.Kind, f.Namespace, f.State, f.Nodes, f.Edges, orEmpty(f.Tags), timestamp(f.CreatedAt), timestamp(f.CancelledAt),
				timestamp(f.SummedAt), f.CreatedAt,
			})
		}
		view.Next = page.Next
		if view.Next == "" || limit > 0 && len(view.Flows) == limit {
			break
		}
	}
	return view, nil
}

func (v *flowsView) print(to io.Writer, now time.Time, wide bool) error {
	var text string
	if len(v.Flows) > 0 {
		text = v.table(now, wide) + "\n"
	}
	switch {
	case v.Next != "":
		text += "There may be more: continue with --after " + v.Next + "\n"
	case len(v.Flows) == 0:
		text = "None found.\n"
	}
	_, err := io.WriteString(to, text)
	return err
}

func (v *flowsView) table(now time.Time, wide bool) string {
	widest := len("STATE")
	for _, f := range v.Flows {
		widest = max(widest, len(printable(string(f.State))))
	}
	widest = min(widest, 12)
	room := columns - (36 + 2) - (widest + 2) - (4 + 2) - (6 + 2)
	header := table.Row{"FLOW", "STATE", "AGE", "NODES", "KIND"}
	if wide {
		header = append(header, "NAMESPACE", "TAGS")
	}
	t := newTable(header)
	for _, f := range v.Flows {
		if wide {
			t.AppendRow(table.Row{
				f.ID, printable(string(f.State)), ago(now.Sub(f.created)), f.Nodes, printable(f.Kind), printable(string(f.Namespace)), printable(tagList(f.Tags)),
			})
			continue
		}
		t.AppendRow(table.Row{f.ID, shortened(printable(string(f.State)), widest), ago(now.Sub(f.created)), f.Nodes, shortened(printable(f.Kind), room)})
	}
	return t.Render()
}
