package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// statementLog is what a pool sends to the server, and which SQLSTATEs come back.
type statementLog struct {
	mu         sync.Mutex
	statements []string
	states     []string
}

// open returns a pool that writes this log.
func (l *statementLog) open(t *testing.T, url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return openPool(t, url, func(config *pgxpool.Config) {
		config.ConnConfig.Tracer = l
		for _, c := range change {
			c(config)
		}
	})
}

// during returns the statements that work sends. Those of the notifier, which works beside it, are left out.
func (l *statementLog) during(work func()) []string {
	l.mu.Lock()
	l.statements = nil
	l.mu.Unlock()
	work()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.statements), func(sql string) bool { return strings.Contains(sql, "pg_notify") })
}

// aborted returns the SQLSTATEs by which the server gave up a transaction in favour of others.
func (l *statementLog) aborted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.states), func(state string) bool {
		return state != "40001" && state != "40P01" && state != "55P03"
	})
}

func (l *statementLog) sent(sql string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statements = append(l.statements, sql)
}

func (l *statementLog) answered(err error) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.states = append(l.states, pgErr.Code)
	}
}

func (l *statementLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	l.sent(data.SQL)
	return ctx
}

func (l *statementLog) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	l.answered(data.Err)
}

func (l *statementLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *statementLog) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	l.sent(data.SQL)
	l.answered(data.Err)
}

func (l *statementLog) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	l.answered(data.Err)
}

// names shortens statements to the names of their queries, or to their first words.
func names(statements []string) []string {
	short := make([]string, len(statements))
	for i, sql := range statements {
		if name, ok := strings.CutPrefix(sql, "-- name: "); ok {
			short[i], _, _ = strings.Cut(name, " ")
		} else {
			short[i], _, _ = strings.Cut(strings.TrimSpace(sql), "\n")
		}
	}
	return short
}

// loggedFixture is a fixture whose engine's statements are written to a log. It has a database of its own: what waits for
// nobody does not wait either until others have made a table longer, and takes more statements then.
func loggedFixture(t *testing.T) (*flowFixture, *statementLog) {
	t.Helper()
	f := flowsOn(cloneFixture(t))
	log := new(statementLog)
	f.Engine = f.engineOn(t, log.open(t, f.url), engine.Config{})
	return f, log
}

// wide is a flow of n upstreams with one dependency each into ends: one node for each, or one for all.
func wide(n int, together bool) engine.FlowSpec {
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	for i := range n {
		from := fmt.Sprintf("up%d", i)
		spec.Nodes = append(spec.Nodes, engine.Node{Key: from, Spec: engine.ExecutionSpec{Kind: "test"}})
		to := "end"
		if !together {
			to = fmt.Sprintf("down%d", i)
		}
		if i == 0 || !together {
			spec.Nodes = append(spec.Nodes, engine.Node{Key: to, Spec: engine.ExecutionSpec{Kind: "test"}})
		}
		spec.Edges = append(spec.Edges, engine.Edge{From: from, To: to})
	}
	return spec
}

func upstreams(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("up%d", i)
	}
	return keys
}

// TestCreateFlow_statements holds the creation of a flow to a constant number of statements, and shows how
// long the largest one takes.
func TestCreateFlow_statements(t *testing.T) {
	f, log := loggedFixture(t)
	f.draw(t, nil, "a>b") // prepares the statements and registers the lane
	var counts [][]string
	for _, size := range []struct{ nodes, edges int }{{10, 30}, {engine.MaxNodes, 3 * engine.MaxNodes}} {
		spec := layered(size.nodes, size.edges)
		began := time.Now()
		counts = append(counts, names(log.during(func() { f.createFlow(t, spec) })))
		t.Logf("%d nodes and %d edges: %v", size.nodes, len(spec.Edges), time.Since(began))
		if got := f.describe(t, spec.ID); got.Nodes != size.nodes || got.Edges != size.edges {
			t.Errorf("stored %d nodes and %d edges, want %d and %d", got.Nodes, got.Edges, size.nodes, size.edges)
		}
	}
	if !slices.Equal(counts[0], counts[1]) {
		t.Errorf("a small flow takes %q, a large one %q", counts[0], counts[1])
	}
	t.Logf("statements: %q", counts[0])
}

