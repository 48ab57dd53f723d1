package tests

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// The states of members that wait for others; they read as those of seed_test.go.
const (
	stateHeld    = "runnable unowned blocked_by_dependencies waiting_children pending_first_attempt waiting_for_children"
	stateSkipped = "terminal unowned not_applicable skipped attempt_terminal -"
)

// flowFixture is a fixture that calls the members of its flows by the keys of their nodes.
type flowFixture struct {
	*fixture
	names  map[id.ExecutionUUID]string
	leases map[id.ExecutionID]engine.Lease // held by the test
}

func newFlowFixture(t *testing.T) *flowFixture {
	t.Helper()
	return flowsOn(newFixture(t))
}

func flowsOn(f *fixture) *flowFixture {
	return &flowFixture{fixture: f, names: make(map[id.ExecutionUUID]string), leases: make(map[id.ExecutionID]engine.Lease)}
}

// when gives nodes, by key, the policy of their group.
type when map[string]policy.Group

// chart draws a flow: "a>c" is an edge from a to c, "a" a node. Nodes stand in the order of their first mention.
func chart(rules when, parts ...string) engine.FlowSpec {
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	seen := make(map[string]bool)
	node := func(key string) {
		if !seen[key] {
			seen[key] = true
			spec.Nodes = append(spec.Nodes, engine.Node{Key: key, When: rules[key], Spec: engine.ExecutionSpec{Kind: "test"}})
		}
	}
	for _, part := range parts {
		from, to, isEdge := strings.Cut(part, ">")
		node(from)
		if isEdge {
			node(to)
			spec.Edges = append(spec.Edges, engine.Edge{From: from, To: to})
		}
	}
	return spec
}

// createFlow creates a flow with its nodes on the fixture's lane.
func (f *flowFixture) createFlow(t *testing.T, spec engine.FlowSpec) id.FlowID {
	t.Helper()
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Lane = f.lane
		f.names[f.NodeID(spec.ID, spec.Nodes[i].Key).UUID()] = spec.Nodes[i].Key
	}
	created, err := f.CreateFlow(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if created.ID != spec.ID || created.Existed {
		t.Fatalf("created %+v, want flow %s", created, spec.ID)
	}
	return created.ID
}

// draw creates the flow of a chart.
func (f *flowFixture) draw(t *testing.T, rules when, parts ...string) id.FlowID {
	t.Helper()
	return f.createFlow(t, chart(rules, parts...))
}

// name returns the key of a member, or its id where the fixture did not create it.
func (f *flowFixture) name(x id.ExecutionUUID) string {
	if key, ok := f.names[x]; ok {
		return key
	}
	return x.String()
}

// lease returns the lease of a node, claiming what the lane has where the test does not hold it yet.
func (f *flowFixture) lease(t *testing.T, flow id.FlowID, key string) engine.Lease {
	t.Helper()
	x := f.NodeID(flow, key)
	if _, held := f.leases[x]; !held {
		f.claimAll(t)
	}
	l, held := f.leases[x]
	if !held {
		t.Fatalf("%s is not claimable: it is %s", key, f.members(t, flow)[key])
	}
	return l
}

func (f *flowFixture) claimAll(t *testing.T) {
	t.Helper()
	for n := engine.MaxBatch; n == engine.MaxBatch; {
		claimed, err := f.Claim(t.Context(), f.worker(), engine.MaxBatch)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range claimed {
			f.leases[c.ID] = c.Lease
		}
		n = len(claimed)
	}
}

// succeed completes nodes, all in one call.
func (f *flowFixture) succeed(t *testing.T, flow id.FlowID, keys ...string) {
	t.Helper()
	completions := make([]engine.Completion, len(keys))
	for i, key := range keys {
		completions[i].Lease = f.lease(t, flow, key)
	}
	outcomes, err := f.CompleteExecutions(t.Context(), completions)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range outcomes {
		if err != nil {
			t.Fatalf("complete %s: %v", keys[i], err)
		}
	}
}

// forGood is a failure that is not retried.
var forGood = engine.Failure{Message: "broken", Class: policy.Permanent}

