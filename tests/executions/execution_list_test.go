package executions

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// listAll goes through a listing by pages of a size.
func listAll(t *testing.T, eng *engine.Engine, filter engine.ExecutionFilter, limit int) []id.ExecutionID {
	t.Helper()
	var got []id.ExecutionID
	for after := ""; ; {
		page, err := eng.ListExecutions(t.Context(), filter, after, limit)
		if err != nil {
			t.Fatalf("%+v: %v", filter, err)
		}
		if limit > 0 && len(page.Items) > limit {
			t.Errorf("%+v: a page of %d, limit %d", filter, len(page.Items), limit)
		}
		for _, x := range page.Items {
			got = append(got, x.ID)
		}
		if after = page.Next; after == "" {
			return got
		}
	}
}

// idAt is an id as this library makes it at an instant.
func idAt(partition int16, at time.Time, n uint16) id.ExecutionID {
	u := id.NewExecutionUUID()
	ms := at.UnixMilli()
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6], u[7] = 0x70|byte(n>>8)&0xf, byte(n)
	return id.ExecutionIDFromRow(partition, u)
}

// listedExecution has the facts that a test knows of an execution that it made.
type listedExecution struct {
	id       id.ExecutionID
	space    id.Namespace
	lane     id.LaneID
	kind     string
	tags     map[string]string
	created  time.Time
	state    state.PublicState
	worker   id.WorkerID
	instance id.WorkerInstanceID
}

// fits is the meaning of a filter.
func (x *listedExecution) fits(f engine.ExecutionFilter) bool {
	value, tagged := x.tags[f.Tag.Key]
	return (f.Partition == nil || *f.Partition == int(x.id.Partition())) &&
		(f.Namespace == "" || f.Namespace == x.space) && (f.Lane == "" || f.Lane == x.lane) && (f.Kind == "" || f.Kind == x.kind) && (f.State == "" || f.State == x.state) &&
		(f.Tag.Key == "" || tagged && value == f.Tag.Value) &&
		(f.CreatedFrom.IsZero() || !x.created.Before(f.CreatedFrom)) && (f.CreatedBefore.IsZero() || x.created.Before(f.CreatedBefore)) &&
		(f.Worker == "" || f.Worker == x.worker) && (f.Instance == "" || f.Instance == x.instance)
}

