package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

func (a *app) whyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why ID",
		Short: "Say why an execution does not run",
		Long: `why prints what keeps an execution from running, the nearest cause first, and commands that would help. Of one
that runs or has ended it says where or how. A cause that begins with "probably" is a guess.`,
		Example: `  ff why 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff why $ID --json | jq -r '.causes[].code'`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				why, err := explain.Execution(ctx, eng, execution)
				if err != nil {
					return err
				}
				view := newWhyView(&why)
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout)
			})
		}),
	}
	a.databaseFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// whyView is the JSON of `ff why`.
type whyView struct {
	ID     id.ExecutionID    `json:"id"`
	Kind   string            `json:"kind,omitempty"`
	Lane   id.LaneID         `json:"lane,omitempty"`
	State  state.PublicState `json:"state,omitempty"`
	Causes []causeView       `json:"causes"`
	At     string            `json:"at"`
}

type causeView struct {
	Code    explain.Code      `json:"code"`
	Text    string            `json:"text"`
	Since   string            `json:"since,omitempty"`
	Until   string            `json:"until,omitempty"`
	Holders []id.ExecutionID  `json:"holders,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"`
	Do      []string          `json:"do,omitempty"`
	Certain bool              `json:"certain"`
}

func newWhyView(why *explain.Explanation) *whyView {
	e := &why.Execution
	return &whyView{ID: e.ID, Kind: e.Kind, Lane: e.Lane, State: e.State, Causes: newCauseViews(why.Causes), At: timestamp(why.At)}
}

func newCauseViews(causes []explain.Cause) []causeView {
	views := make([]causeView, 0, len(causes))
	for _, c := range causes {
		views = append(views, causeView{
			Code: c.Code, Text: c.Text, Since: timestamp(c.Since), Until: timestamp(c.Until), Holders: c.Holders, Facts: c.Facts, Do: c.Do,
			Certain: c.Certain,
		})
	}
	return views
}

func (v *whyView) print(to io.Writer) error {
	var text strings.Builder
	for _, c := range v.Causes {
		fmt.Fprintf(&text, "%s: %s\n", c.Code, printable(c.sentence()))
		for _, do := range c.Do {
			fmt.Fprintf(&text, "    %s\n", printable(do))
		}
	}
	if len(v.Causes) == 0 {
		text.WriteString("nothing holds it back\n")
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// sentence is the text of a cause, or of a guess.
func (c *causeView) sentence() string {
	if c.Certain {
		return c.Text
	}
	return "probably: " + c.Text
}