// fail fails nodes for good, all in one call.
func (f *flowFixture) fail(t *testing.T, flow id.FlowID, keys ...string) {
	t.Helper()
	failures := make([]engine.AttemptFailure, len(keys))
	for i, key := range keys {
		failures[i] = engine.AttemptFailure{Lease: f.lease(t, flow, key), Failure: forGood}
	}
	results, err := f.FailExecutions(t.Context(), failures)
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		if result.Err != nil || result.Value.Retry {
			t.Fatalf("fail %s: %+v", keys[i], result)
		}
	}
}

// members returns the stored state of each member.
func (f *flowFixture) members(t *testing.T, flow id.FlowID) map[string]string {
	t.Helper()
	type row struct {
		ExecutionID id.ExecutionUUID
		State       string
	}
	states := make(map[string]string)
	for _, r := range all[row](t, f.pool, `
		SELECT execution_id, concat_ws(' ', lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
			coalesce(blocking_reason, '-')) AS state
		FROM ff_exec_core WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, partitionOf(flow), flow) {
		states[f.name(r.ExecutionID)] = r.State
	}
	return states
}

func partitionOf(flow id.FlowID) int16 { return id.Partitions{}.FlowPartition(flow) }

// wantMembers compares the states of all members with the keys listed by state.
func (f *flowFixture) wantMembers(t *testing.T, flow id.FlowID, byState map[string]string) {
	t.Helper()
	want := make(map[string]string)
	for state, keys := range byState {
		for key := range strings.FieldsSeq(keys) {
			want[key] = state
		}
	}
	wantEqual(t, "members", f.members(t, flow), want)
}

// storedGroup is the fan-in state of a node.
type storedGroup struct {
	Success, Fail, Skip, Running, KTarget int
	Flagged                               bool
	Siblings                              string // keys of the members to cancel
	Enqueued                              bool   // a row of ff_pending_cancel_groups
}

func (f *flowFixture) groups(t *testing.T, flow id.FlowID) map[string]storedGroup {
	t.Helper()
	type row struct {
		storedGroup
		DownstreamEID id.ExecutionUUID
		Members       []string
	}
	groups := make(map[string]storedGroup)
	for _, r := range all[row](t, f.pool, `
		SELECT downstream_eid, success_count AS success, fail_count AS fail, skip_count AS skip, running_count AS running,
			k_target, cancel_siblings_pending_flag AS flagged, cancel_siblings_pending_members AS members, '' AS siblings,
			EXISTS (
				SELECT FROM ff_pending_cancel_groups AS p
				WHERE p.partition_key = g.partition_key AND p.flow_id = g.flow_id AND p.downstream_eid = g.downstream_eid
			) AS enqueued
		FROM ff_edge_group AS g WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, partitionOf(flow), flow) {
		keys := make([]string, len(r.Members))
		for i, text := range r.Members {
			x, err := id.ParseExecutionUUID(text)
			if err != nil {
				t.Fatal(err)
			}
			keys[i] = f.name(x)
		}
		slices.Sort(keys)
		r.Siblings = strings.Join(keys, " ")
		groups[f.name(r.DownstreamEID)] = r.storedGroup
	}
	return groups
}

// wantGroup compares one group.
func (f *flowFixture) wantGroup(t *testing.T, flow id.FlowID, key string, want storedGroup) {
	t.Helper()
	if got := f.groups(t, flow)[key]; got != want {
		t.Errorf("group of %s: %+v, want %+v", key, got, want)
	}
}

