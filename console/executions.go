package console

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

const (
	pageSize    = 50  // rows of a list
	maxGrouped  = 400 // failures examined for groups
	maxLeased   = 200 // executions examined for a list of leased ones
	maxExamined = 300 // executions or flows examined for a list by filter, unless the person searches further
	maxFailures = 50  // groups on a page
)

// filterFields are the conditions on executions, named as for `ff execution list`.
var filterFields = []string{"namespace", "lane", "kind", "state", "tag", "since", "until", "worker", "instance"}

// executionsPage is the data of the page of executions. The fields of the form keep their texts.
type executionsPage struct {
	Form     url.Values
	Items    []engine.ExecutionSummary
	Group    bool // by failure, instead of the items
	Failures []failureGroup
	Grouped  int    // executions in the groups
	Examined int    // failures examined, if others failed before
	Same     string // the query of the same filter
	Next     string // the query of the next page
	Further  string // the query of a longer search
}

// failureGroup has the failed executions of a kind with the same first line of their messages.
type failureGroup struct {
	Kind, Line  string
	Count       int
	First, Last engine.ExecutionSummary // by end
}

// States returns the public states.
func (*executionsPage) States() []state.PublicState { return state.PublicStates() }

// Words returns the filter in words, "" if there is none.
func (p *executionsPage) Words() string { return wordsOf(p.Form) }

// Leased reports whether the filter selects executions of a worker.
func (p *executionsPage) Leased() bool { return p.Form.Has("worker") || p.Form.Has("instance") }

// Ends returns the number of ends among which [engine.LastEnded] looks for failures.
func (*executionsPage) Ends() int { return 2 * engine.MaxExamined }

// executions lists executions by filter, the newest first, or groups the last failures.
func (c *console) executions(r *request) (view, error) {
	if text := r.text("id"); text != "" {
		x, err := c.find(r, text)
		return view{redirect: "executions/" + x.Short()}, err
	}
	filter, form, err := r.filter()
	if err != nil {
		return view{}, err
	}
	v := view{template: "executions.html", title: "Executions"}
	data := executionsPage{Form: form, Same: form.Encode()}
	filter.Order, filter.Examined = engine.NewestFirst, r.examined()
	if data.Group = r.text("group") != ""; data.Group {
		filter.State, filter.Order, filter.Examined = state.PublicFailed, engine.LastEnded, maxGrouped
		page, err := c.eng.ListExecutions(r.Context(), filter, "", maxGrouped)
		if err != nil {
			return view{}, err
		}
		data.Failures, data.Grouped = groupFailures(page.Items), len(page.Items)
		if page.Next != "" {
			data.Examined = maxGrouped
		}
		v.title, v.data = "Failures", &data
		return v, nil
	}
	page, err := c.eng.ListExecutions(r.Context(), filter, r.FormValue("after"), pageSize)
	if err != nil {
		return view{}, err
	}
	data.Items, data.Next, v.data = page.Items, with(form, "after", page.Next), &data
	data.Further = further(data.Next, len(page.Items))
	return v, nil
}

// examined returns how many items to examine for a list by filter. Leases, which are examined first, take a statement.
func (r *request) examined() int {
	switch {
	case r.text("further") != "":
		return engine.MaxExamined
	case r.text("worker") != "", r.text("instance") != "", r.text("state") == string(state.PublicActive):
		return maxLeased
	}
	return maxExamined
}

// further returns the query of a longer search, if a page with a next one isn't full.
func further(next string, items int) string {
	if next == "" || items >= pageSize {
		return ""
	}
	return next + "&further=yes"
}

// groupFailures groups executions, the last end first, by kind and first line of the failure, the largest group first.
func groupFailures(items []engine.ExecutionSummary) []failureGroup {
	type key struct{ kind, line string }
	groups := make(map[key]*failureGroup)
	for _, x := range items {
		line, _, _ := strings.Cut(strings.TrimSpace(x.Failure), "\n")
		g := groups[key{x.Kind, line}]
		if g == nil {
			g = &failureGroup{Kind: x.Kind, Line: line, Last: x}
			groups[key{x.Kind, line}] = g
		}
		g.Count++
		g.First = x
	}
	sorted := make([]failureGroup, 0, len(groups))
	for _, g := range groups {
		sorted = append(sorted, *g)
	}
	slices.SortFunc(sorted, func(a, b failureGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Line, b.Line))
	})
	return sorted[:min(len(sorted), maxFailures)]
}

// filter reads the conditions of a form that the person sees, and the form with its fields.
func (r *request) filter() (engine.ExecutionFilter, url.Values, error) {
	form := r.fields(filterFields...)
	filter := engine.ExecutionFilter{
		Namespace: id.Namespace(form.Get("namespace")), Lane: id.LaneID(form.Get("lane")), Kind: form.Get("kind"),
		State: state.PublicState(form.Get("state")), Worker: id.WorkerID(form.Get("worker")), Instance: id.WorkerInstanceID(form.Get("instance")),
	}
	var err error
	if tag := form.Get("tag"); tag != "" {
		var ok bool
		if filter.Tag.Key, filter.Tag.Value, ok = strings.Cut(tag, "="); !ok || filter.Tag.Key == "" {
			return filter, form, invalid("tag", "is not KEY=VALUE")
		}
	}
	if filter.CreatedFrom, err = r.past("since"); err != nil {
		return filter, form, err
	}
	if filter.CreatedBefore, err = r.past("until"); err != nil {
		return filter, form, err
	}
	if err := r.access.narrow(&filter); err != nil {
		return filter, form, err
	}
	// Limits of the person are part of the filter.
	if filter.Namespace != "" {
		form.Set("namespace", string(filter.Namespace))
	}
	if filter.Lane != "" {
		form.Set("lane", string(filter.Lane))
	}
	return filter, form, nil
}

// past returns a field with an instant, or with a duration before now.
func (r *request) past(field string) (time.Time, error) {
	text := r.text(field)
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := r.duration(field); err == nil {
		return time.Now().Add(-ago), nil
	}
	at, err := r.instant(field)
	if err != nil {
		return at, invalid(field, "is neither a duration such as 2h nor a time such as 2026-11-28T18:00")
	}
	return at, nil
}

// find returns the execution of a whole id or of its uuid.
func (c *console) find(r *request, text string) (id.ExecutionID, error) {
	if x, err := id.ParseExecutionID(text); err == nil {
		return x, nil
	}
	u, err := uuid.Parse(text)
	if err != nil {
		return id.ExecutionID{}, invalid("id", "is no id of an execution")
	}
	return c.eng.FindExecution(r.Context(), id.ExecutionUUID(u))
}
