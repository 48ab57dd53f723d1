package stream

import (
	"math"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// frameRate is the rate of an attempt's best-effort frames, and how many the stream keeps.
type frameRate struct {
	known  bool // a frame was written before
	hz     float64
	lastMs int64
	keep   int
}

// rateWeight is the weight of a new frame in the moving average.
const rateWeight = 0.2

// after returns the rate after n more frames at a time. Frames after the first count as 1 ms apart.
func (r frameRate) after(b *core.BestEffort, tsMs int64, n int) frameRate {
	window := 2 * b.TTL.Seconds()
	for i := range n {
		if !r.known || math.IsNaN(r.hz) || math.IsInf(r.hz, 0) {
			r.known, r.hz = true, float64(b.Least)/window
			continue
		}
		apart := int64(1)
		if i == 0 {
			apart = max(1, tsMs-r.lastMs)
		}
		r.hz = rateWeight*1000/float64(apart) + (1-rateWeight)*r.hz
	}
	r.lastMs = tsMs
	r.keep = int(math.Ceil(min(max(r.hz*window, float64(b.Least)), float64(b.Most))))
	return r
}

// trimLag returns how many frames a stream may have beyond the frames to keep, so that most appends delete none.
func trimLag(keep int) int { return max(16, keep/10) }
