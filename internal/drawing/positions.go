package drawing

import (
	"math"
	"slices"
)

// passes is how often straighten moves all layers.
const passes = 24

// straighten chooses positions across for straight edges, in the order of the layers. Each pass moves each layer to the
// positions with the least squares of the distances from neighbours.
func (l *layered) straighten(gap float64) {
	for _, layer := range l.layers {
		right := 0.0
		for _, i := range layer {
			l.x[i] = right + l.boxes[i].x/2
			right += l.boxes[i].x + gap
		}
		for _, i := range layer {
			l.x[i] -= right / 2
		}
	}
	for pass := range passes {
		sides := [][][]int{l.above, l.below}
		switch {
		case pass < passes/2 && pass%2 == 0:
			sides = sides[:1]
		case pass < passes/2:
			sides = sides[1:]
		}
		for n := range l.layers {
			if pass%2 == 0 {
				l.settle(l.layers[n], sides, gap)
			} else {
				l.settle(l.layers[len(l.layers)-1-n], sides, gap)
			}
		}
	}
}

// weight returns how much the edge between two neighbours should be straight: bends of long edges are the ugliest.
func (l *layered) weight(a, b int) float64 {
	switch {
	case a >= l.nodes && b >= l.nodes:
		return 8
	case a >= l.nodes || b >= l.nodes:
		return 2
	}
	return 1
}

// block is a run of boxes side by side.
type block struct {
	sum, weight float64 // of the wanted positions
	from        int     // the first box
}

func (b block) at() float64 { return b.sum / b.weight }

// settle moves a layer to the wanted positions. If these break the order or the gap, settle chooses the positions with the
// least squares of the distances from the wanted ones, by joining boxes (the pool adjacent violators algorithm).
func (l *layered) settle(layer []int, sides [][][]int, gap float64) {
	offsets := make([]float64, len(layer)) // of the box from the first one if all touch
	var blocks []block
	for n, i := range layer {
		if n > 0 {
			offsets[n] = offsets[n-1] + (l.boxes[layer[n-1]].x+l.boxes[i].x)/2 + gap
		}
		sum, weight := 0.0, 0.0
		for _, neighbours := range sides {
			for _, other := range neighbours[i] {
				w := l.weight(i, other)
				sum, weight = sum+w*l.x[other], weight+w
			}
		}
		if weight == 0 {
			sum, weight = 0.01*l.x[i], 0.01 // stay, unless others push
		}
		blocks = append(blocks, block{sum - weight*offsets[n], weight, n})
		for last := len(blocks) - 1; last > 0 && blocks[last-1].at() > blocks[last].at(); last-- {
			blocks[last-1].sum += blocks[last].sum
			blocks[last-1].weight += blocks[last].weight
			blocks = blocks[:last]
		}
	}
	for n, b := range blocks {
		to := len(layer)
		if n+1 < len(blocks) {
			to = blocks[n+1].from
		}
		for i := b.from; i < to; i++ {
			l.x[layer[i]] = b.at() + offsets[i]
		}
	}
}

// layout returns the placement in pixels.
func (l *layered) layout(g Graph, gap gaps) *layout {
	left, right := math.Inf(1), math.Inf(-1)
	tops, bottoms := make([]float64, len(l.layers)), make([]float64, len(l.layers))
	y := 0.0
	for n, layer := range l.layers {
		height := 0.0
		for _, i := range layer {
			left, right = min(left, l.x[i]-l.boxes[i].x/2), max(right, l.x[i]+l.boxes[i].x/2)
			height = max(height, l.boxes[i].y)
		}
		tops[n], bottoms[n] = y, y+height
		y += height + gap.between
	}
	placed := &layout{centers: make([]spot, l.nodes), lines: make([][]spot, len(g.Edges))}
	if len(l.layers) == 0 {
		return placed
	}
	placed.size = spot{right - left, y - gap.between}
	for i := range l.x {
		l.x[i] -= left
	}
	for i := range placed.centers {
		placed.centers[i] = spot{l.x[i], (tops[l.layer[i]] + bottoms[l.layer[i]]) / 2}
	}
	for i, e := range g.Edges {
		from, to := placed.centers[e.From], placed.centers[e.To]
		line := []spot{{from.x, from.y + l.boxes[e.From].y/2}}
		// Through a layer the line is vertical, so no box beside the line can touch it, even a higher one.
		from.y, to.y = bottoms[l.layer[e.From]], tops[l.layer[e.To]]
		line = append(line, from)
		for _, at := range l.corners(l.paths[i], from, to, tops, bottoms) {
			line = append(line, spot{l.x[at], tops[l.layer[at]]}, spot{l.x[at], bottoms[l.layer[at]]})
		}
		line = append(line, to, spot{to.x, placed.centers[e.To].y - l.boxes[e.To].y/2})
		placed.lines[i] = slices.Compact(line)
	}
	return placed
}

// corners returns the points of a path where the line bends, as few as possible without touching a box.
func (l *layered) corners(path []int, from, to spot, tops, bottoms []float64) []int {
	var bends []int
	for at := 0; at+1 < len(path); {
		next := len(path) - 1
		for ; next > at+1; next-- {
			end := to
			if next < len(path)-1 {
				end = spot{l.x[path[next]], tops[l.layer[path[next]]]}
			}
			if l.clear(path[at+1:next], from, end, tops, bottoms) {
				break
			}
		}
		at = next
		if point := path[at]; at < len(path)-1 {
			bends = append(bends, point)
			from = spot{l.x[point], bottoms[l.layer[point]]}
		}
	}
	return bends
}

// clear reports whether a straight line passes the layers of the points without touching a box.
func (l *layered) clear(points []int, from, to spot, tops, bottoms []float64) bool {
	for _, i := range points {
		layer := l.layers[l.layer[i]]
		left, right := math.Inf(-1), math.Inf(1)
		for n := l.place[i] - 1; n >= 0; n-- {
			if other := layer[n]; other < l.nodes {
				left = l.x[other] + l.boxes[other].x/2 + pointWidth/2
				break
			}
		}
		for n := l.place[i] + 1; n < len(layer); n++ {
			if other := layer[n]; other < l.nodes {
				right = l.x[other] - l.boxes[other].x/2 - pointWidth/2
				break
			}
		}
		for _, y := range []float64{tops[l.layer[i]], bottoms[l.layer[i]]} {
			if x := from.x + (to.x-from.x)*(y-from.y)/(to.y-from.y); x < left || x > right {
				return false
			}
		}
	}
	return true
}
