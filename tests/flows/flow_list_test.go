package flows

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// listFlows goes through the pages of a listing.
func listFlows(t *testing.T, e *engine.Engine, filter engine.FlowFilter, limit int) []engine.FlowSummary {
	t.Helper()
	var flows []engine.FlowSummary
	for after := ""; ; {
		page, err := e.ListFlows(t.Context(), filter, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 && len(page.Items) > limit {
			t.Fatalf("a page of %d for a limit of %d", len(page.Items), limit)
		}
		flows = append(flows, page.Items...)
		if after = page.Next; after == "" {
			return flows
		}
	}
}

func sumUp(t *testing.T, f *fixture.Fixture, flow id.FlowID, summed state.FlowState) {
	t.Helper()
	f.Exec(t, `INSERT INTO ff_flow_summary (partition_key, flow_id, public_flow_state, last_summary_update_at) VALUES ($1, $2, $3, $4)`,
		fixture.PartitionOf(flow), flow, summed, f.Time().UnixMilli())
}

// Every filter and order lists the flows that a check of each flow finds, with pages of any size.
func TestListFlows(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	var all []engine.FlowSummary
	for i := range 60 {
		spec := engine.FlowSpec{
			ID: id.NewFlowID(), Kind: []string{"", "import", "export"}[i%3], Namespace: []id.Namespace{"", "tenant"}[i%2],
			CreatedAt: fixture.Start.Add(time.Duration(i) * time.Second),
		}
		ms := spec.CreatedAt.UnixMilli()
		for b := range 6 {
			spec.ID[b] = byte(ms >> (40 - 8*b))
		}
		if i%4 == 0 {
			spec.Tags = map[string]string{"app.owner": fmt.Sprint(i % 8)}
		}
		f.NewFlowOf(t, spec)
		want := engine.FlowSummary{
			ID: spec.ID, Kind: spec.Kind, Namespace: "default", Tags: spec.Tags, State: state.FlowOpen, Status: state.FlowStatusActive, CreatedAt: spec.CreatedAt,
		}
		if spec.Namespace != "" {
			want.Namespace = spec.Namespace
		}
		switch i % 5 {
		case 1:
			sumUp(t, f.Fixture, spec.ID, state.FlowFailed)
			want.State, want.Status, want.SummedAt = state.FlowFailed, state.FlowStatusFailed, f.Time()
		case 2:
			sumUp(t, f.Fixture, spec.ID, state.FlowRunning)
			setFlow(t, f, spec.ID, "public_flow_state = 'cancelled', terminal_at_ms = 1800000000005")
			want.State, want.Status, want.CancelledAt = state.FlowCancelled, state.FlowStatusCancelled, time.UnixMilli(1800000000005)
		}
		all = append(all, want)
	}
	fits := func(s *engine.FlowSummary, filter *engine.FlowFilter) bool {
		return (filter.Partition == nil || *filter.Partition == int(fixture.PartitionOf(s.ID))) &&
			(filter.State == "" || s.State == filter.State) && (filter.Kind == "" || s.Kind == filter.Kind) &&
			(filter.Namespace == "" || s.Namespace == filter.Namespace) &&
			(filter.Tag.Key == "" || s.Tags[filter.Tag.Key] == filter.Tag.Value && s.Tags != nil) &&
			!s.CreatedAt.Before(filter.CreatedFrom) && (filter.CreatedBefore.IsZero() || s.CreatedAt.Before(filter.CreatedBefore))
	}
	found := 0
	for n := range 60 {
		var filter engine.FlowFilter
		for _, set := range []func(){
			func() { filter.Partition = new(int(fixture.PartitionOf(all[rand.IntN(60)].ID))) },
			func() { filter.State = all[rand.IntN(60)].State },
			func() { filter.Kind = all[rand.IntN(60)].Kind },
			func() { filter.Namespace = all[rand.IntN(60)].Namespace },
			func() { filter.Tag = engine.TagFilter{Key: "app.owner", Value: "4"} },
			func() { filter.CreatedFrom = all[rand.IntN(60)].CreatedAt },
			func() { filter.CreatedBefore = all[30+rand.IntN(30)].CreatedAt.Add(time.Minute) },
		} {
			if rand.IntN(5) == 0 {
				set()
			}
		}
		for _, order := range []engine.ListOrder{engine.ByID, engine.NewestFirst, engine.OldestFirst} {
			filter.Order = order
			var want []engine.FlowSummary
			for i := range all {
				if fits(&all[i], &filter) {
					want = append(want, all[i])
				}
			}
			slices.SortFunc(want, func(a, b engine.FlowSummary) int {
				c := a.ID.Compare(b.ID)
				switch order {
				case engine.ByID:
					if p := int(fixture.PartitionOf(a.ID)) - int(fixture.PartitionOf(b.ID)); p != 0 {
						return p
					}
				case engine.NewestFirst:
					return -c
				}
				return c
			})
			found += len(want)
			got := listFlows(t, f.Engine, filter, []int{0, 1 + n%7, 100}[n%3])
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Fatalf("%+v: listed\n\t%+v, want\n\t%+v", filter, got, want)
			}
		}
	}
	if found < 500 {
		t.Errorf("the filters found no more than %d", found)
	}
	n := 0
	for flow, err := range f.Flows(t.Context(), engine.FlowFilter{Order: engine.NewestFirst}) {
		if err != nil || flow.ID != all[59-n].ID {
			t.Fatal(n, flow, err)
		}
		n++
	}
}

