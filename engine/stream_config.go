package engine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// StreamConfig configures the output streams written by an engine.
type StreamConfig struct {
	// MaxPayload limits the payload of a frame. Default 64 KiB, which is also the maximum.
	MaxPayload int

	// DurableMaxlen keeps only the newest durable frames of an attempt, and possibly a few more. A later reader gets a
	// [fferr.StreamGapError]. Default 0: keep all.
	DurableMaxlen int

	BestEffort BestEffort
}

// normalise sets the defaults.
func (c *StreamConfig) normalise() error {
	if c.MaxPayload == 0 {
		c.MaxPayload = core.MaxFramePayload
	}
	switch {
	case c.MaxPayload < 0 || c.MaxPayload > core.MaxFramePayload:
		return core.Invalid("Config.Streams.MaxPayload", fmt.Sprintf("must be between 1 and %d", core.MaxFramePayload))
	case c.DurableMaxlen < 0 || c.DurableMaxlen > maxFramesKept:
		return core.Invalid("Config.Streams.DurableMaxlen", fmt.Sprintf("must be between 0 and %d", maxFramesKept))
	}
	return c.BestEffort.normalise()
}

// BestEffort configures how long best-effort frames are kept: as many as arrive within twice TTL, by a moving average
// of the rate, but at least Least, at most Most, and none older than twice TTL.
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

// maxFramesKept limits the frames of a trimmed mode in one stream.
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

// limits returns the checked configuration for the core.
func (c *StreamConfig) limits() core.StreamLimits {
	return core.StreamLimits{MaxPayload: c.MaxPayload, DurableMaxlen: c.DurableMaxlen, BestEffort: core.BestEffort(c.BestEffort)}
}
