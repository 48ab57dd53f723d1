package engine

import "sync"

// breachMemory is the cancellation of executions by this process after breaches. One goroutine serves all breaches.
type breachMemory struct {
	mu     sync.Mutex
	wanted bool
	ended  chan struct{} // closed when the goroutine ends; nil: there is none
}

// take reports whether there was another breach. If not, the goroutine ends.
func (m *breachMemory) take() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.wanted {
		close(m.ended)
		m.ended = nil
	}
	wanted := m.wanted
	m.wanted = false
	return wanted
}

// wait waits until the goroutine has ended.
func (m *breachMemory) wait() {
	m.mu.Lock()
	ended := m.ended
	m.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
