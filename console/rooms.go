package console

import (
	"iter"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/schedule"
)

// Rows of a list without a cursor, and of a list of the keys of a limit.
const (
	maxListed = 200
	maxKeys   = 20
)

// take returns the first items that pass, at most maxListed, and whether there are others.
func take[T any](all iter.Seq2[T, error], passes func(T) bool) (items []T, more bool, err error) {
	return takeUpTo(maxListed, all, passes)
}

// takeUpTo is take with another number of items.
func takeUpTo[T any](most int, all iter.Seq2[T, error], passes func(T) bool) (items []T, more bool, err error) {
	for item, err := range all {
		switch {
		case err != nil:
			return nil, false, err
		case !passes(item):
			continue
		case len(items) == most:
			return items, true, nil
		}
		items = append(items, item)
	}
	return items, false, nil
}

// examinedWaits is the number of waits examined for a page.
const examinedWaits = 200

// waitsPage is the data of the page of questions.
type waitsPage struct {
	Form  url.Values
	Items []engine.OpenWait
	Next  string // the query of the next page
}

// waits lists executions that wait for people, the longest wait first.
func (c *console) waits(r *request) (view, error) {
	form := r.fields("name", "tag", "value")
	filter := engine.WaitFilter{Name: form.Get("name"), TagKey: form.Get("tag"), TagValue: form.Get("value"), Examined: examinedWaits}
	page, err := c.eng.ListWaits(r.Context(), filter, r.FormValue("after"), pageSize)
	if err != nil {
		return view{}, err
	}
	data := waitsPage{Form: form, Next: with(form, "after", page.Next)}
	for _, w := range page.Items {
		if r.access.seesLane(w.Lane) && r.access.seesNamespace(w.Namespace) {
			data.Items = append(data.Items, w)
		}
	}
	return view{template: "waits.html", title: "Questions for people", data: &data}, nil
}

// limitsPage is the data of the page of limits.
type limitsPage struct {
	Limits  []limitRow
	More    bool
	Partial bool // there is more in use than was counted
}

// countedUse is the number of units and of keys counted for the page of limits, as in [limit.InUse].
const countedUse = 60

// Counted returns the number of units and of keys counted.
func (*limitsPage) Counted() int { return countedUse }

type limitRow struct {
	limit.State
	Total limit.Total
}

// Path returns the path of the limit's page.
func (l limitRow) Path() string { return namespacePath(l.Namespace) + "/" + url.PathEscape(l.Name) }

// Shown returns the name with its namespace.
func (l limitRow) Shown() string { return objectName(l.Namespace, l.Name) }

// Most returns the largest value of a meter.
func (l limitRow) Most() int { return max(l.Units, 1) }

// limits lists limits with their use.
func (c *console) limits(r *request) (view, error) {
	states, more, err := take(limit.All(r.Context(), c.eng), func(l limit.State) bool { return r.access.seesNamespace(l.Namespace) })
	if err != nil {
		return view{}, err
	}
	totals, err := limit.InUse(r.Context(), c.eng, countedUse)
	if err != nil {
		return view{}, err
	}
	data := limitsPage{More: more, Partial: len(totals) > 0 && totals[0].Partial}
	for _, state := range states {
		row := limitRow{State: state}
		for _, total := range totals {
			if total.Namespace == state.Namespace && total.Name.Name == state.Name {
				row.Total = total
			}
		}
		data.Limits = append(data.Limits, row)
	}
	return view{template: "limits.html", title: "Limits", data: &data}, nil
}

// limitPage is the data of the page of a limit.
type limitPage struct {
	limitRow
	Keys []limit.Use
	More bool
}

// limit reads one limit with its keys.
func (c *console) limit(r *request) (view, error) {
	name := limit.Name{Namespace: namespaceOf(r), Name: r.PathValue("name")}
	if !r.access.seesNamespace(name.Namespace) {
		return view{}, errHidden
	}
	state, err := limit.Describe(r.Context(), c.eng, name)
	if err != nil {
		return view{}, err
	}
	keys, more, err := takeUpTo(maxKeys, limit.Keys(r.Context(), c.eng, name), func(limit.Use) bool { return true })
	if err != nil {
		return view{}, err
	}
	return view{template: "limit.html", title: "Limit " + objectName(name.Namespace, name.Name), data: &limitPage{limitRow{State: state}, keys, more}}, nil
}

// noNamespace replaces the empty namespace in a path.
const noNamespace = "-"

func namespaceOf(r *request) id.Namespace {
	if text := r.PathValue("namespace"); text != noNamespace {
		return id.Namespace(text)
	}
	return ""
}

// namespacePath returns a namespace for a path.
func namespacePath(namespace id.Namespace) string {
	if namespace == "" {
		return noNamespace
	}
	return url.PathEscape(string(namespace))
}

// budgetsPage is the data of the page of budgets.
type budgetsPage struct {
	Budgets []budget.Budget
	More    bool
}

// budgetRow is a dimension of a budget.
type budgetRow struct {
	budget.Budget
	Dimension  string
	Limit      budget.Limit
	Limited    bool // the budget has this dimension in its rule
	Used, Held int64
	First      bool // of its budget
}

