package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/graphviz"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/state"
)

func (a *app) flowCommand() *cobra.Command {
	cmd := group("flow", "List, show, find, watch, cancel and retry flows", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.flowListCommand(), a.flowShowCommand(), a.flowFindCommand(), a.flowWatchCommand(), a.flowCancelCommand(), a.flowRetryCommand())
	return cmd
}

// shownExecutions is how many executions of a flow are listed by default.
const shownExecutions = 50

// Formats of `ff flow show`.
var flowFormats = []string{"text", "mermaid", "dot", "json", "svg"}

func (a *app) flowShowCommand() *cobra.Command {
	var (
		asJSON, wide bool
		format       string
		limit        int
	)
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Draw a flow and list its executions",
		Long: `show draws a flow with the state of each execution, and lists the executions by the keys of their nodes.
If the drawing would be wider than the terminal, or have more than 60 nodes, the list has the upstreams
of each execution instead.

As Mermaid (for documents on GitHub), DOT or SVG, it prints the whole graph; as JSON, also the
executions, edges and groups of dependencies.`,
		Example: `  ff flow show 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff flow show 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10 --format svg > flow.svg
  ff flow show $ID --json | jq .members_by_state`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			flow, err := flowArgument(args[0])
			switch {
			case err != nil:
				return err
			case limit < 0:
				return &usageError{problem: "--limit is negative"}
			case !slices.Contains(flowFormats, format):
				return &usageError{problem: fmt.Sprintf("--format: there is no format %q", format), next: "use one of " + strings.Join(flowFormats, ", ")}
			case asJSON && format != "text" && format != "json":
				return &usageError{problem: "--json and --format contradict each other"}
			}
			if asJSON {
				format = "json"
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				return a.showFlow(ctx, eng, flow, format, limit, wide)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&format, "format", "text", strings.Join(flowFormats, ", "))
	flags.BoolVar(&asJSON, "json", false, "print JSON: --format json")
	flags.BoolVar(&wide, "wide", false, "also list kinds, lanes, and ids with their partition")
	flags.IntVar(&limit, "limit", shownExecutions, "largest number of executions to list, 0 for all")
	return cmd
}

func (a *app) showFlow(ctx context.Context, eng *engine.Engine, flow id.FlowID, format string, limit int, wide bool) error {
	if format == "json" {
		view, err := readFlow(ctx, eng, flow)
		if err != nil {
			return err
		}
		return a.writeJSON(view)
	}
	graph, err := eng.FlowGraph(ctx, flow)
	if err != nil {
		return err
	}
	var text string
	switch drawn := drawing.OfFlow(graph); format {
	case "mermaid":
		text = drawn.Mermaid()
	case "dot":
		text = drawn.DOT()
	case "svg":
		text, err = graphviz.SVG(ctx, drawn)
	default:
		var snapshot *engine.FlowSnapshot
		if snapshot, err = eng.DescribeFlow(ctx, flow); err == nil {
			text, err = flowText(ctx, snapshot, graph, a.width(), limit, wide)
		}
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.stdout, text)
	return err
}

// width returns the width of the output in columns.
func (a *app) width() int {
	if isTerminal(a.stdout) {
		if width, _, err := term.GetSize(int(a.stdout.(*os.File).Fd())); err == nil && width > 0 {
			return width
		}
	}
	return columns
}

// flowText returns the text for a flow on a terminal.
func flowText(ctx context.Context, snapshot *engine.FlowSnapshot, graph *engine.FlowGraph, width, limit int, wide bool) (string, error) {
	text := renderFacts([]fact{
		{"flow", snapshot.ID.String()},
		{"kind", snapshot.Kind},
		{"namespace", string(snapshot.Namespace)},
		{"business key", snapshot.BusinessKey.String()},
		{"state", string(snapshot.State)},
		{"created", timestamp(snapshot.CreatedAt)},
		{"cancelled", timestamp(snapshot.CancelledAt)},
		{"reason", snapshot.CancelReason},
		{"tags", tagList(snapshot.Tags)},
		{"kept", periodText(snapshot.Retention)},
		{"members pruned after", periodText(snapshot.PruneMembersAfter)},
		{"edges", fmt.Sprint(len(graph.Edges))},
		{"executions", strings.TrimSuffix(fmt.Sprintf("%d: %s", len(graph.Nodes), countsText(graphCounts(graph))), ": ")},
	})
	drawn, fits, err := graphviz.Text(ctx, drawing.OfFlow(graph), width)
	if err != nil {
		return "", err
	}
	if fits {
		text += "\n" + drawn
	}
	if len(graph.Nodes) > 0 {
		text += "\n" + nodeTable(graph, limit, wide, fits && len(graph.Edges) > 0) + "\n"
	}
	if left := len(graph.Nodes) - limit; limit > 0 && left > 0 {
		text += fmt.Sprintf("and %d more, see --limit\n", left)
	}
	return text, nil
}

