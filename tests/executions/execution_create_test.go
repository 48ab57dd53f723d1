package executions

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCreateExecutionStoresDefaults(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)

	if want := (id.Partitions{}).LanePartition(f.Lane); x.Partition() != want {
		t.Errorf("%s is not on the partition of its lane, %d", x, want)
	}
	now := fixture.Start.UnixMilli()
	got := f.Stored(t, x)
	got.Capabilities = slices.Clip(got.Capabilities)
	want := fixture.StoredExecution{
		State: fixture.StateReady, CreatedAtMs: now, LastMutation: new(now), LastDeadline: new(int64(0)), Capabilities: []string{},
		RawFields: got.RawFields,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("stored\n%+v, want\n%+v", got, want)
	}
	fixture.WantJSON(t, got.RawFields, `{"namespace":"default","execution_kind":"test","creator_identity":"","tags":{},
		"last_mutation_at":"1800000000000","total_attempt_count":"0"}`)
	f.WantEvents(t, x)
	if got := f.StoredAttempts(t, x); len(got) != 0 {
		t.Errorf("attempts %+v, want none", got)
	}
}

func TestCreateExecutionStoresEveryField(t *testing.T) {
	f := fixture.New(t)
	x := id.NewExecutionID(f.Lane, id.Partitions{})
	created, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{
		ID: x, Namespace: "tenant", Lane: f.Lane, Kind: "resize", Payload: []byte("in"), PayloadEncoding: "text",
		Priority: 7, Creator: "me", IdempotencyKey: f.Key("once"), Tags: map[string]string{"cairn.instance_id": "i1", "any key": ""},
		Policy:   &policy.Execution{Capabilities: id.Capabilities{"gpu", "arm", "gpu"}},
		Deadline: fixture.Start.Add(time.Hour), CreatedAt: fixture.Start.Add(-time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := (engine.Created{ID: x, State: state.PublicWaiting}); created != want {
		t.Errorf("created %+v, want %+v", created, want)
	}
	got := f.Stored(t, x)
	if got.Priority != 7 || string(got.Payload) != "in" || got.CreatedAtMs != fixture.Start.Add(-time.Minute).UnixMilli() ||
		*got.DeadlineAtMs != fixture.Start.Add(time.Hour).UnixMilli() || *got.LastDeadline != *got.DeadlineAtMs {
		t.Errorf("stored %+v", got)
	}
	if want := []string{"arm", "gpu"}; !slices.Equal(got.Capabilities, want) {
		t.Errorf("capabilities %q, want %q", got.Capabilities, want)
	}
	fixture.WantJSON(t, got.RawFields, `{"namespace":"tenant","execution_kind":"resize","creator_identity":"me",
		"idempotency_key":"`+string(f.Key("once"))+`","payload_encoding":"text","tags":{"cairn.instance_id":"i1","any key":""},
		"last_mutation_at":"1799999940000","total_attempt_count":"0"}`)
	if !slices.Contains(fixture.Texts(t, f.Pool, "SELECT lane_id FROM ff_lane_registry"), string(f.Lane)) {
		t.Errorf("lane %s is not registered", f.Lane)
	}
}

func TestCreateExecutionStoresStartAndDeadline(t *testing.T) {
	f := fixture.New(t)
	at := func(after time.Duration) time.Time { return fixture.Start.Add(after) }
	ms := func(after time.Duration) *int64 { return new(at(after).UnixMilli()) }
	policyDelay := policy.Execution{DelayUntil: at(2 * time.Hour)}
	policyDeadline := policy.Execution{Deadline: time.Minute}
	for _, c := range []struct {
		name            string
		spec            engine.ExecutionSpec
		state           string
		column          *int64 // deadline_at_ms: the earlier of wake-up and deadline
		delay, deadline *int64
	}{
		{"no delay, no deadline", engine.ExecutionSpec{Kind: "test"}, fixture.StateReady, nil, nil, new(int64(0))},
		{"delay", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Hour)}, fixture.StateDelayed, ms(time.Hour), ms(time.Hour), new(int64(0))},
		{"delay that is over", engine.ExecutionSpec{Kind: "test", DelayUntil: at(0)}, fixture.StateReady, nil, nil, new(int64(0))},
		{"delay of the policy", engine.ExecutionSpec{Kind: "test", Policy: &policyDelay}, fixture.StateDelayed, ms(2 * time.Hour), ms(2 * time.Hour), new(int64(0))},
		{
			"delay before that of the policy",
			engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Hour), Policy: &policyDelay},
			fixture.StateDelayed,
			ms(time.Hour), ms(time.Hour), new(int64(0)),
		},
		{"deadline", engine.ExecutionSpec{Kind: "test", Deadline: at(time.Hour)}, fixture.StateReady, ms(time.Hour), nil, ms(time.Hour)},
		{
			"deadline before the delay",
			engine.ExecutionSpec{Kind: "test", Deadline: at(time.Minute), DelayUntil: at(time.Hour)},
			fixture.StateDelayed,
			ms(time.Minute), ms(time.Hour), ms(time.Minute),
		},
		{
			"delay before the deadline",
			engine.ExecutionSpec{Kind: "test", Deadline: at(time.Hour), DelayUntil: at(time.Minute)},
			fixture.StateDelayed,
			ms(time.Minute), ms(time.Minute), ms(time.Hour),
		},
		{
			"deadline of the policy counts from creation",
			engine.ExecutionSpec{Kind: "test", Policy: &policyDeadline, CreatedAt: at(-time.Second)},
			fixture.StateReady, ms(59 * time.Second), nil, ms(59 * time.Second),
		},
		{
			"deadline before that of the policy",
			engine.ExecutionSpec{Kind: "test", Policy: &policyDeadline, Deadline: at(time.Hour)},
			fixture.StateReady, ms(time.Hour), nil, ms(time.Hour),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := f.Create(t, func(spec *engine.ExecutionSpec) { *spec = c.spec; spec.Lane = f.Lane })
			got := f.Stored(t, x)
			if got.State != c.state {
				t.Errorf("state %s, want %s", got.State, c.state)
			}
			for name, pair := range map[string][2]*int64{
				"deadline_at_ms": {got.DeadlineAtMs, c.column}, "wake-up": {got.DelayUntilMs, c.delay}, "deadline": {got.LastDeadline, c.deadline},
			} {
				if !reflect.DeepEqual(pair[0], pair[1]) {
					t.Errorf("%s is %s, want %s", name, fixture.Relative(pair[0]), fixture.Relative(pair[1]))
				}
			}
		})
	}
}