// Any filter, in any order, lists the matching executions, once, for every size of pages.
func TestListExecutionsFilters(t *testing.T) {
	f := fixture.NewCloned(t)
	random := rand.New(rand.NewPCG(1, 2))
	var all []*listedExecution
	spaces := []id.Namespace{"live", "trial"}
	lanes, kinds, tags := []id.LaneID{"red", "blue"}, []string{"mail", "scan"}, []string{"41", "42"}
	for i := range 400 {
		// Half of them in one partition, as those of one lane are.
		partition := int16(7)
		if i%2 == 0 {
			partition = int16(random.IntN(256))
		}
		created := fixture.Start.Add(-time.Duration(random.IntN(100)) * time.Hour)
		x := &listedExecution{
			id: idAt(partition, created, uint16(i)), lane: lanes[random.IntN(2)], kind: kinds[random.IntN(2)], created: created,
			space: spaces[random.IntN(2)], tags: map[string]string{"order": tags[random.IntN(2)]}, state: state.PublicWaiting,
		}
		all = append(all, x)
		f.Create(t, func(spec *engine.ExecutionSpec) {
			spec.Namespace = x.space
			spec.ID, spec.Lane, spec.Kind, spec.Tags, spec.CreatedAt = x.id, x.lane, x.kind, x.tags, x.created
			if random.IntN(4) == 0 {
				spec.DelayUntil, x.state = fixture.Start.Add(time.Hour), state.PublicDelayed
			}
		})
	}
	byID := make(map[id.ExecutionID]*listedExecution)
	for _, x := range all {
		byID[x.id] = x
	}
	for i, lane := range lanes {
		worker := f.Worker()
		worker.Lane = lane
		for j := range 2 {
			worker.Worker, worker.Instance = id.WorkerID(fmt.Sprintf("w%d", i)), id.WorkerInstanceID(fmt.Sprintf("w%d-%d", i, j))
			claimed, err := f.Claim(t.Context(), worker, 20)
			if err != nil || len(claimed) != 20 {
				t.Fatal(len(claimed), err)
			}
			for n, c := range claimed {
				x := byID[c.ID]
				switch n % 3 {
				case 0:
					x.state = state.PublicCompleted
					err = f.CompleteExecution(t.Context(), c.Lease, nil)
				case 1:
					x.state = state.PublicFailed
					_, err = f.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "x", Class: "permanent"})
				default:
					x.state, x.worker, x.instance = state.PublicActive, worker.Worker, worker.Instance
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	choices := []func(*engine.ExecutionFilter){
		func(f *engine.ExecutionFilter) { f.Namespace = spaces[random.IntN(2)] },
		func(f *engine.ExecutionFilter) { f.Lane = lanes[random.IntN(2)] },
		func(f *engine.ExecutionFilter) { f.Kind = kinds[random.IntN(2)] },
		func(f *engine.ExecutionFilter) { f.Tag = engine.TagFilter{Key: "order", Value: tags[random.IntN(2)]} },
		func(f *engine.ExecutionFilter) {
			f.State = []state.PublicState{"waiting", "delayed", "active", "completed", "failed", "cancelled"}[random.IntN(6)]
		},
		func(f *engine.ExecutionFilter) {
			f.CreatedFrom = fixture.Start.Add(-time.Duration(random.IntN(100)) * time.Hour)
		},
		func(f *engine.ExecutionFilter) {
			f.CreatedBefore = fixture.Start.Add(time.Hour - time.Duration(random.IntN(100))*time.Hour)
		},
		func(f *engine.ExecutionFilter) { f.Worker = id.WorkerID(fmt.Sprintf("w%d", random.IntN(2))) },
		func(f *engine.ExecutionFilter) {
			f.Instance = id.WorkerInstanceID(fmt.Sprintf("w%d-%d", random.IntN(2), random.IntN(2)))
		},
		func(f *engine.ExecutionFilter) { f.Partition = new([]int{7, 7, random.IntN(256)}[random.IntN(3)]) },
	}
	found := 0
	for n := range 150 {
		var filter engine.ExecutionFilter
		for i, choose := range choices {
			if n < len(choices) && n == i || n >= len(choices) && random.IntN(4) == 0 {
				choose(&filter)
			}
		}
		if !filter.CreatedFrom.IsZero() && !filter.CreatedBefore.IsZero() && !filter.CreatedFrom.Before(filter.CreatedBefore) {
			continue
		}
		for _, order := range []engine.ListOrder{engine.ByID, engine.NewestFirst, engine.OldestFirst} {
			filter.Order = order
			var want []id.ExecutionID
			for _, x := range all {
				if x.fits(filter) {
					want = append(want, x.id)
				}
			}
			slices.SortFunc(want, func(a, b id.ExecutionID) int {
				c := a.UUID().Compare(b.UUID())
				switch order {
				case engine.ByID:
					return a.Compare(b)
				case engine.NewestFirst:
					return -c
				}
				return c
			})
			found += len(want)
			if got := listAll(t, f.Engine, filter, []int{0, 1 + random.IntN(20), 100}[n%3]); !slices.Equal(got, want) {
				t.Fatalf("%+v: listed %d %v, want %d %v", filter, len(got), got, len(want), want)
			}
		}
	}
	if found < 3000 {
		t.Errorf("the filters found no more than %d", found)
	}
}

// An execution whose uuid stands in several partitions is listed in each.
func TestListExecutionsOfOneUUIDInSeveralPartitions(t *testing.T) {
	f := fixture.NewCloned(t)
	var want []id.ExecutionID
	extremes := []id.ExecutionUUID{{}, id.ExecutionUUID(slices.Repeat([]byte{255}, 16)), id.NewExecutionUUID()}
	for _, u := range extremes {
		for _, p := range []int16{1, 200, 255} {
			x := id.ExecutionIDFromRow(p, u)
			f.Create(t, func(spec *engine.ExecutionSpec) { spec.ID = x })
			want = append(want, x)
		}
	}
	slices.SortFunc(want, func(a, b id.ExecutionID) int {
		if c := a.UUID().Compare(b.UUID()); c != 0 {
			return c
		}
		return a.Compare(b)
	})
	for limit := 1; limit <= len(want)+1; limit++ {
		if got := listAll(t, f.Engine, engine.ExecutionFilter{Order: engine.OldestFirst}, limit); !slices.Equal(got, want) {
			t.Errorf("limit %d, oldest first: %v, want %v", limit, got, want)
		}
		got := listAll(t, f.Engine, engine.ExecutionFilter{Order: engine.NewestFirst}, limit)
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Errorf("limit %d, newest first, turned round: %v, want %v", limit, got, want)
		}
	}
}

// Waiting executions of a lane are listed in claim order, without entries that cannot be claimed.
func TestListExecutionsInClaimOrder(t *testing.T) {
	f := fixture.New(t)
	var want []id.ExecutionID
	for i := range 6 {
		x := f.Create(t, func(spec *engine.ExecutionSpec) {
			spec.Priority, spec.CreatedAt = i%3, fixture.Start.Add(-time.Duration(i)*time.Second)
		})
		want = append(want, x)
	}
	order := []id.ExecutionID{want[5], want[2], want[4], want[1], want[3], want[0]}
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Hour) })
	filter := engine.ExecutionFilter{Lane: f.Lane, Order: engine.ClaimOrder}
	for _, limit := range []int{0, 1, 2, 6, 7} {
		if got := listAll(t, f.Engine, filter, limit); !slices.Equal(got, order) {
			t.Errorf("limit %d: %v, want %v", limit, got, order)
		}
	}
	// A queue entry that a write left behind which no trigger saw.
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica"); err != nil {
		t.Fatal(err)
	}
	x := order[0]
	if _, err := tx.Exec(t.Context(), fixture.UpdateExecution("lifecycle_phase = 'suspended', public_state = 'suspended'"), x.Partition(), x.UUID()); err != nil {
		t.Fatal(err)
	}
	if got := listAll(t, f.WithTx(tx), filter, 0); !slices.Equal(got, order[1:]) {
		t.Errorf("in a transaction that took the first out: %v, want %v", got, order[1:])
	}
	if got := listAll(t, f.Engine, filter, 0); !slices.Equal(got, order) {
		t.Errorf("beside it: %v, want %v", got, order)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	claimed, err := f.Claim(t.Context(), f.Worker(), 6)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range claimed {
		if c.ID != order[i] {
			t.Errorf("claimed %s as number %d, want %s", c.ID, i, order[i])
		}
	}
}

