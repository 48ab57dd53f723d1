package engine

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// BestEffort configures how long best-effort frames are kept: as many as come within twice TTL, by a moving average of
// their rate, but at least Least and at most Most, and none older than twice TTL. An append deletes the others once there
// are 16 more, or a tenth more. The zero value selects the defaults.
type BestEffort struct {
	TTL   time.Duration // default 30 s; 1 ms to 10 min
	Least int           // default 64
	Most  int           // default 16,384
}

// Defaults of [BestEffort].
const (
	DefaultFrameTTL       = 30 * time.Second
	DefaultFramesKept     = 64
	DefaultMostFramesKept = 16_384
)

// maxFramesKept limits the frames of a mode that is trimmed, in one stream.
const maxFramesKept = 1 << 30

func (b *BestEffort) normalise() error {
	b.TTL, b.Least, b.Most = cmp.Or(b.TTL, DefaultFrameTTL), cmp.Or(b.Least, DefaultFramesKept), cmp.Or(b.Most, DefaultMostFramesKept)
	switch {
	case b.TTL < time.Millisecond || b.TTL > 10*time.Minute:
		return core.Invalid("Config.Streams.BestEffort.TTL", "must be between 1ms and 10m")
	case b.Least < 0 || b.Least > maxFramesKept:
		return core.Invalid("Config.Streams.BestEffort.Least", fmt.Sprintf("must be between 0 and %d", maxFramesKept))
	case b.Most < 0 || b.Most > maxFramesKept:
		return core.Invalid("Config.Streams.BestEffort.Most", fmt.Sprintf("must be between 0 and %d", maxFramesKept))
	case b.Most < b.Least:
		b.Most = b.Least
	}
	return nil
}

// frameRate is the rate of an attempt's best-effort frames, and how many its stream keeps.
type frameRate struct {
	known  bool // there was a frame
	hz     float64
	lastMs int64
	keep   int
}

// rateWeight is the weight of a new frame in the moving average.
const rateWeight = 0.2

// after returns the rate after n more frames at a time. All but the first of them count as 1 ms apart.
func (b *BestEffort) after(r frameRate, tsMs int64, n int) frameRate {
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

// trimLag returns how many frames more than those to keep a stream may have, so that most appends delete none.
func trimLag(keep int) int { return max(16, keep/10) }
