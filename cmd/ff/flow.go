package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/state"
)

func (a *app) flowCommand() *cobra.Command {
	cmd := group("flow", "Look at flows", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.flowShowCommand())
	return cmd
}

func (a *app) flowShowCommand() *cobra.Command {
	var (
		asJSON bool
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a flow and its executions",
		Long: `show prints a flow, how many of its executions are in which state, and the executions by id. As JSON it
prints all of them, and the groups of dependencies.`,
		Example: `  ff flow show 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff flow show 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --json | jq .members_by_state`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			flow, err := id.ParseFlowID(args[0])
			if err != nil {
				return &usageError{problem: err.Error()}
			}
			if limit < 0 {
				return &usageError{problem: "--limit is negative"}
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				view, err := readFlow(ctx, eng, flow)
				if err != nil {
					return err
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, limit)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many executions to print at most, 0 for all")
	return cmd
}

// flowView is the JSON of `ff flow show`.
type flowView struct {
	ID             id.FlowID         `json:"id"`
	Kind           string            `json:"kind"`
	Namespace      id.Namespace      `json:"namespace"`
	State          state.FlowState   `json:"state"`
	Revision       int64             `json:"revision"`
	Nodes          int               `json:"nodes"`
	Edges          int               `json:"edges"`
	CreatedAt      string            `json:"created_at"`
	LastMutationAt string            `json:"last_mutation_at"`
	CancelledAt    string            `json:"cancelled_at,omitempty"`
	CancelReason   string            `json:"cancel_reason,omitempty"`
	Tags           map[string]string `json:"tags"`

	MembersByState map[state.PublicState]int `json:"members_by_state"`
	Members        []memberView              `json:"members"` // by id
	Groups         []groupView               `json:"groups"`  // by id of the execution that waits
}

// unreadable is the state of a member whose stored one cannot be read.
const unreadable state.PublicState = "unreadable"

type memberView struct {
	ID         id.ExecutionID        `json:"id"`
	Lane       id.LaneID             `json:"lane"`
	Kind       string                `json:"kind"`
	State      state.PublicState     `json:"state"`
	Outcome    state.TerminalOutcome `json:"outcome"`
	LeasesLost int                   `json:"leases_lost"`
}

type groupView struct {
	Downstream id.ExecutionID       `json:"downstream"`
	When       document.Group       `json:"when"`
	Edges      int                  `json:"edges"`
	Succeeded  int                  `json:"succeeded"`
	Failed     int                  `json:"failed"`
	Skipped    int                  `json:"skipped"`
	Active     int                  `json:"active"`
	State      state.EdgeGroupState `json:"state"`
}

func readFlow(ctx context.Context, eng *engine.Engine, flow id.FlowID) (*flowView, error) {
	snapshot, err := eng.DescribeFlow(ctx, flow)
	if err != nil {
		return nil, err
	}
	view := &flowView{
		ID:             snapshot.ID,
		Kind:           snapshot.Kind,
		Namespace:      snapshot.Namespace,
		State:          snapshot.State,
		Revision:       snapshot.Revision,
		Nodes:          snapshot.Nodes,
		Edges:          snapshot.Edges,
		CreatedAt:      timestamp(snapshot.CreatedAt),
		LastMutationAt: timestamp(snapshot.LastMutationAt),
		CancelledAt:    timestamp(snapshot.CancelledAt),
		CancelReason:   snapshot.CancelReason,
		Tags:           orEmpty(snapshot.Tags),
		MembersByState: map[state.PublicState]int{},
		Members:        []memberView{},
		Groups:         make([]groupView, len(snapshot.Groups)),
	}
	for i, g := range snapshot.Groups {
		view.Groups[i] = groupView{
			Downstream: g.Downstream, When: document.GroupOf(g.When), Edges: g.Edges,
			Succeeded: g.Succeeded, Failed: g.Failed, Skipped: g.Skipped, Active: g.Active, State: g.State,
		}
	}
	for member, err := range eng.FlowMembers(ctx, flow) {
		if err != nil {
			return nil, err
		}
		if member.Err != nil {
			member.State = unreadable
		}
		view.Members = append(view.Members, memberView{
			ID: member.ID, Lane: member.Lane, Kind: member.Kind, State: member.State, Outcome: member.Outcome, LeasesLost: member.LeasesLost,
		})
		view.MembersByState[member.State]++
	}
	return view, nil
}

func (v *flowView) print(to io.Writer, limit int) error {
	var byState []string
	for _, s := range append(state.PublicStates(), unreadable) {
		if n := v.MembersByState[s]; n > 0 {
			byState = append(byState, fmt.Sprintf("%d %s", n, s))
		}
	}
	facts := []fact{
		{"flow", v.ID.String()},
		{"kind", v.Kind},
		{"namespace", string(v.Namespace)},
		{"state", string(v.State)},
		{"created", v.CreatedAt},
		{"cancelled", v.CancelledAt},
		{"reason", v.CancelReason},
		{"tags", tagList(v.Tags)},
		{"edges", fmt.Sprint(v.Edges)},
		{"executions", fmt.Sprintf("%d: %s", len(v.Members), strings.Join(byState, ", "))},
	}
	shown := v.Members
	if limit > 0 && len(shown) > limit {
		shown = shown[:limit]
	}
	t := newTable(table.Row{"EXECUTION", "KIND", "LANE", "STATE", "LEASES LOST"})
	for _, m := range shown {
		t.AppendRow(table.Row{m.ID, printable(m.Kind), printable(string(m.Lane)), m.State, m.LeasesLost})
	}
	text := renderFacts(facts)
	if len(shown) > 0 {
		text += "\n" + t.Render() + "\n"
	}
	if left := len(v.Members) - len(shown); left > 0 {
		text += fmt.Sprintf("and %d more, see --limit\n", left)
	}
	_, err := io.WriteString(to, text)
	return err
}

// tagList renders tags as key=value, by key.
func tagList(tags map[string]string) string {
	list := make([]string, 0, len(tags))
	for key, value := range tags {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func orEmpty(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}