// A page never has more than 1,000 flows, however many are asked for; the reference has no limit.
func TestFlowPagesAreBounded_F39(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, `INSERT INTO ff_flow_core (partition_key, flow_id, public_flow_state, created_at_ms)
		SELECT 7, gen_random_uuid(), 'open', i FROM generate_series(1, 1001) AS i`)
	partition := 7
	for limit, want := range map[int]int{1: 1, 0: 1000, 1000: 1000, 1001: 1000, 1 << 30: 1000} {
		page, err := f.ListFlows(t.Context(), engine.FlowFilter{Partition: &partition}, "", limit)
		if err != nil || len(page.Items) != want || page.Next == "" {
			t.Errorf("limit %d: %d flows, next %q, %v; want %d", limit, len(page.Items), page.Next, err, want)
		}
	}
	if all := listFlows(t, f.Engine, engine.FlowFilter{}, 1001); len(all) != 1001 {
		t.Errorf("listed %d on all pages", len(all))
	}
}

// Pages of 2 over 3 and over 4 flows: a full last page says that nothing follows.
func TestListFlowsPages(t *testing.T) {
	f := fixture.NewCloned(t)
	for n, pages := range map[int]int{3: 2, 4: 2} {
		partition := n
		f.Exec(t, `INSERT INTO ff_flow_core (partition_key, flow_id, public_flow_state, created_at_ms)
			SELECT $1::smallint, gen_random_uuid(), 'open', 5 FROM generate_series(1, $1::integer)`, n)
		got := 0
		for after := ""; ; {
			page, err := f.ListFlows(t.Context(), engine.FlowFilter{Partition: &partition}, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if got++; page.Next == "" {
				break
			}
			after = page.Next
		}
		if got != pages {
			t.Errorf("%d pages of 2 for %d flows, want %d", got, n, pages)
		}
	}
}

// A page looks at so many flows and no more, and says where it stopped.
func TestListFlowsExaminesABoundedNumber(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, `INSERT INTO ff_flow_core (partition_key, flow_id, public_flow_state, created_at_ms, raw_fields)
		SELECT i % 256, gen_random_uuid(), 'open', i, CASE WHEN i = 1 THEN '{"flow_kind": "rare"}' ELSE '{}' END::jsonb FROM generate_series(1, $1::integer) AS i`,
		engine.MaxExamined+5)
	for _, order := range []engine.ListOrder{engine.ByID, engine.NewestFirst, engine.OldestFirst} {
		found, pages := 0, 0
		for after := ""; ; {
			page, err := f.ListFlows(t.Context(), engine.FlowFilter{Kind: "rare", Order: order}, after, 10)
			if err != nil {
				t.Fatal(err)
			}
			found += len(page.Items)
			pages++
			if after = page.Next; after == "" {
				break
			}
		}
		if found != 1 || pages != 2 {
			t.Errorf("order %d: %d flows on %d pages", order, found, pages)
		}
		page, err := f.ListFlows(t.Context(), engine.FlowFilter{Namespace: "default", Order: order, Examined: 7}, "", 10)
		if err != nil || len(page.Items) > 7 || page.Next == "" {
			t.Errorf("order %d: %d flows of seven, next %q, %v", order, len(page.Items), page.Next, err)
		}
	}
}

// One flow that cannot be read does not keep the others from being listed; a filter by state leaves it out.
func TestListFlowsReportsACorruptedFlow_F45(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow, other := f.Draw(t, nil, "a>b"), f.Draw(t, nil, "a")
	setFlow(t, f, flow, `raw_fields = raw_fields || '{"node_count": -1}'`)
	got := make(map[id.FlowID]engine.FlowSummary)
	for _, s := range listFlows(t, f.Engine, engine.FlowFilter{}, 0) {
		got[s.ID] = s
	}
	fixture.WantCorruption(t, got[flow].Err, "ff_flow_core.raw_fields.node_count")
	if s := got[other]; s.Err != nil || s.Nodes != 1 {
		t.Errorf("its neighbour is listed as %+v", s)
	}
	if open := listFlows(t, f.Engine, engine.FlowFilter{State: state.FlowOpen}, 0); len(open) != 1 || open[0].ID != other {
		t.Errorf("open flows %+v", open)
	}
}

func TestListFlowsRefusesImpossibleFilters(t *testing.T) {
	f := fixture.New(t)
	for field, filter := range map[string]engine.FlowFilter{
		"partition":      {Partition: new(256)},
		"kind":           {Kind: string(make([]byte, 257))},
		"namespace":      {Namespace: "a\x00"},
		"state":          {State: "active"},
		"tag key":        {Tag: engine.TagFilter{Value: "42"}},
		"tag value":      {Tag: engine.TagFilter{Key: "app.order", Value: "\x00"}},
		"created before": {CreatedFrom: fixture.Start, CreatedBefore: fixture.Start},
		"created from":   {CreatedFrom: time.Unix(-1, 0)},
		"order":          {Order: engine.ClaimOrder},
	} {
		_, err := f.ListFlows(t.Context(), filter, "", 0)
		fixture.WantInputError(t, err, field)
	}
	_, err := f.ListFlows(t.Context(), engine.FlowFilter{Tag: engine.TagFilter{Key: "plain", Value: "x"}}, "", 0)
	fixture.WantInputError(t, err, "tag key")
	_, err = f.ListFlows(t.Context(), engine.FlowFilter{}, "", -1)
	fixture.WantInputError(t, err, "limit")
	for range 2 {
		if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{Kind: f.Name}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := f.ListFlows(t.Context(), engine.FlowFilter{Order: engine.NewestFirst}, "", 1)
	if err != nil || page.Next == "" {
		t.Fatal(page, err)
	}
	for _, filter := range []engine.FlowFilter{{}, {Kind: "other", Order: engine.NewestFirst}} {
		_, err := f.ListFlows(t.Context(), filter, page.Next, 1)
		fixture.WantInputError(t, err, "after")
	}
}