func TestCreateExecutionClampsPriority(t *testing.T) {
	f := fixture.New(t)
	for given, want := range map[int]int32{-1 << 40: 0, -1: 0, 0: 0, 9000: 9000, 9001: 9000, 1 << 40: 9000} {
		x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = given })
		if got := f.Stored(t, x).Priority; got != want {
			t.Errorf("priority %d is stored as %d, want %d", given, got, want)
		}
	}
}

// Creations with budgets and quotas are refused until these work; the statement has the columns they need.
func TestInsertExecutionsWithAttachmentsWaitsForTheGate(t *testing.T) {
	f := fixture.New(t)
	budgets := []id.BudgetID{id.NewBudgetID(), id.NewBudgetID()}
	quota := id.NewQuotaPolicyID()
	for _, c := range []struct {
		name           string
		budgets, quota string
		state          string
		gate           string
	}{
		{
			"budgets", budgets[0].String() + "," + budgets[1].String(), "",
			"runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget", budgets[0].String(),
		},
		{
			"quota", "", quota.String(),
			"runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota", quota.String(),
		},
		{
			"budgets and quota", budgets[0].String() + "," + budgets[1].String(), quota.String(),
			"runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget", budgets[0].String(),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := id.NewExecutionID(f.Lane, id.Partitions{})
			rows, err := db.New().InsertExecutions(t.Context(), f.Pool, db.InsertExecutionsParams{
				PartitionKeys: []int16{x.Partition()}, ExecutionIDs: []pgtype.UUID{{Bytes: x.UUID(), Valid: true}},
				LaneIDs: []string{string(f.Lane)}, RequiredCapabilities: []string{""}, Priorities: []int32{0}, CreatedAtMs: []int64{0},
				DelaysUntilMs: []int64{0}, DeadlinesAtMs: []int64{0}, DeadlinesAfterMs: []int64{0}, Held: []bool{false},
				Payloads: [][]byte{nil}, Policies: []string{""}, RawFields: []string{"{}"}, BudgetIDs: []string{c.budgets},
				QuotaPolicyIDs: []string{c.quota}, QuotaPartitions: []int16{3}, LimitIDs: []string{c.quota}, LimitUnits: []string{""},
			})
			if err != nil || len(rows) != 1 || rows[0].PublicState != string(state.PublicRateLimited) {
				t.Fatalf("inserted %+v, %v; want one that is %s", rows, err, state.PublicRateLimited)
			}
			got := f.Stored(t, x)
			if got.State != c.state || got.GateID == nil || got.GateID.String() != c.gate || !got.HasAttachment {
				t.Errorf("stored %+v, want %s at gate %s", got, c.state, c.gate)
			}
			snapshot := f.Describe(t, x)
			if c.budgets != "" && !slices.Equal(snapshot.BudgetIDs, budgets) {
				t.Errorf("budgets %v, want %v", snapshot.BudgetIDs, budgets)
			}
			if c.quota != "" && (snapshot.QuotaPolicy == nil || *snapshot.QuotaPolicy != quota) {
				t.Errorf("quota %v, want %v", snapshot.QuotaPolicy, quota)
			}
		})
	}
	f.WantNothingClaimable(t)
}

