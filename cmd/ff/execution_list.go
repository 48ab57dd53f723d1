package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// maxPages is the number of pages for one run: a million executions.
const maxPages = 100

// orders maps names to the orders of a listing.
var orders = map[string]engine.ListOrder{
	"newest": engine.NewestFirst, "oldest": engine.OldestFirst, "claim": engine.ClaimOrder, "ended": engine.LastEnded,
	"id": engine.ByID,
}

// listFlags has the flags of `ff execution list` as given.
type listFlags struct {
	namespace, lane, kind, state, tag, since, until, worker, instance, order, after string

	limit                 int
	asJSON, wide, blocked bool
}

func (a *app) executionListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List executions",
		Long: `list lists the executions that match all flags, newest first. --state is one of
` + states() + `.
--since and --until take a duration, 2h for two hours ago, or an instant, 2026-11-22T15:04:05Z.

Namespaces, states, kinds, tags and lanes have no index: list reads executions one by one, up to a million in one
run. If there are more, it prints how to continue. Use --since to read fewer. --worker, --instance,
--state active and --order claim, which needs --lane, read only matching executions. --order ended,
the last end first, reads only executions with the end that --state names.`,
		Example: `  ff execution list --lane images --state failed --since 24h
  ff execution list --instance worker-7f9c
  ff execution list --lane images --order claim --limit 10
  ff execution list --blocked
  ff execution list --tag app.order=42 --json | jq -r '.executions[].id'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if _, err := f.filter(time.Now()); err != nil {
				return err
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				if f.blocked {
					return a.listBlocked(ctx, eng, &f)
				}
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				filter, err := f.filter(now)
				if err != nil {
					return err
				}
				view, err := readExecutions(ctx, eng, filter, f.after, f.limit)
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
	f.filterFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.worker, "worker", "", "only leased by this worker")
	flags.StringVar(&f.instance, "instance", "", "only leased by this worker instance")
	flags.StringVar(&f.order, "order", "newest", "newest, oldest, claim, ended or id")
	flags.StringVar(&f.after, "after", "", "continue after the cursor that a run with the same flags printed")
	flags.IntVar(&f.limit, "limit", 50, "largest number to list, 0 for all")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.BoolVar(&f.blocked, "blocked", false, "only blocked by an operator, by lane, the longest blocked first; with --lane, --kind and --limit alone")
	flags.BoolVar(&f.wide, "wide", false, "print more than 80 columns: ids with their partition, whole names")
	return cmd
}

// filterFlags adds the flags to select executions.
func (f *listFlags) filterFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.namespace, "namespace", "", "only in this namespace")
	flags.StringVar(&f.lane, "lane", "", "only this lane")
	flags.StringVar(&f.kind, "kind", "", "only this kind")
	flags.StringVar(&f.state, "state", "", "only this state")
	flags.StringVar(&f.tag, "tag", "", "only with this tag, key=value")
	flags.StringVar(&f.since, "since", "", "only created since then")
	flags.StringVar(&f.until, "until", "", "only created before then")
}

// states lists the public states for the help.
func states() string {
	var names []string
	for _, s := range state.PublicStates() {
		names = append(names, string(s))
	}
	half := len(names) / 2
	return strings.Join(names[:half], ", ") + ",\n" + strings.Join(names[half:], ", ")
}

// filter converts the flags to a filter. The engine checks the rest.
func (f *listFlags) filter(now time.Time) (filter engine.ExecutionFilter, err error) {
	order, ok := orders[f.order]
	switch {
	case !ok:
		return filter, &usageError{problem: fmt.Sprintf("--order: there is no order %q", f.order), next: "use newest, oldest, claim, ended or id"}
	case f.limit < 0:
		return filter, &usageError{problem: "--limit is negative"}
	case f.state != "" && !slices.Contains(state.PublicStates(), state.PublicState(f.state)):
		return filter, &usageError{
			problem: fmt.Sprintf("--state: there is no state %q", f.state), next: "use one of " + strings.ReplaceAll(states(), "\n", " "),
		}
	}
	filter = engine.ExecutionFilter{
		Namespace: id.Namespace(f.namespace), Lane: id.LaneID(f.lane), Kind: f.kind, State: state.PublicState(f.state), Order: order,
		Worker: id.WorkerID(f.worker), Instance: id.WorkerInstanceID(f.instance),
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

// pastInstant parses a time in the past, given as an instant or a duration.
func pastInstant(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, &usageError{problem: fmt.Sprintf("%s %q is neither a duration such as 2h nor an instant such as 2026-11-22T15:04:05Z", flag, text)}
	}
	return at, nil
}

// executionsView is the JSON of `ff execution list`.
type executionsView struct {
	Executions []summaryView `json:"executions"`
	Next       string        `json:"next"` // the cursor to continue after; empty if there are no more
}

type summaryView struct {
	ID         id.ExecutionID        `json:"id"`
	Flow       *id.FlowID            `json:"flow"`
	Node       string                `json:"node,omitempty"` // its key in the flow
	Lane       id.LaneID             `json:"lane"`
	Kind       string                `json:"kind"`
	State      state.PublicState     `json:"state"`
	Outcome    state.TerminalOutcome `json:"outcome"`
	Failure    string                `json:"failure,omitempty"`
	LeasesLost int                   `json:"leases_lost"`
	CreatedAt  string                `json:"created_at"`
	EndedAt    string                `json:"ended_at,omitempty"`

	created time.Time
}

func readExecutions(
	ctx context.Context, eng *engine.Engine, filter engine.ExecutionFilter, after string, limit int,
) (*executionsView, error) {
	view := &executionsView{Executions: []summaryView{}, Next: after}
	for range maxPages {
		size := engine.MaxPage
		if limit > 0 {
			size = min(size, limit-len(view.Executions))
		}
		page, err := eng.ListExecutions(ctx, filter, view.Next, size)
		if err != nil {
			return nil, asUsage(err)
		}
		for _, x := range page.Items {
			if x.Err != nil {
				x.State = unreadable
			}
			view.Executions = append(view.Executions, summaryView{
				x.ID, x.Flow, x.Node, x.Lane, x.Kind, x.State, x.Outcome, x.Failure, x.LeasesLost, timestamp(x.CreatedAt), timestamp(x.EndedAt),
				x.CreatedAt,
			})
		}
		view.Next = page.Next
		if view.Next == "" || limit > 0 && len(view.Executions) == limit {
			break
		}
	}
	return view, nil
}

// flagsOf maps the engine's argument names to flags.
var flagsOf = map[string]string{
	"after": "--after", "By": "--by", "Batch": "--batch", "as of": "--until", "created before": "--until", "created from": "--since", "keep": "--keep", "kind": "--kind",
	"limit": "--limit", "namespace": "--namespace", "reason": "--reason", "state": "--state", "tag key": "--tag", "tag value": "--tag",
	"until": "--until", "Until": "--until", "Reason": "--reason", "worker": "--worker", "instance": "--instance", "order": "--order",
}

// asUsage converts an argument error from the engine to a usage error with the flag.
func asUsage(err error) error {
	refused, ok := errors.AsType[*fferr.InputError](err)
	if !ok {
		return err
	}
	field := refused.Field
	if flag, ok := flagsOf[field]; ok {
		field = flag
		if !strings.Contains(flag, refused.Field) {
			field += ": " + refused.Field
		}
	}
	return &usageError{problem: fmt.Sprintf("%s: %s", field, refused.Reason)}
}

// columns is the width of the output, in columns of a terminal.
const columns = 80

func (v *executionsView) print(to io.Writer, now time.Time, wide bool) error {
	var text string
	if len(v.Executions) > 0 {
		text = v.table(now, wide) + "\n"
	}
	switch {
	case v.Next != "":
		text += "There may be more: continue with --after " + v.Next + "\n"
	case len(v.Executions) == 0:
		text = "None found.\n"
	}
	_, err := io.WriteString(to, text)
	return err
}

func (v *executionsView) table(now time.Time, wide bool) string {
	// The other columns leave the remaining width to the lane and the kind.
	widest := len("STATE")
	for _, x := range v.Executions {
		widest = max(widest, len(x.State))
	}
	room := columns - (36 + 2) - (widest + 2) - (4 + 2) - 2
	fit := func(text string, width int) string { return shortened(printable(text), width) }
	if wide {
		fit = func(text string, _ int) string { return printable(text) }
	}
	t := newTable(table.Row{"EXECUTION", "STATE", "AGE", "LANE", "KIND"})
	for _, x := range v.Executions {
		name := x.ID.UUID().String()
		if wide {
			name = x.ID.String()
		}
		t.AppendRow(table.Row{name, x.State, ago(now.Sub(x.created)), fit(string(x.Lane), room/2), fit(x.Kind, room-room/2)})
	}
	return t.Render()
}

// shortened cuts text to at most width runes.
func shortened(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:max(width-1, 0)]) + "…"
}

// ago renders a time span in at most four runes.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 100*time.Second:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d < 1000*24*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
	return fmt.Sprintf("%dy", int(d.Hours()/24/365))
}
