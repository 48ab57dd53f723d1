package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// lanesWith is claims of n each from so many lanes of the fixture, into which one execution for each was put before.
func lanesWith(t *testing.T, f *fixture.Fixture, lanes, each, n int) ([]engine.LaneClaim, [][]id.ExecutionID) {
	t.Helper()
	claims, created := make([]engine.LaneClaim, lanes), make([][]id.ExecutionID, lanes)
	for i := range lanes {
		spec := f.WorkerOn(id.LaneID(fmt.Sprint("-", i)))
		claimer, err := f.NewClaimer(spec)
		if err != nil {
			t.Fatal(err)
		}
		claims[i] = engine.LaneClaim{Claimer: claimer, Limit: n}
		for range each {
			created[i] = append(created[i], f.Create(t, func(s *engine.ExecutionSpec) { s.Lane = spec.Lane }))
		}
	}
	return claims, created
}

func claimedEach(t *testing.T, outcomes []fferr.Outcome[[]engine.Claimed], err error) [][]id.ExecutionID {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	claimed := make([][]id.ExecutionID, len(outcomes))
	for i, o := range outcomes {
		if o.Err != nil {
			t.Errorf("lane %d: %v", i, o.Err)
		}
		claimed[i] = fixture.ExecutionsOf(o.Value)
	}
	return claimed
}

func wantEach(t *testing.T, got, want [][]id.ExecutionID) {
	t.Helper()
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// All lanes take one round trip and one commit. If scans after the positions leave room, full scans of only these
// lanes take one more.
func TestClaimEachIsOneTransaction(t *testing.T) {
	shared := fixture.New(t)
	log := new(fixture.RoundTripLog)
	f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
	claims, created := lanesWith(t, f, 3, 3, 2)
	claim := func(wantTrips int, want ...string) [][]id.ExecutionID {
		t.Helper()
		var got [][]id.ExecutionID
		sent, trips := log.Of(func() {
			outcomes, err := f.ClaimEach(t.Context(), claims)
			got = claimedEach(t, outcomes, err)
		})
		if !slices.Equal(sent, want) || trips != wantTrips {
			t.Errorf("takes %q in %d round trips, want %q in %d", sent, trips, want, wantTrips)
		}
		return got
	}
	got := claim(1, "select", "ClaimFromHead", "ClaimFromHead", "ClaimFromHead")
	wantEach(t, got, [][]id.ExecutionID{created[0][:2], created[1][:2], created[2][:2]})
	const writers = "SELECT count(DISTINCT xmin::text)::text FROM ff_attempt WHERE worker_instance_id = $1"
	if n := fixture.Collect(t, pgx.RowTo[string], f.Pool, writers, f.Name)[0]; n != "1" {
		t.Errorf("claimed by %s transactions, want one", n)
	}
	wantEach(t, claim(2, "select", "ClaimAfterPositions", "ClaimAfterPositions", "ClaimAfterPositions",
		"select", "ClaimFromHead", "ClaimFromHead", "ClaimFromHead"), [][]id.ExecutionID{created[0][2:], created[1][2:], created[2][2:]})
}

// A lane that the fast path does not serve takes nothing from the others, nor does one that is paused.
func TestClaimEachJudgesEachLaneAlone(t *testing.T) {
	f := fixture.New(t)
	claims, created := lanesWith(t, f, 3, 2, 5)
	f.SeedAttempt(t, created[1][0], 0, nil)
	if err := operator.PauseLane(t.Context(), f.Engine, f.Lane+"-2", operator.LanePause{Reason: "stop"}); err != nil {
		t.Fatal(err)
	}
	outcomes, err := f.ClaimEach(t.Context(), claims)
	wantEach(t, claimedEach(t, outcomes, err), [][]id.ExecutionID{created[0], created[1], {}})
	for i, want := range []state.Halt{state.NotHalted, state.NotHalted, state.HaltedLane} {
		if halt := claims[i].Claimer.Halted(); halt != want {
			t.Errorf("lane %d: %q, want %q", i, halt, want)
		}
	}
	for _, o := range outcomes {
		for _, c := range o.Value {
			f.WantState(t, c.ID, fixture.StateRunning)
			f.WantEvents(t, c.ID, "lease acquired")
			if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
				t.Error(err)
			}
		}
	}
}

// An attempt locked without its execution is skipped, and the rest of its lane is claimed.
func TestClaimEachSkipsALockedAttempt(t *testing.T) {
	f := fixture.New(t)
	claims, created := lanesWith(t, f, 2, 1, 5)
	held := f.Start(t)
	if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{held.Lease}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	created = append(created, []id.ExecutionID{f.Create(t)})
	claims = append(claims, engine.LaneClaim{Claimer: f.Claimer(t), Limit: 5})
	tx := f.BeginTx(t)
	fixture.LockAttempt(t, tx, held.ID, 0)
	outcomes, err := f.ClaimEach(t.Context(), claims)
	wantEach(t, claimedEach(t, outcomes, err), created)
}

