package upkeep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// passes lets so much time pass, with the background work of every ten minutes.
func passes(t *testing.T, f *fixture.Flows, d time.Duration) {
	t.Helper()
	for ; d > 0; d -= 10 * time.Minute {
		keepLeases(t, f)
		f.Advance(min(d, 10*time.Minute))
		f.Retain(t)
		purge(t, f.Fixture)
	}
}

// keepLeases renews the leases of the test.
func keepLeases(t *testing.T, f *fixture.Flows) {
	t.Helper()
	for x, l := range f.Leases {
		if _, err := f.RenewLease(t.Context(), l, time.Hour); err != nil {
			delete(f.Leases, x) // it has ended
		}
	}
}

// wantStored compares the keys of the members of a flow that are stored.
func wantStored(t *testing.T, f *fixture.Flows, flow id.FlowID, want string) {
	t.Helper()
	members := f.Members(t, flow)
	for key := range strings.FieldsSeq(want) {
		if _, stored := members[key]; !stored {
			t.Errorf("%s is gone", key)
		}
		delete(members, key)
	}
	for key := range members {
		t.Errorf("%s is stored", key)
	}
}

// A flow runs for an hour on a lane that keeps ended executions for a minute: no member goes before the flow, and
// then all go.
func TestMembersAreKeptUntilTheirFlowIsPurged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		keep time.Duration
		want time.Duration
	}{
		{"by the flow", 2 * time.Hour, 2 * time.Hour},
		{"shortest", time.Minute, time.Minute},
		{"by the engine", 0, fixture.Week},
		{"for ever", policy.KeepForever, policy.KeepForever},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.FlowsOn(trimmingFixture(t))
			f.Retain(t)
			purge(t, f.Fixture)
			if err := operator.SetLaneRetention(t.Context(), f.Fixture.Engine, f.Lane, time.Minute); err != nil {
				t.Fatal(err)
			}
			spec := fixture.Chart(fixture.When{"last": policy.Always()}, "a>b", "b>c", "c>last", "skipped>last", "b>skipped")
			spec.Retention = c.keep
			for i := range spec.Nodes {
				spec.Nodes[i].Spec.Policy = &policy.Execution{Retention: time.Minute}
			}
			flow := f.NewFlowOf(t, spec)
			const all = "a b c last skipped"
			f.Succeed(t, flow, "a")
			passes(t, f, 20*time.Minute)
			wantStored(t, f, flow, all)
			f.Fail(t, flow, "b")
			passes(t, f, 40*time.Minute)
			wantStored(t, f, flow, all)
			f.Succeed(t, flow, "last")
			if c.want == policy.KeepForever {
				f.Advance(100 * fixture.Week)
				passes(t, f, 10*time.Minute)
				wantStored(t, f, flow, all)
				return
			}
			f.Advance(c.want - time.Second)
			f.Retain(t)
			purge(t, f.Fixture)
			wantStored(t, f, flow, all)
			f.Advance(time.Second)
			passes(t, f, 10*time.Minute)
			for _, table := range []string{"ff_exec_core", "ff_attempt", "ff_edge", "ff_edge_group", "ff_flow_core"} {
				if n := counts(t, f.Fixture)[table]; n != "0" {
					t.Errorf("%s rows of %s are left", n, table)
				}
			}
			if status := retentionStatus(t, f.Fixture); status.FlowsDeleted != 1 || status.Deleted != 5 {
				t.Errorf("%+v", status)
			}
		})
	}
}