// A page of all executions, and one of the active ones, have at most as many as may be examined.
func TestListExecutionsExaminesFewOfAll(t *testing.T) {
	f := fixture.NewCloned(t)
	f.StartMany(t, 5)
	for _, filter := range []engine.ExecutionFilter{
		{Examined: 2}, {Examined: 2, Order: engine.OldestFirst}, {Examined: 2, State: state.PublicActive}, {Examined: 2, Lane: f.Lane},
	} {
		var pages []int
		for after, i := "", 0; i == 0 || after != ""; i++ {
			page, err := f.ListExecutions(t.Context(), filter, after, 3)
			if err != nil {
				t.Fatal(err)
			}
			pages, after = append(pages, len(page.Items)), page.Next
		}
		if !slices.Equal(pages, []int{2, 2, 1}) {
			t.Errorf("%+v: pages of %d", filter, pages)
		}
	}
	for _, examined := range []int{-1, engine.MaxExamined + 1} {
		_, err := f.ListExecutions(t.Context(), engine.ExecutionFilter{Examined: examined}, "", 3)
		fixture.WantInputError(t, err, "examined")
		_, err = f.ListFlows(t.Context(), engine.FlowFilter{Examined: examined}, "", 3)
		fixture.WantInputError(t, err, "examined")
	}
}

