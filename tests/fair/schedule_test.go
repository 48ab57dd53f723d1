package fair

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The executions of a schedule take turns with the tenant and the weight of its arguments, whichever call creates them.
func TestTicksTakeTurns(t *testing.T) {
	l := newLane(fixture.NewCloned(t), "")
	type args struct{ Tenant string }
	kind := engine.Kind[args, struct{}]{
		Name: "test", Lane: l.name,
		Fair: engine.RoundRobin(func(a args) string { return a.Tenant }).Weigh(func(args) int { return 2 }),
	}
	name := schedule.Name{Name: l.Name}
	for _, tenant := range []string{"c", "b"} { // created, and changed
		spec := schedule.Of(kind, l.Name, args{tenant}, schedule.Spec{Every: time.Minute})
		if err := schedule.Put(t.Context(), l.Engine, spec); err != nil {
			t.Fatal(err)
		}
	}
	if s, _, err := schedule.Describe(t.Context(), l.Engine, name, 0); err != nil || s.Fair != (engine.FairShare{Tenant: "b", Weight: 2}) {
		t.Fatalf("%+v, %v", s.Fair, err)
	}
	l.add(t, l.Engine, 5, of("a"))
	head := l.Time()
	create := func(tick func() (id.ExecutionID, error)) {
		t.Helper()
		x, err := tick()
		if err != nil {
			t.Fatal(err)
		}
		l.tenantOf[x] = "b"
		if d, err := l.DescribeExecution(t.Context(), x); err != nil || d.Fair != (engine.FairShare{Tenant: "b", Weight: 2}) {
			t.Errorf("%+v, %v", d.Fair, err)
		}
	}
	l.Advance(time.Minute)
	create(func() (id.ExecutionID, error) {
		if n, err := upkeep.Of(l.Engine).RunSchedules(t.Context(), 10); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		s, _, err := schedule.Describe(t.Context(), l.Engine, name, 0)
		return s.Last.Execution, err
	})
	create(func() (id.ExecutionID, error) { return schedule.Trigger(t.Context(), l.Engine, name) })
	create(func() (id.ExecutionID, error) {
		xs, err := schedule.Backfill(t.Context(), l.Engine, name, head.Add(time.Second), l.Time())
		if len(xs) != 1 {
			t.Fatal(xs, err)
		}
		return xs[0], err
	})
	if got, want := l.order(l.take(t, 8)), []string{"a", "b", "b", "a", "b", "a", "a", "a"}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}