// Growth and replay of a flow whose members have ended start its retention anew.
func TestGrowthRestartsTheRetention(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	spec := fixture.Chart(nil, "a>b")
	spec.Retention = time.Hour
	flow := f.NewFlowOf(t, spec)
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	passes(t, f, 50*time.Minute)
	if _, err := f.GrowFlow(t.Context(), f.Growth(flow, nil, "c", "b>c")); err != nil {
		t.Fatal(err)
	}
	f.Succeed(t, flow, "c")
	passes(t, f, 50*time.Minute)
	wantStored(t, f, flow, "a b c")
	f.Replay(t, f.NodeID(flow, "c"))
	delete(f.Leases, f.NodeID(flow, "c"))
	f.Succeed(t, flow, "c")
	passes(t, f, 50*time.Minute)
	wantStored(t, f, flow, "a b c")
	passes(t, f, 30*time.Minute)
	wantFlow(t, f.Fixture, flow, false)
}

// The retention of a flow must make sense.
func TestFlowRetentionIsChecked(t *testing.T) {
	f := fixture.NewFlows(t)
	for field, spec := range map[string]engine.FlowSpec{
		"flow retention":      {Retention: time.Second},
		"prune members after": {PruneMembersAfter: -time.Hour},
	} {
		for _, spec := range []engine.FlowSpec{spec, {Retention: spec.Retention, PruneMembersAfter: spec.PruneMembersAfter, Nodes: []engine.Node{{Key: "a", Execution: f.Create(t)}}}} {
			_, err := f.CreateFlow(t.Context(), spec)
			if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != field {
				t.Errorf("%s: got %v", field, err)
			}
		}
	}
	if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{PruneMembersAfter: policy.KeepForever}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("got %v", err)
	}
}

// A flow that lives on may let ended members go. Then a repeated growth runs nothing again, a replay without upstream
// results is refused by name, and readers of those results learn that one is gone.
func TestPrunedMembersStayKnown(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	f.Retain(t)
	flow := drawPruned(t, f, time.Hour, "a>b", "x>b", "b>c", "long>c", "y>z")
	f.Succeed(t, flow, "a", "x")
	f.Succeed(t, flow, "b")
	f.Fail(t, flow, "y")
	f.Lease(t, flow, "long")
	passes(t, f, 50*time.Minute)
	wantStored(t, f, flow, "a b c x long y z")
	passes(t, f, 30*time.Minute)
	wantStored(t, f, flow, "b c long") // c waits for b, and has not ended
	if n := len(fixture.Texts(t, f.Pool, "SELECT node_key FROM ffx_pruned_member WHERE flow_id = $1 AND node_key IN ('a', 'x', 'y', 'z')", flow)); n != 4 {
		t.Errorf("%d are noted", n)
	}

	growth := f.Growth(flow, nil, "a x y", "a>b", "x>b", "y>z")
	grown, err := f.GrowFlow(t.Context(), growth)
	if err != nil || len(grown.Created)+len(grown.Joined)+len(grown.Linked) > 0 {
		t.Errorf("grown %+v, %v", grown, err)
	}
	wantStored(t, f, flow, "b c long")
	outcomes, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{
		{Lane: f.Lane, Kind: "test", Flow: &flow, ID: f.NodeID(flow, "a")},
		{Lane: f.Lane, Kind: "test", Flow: &flow, ID: f.NodeID(flow, "b")},
		{Lane: f.Lane, Kind: "test", Flow: &flow, ID: f.NodeID(flow, "x"), IdempotencyKey: f.Key("x")},
	})
	if err != nil || !errors.Is(outcomes[0].Err, fferr.ErrPruned) || outcomes[0].Value.ID != f.NodeID(flow, "a") ||
		outcomes[1].Err != nil || !outcomes[1].Value.Duplicate || !errors.Is(outcomes[2].Err, fferr.ErrPruned) {
		t.Errorf("created %+v, %v", outcomes, err)
	}
	wantStored(t, f, flow, "b c long")
	for _, edge := range []string{"a>new", "long>a", "a>c"} {
		before := f.DumpFlow(t, flow)
		if _, err := f.GrowFlow(t.Context(), f.Growth(flow, nil, "new", edge)); !errors.Is(err, fferr.ErrPruned) {
			t.Errorf("%s: %v", edge, err)
		}
		if after := f.DumpFlow(t, flow); after != before {
			t.Errorf("%s: stored\n%s, was\n%s", edge, after, before)
		}
	}
	before := f.DumpFlow(t, flow)
	if _, err := operator.Replay(t.Context(), f.Fixture.Engine, f.NodeID(flow, "b"), operator.ReplayCompleted); !errors.Is(err, fferr.ErrPruned) || !strings.HasSuffix(err.Error(), "it waited for a, x") {
		t.Errorf("replayed: %v", err)
	}
	if after := f.DumpFlow(t, flow); after != before {
		t.Errorf("stored\n%s, was\n%s", after, before)
	}
	if _, err := operator.Replay(t.Context(), f.Fixture.Engine, f.NodeID(flow, "a")); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("replayed: %v", err)
	}
	wantGone(t, f, flow)

	f.Succeed(t, flow, "long")
	f.Succeed(t, flow, "c")
	passes(t, f, 2*time.Hour)
	wantStored(t, f, flow, "")
	wantFlow(t, f.Fixture, flow, true)
	f.Exec(t, "UPDATE ff_flow_core SET raw_fields = raw_fields || '{\"ffx_retention_ms\": 36000000}' WHERE flow_id = $1", flow)
	f.Advance(7 * time.Hour)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, true) // its last member ended nine hours ago
	f.Advance(2 * time.Hour)
	purge(t, f.Fixture) // to the end of all flows
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, false)
	if n := counts(t, f.Fixture)["ffx_pruned_member"]; n != "0" {
		t.Errorf("%s are noted", n)
	}
}