// A page looks at so many executions and no more, and says where it stopped.
func TestListExecutionsExaminesABoundedNumber_I48(t *testing.T) {
	f := fixture.NewCloned(t)
	const n = 2*engine.MaxExamined + 5
	f.Exec(t, `INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state,
		public_state, attempt_state, created_at_ms, raw_fields)
		SELECT CASE WHEN i % 2 = 0 THEN 3 ELSE i % 256 END, (lpad(to_hex($2::bigint + i * 60000), 12, '0') || '7000' || '8000000000000000')::uuid,
		CASE WHEN i = $1 / 2 THEN 'rare' ELSE 'common' END, 'terminal', 'unowned', 'not_applicable', 'completed', 'attempt_terminal', $2 + i * 60000, '{}'
		FROM generate_series(1, $1::integer) AS i`, n, fixture.Start.UnixMilli())
	for _, order := range []engine.ListOrder{engine.ByID, engine.NewestFirst, engine.OldestFirst} {
		filter := engine.ExecutionFilter{Lane: "rare", Order: order}
		var items, pages, empty int
		for after := ""; ; {
			page, err := f.ListExecutions(t.Context(), filter, after, 10)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			if items += len(page.Items); len(page.Items) == 0 {
				empty++
			}
			if after = page.Next; after == "" {
				break
			}
		}
		if items != 1 || pages != 3 || empty != 2 {
			t.Errorf("order %d: %d items on %d pages, %d of them empty", order, items, pages, empty)
		}
		// A page may examine fewer. The next one continues behind them.
		few := engine.ExecutionFilter{Lane: "common", Order: order, Examined: 7}
		listed, err := f.ListExecutions(t.Context(), few, "", 10)
		more, err2 := f.ListExecutions(t.Context(), few, listed.Next, 5)
		all, err3 := f.ListExecutions(t.Context(), engine.ExecutionFilter{Lane: "common", Order: order}, "", 12)
		if err := cmp.Or(err, err2, err3); err != nil || len(listed.Items) != 7 || !reflect.DeepEqual(append(listed.Items, more.Items...), all.Items) {
			t.Errorf("order %d, seven at a time: %d and %d, %v", order, len(listed.Items), len(more.Items), err)
		}
		// Between two instants there is less to look at.
		if order != engine.ByID {
			filter.CreatedFrom, filter.CreatedBefore = fixture.Start.Add(n/2*time.Minute), fixture.Start.Add((n/2+1)*time.Minute)
			page, err := f.ListExecutions(t.Context(), filter, "", 10)
			if err != nil || len(page.Items) != 1 {
				t.Errorf("order %d, between two instants: %+v, %v", order, page, err)
			}
		}
		// Nothing is listed twice or left out where the partitions are as different as can be.
		filter = engine.ExecutionFilter{Order: order}
		seen := make(map[id.ExecutionID]bool)
		for x, err := range f.Executions(t.Context(), filter) {
			if err != nil || seen[x.ID] {
				t.Fatalf("%v, %s again", err, x.ID)
			}
			seen[x.ID] = true
		}
		if len(seen) != n {
			t.Errorf("order %d: %d listed, want %d", order, len(seen), n)
		}
	}
}

