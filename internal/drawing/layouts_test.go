package drawing

import (
	"fmt"
	"testing"
)

// Layouts runs Graphviz once for graphs that differ in states alone, and forgets the layout that was used least lately.
func TestLayoutsAreRemembered(t *testing.T) {
	var l Layouts
	draw := func(nodes int, state string) {
		t.Helper()
		g := Graph{Name: fmt.Sprint("flow ", state)}
		for i := range nodes {
			g.Nodes = append(g.Nodes, Node{Label: fmt.Sprint(i), State: state, URL: "/" + state})
		}
		if _, err := l.Page(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	draw(1, "waiting")
	first := l.kept[l.order[0]]
	for _, state := range []string{"active", "completed"} {
		draw(1, state)
		if len(l.kept) != 1 || l.kept[l.order[0]] != first {
			t.Fatalf("laid out again for %s", state)
		}
	}
	for nodes := range keptLayouts {
		draw(nodes+2, "waiting")
		draw(1, "waiting")
	}
	if len(l.kept) != keptLayouts || len(l.order) != keptLayouts || l.kept[l.order[keptLayouts-1]] != first {
		t.Errorf("%d layouts are kept in an order of %d", len(l.kept), len(l.order))
	}
}
