package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A process that stops in the middle of a pass, after it has made the row of a new key, stalls that key alone.
func TestStoppedPassStallsOneKey(t *testing.T) {
	f := fixture.NewCloned(t)
	held, free := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2}), quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
	tx := f.BeginTx(t) // in which nothing is admitted
	if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test", QuotaPolicy: &held}); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	r := f.StoppedBefore(t, "TakeWaiting")
	pass := passing(t, r.Engine)
	r.AwaitStop(t)
	create(t, f, 2, under(free))
	wantClaimable(t, f, 2, "of the other key")
	r.Resume()
	pass()
}

// A claim that began before an admission, and whose snapshot is after its commit, stores an earlier start than the admission.
// That start counts too.
func TestStartBeforeTheAdmissionCounts(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxStarts: 2, Window: window})
	f.Advance(time.Minute)
	create(t, f, 6, under(q))
	started := 0
	for range 3 {
		admit(t, f.Engine)
		f.Advance(-time.Millisecond)
		claimed := claim(t, f, 10)
		f.Advance(time.Millisecond)
		started += len(claimed)
		complete(t, f, claimed...)
	}
	if started != 2 {
		t.Errorf("%d started within the window, limit 2", started)
	}
}

// A small batch admits what has room, although other limits have too little room for those that wait there.
func TestSmallBatchesReachAllLimits(t *testing.T) {
	f := fixture.NewCloned(t)
	if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "places", Units: 2}); err != nil {
		t.Fatal(err)
	}
	at := func(key string, units int) func(*engine.ExecutionSpec) {
		return func(s *engine.ExecutionSpec) { s.Limits = []engine.LimitKey{{Name: "places", Key: key, Units: units}} }
	}
	keys := []string{"a", "b", "c", "d", "e", "f"}
	for _, key := range keys {
		create(t, f, 1, at(key, 1))
	}
	wantClaimable(t, f, len(keys), "of each key") // so that one unit is free
	for _, key := range keys {
		create(t, f, 1, at(key, 2))
	}
	create(t, f, 1, at("g", 1))
	for range 20 {
		if _, err := upkeep.Of(f.Engine).AdmitWaiting(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(claim(t, f, 10)); got != 1 {
		t.Errorf("claimed %d, want the one of the key that is free", got)
	}
}
