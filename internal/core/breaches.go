package core

import (
	"sync"
	"time"
)

// AdmissionLook is the time from an admission to the first check whether its execution is still admitted, and between
// two checks. Rows of ended executions make a breach slower, and checks of running ones are wasted.
const AdmissionLook = 15 * time.Second

// Breaches cancels executions after breaches of budgets in this process. One goroutine serves all breaches.
type Breaches struct {
	mu     sync.Mutex
	wanted bool
	ended  chan struct{} // closed when the goroutine ends; nil: there is none
}

// Run calls cancel in the background. Calls during a run share the next one.
func (b *Breaches) Run(cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = true
	if b.ended == nil {
		b.ended = make(chan struct{})
		// The goroutine ends when no breach is left.
		go func() {
			for b.take() {
				cancel()
			}
		}()
	}
}

// take reports whether there was another breach. If not, the goroutine ends.
func (b *Breaches) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.wanted {
		close(b.ended)
		b.ended = nil
	}
	wanted := b.wanted
	b.wanted = false
	return wanted
}

// Wait waits until the goroutine has ended.
func (b *Breaches) Wait() {
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