func TestCreateExecutionLeavesAnExistingIDAlone(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("done")); err != nil {
		t.Fatal(err)
	}
	before := f.Dump(t, c.ID)
	f.Advance(time.Hour)
	again, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{
		ID: c.ID, Lane: "another", Kind: "other", Payload: []byte("other"), IdempotencyKey: f.Key("key"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := (engine.Created{ID: c.ID, Duplicate: true}); again != want {
		t.Errorf("created %+v, want %+v", again, want)
	}
	// The dump holds keys that name the execution too: the key went back.
	f.WantUnchanged(t, c.ID, before)
}

func TestCreateExecutionsKeepsInputOrder(t *testing.T) {
	f := fixture.New(t)
	existing := f.Create(t)
	twice := id.NewExecutionID(f.Lane, id.Partitions{})
	specs := []engine.ExecutionSpec{
		{Kind: "test", ID: existing},
		{Kind: "a"},
		{Kind: "test", Namespace: "bad\x00name"},
		{ID: twice, Kind: "first"},
		{ID: twice, Kind: "second"},
		{Kind: "b", DelayUntil: fixture.Start.Add(time.Hour)},
	}
	for i := range specs {
		specs[i].Lane = f.Lane
	}
	got, err := f.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(specs) {
		t.Fatalf("%d outcomes for %d specs", len(got), len(specs))
	}
	for i, want := range []engine.Created{
		{ID: existing, Duplicate: true},
		{ID: got[1].Value.ID, State: state.PublicWaiting},
		{},
		{ID: twice, State: state.PublicWaiting},
		{ID: twice, Duplicate: true},
		{ID: got[5].Value.ID, State: state.PublicDelayed},
	} {
		if got[i].Value != want || got[i].Err != nil && i != 2 {
			t.Errorf("outcome %d is %+v, want %+v", i, got[i], want)
		}
	}
	if !errors.Is(got[2].Err, fferr.ErrInvalidInput) {
		t.Errorf("outcome 2 is %v, want invalid input", got[2].Err)
	}
	for x, kind := range map[id.ExecutionID]string{got[1].Value.ID: "a", twice: "first", got[5].Value.ID: "b"} {
		if stored := f.Stored(t, x).Raw(t, "execution_kind"); stored != kind {
			t.Errorf("%s is of kind %q, want %q", x, stored, kind)
		}
	}
	if got := f.CountOnLane(t); got != 4 {
		t.Errorf("%d executions on the lane, want 4", got)
	}
}

func TestCreateExecutionsAcceptsAnEmptyBatch(t *testing.T) {
	f := fixture.New(t)
	if got, err := f.CreateExecutions(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// Rows as the reference creates them are never claimed, by anybody; those of this library are.
func TestCreatedExecutionIsClaimable_E1_M1(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	f.WantState(t, x, fixture.StateReady)
	if c := f.ClaimOne(t); c.ID != x {
		t.Errorf("claimed %s, want %s", c.ID, x)
	}
}

// The reference drops all of these at creation.
func TestCreateStoresEveryOption_E2_M6(t *testing.T) {
	f := fixture.New(t)
	spec := engine.ExecutionSpec{
		Kind: "test",
		Lane: f.Lane, IdempotencyKey: f.Key("key"), Priority: 1 << 30,
		Policy: &policy.Execution{
			DelayUntil:   fixture.Start.Add(time.Minute),
			Deadline:     time.Hour,
			Capabilities: id.Capabilities{"gpu"},
		},
	}
	first, err := f.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := (engine.Created{ID: first.ID, State: state.PublicDelayed}); first != want {
		t.Errorf("created %+v, want %+v", first, want)
	}
	got := f.Stored(t, first.ID)
	if *got.DelayUntilMs != fixture.Start.Add(time.Minute).UnixMilli() || *got.LastDeadline != fixture.Start.Add(time.Hour).UnixMilli() ||
		!slices.Equal(got.Capabilities, []string{"gpu"}) || got.Priority != engine.MaxPriority || got.Policy == nil {
		t.Errorf("stored %+v", got)
	}
	if second, err := f.CreateExecution(t.Context(), spec); err != nil || !second.Duplicate || second.ID != first.ID {
		t.Errorf("created again: %+v, %v; want a duplicate of %s", second, err, first.ID)
	}
}

func TestIdempotencyKey(t *testing.T) {
	day := 24 * time.Hour
	elsewhere := id.ExecutionIDFromRow(1, id.ExecutionUUID{})
	window := func(d time.Duration) *policy.Execution { return &policy.Execution{DedupWindow: d} }
	for _, c := range []struct {
		name          string
		first, second engine.ExecutionSpec
		after         time.Duration
		duplicate     bool
	}{
		{"at the end of the default window", engine.ExecutionSpec{Kind: "test"}, engine.ExecutionSpec{Kind: "test"}, day - time.Millisecond, true},
		{"after the default window", engine.ExecutionSpec{Kind: "test"}, engine.ExecutionSpec{Kind: "test"}, day, false},
		{"at the end of the policy's window", engine.ExecutionSpec{Kind: "test", Policy: window(time.Second)}, engine.ExecutionSpec{Kind: "test"}, 999 * time.Millisecond, true},
		{"after the policy's window", engine.ExecutionSpec{Kind: "test", Policy: window(time.Second)}, engine.ExecutionSpec{Kind: "test"}, time.Second, false},
		{"in a window without end", engine.ExecutionSpec{Kind: "test", Policy: window(math.MaxInt64)}, engine.ExecutionSpec{Kind: "test"}, 1000 * day, true},
		{"of a creation without a window", engine.ExecutionSpec{Kind: "test", Policy: window(policy.NoDedup)}, engine.ExecutionSpec{Kind: "test"}, 0, false},
		{"not asked for by the second", engine.ExecutionSpec{Kind: "test"}, engine.ExecutionSpec{Kind: "test", Policy: window(policy.NoDedup)}, 0, false},
		{"of another namespace", engine.ExecutionSpec{Kind: "test"}, engine.ExecutionSpec{Kind: "test", Namespace: "other"}, 0, false},
		{"of another partition", engine.ExecutionSpec{Kind: "test"}, engine.ExecutionSpec{Kind: "test", ID: elsewhere}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			create := func(spec engine.ExecutionSpec) engine.Created {
				spec.Lane, spec.IdempotencyKey = f.Lane, f.Key("key")
				if spec.ID == elsewhere {
					spec.ID = id.ExecutionIDFromRow((f.Create(t).Partition()+1)%id.DefaultFlowPartitions, id.NewExecutionUUID())
				}
				created, err := f.CreateExecution(t.Context(), spec)
				if err != nil {
					t.Fatal(err)
				}
				return created
			}
			first := create(c.first)
			f.Advance(c.after)
			second := create(c.second)
			if second.Duplicate != c.duplicate || c.duplicate != (second.ID == first.ID) {
				t.Errorf("first %+v, second %+v; want duplicate %t", first, second, c.duplicate)
			}
			if !c.duplicate {
				return
			}
			if got := f.CountOnLane(t); got != 1 {
				t.Errorf("%d executions, want 1", got)
			}
		})
	}
}

func TestIdempotencyKeyIsReusedAfterItExpired(t *testing.T) {
	f := fixture.New(t)
	keyed := func(spec *engine.ExecutionSpec) { spec.IdempotencyKey = f.Key("key") }
	f.Create(t, keyed)
	f.Advance(24 * time.Hour)
	second := f.Create(t, keyed)
	f.Advance(24*time.Hour - time.Millisecond)
	third, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, IdempotencyKey: f.Key("key")})
	if err != nil {
		t.Fatal(err)
	}
	if !third.Duplicate || third.ID != second {
		t.Errorf("created %+v, want a duplicate of %s", third, second)
	}
}

