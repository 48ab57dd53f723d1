package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func (a *app) kindCommand() *cobra.Command {
	cmd := group("kind", "List the kinds of executions that wait for a worker", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.kindListCommand())
	return cmd
}

func (a *app) kindListCommand() *cobra.Command {
	var (
		asJSON bool
		lanes  []string
		longer time.Duration
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the kinds of executions that wait for a worker",
		Long: `list prints, by lane and kind, executions that a worker could claim and the first of which has waited for
a minute: their number among the first of the lane, with a + if there may be more, how long the first
has waited, and its id. If that stays the same, no worker takes them: none has a handler for the kind,
or none has the required capabilities.`,
		Example: `  ff kind list
  ff kind list --lane images --longer 0s
  ff kind list --json | jq '.kinds[] | select(.waiting > 100)'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			filter := engine.WaitingFilter{Longer: longer}
			if longer < 0 {
				return &usageError{problem: "--longer is negative"}
			}
			for _, lane := range lanes {
				if err := id.LaneID(lane).Validate(); err != nil {
					return &usageError{problem: "--lane: " + err.Error()}
				}
				filter.Lanes = append(filter.Lanes, id.LaneID(lane))
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				waiting, err := eng.WaitingKinds(ctx, filter)
				if err != nil {
					return err
				}
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				view := newKindsView(waiting)
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, now, longer)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringSliceVar(&lanes, "lane", nil, "only these lanes")
	cmd.Flags().DurationVar(&longer, "longer", time.Minute, "only kinds whose next execution has waited at least this long")
	return cmd
}

// kindsView is the JSON of `ff kind list`.
type kindsView struct {
	Kinds []kindView `json:"kinds"` // by lane and kind
}

type kindView struct {
	Lane    id.LaneID      `json:"lane"`
	Kind    string         `json:"kind"`
	Waiting int            `json:"waiting"`
	AtLeast bool           `json:"at_least"` // there may be more
	Next    id.ExecutionID `json:"next"`
	Since   string         `json:"since"`

	since time.Time
}

func newKindsView(waiting []engine.WaitingKind) *kindsView {
	view := &kindsView{Kinds: make([]kindView, len(waiting))}
	for i, w := range waiting {
		view.Kinds[i] = kindView{w.Lane, w.Kind, w.Waiting, w.AtLeast, w.Next, timestamp(w.Since), w.Since}
	}
	return view
}

func (v *kindsView) print(to io.Writer, now time.Time, longer time.Duration) error {
	if len(v.Kinds) == 0 {
		_, err := fmt.Fprintf(to, "Nothing has waited for %v or longer; --longer 0s shows all waiting kinds.\n", longer)
		return err
	}
	t := newTable(table.Row{"LANE", "KIND", "WAITING", "FOR", "NEXT"})
	for _, k := range v.Kinds {
		waiting := fmt.Sprint(k.Waiting)
		if k.AtLeast {
			waiting += "+"
		}
		t.AppendRow(table.Row{printable(string(k.Lane)), printable(k.Kind), waiting, now.Sub(k.since).Round(time.Second), k.Next})
	}
	_, err := fmt.Fprintln(to, t.Render())
	return err
}
