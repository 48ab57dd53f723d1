package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
)

// Lanes on a page, and how far to count, as in [engine.LaneFilter]. Larger counts end with a plus.
const (
	maxLanes = 25
	maxCount = 200
)

// lanesPage is the data of the page of lanes.
type lanesPage struct {
	Lanes []lane
	One   id.LaneID // only this lane
	Next  string    // the query of the next page
}

type lane struct {
	engine.LaneSummary
	explain.Lane
}

// Spark returns the points of a line of the ends in the last minute, for a picture of 60 by 16.
func (l *lane) Spark() string {
	most := max(slices.Max(l.Ended[:]), 1)
	var points []string
	for i, n := range l.Ended {
		points = append(points, fmt.Sprintf("%d,%.1f", i*60/(len(l.Ended)-1), 15-14*float64(n)/float64(most)))
	}
	return strings.Join(points, " ")
}

// lanes reads a page of lanes with their obstacles.
func (c *console) lanes(r *request) (view, error) {
	filter := engine.LaneFilter{Lane: id.LaneID(r.text("lane")), Counted: maxCount}
	page, err := c.eng.ListLanes(r.Context(), filter, r.FormValue("after"), maxLanes)
	if err != nil {
		return view{}, err
	}
	listed := slices.DeleteFunc(page.Items, func(l engine.LaneSummary) bool { return !r.access.seesLane(l.ID) })
	ids := make([]id.LaneID, len(listed))
	for i := range listed {
		ids[i] = listed[i].ID
	}
	explained, err := explain.Lanes(r.Context(), c.eng, ids...)
	if err != nil {
		return view{}, err
	}
	data := lanesPage{One: filter.Lane, Next: with(r.fields(), "after", page.Next)}
	for i, summary := range listed {
		data.Lanes = append(data.Lanes, lane{summary, explained[i]})
	}
	title := "Lanes"
	if data.One != "" {
		title = "Lane " + string(data.One)
	}
	return view{template: "lanes.html", title: title, data: &data}, nil
}
