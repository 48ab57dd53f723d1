package statements

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestCreateFlowStatementsAreConstant holds the creation of a flow to a constant number of statements, and shows how
// long the largest one takes.
func TestCreateFlowStatementsAreConstant(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	f.Draw(t, nil, "a>b") // prepares the statements and registers the lane
	var counts [][]string
	for _, size := range []struct{ nodes, edges int }{{10, 30}, {engine.MaxNodes, 3 * engine.MaxNodes}} {
		spec := fixture.Layered(size.nodes, size.edges)
		began := time.Now()
		counts = append(counts, fixture.Names(log.During(func() { f.NewFlowOf(t, spec) })))
		t.Logf("%d nodes and %d edges: %v", size.nodes, len(spec.Edges), time.Since(began))
		if got := f.Describe(t, spec.ID); got.Nodes != size.nodes || got.Edges != size.edges {
			t.Errorf("stored %d nodes and %d edges, want %d and %d", got.Nodes, got.Edges, size.nodes, size.edges)
		}
	}
	if !slices.Equal(counts[0], counts[1]) {
		t.Errorf("a small flow takes %q, a large one %q", counts[0], counts[1])
	}
	t.Logf("statements: %q", counts[0])
}

// TestSettleStatementsAreConstant holds completions and failures of members to a number of statements that does not
// depend on how many there are, nor on how many wait for them.
func TestSettleStatementsAreConstant(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		together bool
		settle   func(f *fixture.Flows, t *testing.T, flow id.FlowID, keys ...string)
		want     string // state of the waiting ones
	}{
		{"complete_fan_in", true, (*fixture.Flows).Succeed, fixture.StateReady},
		{"complete_side_by_side", false, (*fixture.Flows).Succeed, fixture.StateReady},
		{"fail_fan_in", true, (*fixture.Flows).Fail, fixture.StateSkipped},
		{"fail_side_by_side", false, (*fixture.Flows).Fail, fixture.StateSkipped},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, log := fixture.LoggedFixture(t)
			var counts [][]string
			for _, n := range []int{10, 1000} {
				flow := f.NewFlowOf(t, fixture.Wide(n, test.together))
				f.ClaimAll(t)
				counts = append(counts, fixture.Names(log.During(func() { test.settle(f, t, flow, fixture.Upstreams(n)...) })))
				for key, state := range f.Members(t, flow) {
					if !strings.HasPrefix(key, "up") && state != test.want {
						t.Fatalf("%s is %s, want %s", key, state, test.want)
					}
				}
			}
			if !slices.Equal(counts[0], counts[1]) {
				t.Errorf("few take %q, many %q", counts[0], counts[1])
			}
			t.Logf("statements: %q", counts[0])
		})
	}
}

// One upstream may block many: a completion or failure moves all of them in one statement.
func TestSettleFanOutStatementsAreConstant(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		settle func(f *fixture.Flows, t *testing.T, flow id.FlowID, keys ...string)
		want   string
	}{
		{"complete", (*fixture.Flows).Succeed, fixture.StateReady},
		{"fail", (*fixture.Flows).Fail, fixture.StateSkipped},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, log := fixture.LoggedFixture(t)
			var counts [][]string
			for _, n := range []int{10, engine.MaxNodes - 1} {
				spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
				for i := range n {
					spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), When: policy.AnyOf(policy.LetRun), Spec: engine.ExecutionSpec{Kind: "test"}})
					spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: fmt.Sprint(i)})
				}
				flow := f.NewFlowOf(t, spec)
				f.Lease(t, flow, "root")
				counts = append(counts, fixture.Names(log.During(func() { test.settle(f, t, flow, "root") })))
				moved := 0
				for _, state := range f.Members(t, flow) {
					if state == test.want {
						moved++
					}
				}
				if moved != n {
					t.Fatalf("%d of %d are %s", moved, n, test.want)
				}
			}
			if !slices.Equal(counts[0], counts[1]) {
				t.Errorf("few take %q, many %q", counts[0], counts[1])
			}
			t.Logf("statements: %q", counts[0])
		})
	}
}

