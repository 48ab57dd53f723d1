package dependencies

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// flowModel is the model of a flow: no transactions, one step after the other.
type flowModel struct {
	rule       []fixture.Rules
	upstream   [][]int
	downstream [][]int // by edges that are applied
	staged     [][2]int
	state      []string
	counted    []fixture.StoredGroup
	marked     map[[2]int]string // edges that count, with the state of the upstream they count
	started    []bool
	replayed   []bool
	outcomes   map[string]int // completion events by text
}

// held and ready are the states in which a node waits for its upstreams, and for a worker.
func (m *flowModel) held(node int) string {
	if m.replayed[node] {
		return fixture.StateReplayedHeld
	}
	return fixture.StateHeld
}

func (m *flowModel) ready(node int) string {
	if m.replayed[node] {
		return fixture.StateReplayed
	}
	return fixture.StateReady
}

// count counts an edge of an upstream that has ended so, or, with -1, takes it back.
func (m *flowModel) count(d int, state string, n int) {
	g := &m.counted[d]
	g.Running -= n
	switch state {
	case fixture.StateCompleted:
		g.Success += n
	case fixture.StateFailed:
		g.Fail += n
	case fixture.StateSkipped:
		g.Skip += n
	}
}

// decided returns the decision of the group of a node.
func (m *flowModel) decided(d int) string {
	g := m.counted[d]
	return m.rule[d].Decided(len(m.upstream[d]), g.Success, g.Fail+g.Skip)
}

// claim starts the ready nodes.
func (m *flowModel) claim() {
	for node, state := range m.state {
		if state == fixture.StateReady || state == fixture.StateReplayed {
			m.state[node], m.started[node] = fixture.StateRunning, true
		}
	}
}

func (m *flowModel) end(node int, state string) {
	m.state[node] = state
	m.outcomes[fmt.Sprintf("%d %s", node, map[string]string{
		fixture.StateCompleted: "success", fixture.StateFailed: "failed", fixture.StateSkipped: "skipped",
	}[state])]++
	for _, d := range m.downstream[node] {
		if m.marked[[2]int{node, d}] != "" {
			continue
		}
		m.marked[[2]int{node, d}] = state
		m.count(d, state, 1)
		if m.state[d] != m.held(d) {
			continue
		}
		switch m.decided(d) {
		case fixture.StateReady:
			m.state[d] = m.ready(d)
		case fixture.StateSkipped:
			m.end(d, fixture.StateSkipped)
		}
	}
}

// replay sets a node that has ended back.
func (m *flowModel) replay(node int) {
	was := m.state[node]
	m.replayed[node] = true
	m.state[node] = fixture.StateReplayed
	for _, d := range m.downstream[node] {
		edge := [2]int{node, d}
		if m.started[d] && m.state[d] != fixture.StateSkipped && m.decided(d) != fixture.StateHeld {
			continue
		}
		if m.marked[edge] != "" {
			m.count(d, m.marked[edge], -1)
			delete(m.marked, edge)
		}
		if m.state[d] == m.ready(d) && !m.started[d] && m.decided(d) == fixture.StateHeld {
			m.state[d] = m.held(d)
		}
	}
	if was != fixture.StateSkipped || len(m.upstream[node]) == 0 {
		return
	}
	for _, up := range m.upstream[node] {
		edge := [2]int{up, node}
		if m.marked[edge] != "" && m.marked[edge] != fixture.StateCompleted {
			m.count(node, m.marked[edge], -1)
			delete(m.marked, edge)
		}
	}
	if m.decided(node) != fixture.StateReady {
		m.state[node] = fixture.StateReplayedHeld
	}
}

