package tests

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

func TestCancelFlow_large(t *testing.T) {
	for _, spec := range []engine.FlowSpec{layered(1000, 0), layered(10000, 0), layered(10000, 30000), layered(1000, 3000)} {
		t.Run("x", func(t *testing.T) {
			f, log := loggedFixture(t)
			began := time.Now()
			flow := f.createFlow(t, spec)
			t.Logf("created %v", time.Since(began))
			var c engine.CancelledFlow
			began = time.Now()
			got := names(log.during(func() {
				var err error
				if c, err = f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
					t.Fatal(err)
				}
			}))
			t.Logf("%d cancelled in %v: %d %v", len(c.Members), time.Since(began), len(got), got)
		})
	}
}