// wantGone fails the test unless the upstreams of b are listed as gone.
func wantGone(t *testing.T, f *fixture.Flows, flow id.FlowID) {
	t.Helper()
	upstreams, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "b"))
	if err != nil || len(upstreams) != 2 {
		t.Fatalf("upstreams %+v, %v", upstreams, err)
	}
	for _, u := range upstreams {
		if !u.Gone || u.Outcome != state.OutcomeSuccess || u.State != state.PublicCompleted || u.Execution != f.NodeID(flow, u.Node) || u.Result != nil {
			t.Errorf("upstream %+v", u)
		}
		if _, err := (engine.Kind[string, string]{Name: "test"}).ResultOf(u); !errors.Is(err, fferr.ErrPruned) {
			t.Errorf("result: %v", err)
		}
	}
	if e, err := f.Eligibility(t.Context(), f.NodeID(flow, "b")); err != nil || e.Succeeded != 2 {
		t.Errorf("eligibility %+v, %v", e, err)
	}
	upstreams, err = f.UpstreamResults(t.Context(), f.NodeID(flow, "c"))
	if err != nil || len(upstreams) != 2 || upstreams[0].Gone || upstreams[1].Gone {
		t.Errorf("upstreams %+v, %v", upstreams, err)
	}
}

// A member is not pruned while another transaction holds its flow: it may be replaying its dependents.
func TestPruningWaitsForReplays(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	flow := drawPruned(t, f, time.Hour, "a>b", "c")
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	f.Advance(2 * time.Hour)
	tx := f.BeginTx(t)
	if _, err := operator.Replay(t.Context(), f.WithTx(tx), f.NodeID(flow, "b"), operator.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	f.Retain(t)
	wantStored(t, f, flow, "a b c")
	fixture.Commit(t, tx)
	f.Advance(2 * time.Minute)
	f.Retain(t)
	wantStored(t, f, flow, "a b c")
	delete(f.Leases, f.NodeID(flow, "b"))
	f.Succeed(t, flow, "b")
	f.Advance(3 * time.Hour)
	f.Retain(t)
	wantStored(t, f, flow, "c")
}

// A growth that races the pruning of a member adds nothing, in either order.
func TestGrowthRacesPruning(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	flow := drawPruned(t, f, time.Hour, "a", "b")
	f.Succeed(t, flow, "a")
	f.Advance(2 * time.Hour)
	tx := f.BeginTx(t)
	if _, err := upkeep.Of(f.WithTx(tx)).Retain(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	late := f.Rival(t)
	growth := f.Growth(flow, nil, "a")
	wait := fixture.Async(t, func(ctx context.Context) error { _, err := late.GrowFlow(ctx, growth); return err })
	late.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	wantStored(t, f, flow, "b")
}

// A flow with more members than a transaction deletes goes in several, and takes no more members and replays.
func TestPurgeOfALargeFlowClosesIt(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	flow := f.NewFlowOf(t, fixture.Wide(1200, true))
	f.CancelBy(t, flow, state.CancelAll)
	f.Exec(t, "UPDATE ff_flow_core SET public_flow_state = 'open' WHERE flow_id = $1", flow)
	f.Advance(2 * fixture.Week)
	f.Retain(t)
	tx := f.BeginTx(t)
	held := f.NodeID(flow, "up1199")
	fixture.LockExecution(t, tx, held)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, true)
	if n := len(f.Members(t, flow)); n == 0 || n > 201 {
		t.Errorf("%d members are left", n)
	}
	if _, err := f.GrowFlow(t.Context(), f.Growth(flow, nil, "new")); !errors.Is(err, fferr.ErrFlowTerminal) {
		t.Errorf("grown: %v", err)
	}
	fixture.Commit(t, tx)
	if _, err := operator.Replay(t.Context(), f.Fixture.Engine, held); !errors.Is(err, fferr.ErrFlowTerminal) {
		t.Errorf("replayed: %v", err)
	}
	f.Advance(2 * time.Minute)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, false)
	if status := retentionStatus(t, f.Fixture); status.FlowsDeleted != 1 || status.Deleted != 1201 {
		t.Errorf("%+v", status)
	}
}