// An attempt that another program is writing without having its execution keeps the claims from its own lane, and not for
// longer than a moment.
func TestClaimEachBesideAnAttemptBeingWritten(t *testing.T) {
	f := fixture.New(t)
	claims, created := lanesWith(t, f, 3, 1, 5)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, `
		INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, worker_id, worker_instance_id, lease_epoch, started_at_ms)
		VALUES ($1, $2, 0, 'reference', 'reference-1', 1, 0)`, created[1][0].Partition(), created[1][0].UUID())
	outcomes, err := f.ClaimEach(t.Context(), claims)
	if err != nil {
		t.Fatal(err)
	}
	if o := outcomes[1]; !errors.Is(o.Err, fferr.ErrBusy) || len(o.Value) > 0 {
		t.Errorf("of the lane with the attempt: %v, %v", fixture.ExecutionsOf(o.Value), o.Err)
	}
	outcomes[1] = fferr.Outcome[[]engine.Claimed]{}
	wantEach(t, claimedEach(t, outcomes, nil), [][]id.ExecutionID{created[0], {}, created[2]})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	outcomes, err = f.ClaimEach(t.Context(), claims)
	wantEach(t, claimedEach(t, outcomes, err), [][]id.ExecutionID{{}, created[1], {}})
}

// Concurrent claims from the same lanes in opposite orders skip each other's rows. Neither waits, and each execution
// is claimed by one of them.
func TestClaimEachInOppositeLaneOrders(t *testing.T) {
	shared := fixture.New(t)
	log := new(fixture.RoundTripLog)
	f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
	claims, created := lanesWith(t, f, 2, 2, 5)
	tx := f.BeginTx(t)
	first, err := f.WithTx(tx).NewClaimer(f.WorkerOn("-0"))
	if err != nil {
		t.Fatal(err)
	}
	if claimed, err := first.Claim(t.Context(), 1); err != nil || len(claimed) != 1 || claimed[0].ID != created[0][0] {
		t.Fatal(claimed, err)
	}
	slices.Reverse(claims)
	sent, trips := log.Of(func() {
		outcomes, err := f.ClaimEach(t.Context(), claims)
		wantEach(t, claimedEach(t, outcomes, err), [][]id.ExecutionID{created[1], created[0][1:]})
	})
	// Had they waited, each would have been made once more by itself.
	if want := []string{"select", "ClaimFromHead", "ClaimFromHead"}; !slices.Equal(sent, want) || trips != 1 {
		t.Errorf("takes %q in %d round trips, want %q in one", sent, trips, want)
	}
	second, err := f.WithTx(tx).NewClaimer(f.WorkerOn("-1"))
	if err != nil {
		t.Fatal(err)
	}
	if claimed, err := second.Claim(t.Context(), 5); err != nil || len(claimed) != 0 {
		t.Errorf("claimed %v, %v, want nothing", fixture.ExecutionsOf(claimed), err)
	}
	fixture.Commit(t, tx)
}

// In a caller's transaction the claims are kept with it, or are undone with it.
func TestClaimEachInTheCallersTransaction(t *testing.T) {
	f := fixture.New(t)
	_, created := lanesWith(t, f, 2, 1, 5)
	for _, keep := range []bool{false, true} {
		tx := f.BeginTx(t)
		in := f.WithTx(tx)
		claims := make([]engine.LaneClaim, 2)
		for i := range claims {
			claimer, err := in.NewClaimer(f.WorkerOn(id.LaneID(fmt.Sprint("-", i))))
			if err != nil {
				t.Fatal(err)
			}
			claims[i] = engine.LaneClaim{Claimer: claimer, Limit: 5}
		}
		outcomes, err := in.ClaimEach(t.Context(), claims)
		wantEach(t, claimedEach(t, outcomes, err), created)
		want := fixture.StateReady
		if keep {
			fixture.Commit(t, tx)
			want = fixture.StateRunning
		} else if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		for _, lane := range created {
			f.WantState(t, lane[0], want)
		}
	}
}

func TestClaimEachRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	good := engine.LaneClaim{Claimer: f.Claimer(t), Limit: 1}
	stranger, err := f.EngineOn(t, f.Pool, engine.Config{}).NewClaimer(f.Worker())
	if err != nil {
		t.Fatal(err)
	}
	f.Create(t)
	for field, claims := range map[string][]engine.LaneClaim{
		"claims[1].Claimer": {good, {Limit: 1}},
		"claims[0].Claimer": {{Claimer: stranger, Limit: 1}, good},
		"claims[1].Limit":   {good, {Claimer: good.Claimer}},
		"claims":            slices.Repeat([]engine.LaneClaim{good}, 101),
	} {
		_, err := f.ClaimEach(t.Context(), claims)
		fixture.WantInputError(t, err, field)
	}
	_, err = f.ClaimEach(t.Context(), []engine.LaneClaim{good, {Claimer: good.Claimer, Limit: engine.MaxBatch}})
	fixture.WantInputError(t, err, "claims")
	if outcomes, err := f.ClaimEach(t.Context(), nil); err != nil || len(outcomes) != 0 {
		t.Errorf("of no lanes: %v, %v", outcomes, err)
	}
	if left, err := f.QueuedLanes(t.Context(), []id.LaneID{f.Lane}); err != nil || len(left) != 1 {
		t.Errorf("what is refused claims nothing: %v, %v", left, err)
	}
}

// A commit that is refused leaves nothing claimed.
func TestClaimEachWithARefusedCommit(t *testing.T) {
	f := fixture.NewCloned(t)
	claims, created := lanesWith(t, f, 2, 1, 5)
	f.AtCommit(t, "RAISE EXCEPTION 'not today'")
	outcomes, err := f.ClaimEach(t.Context(), claims)
	if !errors.Is(err, fferr.ErrTransport) || outcomes != nil {
		t.Fatalf("%v, %v, want the server's refusal", outcomes, err)
	}
	for _, lane := range created {
		f.WantState(t, lane[0], fixture.StateReady)
	}
}
