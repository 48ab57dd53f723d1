package reconcile

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

func TestRunDueCallsOnlyDueJobs(t *testing.T) {
	t.Parallel()
	p := newFakeDatabase().process("process")
	now := time.Now()
	p.due[upkeep.JobPromoteDelayed] = now.Add(-time.Second)
	p.due[upkeep.JobExpireLeases] = now.Add(time.Hour)
	p.act = func(name upkeep.Job, _ int) (int, error) {
		delete(p.due, name)
		return 3, nil
	}
	r, err := newReconciler(p, p.jobs(), Config{Instance: p.name})
	if err != nil {
		t.Fatal(err)
	}
	run := func(at time.Time, want int) {
		t.Helper()
		if n, err := r.RunDue(t.Context(), at); err != nil || n != want {
			t.Errorf("acted on %d rows, %v; want %d", n, err, want)
		}
	}
	run(now, 3)
	run(now, 0)
	asked := len(p.asked["process"])
	run(now.Add(time.Hour), 3) // foreseen by the last answer
	if n := len(p.asked["process"]); n != asked {
		t.Errorf("asked %d times for known work", n-asked)
	}
	run(now.Add(time.Hour), 0)
	if calls := p.calls["process"]; len(calls) != 2 {
		t.Errorf("called %v", calls)
	}
	if len(p.held) != 0 {
		t.Errorf("holds %v", p.held)
	}
}
