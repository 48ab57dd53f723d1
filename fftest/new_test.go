package fftest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/worker"
)

// BenchmarkNew reports the median of New alone, on a server that runs.
func BenchmarkNew(b *testing.B) {
	fftest.New(b)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		fftest.New(b)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/p50")
}

// TestHundredKits runs a hundred tests in parallel, each with work of its own.
func TestHundredKits(t *testing.T) {
	for i := range 100 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			kit := fftest.New(t)
			worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
				return "hello, " + job.Args, nil
			})
			created := fftest.Create(kit, greet, fmt.Sprint(i))
			kit.Drain()
			fftest.RequireResult(t, kit, greet, created.ID, fmt.Sprintf("hello, %d", i))
			fftest.RequireCreated(t, kit, greet, fftest.Times(1))
		})
	}
}
