package drawing

import (
	"cmp"
	"slices"
)

// spot is a position or a size in pixels. Positions count from the upper left corner.
type spot struct{ x, y float64 }

// gaps are the distances between neighbours in a layer, and between layers.
type gaps struct{ within, between float64 }

// layout is the placement of boxes and edges.
type layout struct {
	size    spot
	centers []spot   // of the boxes
	lines   [][]spot // the corners of the edges, from the lower side of a box to the upper side of the next
}

// layered places a graph in layers, by the method of Sugiyama. Boxes go into the layers of their levels, and an edge gets a
// point in each layer between its ends. Then each layer is ordered for few crossings, and positioned for straight edges.
type layered struct {
	nodes  int
	boxes  []spot // of the nodes, then of the points
	layers [][]int
	layer  []int   // of each box and point
	above  [][]int // neighbours in the layer above, and below
	below  [][]int
	paths  [][]int // the boxes and points of each edge, nil for an edge up
	place  []int   // in the layer
	x      []float64
}

// arrange places boxes of the given sizes in rows. An edge in a cycle may be a straight line.
func arrange(g Graph, boxes []spot, levels []int, gap gaps) *layout {
	l := newLayered(g, boxes, levels)
	l.order()
	l.straighten(gap.within)
	return l.layout(g, gap)
}

// pointWidth is the width of the space for an edge in a layer between its ends.
const pointWidth = 6

func newLayered(g Graph, boxes []spot, levels []int) *layered {
	l := &layered{nodes: len(boxes), boxes: slices.Clone(boxes), layer: g.lower(levels), paths: make([][]int, len(g.Edges))}
	l.above, l.below = make([][]int, len(boxes)), make([][]int, len(boxes))
	for i, e := range g.Edges {
		if l.layer[e.From] >= l.layer[e.To] {
			continue
		}
		path := []int{e.From}
		for layer := l.layer[e.From] + 1; layer < l.layer[e.To]; layer++ {
			path = append(path, len(l.boxes))
			l.boxes = append(l.boxes, spot{pointWidth, 0})
			l.layer = append(l.layer, layer)
			l.above, l.below = append(l.above, nil), append(l.below, nil)
		}
		path = append(path, e.To)
		for n, to := range path[1:] {
			l.below[path[n]] = append(l.below[path[n]], to)
			l.above[to] = append(l.above[to], path[n])
		}
		l.paths[i] = path
	}
	l.place, l.x = make([]int, len(l.boxes)), make([]float64, len(l.boxes))
	return l
}

// lower returns the levels after moving nodes down as far as possible, if more edges leave a node than enter. The edges
// become shorter.
func (g Graph) lower(levels []int) []int {
	lowered := slices.Clone(levels)
	in, below := make([]int, len(g.Nodes)), g.below()
	for _, e := range g.Edges {
		in[e.To]++
	}
	order := byKey(len(g.Nodes), func(i int) int { return -levels[i] })
	for _, i := range order {
		if len(below[i]) <= in[i] {
			continue
		}
		lowest := -1
		for _, e := range below[i] {
			if to := lowered[g.Edges[e].To]; lowest < 0 || to-1 < lowest {
				lowest = to - 1
			}
		}
		lowered[i] = max(lowered[i], lowest)
	}
	return lowered
}

// byKey returns the numbers below n in the order of their keys. Equal keys keep the order of the numbers.
func byKey[K cmp.Ordered](n int, key func(i int) K) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	return order
}

// sweeps is how often the layers are ordered by their neighbours.
const sweeps = 24

// order fills the layers. It begins in the order of a walk along the edges, orders each layer by the middle of the
// neighbours in turns from above and from below, swaps neighbours to save crossings, and keeps the best order.
func (l *layered) order() {
	l.layers = l.walk()
	l.number()
	best, fewest := cloneLayers(l.layers), l.crossings()
	for sweep := 0; sweep < sweeps && fewest > 0; sweep++ {
		if sweep%2 == 0 {
			for i := 1; i < len(l.layers); i++ {
				l.sort(i, l.above)
			}
		} else {
			for i := len(l.layers) - 2; i >= 0; i-- {
				l.sort(i, l.below)
			}
		}
		l.swap()
		if crossings := l.crossings(); crossings < fewest {
			best, fewest = cloneLayers(l.layers), crossings
		}
	}
	l.layers = best
	l.number()
}