// periodText returns the text of a retention, or "" if the flow uses the default.
func periodText(span time.Duration) string {
	if span == 0 {
		return ""
	}
	return keptText(span)
}

// graphCounts counts the nodes by state.
func graphCounts(graph *engine.FlowGraph) map[state.PublicState]int {
	counts := make(map[state.PublicState]int)
	for i := range graph.Nodes {
		counts[drawing.NodeState(&graph.Nodes[i])]++
	}
	return counts
}

// countsText renders counts by state.
func countsText(counts map[state.PublicState]int) string {
	var parts []string
	for _, s := range append(state.PublicStates(), unreadable) {
		if n := counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}

// nodeTable lists nodes, each after its upstreams. Below a drawing it shows the ids, otherwise the upstreams.
func nodeTable(graph *engine.FlowGraph, limit int, wide, drawn bool) string {
	order := byDepth(graph)
	if limit > 0 && len(order) > limit {
		order = order[:limit]
	}
	upstreams := make([][]string, len(graph.Nodes))
	edges := false
	for _, e := range graph.Edges {
		upstreams[e.To] = append(upstreams[e.To], printable(drawing.NodeName(&graph.Nodes[e.From])))
		edges = true
	}
	widest := len("STATE")
	for _, i := range order {
		widest = max(widest, len(drawing.NodeState(&graph.Nodes[i])))
	}
	header := table.Row{"NODE", "STATE", "EXECUTION"}
	switch {
	case wide:
		header = append(header, "KIND", "LANE", "WAITS FOR")
	case edges && !drawn:
		header[2] = "WAITS FOR"
	}
	t := newTable(header)
	for _, i := range order {
		n := &graph.Nodes[i]
		name, public := printable(drawing.NodeName(n)), drawing.NodeState(n)
		room := columns - (widest + 2) - 2
		switch {
		case wide:
			t.AppendRow(table.Row{name, public, n.ID, printable(n.Kind), printable(string(n.Lane)), strings.Join(upstreams[i], ", ")})
		case edges && !drawn:
			t.AppendRow(table.Row{shortened(name, room/2), public, shortened(strings.Join(upstreams[i], ", "), room-room/2)})
		default:
			t.AppendRow(table.Row{shortened(name, room-36-2), public, n.ID.UUID()})
		}
	}
	return t.Render()
}

// byDepth returns the indexes of nodes, each after all its upstreams, and nodes of equal depth by name.
func byDepth(graph *engine.FlowGraph) []int {
	downstream := make([][]int, len(graph.Nodes))
	open := make([]int, len(graph.Nodes))
	for _, e := range graph.Edges {
		downstream[e.From] = append(downstream[e.From], e.To)
		open[e.To]++
	}
	depth := make([]int, len(graph.Nodes))
	var free []int
	for i := range open {
		if open[i] == 0 {
			free = append(free, i)
		}
	}
	for n := 0; n < len(free); n++ {
		for _, d := range downstream[free[n]] {
			depth[d] = max(depth[d], depth[free[n]]+1)
			if open[d]--; open[d] == 0 {
				free = append(free, d)
			}
		}
	}
	order := make([]int, len(graph.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(depth[a], depth[b]) })
	return order
}

// flowView is the JSON of `ff flow show`.
type flowView struct {
	ID             id.FlowID         `json:"id"`
	Kind           string            `json:"kind"`
	Namespace      id.Namespace      `json:"namespace"`
	BusinessKey    id.BusinessKey    `json:"business_key,omitzero"`
	State          state.FlowState   `json:"state"`
	Revision       int64             `json:"revision"`
	Nodes          int               `json:"nodes"`
	Edges          int               `json:"edges"`
	CreatedAt      string            `json:"created_at"`
	LastMutationAt string            `json:"last_mutation_at"`
	CancelledAt    string            `json:"cancelled_at,omitempty"`
	CancelReason   string            `json:"cancel_reason,omitempty"`
	Tags           map[string]string `json:"tags"`

	Keep              string `json:"keep"`                // once all members have ended: a duration, forever, or default
	PruneMembersAfter string `json:"prune_members_after"` // their end: a duration; empty: kept with the flow

	MembersByState map[state.PublicState]int `json:"members_by_state"`
	Members        []memberView              `json:"members"`   // by id
	EdgeList       []edgeView                `json:"edge_list"` // by id
	Groups         []groupView               `json:"groups"`    // by id of the waiting execution
}

// unreadable is the state shown for a member whose stored state cannot be read.
const unreadable = drawing.Unreadable

type memberView struct {
	ID         id.ExecutionID        `json:"id"`
	Node       string                `json:"node"` // its key; empty if not created as a node
	Lane       id.LaneID             `json:"lane"`
	Kind       string                `json:"kind"`
	State      state.PublicState     `json:"state"`
	Outcome    state.TerminalOutcome `json:"outcome"`
	LeasesLost int                   `json:"leases_lost"`
}

type edgeView struct {
	ID         id.EdgeID               `json:"id"`
	From       id.ExecutionID          `json:"from"`
	To         id.ExecutionID          `json:"to"`
	FromNode   string                  `json:"from_node"`
	ToNode     string                  `json:"to_node"`
	Kind       string                  `json:"kind"`
	PassResult string                  `json:"pass_result,omitempty"`
	State      state.EdgeState         `json:"state"`
	Outcome    state.CompletionOutcome `json:"outcome,omitempty"`
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
		BusinessKey:    snapshot.BusinessKey,
		State:          snapshot.State,
		Revision:       snapshot.Revision,
		Nodes:          snapshot.Nodes,
		Edges:          snapshot.Edges,
		CreatedAt:      timestamp(snapshot.CreatedAt),
		LastMutationAt: timestamp(snapshot.LastMutationAt),
		CancelledAt:    timestamp(snapshot.CancelledAt),
		CancelReason:   snapshot.CancelReason,
		Tags:           orEmpty(snapshot.Tags),
		Keep:           cmp.Or(periodText(snapshot.Retention), "default"),

		PruneMembersAfter: periodText(snapshot.PruneMembersAfter),
		MembersByState:    map[state.PublicState]int{},
		Members:           []memberView{},
		EdgeList:          []edgeView{},
		Groups:            make([]groupView, len(snapshot.Groups)),
	}
	for i, g := range snapshot.Groups {
		view.Groups[i] = groupView{
			Downstream: g.Downstream, When: document.GroupOf(g.When), Edges: g.Edges,
			Succeeded: g.Succeeded, Failed: g.Failed, Skipped: g.Skipped, Active: g.Active, State: g.State,
		}
	}
	nodes := make(map[id.ExecutionID]string)
	for member, err := range eng.FlowMembers(ctx, flow) {
		if err != nil {
			return nil, err
		}
		if member.Err != nil {
			member.State = unreadable
		}
		nodes[member.ID] = member.Node
		view.Members = append(view.Members, memberView{
			member.ID, member.Node, member.Lane, member.Kind, member.State, member.Outcome, member.LeasesLost,
		})
		view.MembersByState[member.State]++
	}
	for edge, err := range eng.FlowEdges(ctx, flow) {
		if err != nil {
			return nil, err
		}
		view.EdgeList = append(view.EdgeList, edgeView{
			edge.ID, edge.From, edge.To, nodes[edge.From], nodes[edge.To], edge.Kind, edge.PassResult, edge.State, edge.Outcome,
		})
	}
	return view, nil
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

// flowArgument parses the id of a flow.
func flowArgument(text string) (id.FlowID, error) {
	flow, err := id.ParseFlowID(text)
	if err != nil {
		return flow, &usageError{problem: err.Error()}
	}
	return flow, nil
}
