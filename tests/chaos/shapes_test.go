//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// shape is flows that people really build, and how their nodes end.
type shape struct {
	name  string
	flows []engine.FlowSpec
	ends  []map[string]state.PublicState // by flow and key, of all nodes that there are in the end
	sums  map[string]int                 // by key: the results of folding nodes
	kills int
}

// shapes are all of them: whole in soak, and small in other tests.
func shapes(whole bool) []shape {
	size := func(small, full int) int {
		if whole {
			return full
		}
		return small
	}
	return []shape{
		layered(size(10, 100), size(30, 100), size(900, 30_000), size(2, 12)),
		mapReduce(size(300, 5_000), size(2, 12)),
		chain(size(40, 1_000), size(2, 20)),
		lattice(size(12, 50), size(2, 12)),
		growing(size(9, 100), size(2, 12)),
		sagas(size(6, 100), size(5, 10), size(2, 12)),
	}
}

func shapeSpec(kind engine.Kind[struct{}, result]) engine.ExecutionSpec { return kind.Spec(struct{}{}) }

// shapeNode makes a failure be retried soon, and a kill never count as one too many.
func shapeNode(key string, spec engine.ExecutionSpec) engine.Node {
	spec.Lane = lane
	spec.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: 10, Backoff: policy.Fixed(10 * time.Millisecond)}}
	return engine.Node{Key: key, Spec: spec}
}

// drawing is a flow that is being drawn.
type drawing struct{ engine.FlowSpec }

func newDrawing() *drawing { return &drawing{engine.FlowSpec{ID: id.NewFlowID()}} }

func (d *drawing) node(key string, kind engine.Kind[struct{}, result], when policy.Group, upstreams ...string) {
	n := shapeNode(key, shapeSpec(kind))
	n.When = when
	d.Nodes = append(d.Nodes, n)
	for _, from := range upstreams {
		d.Edges = append(d.Edges, engine.Edge{From: from, To: key})
	}
}

// shape is the shape of a drawing of one flow. Its nodes were drawn after their upstreams.
func (d *drawing) shape(name string, kills int) shape {
	return shape{name: name, flows: []engine.FlowSpec{d.FlowSpec}, ends: []map[string]state.PublicState{d.ends()}, kills: kills}
}

// ends returns how each node of a flow ends, in any order.
func (d *drawing) ends() map[string]state.PublicState {
	upstreams := make(map[string][]string)
	for _, edge := range d.Edges {
		upstreams[edge.To] = append(upstreams[edge.To], edge.From)
	}
	ends := make(map[string]state.PublicState, len(d.Nodes))
	for i := range d.Nodes {
		n := &d.Nodes[i]
		succeeded, all := 0, len(upstreams[n.Key])
		for _, u := range upstreams[n.Key] {
			if ends[u] == state.PublicCompleted {
				succeeded++
			}
		}
		runs := succeeded >= n.When.Needs(all)
		if n.When == policy.OnFailure() {
			runs = succeeded < all
		}
		switch {
		case all > 0 && !runs:
			ends[n.Key] = state.PublicSkipped
		case n.Spec.Kind == kindFails.Name:
			ends[n.Key] = state.PublicFailed
		default:
			ends[n.Key] = state.PublicCompleted
		}
	}
	return ends
}

// layered is layers of nodes, with so many edges from the three layers before, of every policy, and with failures.
func layered(layers, width, edges, kills int) shape {
	random := rand.New(rand.NewPCG(1, 2))
	d := newDrawing()
	nodes := layers * width
	policies := []policy.Group{
		policy.AllOf(), policy.AnyOf(policy.LetRun), policy.Quorum(2, policy.LetRun), policy.Always(), policy.OnFailure(),
	}
	key := func(i int) string { return fmt.Sprintf("%d", i) }
	more := edges - 3*(nodes-width) // the remaining edges go to the first that wait
	for i := range nodes {
		kind := []engine.Kind[struct{}, result]{kindExact, kindOf("plain"), kindOf("reckless")}[random.IntN(3)]
		if random.IntN(20) == 0 {
			kind = kindFails
		}
		var upstreams []string
		if i >= width {
			n := 3
			if i < width+more {
				n++
			}
			for len(upstreams) < n {
				from := key(max(i-i%width-1-random.IntN(3*width), random.IntN(width)))
				if !slices.Contains(upstreams, from) {
					upstreams = append(upstreams, from)
				}
			}
		}
		d.node(key(i), kind, policies[random.IntN(len(policies))], upstreams...)
	}
	return d.shape("layers", kills)
}