// walk returns the layers in the order in which a walk along the edges, depth first, meets their boxes and points.
func (l *layered) walk() [][]int {
	var layers [][]int
	met := make([]bool, len(l.boxes))
	var open []int
	for _, start := range byKey(len(l.boxes), func(i int) int { return l.layer[i] }) {
		for open = append(open, start); len(open) > 0; {
			at := open[len(open)-1]
			open = open[:len(open)-1]
			if met[at] {
				continue
			}
			met[at] = true
			for len(layers) <= l.layer[at] {
				layers = append(layers, nil)
			}
			layers[l.layer[at]] = append(layers[l.layer[at]], at)
			for _, next := range slices.Backward(l.below[at]) {
				open = append(open, next)
			}
		}
	}
	return layers
}

func cloneLayers(layers [][]int) [][]int {
	clone := make([][]int, len(layers))
	for i, layer := range layers {
		clone[i] = slices.Clone(layer)
	}
	return clone
}

func (l *layered) number() {
	for _, layer := range l.layers {
		for place, i := range layer {
			l.place[i] = place
		}
	}
}

// sort orders a layer by the mean place of the neighbours on one side. Others stay.
func (l *layered) sort(at int, neighbours [][]int) {
	layer := l.layers[at]
	keys := make([]float64, len(layer))
	for place, i := range layer {
		keys[place] = float64(place)
		if len(neighbours[i]) > 0 {
			sum := 0
			for _, other := range neighbours[i] {
				sum += l.place[other]
			}
			keys[place] = float64(sum) / float64(len(neighbours[i]))
		}
	}
	sorted := make([]int, len(layer))
	for place, from := range byKey(len(layer), func(i int) float64 { return keys[i] }) {
		sorted[place] = layer[from]
	}
	l.layers[at] = sorted
	for place, i := range sorted {
		l.place[i] = place
	}
}

// swapRounds bounds how often swap goes through all layers.
const swapRounds = 4

// swap swaps neighbours in a layer to save crossings.
func (l *layered) swap() {
	byPlace := func(a, b int) int { return cmp.Compare(l.place[a], l.place[b]) }
	for i := range l.boxes {
		slices.SortFunc(l.above[i], byPlace)
		slices.SortFunc(l.below[i], byPlace)
	}
	for range swapRounds {
		swapped := false
		for _, layer := range l.layers {
			for n := range len(layer) - 1 {
				a, b := layer[n], layer[n+1]
				now, then := l.crossing(a, b)
				if then >= now {
					continue
				}
				layer[n], layer[n+1] = b, a
				l.place[a], l.place[b] = n+1, n
				for _, other := range l.above[a] {
					slices.SortFunc(l.below[other], byPlace)
				}
				for _, other := range l.below[a] {
					slices.SortFunc(l.above[other], byPlace)
				}
				swapped = true
			}
		}
		if !swapped {
			return
		}
	}
}

// crossing counts the crossings of the edges of two boxes, if a is left of b, and if b is left of a.
func (l *layered) crossing(a, b int) (now, then int) {
	for _, side := range [][][]int{l.above, l.below} {
		now += l.inversions(side[a], side[b])
		then += l.inversions(side[b], side[a])
	}
	return now, then
}

// inversions counts the pairs of a neighbour in left and one in right in reverse order. Both lists are in the order of places.
func (l *layered) inversions(left, right []int) int {
	count, n := 0, 0
	for _, i := range left {
		for n < len(right) && l.place[right[n]] < l.place[i] {
			n++
		}
		count += n
	}
	return count
}

// crossings counts the crossings of all edges.
func (l *layered) crossings() int {
	count := 0
	for at := range len(l.layers) - 1 {
		width := len(l.layers[at+1])
		ends := make([]int, width+1) // a Fenwick tree: how many edges end left of a place
		total := 0
		for _, i := range l.layers[at] {
			for _, to := range l.below[i] {
				count += total
				for p := l.place[to] + 1; p > 0; p -= p & -p {
					count -= ends[p]
				}
			}
			for _, to := range l.below[i] {
				total++
				for p := l.place[to] + 1; p <= width; p += p & -p {
					ends[p]++
				}
			}
		}
	}
	return count
}
