package stream

import (
	"math"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// The rate rises and falls with the frames, and the number of frames to keep follows it within its bounds.
func TestFrameRate_S43(t *testing.T) {
	t.Parallel()
	cfg := core.BestEffort{TTL: engine.DefaultFrameTTL, Least: engine.DefaultFramesKept, Most: engine.DefaultMostFramesKept}
	for _, c := range []struct {
		name   string
		before frameRate
		tsMs   int64
		n      int
		hz     float64
		keep   int
	}{
		{"the first frame", frameRate{}, 5000, 1, 64.0 / 60, 64},
		{"another in the same millisecond counts as 1 ms later", frameRate{known: true, hz: 1, lastMs: 5000}, 5000, 1, 200.8, 12048},
		{"a second later", frameRate{known: true, hz: 1, lastMs: 4000}, 5000, 1, 1, 64},
		{"rounded up after doubling", frameRate{known: true, hz: 2.001, lastMs: 4000}, 5000, 1, 1.8008, 109},
		{"two at once", frameRate{known: true, hz: 0, lastMs: 4000}, 5000, 2, 200.16, 12010},
		{"a batch first", frameRate{}, 5000, 2, 200 + 0.8*64/60, 12052},
		{"no more than most", frameRate{known: true, hz: 900, lastMs: 5000}, 5000, 1000, 1000, 16_384},
		{"a clock that was set back", frameRate{known: true, hz: 1, lastMs: 9000}, 5000, 1, 200.8, 12048},
		{"a rate that is no number", frameRate{known: true, hz: math.NaN(), lastMs: 1}, 5000, 1, 64.0 / 60, 64},
		{"an infinite rate", frameRate{known: true, hz: math.Inf(1), lastMs: 1}, 5000, 1, 64.0 / 60, 64},
		{"a long pause", frameRate{known: true, hz: 10, lastMs: 0}, 3_600_000, 1, 8 + 0.2/3600, 481},
	} {
		got := c.before.after(&cfg, c.tsMs, c.n)
		if !got.known || math.Abs(got.hz-c.hz) > 1e-3 || got.keep != c.keep || got.lastMs != c.tsMs {
			t.Errorf("%s: %+v, want %g frames a second and %d kept", c.name, got, c.hz, c.keep)
		}
	}
	for keep, lag := range map[int]int{0: 16, 64: 16, 169: 16, 170: 17, 16_384: 1638} {
		if got := trimLag(keep); got != lag {
			t.Errorf("%d kept: lag %d, want %d", keep, got, lag)
		}
	}
}