// If another transaction holds a row of some flows, the others go.
func TestPurgeFlowsLeavesHeldMembers(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"member":  "SELECT FROM ff_exec_core WHERE flow_id = $1 FOR UPDATE",
		"attempt": "SELECT FROM ff_attempt AS a JOIN ff_exec_core AS e USING (partition_key, execution_id) WHERE e.flow_id = $1 FOR UPDATE OF a",
		"edge":    "SELECT FROM ff_edge WHERE flow_id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(trimmingFixture(t))
			var flows []id.FlowID
			for range 4 {
				flow := f.Draw(t, nil, "a>b")
				f.Succeed(t, flow, "a")
				f.Succeed(t, flow, "b")
				flows = append(flows, flow)
			}
			f.Advance(2 * fixture.Week)
			f.Retain(t)
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, hold, flows[1])
			purge(t, f.Fixture)
			for i, flow := range flows {
				wantFlow(t, f.Fixture, flow, i == 1)
			}
			wantStored(t, f, flows[1], "a b")
			fixture.Commit(t, tx)
			f.Advance(2 * time.Minute)
			purge(t, f.Fixture)
			wantFlow(t, f.Fixture, flows[1], false)
		})
	}
}

// A flow that lives for long is not looked at for each end of a member.
func TestPurgeFlowsLooksAtLivingFlowsRarely(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	if err := operator.SetLaneRetention(t.Context(), f.Fixture.Engine, f.Lane, time.Minute); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for i := range 20 {
		parts = append(parts, fmt.Sprint("n", i))
	}
	flow := f.Draw(t, nil, append(parts, "root")...)
	f.Lease(t, flow, "root")
	for _, key := range parts {
		f.Succeed(t, flow, key)
		keepLeases(t, f)
		f.Advance(2 * time.Minute)
		f.Retain(t)
	}
	if rows := fixture.Texts(t, f.Pool, "SELECT timer_id::text FROM ffx_retention_timer WHERE subject = 'flow'"); len(rows) != 1 {
		t.Errorf("%d timers", len(rows))
	}
	wantStored(t, f, flow, strings.Join(append(parts, "root"), " "))
}