// edges returns of each edge its state and, once it is resolved, the outcome it was resolved with.
func (f *flowFixture) edges(t *testing.T, flow id.FlowID) map[string]string {
	t.Helper()
	type row struct {
		UpstreamEID, DownstreamEID id.ExecutionUUID
		State                      string
	}
	edges := make(map[string]string)
	for _, r := range all[row](t, f.pool, `
		SELECT upstream_eid, downstream_eid, concat_ws(' ', policy ->> 'edge_state', policy ->> 'resolved_outcome') AS state
		FROM ff_edge WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, partitionOf(flow), flow) {
		edges[f.name(r.UpstreamEID)+">"+f.name(r.DownstreamEID)] = r.State
	}
	return edges
}

// completionEvents returns the completion events of a flow in order: key and outcome, and "left" where the
// dispatcher is to go on.
func (f *flowFixture) completionEvents(t *testing.T, flow id.FlowID) []string {
	t.Helper()
	type row struct {
		ExecutionID id.ExecutionUUID
		Outcome     string
	}
	var events []string
	for _, r := range all[row](t, f.pool, `
		SELECT execution_id, outcome || CASE WHEN dispatched_at_ms IS NULL THEN ' left' ELSE '' END AS outcome
		FROM ff_completion_event WHERE partition_key = $1::smallint AND flow_id = $2::uuid ORDER BY event_id`, partitionOf(flow), flow) {
		events = append(events, f.name(r.ExecutionID)+" "+r.Outcome)
	}
	return events
}

func (f *flowFixture) wantCompletionEvents(t *testing.T, flow id.FlowID, want ...string) {
	t.Helper()
	if got := f.completionEvents(t, flow); !slices.Equal(got, want) {
		t.Errorf("completion events:\n\t%q, want\n\t%q", got, want)
	}
}

// dumpFlow renders every row of a flow: equal dumps mean that nothing was written.
func (f *flowFixture) dumpFlow(t *testing.T, flow id.FlowID) string {
	t.Helper()
	return strings.Join(texts(t, f.pool, `
		SELECT to_jsonb(r)::text FROM ff_flow_core AS r WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT to_jsonb(r)::text FROM ff_exec_core AS r WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT to_jsonb(r)::text FROM ff_edge AS r WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT to_jsonb(r)::text FROM ff_edge_group AS r WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT to_jsonb(r)::text FROM ff_pending_cancel_groups AS r WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT to_jsonb(r)::text FROM ff_completion_event AS r WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		ORDER BY 1`, partitionOf(flow), flow), "\n")
}

// wantNoFlow fails the test when anything of a flow is stored.
func (f *flowFixture) wantNoFlow(t *testing.T, flow id.FlowID) {
	t.Helper()
	if rows := f.dumpFlow(t, flow); rows != "" {
		t.Errorf("rows of flow %s were written:\n%s", flow, rows)
	}
}

// storedRow returns the one row of a table that a condition holds for, as JSON values by column.
func storedRow(t *testing.T, on querier, table, condition string, args ...any) map[string]any {
	t.Helper()
	documents := texts(t, on, fmt.Sprintf("SELECT to_jsonb(r)::text FROM %s AS r WHERE %s", table, condition), args...)
	if len(documents) != 1 {
		t.Fatalf("%d rows of %s, want 1", len(documents), table)
	}
	return decodeRow(t, documents[0])
}

func decodeRow(t *testing.T, document string) map[string]any {
	t.Helper()
	var row map[string]any
	if err := json.Unmarshal([]byte(document), &row); err != nil {
		t.Fatal(err)
	}
	return row
}

// wantRow compares a stored row with a JSON document; columns that the document leaves out are null.
func wantRow(t *testing.T, what string, got map[string]any, document string) {
	t.Helper()
	want := decodeRow(t, document)
	for column := range got {
		if _, named := want[column]; !named {
			want[column] = nil
		}
	}
	wantEqual(t, what, got, want)
}

// reporter is a [testing.T] or the T of a property test.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// wantEqual compares maps and shows the entries that differ.
func wantEqual[K comparable, V any](t reporter, what string, got, want map[K]V) {
	t.Helper()
	var differences []string
	for key, g := range got {
		if w, ok := want[key]; !ok {
			differences = append(differences, fmt.Sprintf("%v: %+v, want none", key, g))
		} else if !reflect.DeepEqual(g, w) {
			differences = append(differences, fmt.Sprintf("%v: %+v, want %+v", key, g, w))
		}
	}
	for key, w := range want {
		if _, ok := got[key]; !ok {
			differences = append(differences, fmt.Sprintf("%v: none, want %+v", key, w))
		}
	}
	slices.Sort(differences)
	if len(differences) > 0 {
		t.Errorf("%s:\n\t%s", what, strings.Join(differences, "\n\t"))
	}
}
