package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

func lanesNamed(names ...id.LaneID) []Lane {
	lanes := make([]Lane, len(names))
	for i, name := range names {
		lanes[i].Name = name
	}
	return lanes
}

// A lane with handlers of its own has as many as that, however busy the others are, and holds no more work than they run. The
// lanes without any share the worker's. F3.
func TestLanesHaveHandlersOfTheirOwn(t *testing.T) {
	for name, batch := range map[string]int{"in batches": 0, "one by one": 1} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{
				Concurrency: 3, FetchBatch: batch, SettleBatch: batch,
				Lanes: []Lane{{Name: "mail", Concurrency: 2}, {Name: "a"}, {Name: "images", Concurrency: 1}, {Name: "b"}},
			}
			gates := make(map[id.LaneID]*gated)
			inBubble(t, cfg, func(w *Worker, _ *fakeEngine) {
				for _, lane := range cfg.Lanes {
					gates[lane.Name] = onGate(w, "of "+string(lane.Name))
				}
			}, func(t *testing.T, b *bubble) {
				const each = 6
				for lane := range gates {
					for range each {
						b.eng.put(lane, work("of "+string(lane)))
					}
				}
				b.eng.wake("")
				b.pass(10 * time.Second)
				runs := func(lane id.LaneID) int { return int(gates[lane].running.Load()) }
				if runs("mail") != 2 || runs("images") != 1 || runs("a")+runs("b") != 3 || b.held.len() != 6 {
					t.Fatalf("%d of mail run, %d of images, %d of a and %d of b; %d are held", runs("mail"), runs("images"), runs("a"), runs("b"), b.held.len())
				}
				for range each { // images go on one by one
					gates["images"].gate <- struct{}{}
					synctest.Wait()
					b.pass(time.Second)
				}
				for _, g := range gates {
					close(g.gate)
				}
				b.pass(10 * time.Second)
				if n := items(b.seen().done); n != each*len(gates) {
					t.Errorf("%d completed, want %d", n, each*len(gates))
				}
				if most := gates["images"].most.Load(); most != 1 {
					t.Errorf("%d images ran at once", most)
				}
			})
		})
	}
}

// Each lane with handlers of its own: the worker's number is their sum, and needs no option.
func TestLanesMayAllHaveHandlersOfTheirOwn(t *testing.T) {
	t.Parallel()
	cfg, err := Config{Lanes: []Lane{{Name: "a", Concurrency: 2}, {Name: "b", Concurrency: 3}}}.complete()
	if err != nil || cfg.Concurrency != 0 || cfg.handlers() != 5 {
		t.Errorf("%d handlers, %d of them shared, %v", cfg.handlers(), cfg.Concurrency, err)
	}
	if cfg, err = (Config{Lanes: []Lane{{Name: "a", Concurrency: 2}, {Name: "b"}}}).complete(); err != nil || cfg.handlers() != 102 {
		t.Errorf("%d handlers, %v", cfg.handlers(), err)
	}
}