func (m *flowModel) in(state string) []int {
	var nodes []int
	for node, s := range m.state {
		if s == state {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func drawModel(r *rapid.T) *flowModel {
	n := rapid.IntRange(2, 9).Draw(r, "nodes")
	m := &flowModel{
		rule: make([]fixture.Rules, n), upstream: make([][]int, n), downstream: make([][]int, n),
		state: make([]string, n), counted: make([]fixture.StoredGroup, n), outcomes: make(map[string]int),
		marked: make(map[[2]int]string), started: make([]bool, n), replayed: make([]bool, n),
	}
	for to := range n {
		for from := range to {
			switch rapid.IntRange(0, 20).Draw(r, "edge") {
			case 0:
				m.upstream[to] = append(m.upstream[to], from)
				m.staged = append(m.staged, [2]int{from, to})
			case 1, 2, 3, 4, 5, 6, 7:
				m.upstream[to] = append(m.upstream[to], from)
				m.downstream[from] = append(m.downstream[from], to)
				m.counted[to].Running++
			}
		}
		fanIn := len(m.upstream[to])
		m.rule[to] = fixture.Rules(rapid.IntRange(0, fanIn).Draw(r, "rule"))
		m.counted[to].KTarget = int(m.rule[to])
		m.state[to] = fixture.StateHeld
		if m.rule[to] == 0 {
			m.counted[to].KTarget = fanIn
		}
		if fanIn == 0 {
			m.state[to] = fixture.StateReady
		}
	}
	return m
}

// A random flow, whose members end in random ways, in random order and in batches, stands at every step as
// the model of it does. A few of its edges are staged and not applied.
func TestResolveMatchesTheModel(t *testing.T) { resolveAsTheModel(t, 0) }

// The same holds after an operator replays ended members, in any state of theirs and of their dependents: each end
// counts once, and none of a life before.
func TestReplayMatchesTheModel(t *testing.T) { resolveAsTheModel(t, 5) }

func resolveAsTheModel(t *testing.T, replays int) {
	f := fixture.NewFlows(t)
	fixture.Check(t, func(r *rapid.T) {
		m := drawModel(r)
		spec := engine.FlowSpec{ID: id.NewFlowID()}
		for node := range m.state {
			spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(node), When: m.rule[node].Group(), Spec: engine.ExecutionSpec{Kind: "test"}})
			for _, from := range m.upstream[node] {
				spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(from), To: fmt.Sprint(node)})
			}
		}
		flow := f.NewFlowOf(t, spec)
		for _, edge := range m.staged {
			f.StageOnly(t, flow, fmt.Sprint(edge[0]), fmt.Sprint(edge[1]))
		}
		for left := replays; ; {
			if left > 0 {
				left -= replaySome(t, f, r, flow, m, left)
			}
			f.ClaimAll(t)
			m.claim()
			running := m.in(fixture.StateRunning)
			if len(running) == 0 {
				if left > 0 {
					continue
				}
				break
			}
			var succeed, fail []string
			for i, node := range running {
				switch rapid.IntRange(0, 3).Draw(r, "ending") {
				case 0, 1:
					succeed = append(succeed, fmt.Sprint(node))
				case 2:
					fail = append(fail, fmt.Sprint(node))
				default:
					if i == 0 { // one at least, so that it comes to an end
						succeed = append(succeed, fmt.Sprint(node))
					}
				}
			}
			f.Succeed(t, flow, succeed...)
			f.Fail(t, flow, fail...)
			for _, node := range running {
				if key := fmt.Sprint(node); slices.Contains(succeed, key) {
					m.end(node, fixture.StateCompleted)
				}
			}
			for _, node := range running {
				if key := fmt.Sprint(node); slices.Contains(fail, key) {
					m.end(node, fixture.StateFailed)
				}
			}
			wantModel(t, r, f, flow, m)
		}
		if held := m.in(fixture.StateHeld); held != nil && m.staged == nil && replays == 0 {
			r.Errorf("nodes %v wait for ever", held)
		}
	})
}

// replaySome replays some ended members, before anything is claimed, and returns how often it tried.
func replaySome(t *testing.T, f *fixture.Flows, r *rapid.T, flow id.FlowID, m *flowModel, most int) int {
	if len(m.outcomes) == 0 {
		return 0 // nothing has ended
	}
	tries := rapid.IntRange(1, most).Draw(r, "replays")
	for range tries {
		ended := slices.Concat(m.in(fixture.StateCompleted), m.in(fixture.StateFailed), m.in(fixture.StateSkipped))
		if len(ended) == 0 {
			break
		}
		node := rapid.SampledFrom(ended).Draw(r, "replayed")
		m.replay(node)
		x := f.NodeID(flow, fmt.Sprint(node))
		delete(f.Leases, x)
		if replayed := f.Replay(t, x); string(replayed.State) != strings.Fields(m.state[node])[3] {
			r.Errorf("%d is replayed as %s, want %s", node, replayed.State, m.state[node])
		}
		wantModel(t, r, f, flow, m)
	}
	return tries
}

func wantModel(t *testing.T, r fixture.Reporter, f *fixture.Flows, flow id.FlowID, m *flowModel) {
	members, groups := make(map[string]string), make(map[string]fixture.StoredGroup)
	for node, state := range m.state {
		members[fmt.Sprint(node)] = state
		if len(m.upstream[node]) > 0 {
			groups[fmt.Sprint(node)] = m.counted[node]
		}
	}
	fixture.WantEqual(r, "members", f.Members(t, flow), members)
	fixture.WantEqual(r, "groups", f.Groups(t, flow), groups)
	events := f.CompletionEvents(t, flow)
	counts := make(map[string]int)
	first, last := make(map[string]int), make(map[string]int) // replayed, a node ends again
	for i, event := range events {
		counts[event]++
		node := strings.Fields(event)[0]
		last[node] = i
		if _, again := first[node]; !again {
			first[node] = i
		}
	}
	fixture.WantEqual(r, "events", counts, m.outcomes)
	for node, state := range m.state {
		if state != fixture.StateSkipped {
			continue
		}
		// The event of the cause comes before it.
		if !slices.ContainsFunc(m.upstream[node], func(up int) bool {
			i, ended := first[fmt.Sprint(up)]
			return ended && i < last[fmt.Sprint(node)]
		}) {
			r.Errorf("%d is skipped before its upstreams: %q", node, events)
		}
	}
}
