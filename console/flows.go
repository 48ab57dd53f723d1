package console

import (
	"html/template"
	"net/url"
	"strings"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// flowsPage is the data of the page of flows.
type flowsPage struct {
	Form    url.Values
	Items   []engine.FlowSummary
	Next    string // the query of the next page
	Further string // the query of a longer search
}

// States returns the states of flows.
func (*flowsPage) States() []state.FlowState {
	return []state.FlowState{
		state.FlowOpen, state.FlowRunning, state.FlowBlocked, state.FlowCompleted, state.FlowFailed, state.FlowCancelled,
	}
}

// flows lists flows, the newest first. A flow has executions on several lanes, so a person with chosen lanes sees none.
func (c *console) flows(r *request) (view, error) {
	if r.access.Lanes != nil {
		return view{}, errHidden
	}
	if text := r.text("id"); text != "" {
		flow, err := id.ParseFlowID(text)
		if err != nil {
			return view{}, invalid("id", "is no id of a flow")
		}
		return view{redirect: "flows/" + flow.String()}, nil
	}
	form := r.fields("namespace", "kind", "state", "tag")
	namespace, err := r.access.choose(id.Namespace(form.Get("namespace")))
	if err != nil {
		return view{}, err
	}
	filter := engine.FlowFilter{Namespace: namespace, Kind: form.Get("kind"), State: state.FlowState(form.Get("state")), Order: engine.NewestFirst, Examined: r.examined()}
	if tag := form.Get("tag"); tag != "" {
		var ok bool
		if filter.Tag.Key, filter.Tag.Value, ok = strings.Cut(tag, "="); !ok || filter.Tag.Key == "" {
			return view{}, invalid("tag", "is not KEY=VALUE")
		}
	}
	page, err := c.eng.ListFlows(r.Context(), filter, r.FormValue("after"), pageSize)
	if err != nil {
		return view{}, err
	}
	next := with(form, "after", page.Next)
	return view{template: "flows.html", title: "Flows", data: &flowsPage{form, page.Items, next, further(next, len(page.Items))}}, nil
}

// flowPage is the data of the page of a flow.
type flowPage struct {
	*engine.FlowSnapshot
	Picture template.HTML
	Shown   int // boxes of the picture
}

// CancelPolicies returns the policies of a cancel.
func (*flowPage) CancelPolicies() []state.FlowCancelPolicy {
	return []state.FlowCancelPolicy{state.CancelAll, state.CancelPending, state.CancelEverything, state.CancelFlowOnly}
}

// flow reads one flow with its picture.
func (c *console) flow(r *request) (view, error) {
	flow, err := id.ParseFlowID(r.PathValue("id"))
	if err != nil || r.access.Lanes != nil {
		return view{}, errHidden
	}
	snapshot, err := c.eng.DescribeFlow(r.Context(), flow)
	if err != nil {
		return view{}, err
	}
	if !r.access.seesNamespace(snapshot.Namespace) {
		return view{}, errHidden
	}
	graph, err := c.eng.FlowGraph(r.Context(), flow)
	if err != nil {
		return view{}, err
	}
	data := flowPage{FlowSnapshot: snapshot}
	if data.Picture, data.Shown, err = c.picture(graph); err != nil {
		return view{}, err
	}
	return view{template: "flow.html", title: "Flow " + snapshot.Kind, data: &data}, nil
}
