package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// flowModel is what a flow is in thought: no transactions, one thing after the other.
type flowModel struct {
	rule       []rules
	upstream   [][]int
	downstream [][]int // by edges that are applied
	staged     [][2]int
	state      []string
	counted    []storedGroup
	outcomes   map[string]int // completion events by text
}

func (m *flowModel) end(node int, state string) {
	m.state[node] = state
	m.outcomes[fmt.Sprintf("%d %s", node, map[string]string{
		stateCompleted: "success", stateFailed: "failed", stateSkipped: "skipped",
	}[state])]++
	for _, d := range m.downstream[node] {
		g := &m.counted[d]
		g.Running--
		switch state {
		case stateCompleted:
			g.Success++
		case stateFailed:
			g.Fail++
		case stateSkipped:
			g.Skip++
		}
		if m.state[d] != stateHeld {
			continue
		}
		switch m.rule[d].decided(len(m.upstream[d]), g.Success, g.Fail+g.Skip) {
		case stateReady:
			m.state[d] = stateReady
		case stateSkipped:
			m.end(d, stateSkipped)
		}
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
		rule: make([]rules, n), upstream: make([][]int, n), downstream: make([][]int, n),
		state: make([]string, n), counted: make([]storedGroup, n), outcomes: make(map[string]int),
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
		m.rule[to] = rules(rapid.IntRange(0, fanIn).Draw(r, "rule"))
		m.counted[to].KTarget = int(m.rule[to])
		m.state[to] = stateHeld
		if m.rule[to] == 0 {
			m.counted[to].KTarget = fanIn
		}
		if fanIn == 0 {
			m.state[to] = stateReady
		}
	}
	return m
}

// A random flow, whose members end in random ways, in random order and in batches, stands at every step as
// the model of it does. A few of its edges are staged and not applied.
func TestResolve_as_the_model(t *testing.T) {
	f := newFlowFixture(t)
	rapid.Check(t, func(r *rapid.T) {
		m := drawModel(r)
		spec := engine.FlowSpec{ID: id.NewFlowID()}
		for node := range m.state {
			spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(node), When: m.rule[node].group(), Spec: engine.ExecutionSpec{Kind: "test"}})
			for _, from := range m.upstream[node] {
				spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(from), To: fmt.Sprint(node)})
			}
		}
		flow := f.createFlow(t, spec)
		for _, edge := range m.staged {
			f.stageOnly(t, flow, fmt.Sprint(edge[0]), fmt.Sprint(edge[1]))
		}
		for {
			f.claimAll(t)
			for _, node := range m.in(stateReady) {
				m.state[node] = stateRunning
			}
			running := m.in(stateRunning)
			if len(running) == 0 {
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
			f.succeed(t, flow, succeed...)
			f.fail(t, flow, fail...)
			for _, node := range running {
				if key := fmt.Sprint(node); slices.Contains(succeed, key) {
					m.end(node, stateCompleted)
				}
			}
			for _, node := range running {
				if key := fmt.Sprint(node); slices.Contains(fail, key) {
					m.end(node, stateFailed)
				}
			}
			wantModel(t, r, f, flow, m)
		}
		if held := m.in(stateHeld); held != nil && m.staged == nil {
			r.Errorf("nodes %v wait for ever", held)
		}
	})
}

func wantModel(t *testing.T, r reporter, f *flowFixture, flow id.FlowID, m *flowModel) {
	members, groups := make(map[string]string), make(map[string]storedGroup)
	for node, state := range m.state {
		members[fmt.Sprint(node)] = state
		if len(m.upstream[node]) > 0 {
			groups[fmt.Sprint(node)] = m.counted[node]
		}
	}
	wantEqual(r, "members", f.members(t, flow), members)
	wantEqual(r, "groups", f.groups(t, flow), groups)
	events := f.completionEvents(t, flow)
	counts := make(map[string]int)
	at := make(map[string]int)
	for i, event := range events {
		counts[event]++
		at[strings.Fields(event)[0]] = i
	}
	wantEqual(r, "events", counts, m.outcomes)
	for node, state := range m.state {
		if state != stateSkipped {
			continue
		}
		// What made it impossible is told before it.
		if !slices.ContainsFunc(m.upstream[node], func(up int) bool {
			i, ended := at[fmt.Sprint(up)]
			return ended && i < at[fmt.Sprint(node)]
		}) {
			r.Errorf("%d is skipped before its upstreams: %q", node, events)
		}
	}
}