func TestListExecutionsRefusesImpossibleFilters(t *testing.T) {
	f := fixture.New(t)
	for field, filter := range map[string]engine.ExecutionFilter{
		"namespace":      {Namespace: "\x00"},
		"lane":           {Lane: "größe"},
		"kind":           {Kind: string(make([]byte, 256))},
		"state":          {State: "running"},
		"tag key":        {Tag: engine.TagFilter{Value: "42"}},
		"tag value":      {Tag: engine.TagFilter{Key: "order", Value: "\x00"}},
		"created before": {CreatedFrom: fixture.Start, CreatedBefore: fixture.Start},
		"created from":   {CreatedFrom: time.Unix(-1, 0)},
		"worker":         {Worker: "a|b"},
		"instance":       {Instance: "a|b"},
		"order":          {Order: 17},
	} {
		_, err := f.ListExecutions(t.Context(), filter, "", 0)
		fixture.WantInputError(t, err, field)
	}
	for field, filter := range map[string]engine.ExecutionFilter{
		"lane":  {Order: engine.ClaimOrder},
		"order": {Order: engine.ClaimOrder, Lane: f.Lane, Instance: "a"},
		"state": {Order: engine.ClaimOrder, Lane: f.Lane, State: state.PublicDelayed},
	} {
		_, err := f.ListExecutions(t.Context(), filter, "", 0)
		fixture.WantInputError(t, err, field)
	}
	for field, filter := range map[string]engine.ExecutionFilter{
		"order": {Order: engine.LastEnded, Worker: "a"}, "state": {Order: engine.LastEnded, State: state.PublicActive},
	} {
		_, err := f.ListExecutions(t.Context(), filter, "", 0)
		fixture.WantInputError(t, err, field)
	}
	// A cursor is that of one filter and order.
	for range 2 {
		f.Create(t)
	}
	page, err := f.ListExecutions(t.Context(), engine.ExecutionFilter{Lane: f.Lane, Order: engine.ClaimOrder}, "", 1)
	if err != nil || page.Next == "" {
		t.Fatal(page, err)
	}
	for _, filter := range []engine.ExecutionFilter{{}, {Lane: f.Lane}, {Lane: f.Lane, Kind: "test", Order: engine.ClaimOrder}} {
		_, err := f.ListExecutions(t.Context(), filter, page.Next, 1)
		fixture.WantInputError(t, err, "after")
	}
}

