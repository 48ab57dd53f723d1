package statements

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Two hundred due schedules take as many round trips as one, also if their executions are unique or in sequences. L14
func TestRoundTripsOfDueSchedules(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(i int, spec *engine.ExecutionSpec)
	}{
		{"plain", func(int, *engine.ExecutionSpec) {}},
		{"unique", func(i int, spec *engine.ExecutionSpec) {
			spec.Payload, spec.Unique = fmt.Appendf(nil, "%d", i), &engine.Unique{ByArgs: true}
		}},
		{"in sequences", func(i int, spec *engine.ExecutionSpec) { spec.Sequence.Key = fmt.Sprint(i) }},
		{"in one sequence", func(_ int, spec *engine.ExecutionSpec) { spec.Sequence.Key = "one" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			measure := func(n int) ([]string, int) {
				shared := fixture.Clone(t)
				log := new(fixture.RoundTripLog)
				f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
				set := schedule.Set{Name: "set", Vanished: schedule.RemoveVanished}
				for i := range n {
					spec := schedule.Spec{
						Name: fmt.Sprint("s", i), Every: time.Minute, Execution: engine.ExecutionSpec{Kind: "tick", Lane: f.Lane},
					}
					test.change(i, &spec.Execution)
					set.Schedules = append(set.Schedules, spec)
				}
				if _, err := schedule.Declare(t.Context(), f.Engine, set); err != nil {
					t.Fatal(err)
				}
				f.Advance(time.Minute)
				return log.Of(func() {
					if ran, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), engine.MaxBatch); ran != n || err != nil {
						t.Errorf("%d schedules, error %v, want %d", ran, err, n)
					}
				})
			}
			one, trips := measure(1)
			many, tripsOfMany := measure(200)
			if !slices.Equal(one, many) || trips != tripsOfMany {
				t.Errorf("one takes %q in %d round trips, 200 take %q in %d", one, trips, many, tripsOfMany)
			}
			t.Logf("%d round trips: %q", trips, one)
		})
	}
}
