package engine

import (
	"fmt"
	"testing"
)

// An engine remembers the lanes that it created work on, up to a limit: a program may have a lane for each customer.
func TestRememberedLanesAreBounded(t *testing.T) {
	var e Engine
	e.shared = new(shared)
	for i := range 3*maxKnown + 1 {
		lane := fmt.Sprint("lane ", i)
		e.lanes.add([]string{lane})
		if !e.lanes.has(lane) {
			t.Fatalf("%s is not known", lane)
		}
	}
	if n := len(e.lanes.values); n > maxKnown {
		t.Errorf("%d lanes are known, limit %d", n, maxKnown)
	}
	if unknown := e.unknownLanes([]creation{{lane: "lane 0"}, {lane: "lane 0"}, {lane: fmt.Sprint("lane ", 3*maxKnown)}}); len(unknown) != 1 {
		t.Errorf("unknown lanes: %q, want the first alone", unknown)
	}
}