// Ended executions are listed by their last end, however they ended. What no completion event reports isn't listed.
func TestListExecutionsByTheirLastEnd(t *testing.T) {
	f := fixture.NewCloned(t)
	claimed := f.StartMany(t, 6)
	failure := engine.Failure{Message: "x", Class: "permanent"}
	f.Fail(t, claimed[4].Lease, failure)
	f.Fail(t, claimed[1].Lease, failure)
	f.Fail(t, claimed[3].Lease, failure)
	err := cmp.Or(
		f.CompleteExecution(t.Context(), claimed[0].Lease, nil), f.CancelExecution(t.Context(), engine.CancelSpec{ID: claimed[5].ID}),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []int{4, 3} {
		if _, err := operator.Replay(t.Context(), f.Engine, claimed[x].ID); err != nil {
			t.Fatal(err)
		}
	}
	f.Fail(t, f.ClaimOne(t).Lease, failure) // number 3, the older one
	failed := engine.ExecutionFilter{State: state.PublicFailed, Order: engine.LastEnded}
	want := func(filter engine.ExecutionFilter, limit int, numbers ...int) {
		t.Helper()
		var ids []id.ExecutionID
		for _, n := range numbers {
			ids = append(ids, claimed[n].ID)
		}
		if got := listAll(t, f.Engine, filter, limit); !slices.Equal(got, ids) {
			t.Errorf("%+v, limit %d: %v, want %v", filter, limit, got, ids)
		}
	}
	for _, limit := range []int{0, 4, 5} {
		want(engine.ExecutionFilter{Order: engine.LastEnded}, limit, 3, 5, 0, 1)
		want(failed, limit, 3, 1)
	}
	for _, limit := range []int{1, 2, 3} { // number 3 is on a later page again
		want(engine.ExecutionFilter{Order: engine.LastEnded}, limit, 3, 5, 0, 3, 1)
	}
	want(engine.ExecutionFilter{Order: engine.LastEnded, State: state.PublicCancelled, Lane: f.Lane}, 0, 5)
	want(engine.ExecutionFilter{Order: engine.LastEnded, Namespace: "other"}, 0)
	want(engine.ExecutionFilter{Order: engine.LastEnded, Lane: "other"}, 0)
	few := failed
	few.Examined = 1
	want(few, 0, 3, 3, 1)

	// A page reads so many ends and no more, and says where it stopped.
	f.Exec(t, `INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms)
		SELECT 0, gen_random_uuid(), 'success', 1 FROM generate_series(1, $1::integer)`, 2*engine.MaxExamined)
	page, err := f.ListExecutions(t.Context(), failed, "", 10)
	if err != nil || len(page.Items) != 0 || page.Next == "" {
		t.Errorf("%+v, %v", page, err)
	}
	want(failed, 0, 3, 1)
	f.Exec(t, "DELETE FROM ff_completion_event")
	want(failed, 0)
}

// A page with a small bound examines the executions in steps, and the leases of a worker if they are few.
func TestListExecutionsInSmallSteps(t *testing.T) {
	f := fixture.NewCloned(t)
	f.StartMany(t, 450)
	for _, filter := range []engine.ExecutionFilter{
		{Examined: 400, Kind: "other", Order: engine.NewestFirst}, {Examined: 400, Instance: "other", Order: engine.OldestFirst},
	} {
		page, err := f.ListExecutions(t.Context(), filter, "", 50)
		if err != nil || len(page.Items) != 0 || page.Next == "" {
			t.Errorf("%+v: %d, %q, %v", filter, len(page.Items), page.Next, err)
		}
		page, err = f.ListExecutions(t.Context(), filter, page.Next, 50)
		if err != nil || len(page.Items) != 0 || page.Next != "" {
			t.Errorf("%+v, the rest: %d, %q, %v", filter, len(page.Items), page.Next, err)
		}
	}
	for _, filter := range []engine.ExecutionFilter{{State: state.PublicActive}, {Instance: f.Worker().Instance}} {
		filter.Examined = 300
		if got := listAll(t, f.Engine, filter, 70); len(got) != 450 {
			t.Errorf("%+v: %d", filter, len(got))
		}
	}
}

// More leases than are looked at for each page: the listing goes by ids, and finds the same.
func TestListExecutionsWithManyLeases(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.Exec(t, `INSERT INTO ffx_lease_timer (due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes)
		SELECT 1, gen_random_uuid(), array_agg(0::smallint), array_agg(gen_random_uuid()), array_agg(0)
		FROM generate_series(1, 50001) AS i`)
	for _, order := range []engine.ListOrder{engine.ByID, engine.NewestFirst, engine.OldestFirst} {
		for _, filter := range []engine.ExecutionFilter{
			{State: state.PublicActive, Order: order}, {Worker: id.WorkerID(f.Name), Order: order}, {Instance: id.WorkerInstanceID(f.Name), Order: order},
		} {
			if got := listAll(t, f.Engine, filter, 0); !slices.Equal(got, []id.ExecutionID{c.ID}) {
				t.Errorf("%+v: %v", filter, got)
			}
		}
	}
}

func TestFindExecution(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	if got, err := f.FindExecution(t.Context(), x.UUID()); got != x || err != nil {
		t.Errorf("found %s, %v; want %s", got, err, x)
	}
	missing := id.NewExecutionUUID()
	_, err := f.FindExecution(t.Context(), missing)
	fixture.WantNotFound(t, err, "execution", missing.String())
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.ID = id.ExecutionIDFromRow((x.Partition()+1)%256, x.UUID()) })
	_, err = f.FindExecution(t.Context(), x.UUID())
	fixture.WantInputError(t, err, "execution id")
}
