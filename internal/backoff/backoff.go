// Package backoff paces repeated work: slower after each failure, and never in step with other processes.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pause after consecutive failures. It starts at First and doubles up to Max; each pause is shortened
// at random by up to half.
type Backoff struct {
	First, Max time.Duration

	pause time.Duration
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.pause = min(max(2*b.pause, b.First), b.Max)
	return b.pause - rand.N(b.pause/2+1)
}

// Reset starts over at the shortest pause.
func (b *Backoff) Reset() { b.pause = 0 }

// Idle reports whether there has been no failure since the last success.
func (b *Backoff) Idle() bool { return b.pause == 0 }

// Spread returns d, longer or shorter by up to a tenth.
func Spread(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// Wait returns after d, or at once when ctx ends; it reports whether d has passed.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