// A skip takes one round of statements for each level, of any width.
func TestSkipStatementsGrowWithLevelsOnly(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	count := func(levels, width int) int {
		spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
		for level := range levels {
			for i := range width {
				key, from := fmt.Sprintf("%d/%d", level, i), fmt.Sprintf("%d/%d", level-1, i)
				if level == 0 {
					from = "root"
				}
				spec.Nodes = append(spec.Nodes, engine.Node{Key: key, Spec: engine.ExecutionSpec{Kind: "test"}})
				spec.Edges = append(spec.Edges, engine.Edge{From: from, To: key})
			}
		}
		flow := f.NewFlowOf(t, spec)
		f.Lease(t, flow, "root")
		return len(log.During(func() { f.Fail(t, flow, "root") }))
	}
	one, two, three := count(1, 5), count(2, 5), count(3, 5)
	if three-two != two-one || two == one {
		t.Errorf("1, 2 and 3 levels take %d, %d and %d statements", one, two, three)
	}
	if many := count(3, 300); many != three {
		t.Errorf("3 levels of 5 take %d statements, of 300 %d", three, many)
	}
}

// A read of a flow is one statement, so that its row and its groups are of one moment.
func TestFlowReadsAreOneStatement_F44(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	flow := f.Draw(t, nil, "a>b", "a>c")
	for what, read := range map[string]func() error{
		"describe":  func() error { _, err := f.DescribeFlow(t.Context(), flow); return err },
		"members":   func() error { fixture.Listed(t, f.FlowMembers(t.Context(), flow)); return nil },
		"upstreams": func() error { _, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "b")); return err },
		"progress":  func() error { _, err := f.FlowProgress(t.Context(), flow); return err },
		"graph":     func() error { _, err := f.FlowGraph(t.Context(), flow); return err },
		"edges":     func() error { fixture.Listed(t, f.FlowEdges(t.Context(), flow)); return nil },
		"edges of a node": func() error {
			_, err := f.EdgesInto(t.Context(), flow, f.NodeID(flow, "b"))
			return err
		},
		"eligibility": func() error { _, err := f.Eligibility(t.Context(), f.NodeID(flow, "b")); return err },
		"tag":         func() error { _, _, err := f.FlowTag(t.Context(), flow, "app.x"); return err },
	} {
		sent := log.During(func() {
			if err := read(); err != nil {
				t.Error(err)
			}
		})
		// The engine's settings travel with the statement, in one round trip.
		if got := fixture.Names(sent); len(got) != 2 || got[0] != "select" {
			t.Errorf("%s takes %q", what, got)
		}
	}
}

// In two of pgx's modes a parameter is sent as the text of its Go type, and []byte is that of a bytea. So no parameter is of
// a type that Go has as []byte, but for bytea itself.
func TestStatementsTakeNoJSONParameters(t *testing.T) {
	conn, err := fixture.New(t).Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, text := range fixture.Queries(t) {
		if name == "ListCitusTables" {
			continue // its tables are those of an extension
		}
		described, err := conn.Conn().Prepare(t.Context(), "", text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, oid := range described.ParamOIDs {
			switch oid {
			case pgtype.JSONOID, pgtype.JSONBOID, pgtype.JSONArrayOID, pgtype.JSONBArrayOID:
				t.Errorf("%s: parameter %d is JSON: take text, and cast that", name, i+1)
			}
		}
	}
}

// Every statement that writes lease events asks which are kept.
func TestStatementsAskWhichLeaseEventsAreKept(t *testing.T) {
	t.Parallel()
	const question = "coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')"
	writers := 0
	for name, s := range statements(t) {
		for _, p := range s.parts {
			text := strings.Join(p.lines, "\n")
			if !strings.Contains(text, "INSERT INTO ff_lease_event") {
				continue
			}
			writers++
			if !strings.Contains(text, question) {
				t.Errorf("%s.%s does not ask", name, p.name)
			}
		}
	}
	if writers < 12 {
		t.Errorf("%d statements write lease events", writers)
	}
}