// Rows returns the dimensions of all budgets.
func (p *budgetsPage) Rows() []budgetRow {
	var rows []budgetRow
	for _, b := range p.Budgets {
		dimensions := slices.Concat(slices.Collect(maps.Keys(b.Limits)), slices.Collect(maps.Keys(b.Usage)))
		slices.Sort(dimensions)
		for i, dimension := range slices.Compact(dimensions) {
			l, limited := b.Limits[dimension]
			rows = append(rows, budgetRow{b, dimension, l, limited, b.Usage[dimension], b.Reserved[dimension], i == 0})
		}
		if len(dimensions) == 0 {
			rows = append(rows, budgetRow{Budget: b, First: true})
		}
	}
	return rows
}

// budgets lists budgets with their usage.
func (c *console) budgets(r *request) (view, error) {
	items, more, err := take(budget.All(r.Context(), c.eng), func(b budget.Budget) bool { return r.access.seesNamespace(b.Namespace) })
	return view{template: "budgets.html", title: "Budgets", data: &budgetsPage{items, more}}, err
}

// schedulesPage is the data of the page of schedules.
type schedulesPage struct {
	Form      url.Values
	Schedules []scheduleRow
	More      bool
}

type scheduleRow struct{ schedule.State }

// Path returns the path of the schedule's page.
func (s scheduleRow) Path() string { return namespacePath(s.Namespace) + "/" + url.PathEscape(s.Name) }

// Shown returns the name with its namespace.
func (s scheduleRow) Shown() string { return objectName(s.Namespace, s.Name) }

// schedules lists schedules with their last and next ticks.
func (c *console) schedules(r *request) (view, error) {
	form := r.fields("namespace", "set", "kind", "paused")
	filter := schedule.Filter{Namespace: id.Namespace(form.Get("namespace")), Set: form.Get("set"), Kind: form.Get("kind"), Paused: form.Has("paused")}
	items, more, err := take(schedule.All(r.Context(), c.eng, filter), func(s schedule.State) bool {
		return r.access.seesNamespace(s.Namespace) && r.access.seesLane(s.Lane)
	})
	data := schedulesPage{Form: form, More: more}
	for _, s := range items {
		data.Schedules = append(data.Schedules, scheduleRow{s})
	}
	return view{template: "schedules.html", title: "Schedules", data: &data}, err
}

// schedulePage is the data of the page of a schedule.
type schedulePage struct {
	scheduleRow
	Upcoming []time.Time
}

// upcoming is the number of next ticks on the page of a schedule.
const upcoming = 10

// schedule reads one schedule with its ticks.
func (c *console) schedule(r *request) (view, error) {
	name := schedule.Name{Namespace: namespaceOf(r), Name: r.PathValue("name")}
	if !r.access.seesNamespace(name.Namespace) {
		return view{}, errHidden
	}
	state, next, err := schedule.Describe(r.Context(), c.eng, name, upcoming)
	if err != nil {
		return view{}, err
	}
	if !r.access.seesLane(state.Lane) {
		return view{}, errHidden
	}
	return view{
		template: "schedule.html", title: "Schedule " + objectName(name.Namespace, name.Name), data: &schedulePage{scheduleRow{state}, next},
	}, nil
}

// sequencesPage is the data of the page of sequences.
type sequencesPage struct {
	Form      url.Values
	Sequences []engine.SequenceState
	More      bool
}

// sequences lists sequences. Their executions may be on several lanes, so a person with chosen lanes sees none.
func (c *console) sequences(r *request) (view, error) {
	if r.access.Lanes != nil {
		return view{}, errHidden
	}
	form := r.fields("namespace", "stopped")
	filter := engine.SequenceFilter{Namespace: id.Namespace(form.Get("namespace")), Stopped: form.Has("stopped")}
	items, more, err := take(c.eng.Sequences(r.Context(), filter), func(s engine.SequenceState) bool {
		return r.access.seesNamespace(id.Namespace(s.Namespace))
	})
	return view{template: "sequences.html", title: "Sequences", data: &sequencesPage{form, items, more}}, err
}

// sequencePage is the data of the page of a sequence.
type sequencePage struct {
	engine.SequenceState
	Members []engine.SequenceMember
	Next    string // the query of the next page
}

// sequence reads one sequence with its executions.
func (c *console) sequence(r *request) (view, error) {
	name := engine.SequenceName{Namespace: namespaceOf(r), Key: r.PathValue("key")}
	if r.access.Lanes != nil || !r.access.seesNamespace(name.Namespace) {
		return view{}, errHidden
	}
	state, err := c.eng.DescribeSequence(r.Context(), name)
	if err != nil {
		return view{}, err
	}
	page, err := c.eng.ListSequenceMembers(r.Context(), name, r.FormValue("after"), pageSize)
	if err != nil {
		return view{}, err
	}
	data := sequencePage{state, page.Items, with(url.Values{}, "after", page.Next)}
	return view{template: "sequence.html", title: "Sequence " + objectName(name.Namespace, name.Key), data: &data}, nil
}
