package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
)

func (a *app) retentionCommand() *cobra.Command {
	cmd := group("retention", "Show the progress of deleting ended work", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.retentionShowCommand())
	return cmd
}

func (a *app) retentionShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the progress of deletion, and the retention of lanes",
		Long: `show prints the progress of deleting ended executions, flows and events, and the
lanes with a retention of their own, set by "ff lane retention". If deletion falls
behind, no worker runs the background work, or it is too slow.`,
		Example: `  ff retention show
  ff retention show --json | jq .behind_seconds`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				status, err := operator.Retention(ctx, eng)
				if err != nil {
					return err
				}
				view := newRetentionView(status)
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// retentionView is the JSON of `ff retention show`.
type retentionView struct {
	NextEnd       string          `json:"next_end,omitempty"` // end of the next execution to examine
	BehindSeconds float64         `json:"behind_seconds"`
	Waiting       int64           `json:"waiting"` // examined and not due
	NextDue       string          `json:"next_due,omitempty"`
	Deleted       int64           `json:"deleted"`
	DeletedLately int64           `json:"deleted_last_minute"`
	FlowsDeleted  int64           `json:"flows_deleted"`
	Lanes         []laneRetention `json:"lanes"` // in byte order
	Outboxes      []outboxView    `json:"outboxes"`
}

type outboxView struct {
	Outbox string `json:"outbox"`
	Kept   string `json:"kept"`  // all, or of lease events lost or none
	Floor  int64  `json:"floor"` // the greatest deleted id
	Oldest string `json:"oldest,omitempty"`
}

func newRetentionView(s operator.RetentionStatus) *retentionView {
	view := &retentionView{
		NextEnd: timestamp(s.NextEnd), BehindSeconds: s.Behind.Seconds(), Waiting: s.Waiting, NextDue: timestamp(s.NextDue),
		Deleted: s.Deleted, DeletedLately: s.DeletedLately, FlowsDeleted: s.FlowsDeleted, Lanes: []laneRetention{}, Outboxes: []outboxView{},
	}
	for _, l := range s.Lanes {
		view.Lanes = append(view.Lanes, laneRetention{l.Lane, keptText(l.Keep)})
	}
	for _, o := range s.Outboxes {
		view.Outboxes = append(view.Outboxes, outboxView{o.Outbox, string(o.Kept), o.Floor, timestamp(o.Oldest)})
	}
	return view
}

func (v *retentionView) print(to io.Writer) error {
	behind := time.Duration(v.BehindSeconds * float64(time.Second)).Round(time.Second)
	text := renderFacts([]fact{
		{"behind", behind.String()},
		{"looks at the end of", v.NextEnd},
		{"waiting", fmt.Sprint(v.Waiting)},
		{"next one due", v.NextDue},
		{"executions deleted", fmt.Sprintf("%d, %d in the last minute", v.Deleted, v.DeletedLately)},
		{"flows deleted", fmt.Sprint(v.FlowsDeleted)},
	})
	outboxes := newTable(table.Row{"EVENTS", "KEPT", "DELETED UP TO", "OLDEST"})
	for _, o := range v.Outboxes {
		outboxes.AppendRow(table.Row{o.Outbox, o.Kept, o.Floor, o.Oldest})
	}
	text += "\n" + outboxes.Render() + "\n"
	if len(v.Lanes) > 0 {
		lanes := newTable(table.Row{"LANE", "KEEPS"})
		for _, l := range v.Lanes {
			lanes.AppendRow(table.Row{shortened(printable(string(l.Lane)), 50), l.Keep})
		}
		text += "\n" + lanes.Render() + "\n"
	}
	_, err := io.WriteString(to, text)
	return err
}
