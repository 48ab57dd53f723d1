package core

import "testing"

// Without an observer, creations and signals note nothing, and allocate nothing.
func TestNothingIsNotedWithoutAnObserver(t *testing.T) {
	var c Core
	var due Notifications
	if n := testing.AllocsPerRun(100, func() {
		c.NoteCreated(&due, "lane", "kind", 1)
		c.NoteSignalled(&due, "name", false)
		c.report(t.Context(), &due)
	}); n != 0 || due.observed != nil {
		t.Errorf("%v allocations, noted %v", n, due.observed)
	}
}
