package core

import (
	"sync"
	"time"
)

// AdmissionLook is how long after an admission, and after each look at it, a job looks whether its execution is still
// admitted. Rows of ended executions make a breach slower, and looks at running ones are for nothing.
const AdmissionLook = 15 * time.Second

// Breaches are the breaches of budgets after which this process cancels executions. One goroutine serves all of them.
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
		// It ends when no breach is left.
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