// layered is a flow of n nodes and edges in which each node waits for some of the nodes before it.
func layered(nodes, edges int) engine.FlowSpec {
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	for i := range nodes {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
	}
	for distance := 1; len(spec.Edges) < edges; distance++ {
		for to := distance; to < nodes && len(spec.Edges) < edges; to++ {
			spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(to - distance), To: fmt.Sprint(to)})
		}
	}
	return spec
}

// TestSettle_statements holds completions and failures of members to a number of statements that does not
// depend on how many there are, nor on how many wait for them.
func TestSettle_statements(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		together bool
		settle   func(f *flowFixture, t *testing.T, flow id.FlowID, keys ...string)
		want     string // state of whatever waited
	}{
		{"complete_fan_in", true, (*flowFixture).succeed, stateReady},
		{"complete_side_by_side", false, (*flowFixture).succeed, stateReady},
		{"fail_fan_in", true, (*flowFixture).fail, stateSkipped},
		{"fail_side_by_side", false, (*flowFixture).fail, stateSkipped},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, log := loggedFixture(t)
			var counts [][]string
			for _, n := range []int{10, 1000} {
				flow := f.createFlow(t, wide(n, test.together))
				f.claimAll(t)
				counts = append(counts, names(log.during(func() { test.settle(f, t, flow, upstreams(n)...) })))
				for key, state := range f.members(t, flow) {
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

// One upstream may hold up many: what a completion or failure moves is one statement for all.
func TestSettle_statements_of_a_fan_out(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		settle func(f *flowFixture, t *testing.T, flow id.FlowID, keys ...string)
		want   string
	}{
		{"complete", (*flowFixture).succeed, stateReady},
		{"fail", (*flowFixture).fail, stateSkipped},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, log := loggedFixture(t)
			var counts [][]string
			for _, n := range []int{10, engine.MaxNodes - 1} {
				spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
				for i := range n {
					spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), When: policy.AnyOf(policy.LetRun), Spec: engine.ExecutionSpec{Kind: "test"}})
					spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: fmt.Sprint(i)})
				}
				flow := f.createFlow(t, spec)
				f.lease(t, flow, "root")
				counts = append(counts, names(log.during(func() { test.settle(f, t, flow, "root") })))
				moved := 0
				for _, state := range f.members(t, flow) {
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

// A skip takes one round of statements for each level, whatever their width.
func TestSkip_statements_grow_with_levels_only(t *testing.T) {
	f, log := loggedFixture(t)
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
		flow := f.createFlow(t, spec)
		f.lease(t, flow, "root")
		return len(log.during(func() { f.fail(t, flow, "root") }))
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
func TestF44_reads_are_one_statement(t *testing.T) {
	f, log := loggedFixture(t)
	flow := f.draw(t, nil, "a>b", "a>c")
	for what, read := range map[string]func() error{
		"describe":  func() error { _, err := f.DescribeFlow(t.Context(), flow); return err },
		"members":   func() error { _, err := f.ListFlowMembers(t.Context(), flow, "", 10); return err },
		"upstreams": func() error { _, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "b")); return err },
		"progress":  func() error { _, err := f.FlowProgress(t.Context(), flow); return err },
		"graph":     func() error { _, err := f.FlowGraph(t.Context(), flow); return err },
		"edges":     func() error { _, err := f.ListFlowEdges(t.Context(), flow, "", 10); return err },
		"edges of a node": func() error {
			_, err := f.EdgesInto(t.Context(), flow, f.NodeID(flow, "b"))
			return err
		},
		"eligibility": func() error { _, err := f.Eligibility(t.Context(), f.NodeID(flow, "b")); return err },
		"tag":         func() error { _, _, err := f.FlowTag(t.Context(), flow, "app.x"); return err },
	} {
		sent := log.during(func() {
			if err := read(); err != nil {
				t.Error(err)
			}
		})
		// The engine's settings travel with the statement, in one round trip.
		if got := names(sent); len(got) != 2 || got[0] != "select" {
			t.Errorf("%s takes %q", what, got)
		}
	}
}
