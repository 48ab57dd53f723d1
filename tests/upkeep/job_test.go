package upkeep

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A job skips locked rows, and finds them the next time.
func TestJobsNeverWait(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*engine.ExecutionSpec)
		started bool
		job     func(*fixture.Fixture) fixture.Job
	}{
		{"lease", func(*engine.ExecutionSpec) {}, true, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).ExpireLeases }},
		{"attempt", fixture.TimingOutAfter(time.Millisecond, nil), true, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).ExpireAttempts }},
		{"deadline", func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) }, false, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).ExpireDeadlines }},
		{"delay", func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Second) }, false, func(f *fixture.Fixture) fixture.Job { return upkeep.Of(f.Engine).PromoteDelayed }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Create(t, c.change)
			if c.started {
				f.ClaimOne(t)
			}
			f.Advance(fixture.LeaseTTL)
			before := f.Dump(t, x)
			tx := f.BeginTx(t)
			fixture.LockExecution(t, tx, x)
			fixture.Run(t, c.job(f), 0)
			fixture.Commit(t, tx)
			if c.started {
				tx := f.BeginTx(t)
				fixture.LockAttempt(t, tx, x, 0)
				fixture.Run(t, c.job(f), 0)
				fixture.Commit(t, tx)
			}
			f.WantUnchanged(t, x, before)
			fixture.Run(t, c.job(f), 1)
		})
	}
}

func TestJobsRefuseBadBatches(t *testing.T) {
	f := fixture.New(t)
	for name, j := range map[string]fixture.Job{
		"leases": upkeep.Of(f.Engine).ExpireLeases, "attempts": upkeep.Of(f.Engine).ExpireAttempts, "deadlines": upkeep.Of(f.Engine).ExpireDeadlines, "delayed": upkeep.Of(f.Engine).PromoteDelayed, "keys": upkeep.Of(f.Engine).PruneCreationKeys,
	} {
		for _, batch := range []int{-1, 0, engine.MaxBatch + 1} {
			if _, err := j(t.Context(), batch); err == nil {
				t.Errorf("%s: a batch of %d was not refused", name, batch)
			} else {
				fixture.WantInputError(t, err, "batch")
			}
		}
	}
}