// mapReduce is one that splits, so many that are mapped, and one that counts them.
func mapReduce(maps, kills int) shape {
	d := newDrawing()
	d.node("split", kindExact, policy.AllOf())
	keys := make([]string, maps)
	for i := range keys {
		keys[i] = fmt.Sprintf("map %d", i)
		d.node(keys[i], kindMap, policy.AllOf(), "split")
	}
	d.node("reduce", kindFold, policy.AllOf(), keys...)
	s := d.shape("map-reduce", kills)
	s.sums = map[string]int{"reduce": maps}
	return s
}

func chain(links, kills int) shape {
	d := newDrawing()
	d.node("0", kindExact, policy.AllOf())
	for i := 1; i < links; i++ {
		d.node(fmt.Sprint(i), kindExact, policy.AllOf(), fmt.Sprint(i-1))
	}
	return d.shape("chain", kills)
}

// lattice is diamonds side by side: a node waits for its neighbours above and to the left.
func lattice(side, kills int) shape {
	d := newDrawing()
	key := func(i, j int) string { return fmt.Sprintf("%d/%d", i, j) }
	for i := range side {
		for j := range side {
			var upstreams []string
			if i > 0 {
				upstreams = append(upstreams, key(i-1, j))
			}
			if j > 0 {
				upstreams = append(upstreams, key(i, j-1))
			}
			d.node(key(i, j), kindExact, policy.AllOf(), upstreams...)
		}
	}
	return d.shape("lattice", kills)
}

// growing is a flow of one node that grows by another, again and again, with the rows of each.
func growing(times, kills int) shape {
	first := generation{Number: 0, Left: times}
	s := shape{
		name: "growing", kills: kills, sums: make(map[string]int), ends: []map[string]state.PublicState{{}},
		flows: []engine.FlowSpec{{ID: id.NewFlowID(), Nodes: []engine.Node{first.node()}}},
	}
	for g := first; ; g = g.next() {
		s.ends[0][g.key()] = state.PublicCompleted
		for _, n := range g.growth(id.FlowID{}).Nodes {
			s.ends[0][n.Key] = state.PublicCompleted
		}
		if g.waits() {
			s.sums[g.key()] = children
		}
		if g.Left == 0 {
			return s
		}
	}
}

// sagas are so many rows of steps, of which another one fails each time, and none now and then: as examples/saga.
// Each undoing of every third step fails once, and is retried before the one before it is undone.
func sagas(many, steps, kills int) shape {
	s := shape{name: "sagas", kills: kills}
	for n := range many {
		d := newDrawing()
		fails := n % (steps + 1) // steps: none
		keys := make([]string, steps)
		for i := range keys {
			keys[i] = sagaStep(i)
			kind := kindExact
			if i == fails {
				kind = kindFails
			}
			d.node(keys[i], kind, policy.AllOf(), keys[max(i-1, 0):i]...)
		}
		d.node("failed", kindOf("plain"), policy.OnFailure(), keys...)
		for i := steps - 2; i >= 0; i-- {
			upstreams := []string{sagaStep(i), "failed"}
			if i < steps-2 {
				after := "after " + sagaStep(i+1)
				d.node(after, kindOf("plain"), policy.Always(), sagaUndo(i+1))
				upstreams = append(upstreams, after)
			}
			kind := kindExact
			if i%3 == 2 {
				kind = kindTwice
			}
			d.node(sagaUndo(i), kind, policy.AllOf(), upstreams...)
		}
		one := d.shape("", 0)
		s.flows, s.ends = append(s.flows, one.flows...), append(s.ends, one.ends...)
	}
	return s
}

func sagaStep(i int) string { return fmt.Sprintf("step %d", i) }
func sagaUndo(i int) string { return fmt.Sprintf("undo %d", i) }
