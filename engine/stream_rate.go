package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
)

// BestEffort configures how long best-effort frames are kept: about as many as come in twice TTL, at the rate of late. The
// zero value selects the defaults.
type BestEffort struct {
	TTL   time.Duration // default 30 s; 1 ms to 10 min. Frames older than twice this are deleted with later ones.
	Least int           // frames always kept; default 64
	Most  int           // default 16,384
}

// Defaults of [BestEffort].
const (
	DefaultFrameTTL       = 30 * time.Second
	DefaultFramesKept     = 64
	DefaultMostFramesKept = 16_384
)

func (b *BestEffort) normalise() error {
	b.TTL, b.Least, b.Most = cmp.Or(b.TTL, DefaultFrameTTL), cmp.Or(b.Least, DefaultFramesKept), cmp.Or(b.Most, DefaultMostFramesKept)
	switch {
	case b.TTL < time.Millisecond || b.TTL > 10*time.Minute:
		return invalid("Config.Streams.BestEffort.TTL", "must be between 1ms and 10m")
	case b.Least < 0:
		return invalid("Config.Streams.BestEffort.Least", "is negative")
	case b.Most < b.Least:
		b.Most = b.Least
	}
	return nil
}

// trimFrames deletes the frames of a stream that its modes no longer keep.
func (e *Engine) trimFrames(ctx context.Context, tx *txn, f *frameColumns, at *db.MoveStreamRow) error {
	return nil
}