func TestIdempotencyKeyIsReleasedWhenTheIDExisted(t *testing.T) {
	f := fixture.New(t)
	existing := f.Create(t)
	spec := engine.ExecutionSpec{Kind: "test", ID: existing, Lane: f.Lane, IdempotencyKey: f.Key("key")}
	if created, err := f.CreateExecution(t.Context(), spec); err != nil || created != (engine.Created{ID: existing, Duplicate: true}) {
		t.Fatalf("created %+v, %v; want a duplicate", created, err)
	}
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.IdempotencyKey = f.Key("key") })
}

func TestIdempotencyKeysWithinOneBatch(t *testing.T) {
	f := fixture.New(t)
	earlier := f.Create(t, func(spec *engine.ExecutionSpec) { spec.IdempotencyKey = f.Key("earlier") })
	specs := []engine.ExecutionSpec{
		{Kind: "test", IdempotencyKey: f.Key("new")}, {Kind: "test", IdempotencyKey: f.Key("earlier")}, {Kind: "test", IdempotencyKey: f.Key("new")}, {Kind: "test"}, {Kind: "test", IdempotencyKey: f.Key("earlier")},
	}
	for i := range specs {
		specs[i].Lane = f.Lane
	}
	got, err := f.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []engine.Created{
		{ID: got[0].Value.ID, State: state.PublicWaiting},
		{ID: earlier, Duplicate: true},
		{ID: got[0].Value.ID, Duplicate: true},
		{ID: got[3].Value.ID, State: state.PublicWaiting},
		{ID: earlier, Duplicate: true},
	} {
		if got[i].Value != want || got[i].Err != nil && i != 2 {
			t.Errorf("outcome %d is %+v, want %+v", i, got[i], want)
		}
	}
	if got := f.CountOnLane(t); got != 3 {
		t.Errorf("%d executions, want 3", got)
	}
}

func TestPruneCreationKeys(t *testing.T) {
	f := fixture.NewCloned(t)
	for i := range 5 {
		f.Create(t, func(spec *engine.ExecutionSpec) { spec.IdempotencyKey = id.IdempotencyKey(fmt.Sprint(i)) })
		f.Advance(time.Minute)
	}
	f.Advance(24*time.Hour - 3*time.Minute) // the windows of the first three have passed
	for _, want := range []int{2, 1, 0} {
		if got, err := upkeep.Of(f.Engine).PruneCreationKeys(t.Context(), 2); err != nil || got != want {
			t.Errorf("pruned %d, %v; want %d", got, err, want)
		}
	}
	if got, want := fixture.Texts(t, f.Pool, "SELECT right(idempotency_key, 1) FROM ffx_create_dedup ORDER BY 1"), []string{"3", "4"}; !slices.Equal(got, want) {
		t.Errorf("keys %q are left, want %q", got, want)
	}
}
