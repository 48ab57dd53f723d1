package tests

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
)

func completionsOf(claimed ...engine.Claimed) []engine.Completion {
	completions := make([]engine.Completion, len(claimed))
	for i := range claimed {
		completions[i] = engine.Completion{Lease: claimed[i].Lease, Result: []byte("out")}
	}
	return completions
}

// From the head of the lane, and after a position, one by one and two by two: each time one round trip and one commit.
func TestCompleteAndClaim(t *testing.T) {
	shared := newFixture(t)
	log := new(roundTripLog)
	f := fixtureOn(t, openPool(t, shared.url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.url)
	claimer := f.claimer(t)
	held := f.startMany(t, 1)
	for range 9 {
		f.create(t)
	}
	for _, c := range []struct {
		n    int
		sent []string
	}{
		{1, []string{"CompleteOne", "ClaimFromHead"}},
		{1, []string{"CompleteOne", "ClaimOneAfterPosition"}},
		{1, []string{"CompleteOne", "ClaimOneAfterPosition"}},
		{2, []string{"CompleteOne", "ClaimAfterPositions"}},
		{2, []string{"CompleteExecutions", "ClaimAfterPositions"}},
		{1, []string{"CompleteExecutions", "ClaimOneAfterPosition"}},
	} {
		done := held
		sent, trips := log.of(func() {
			outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), completionsOf(done...), c.n)
			if err != nil || len(outcomes) != len(done) || errors.Join(outcomes...) != nil || len(claimed) != c.n {
				t.Fatal(outcomes, claimed, err)
			}
			held = claimed
		})
		if want := append([]string{"select"}, c.sent...); !slices.Equal(sent, want) || trips != 1 {
			t.Errorf("takes %q in %d round trips, want %q in one", sent, trips, want)
		}
		for _, x := range done {
			f.wantState(t, x.ID, stateCompleted)
			f.wantEvents(t, x.ID, "lease acquired", "lease revoked backend", "completion success")
		}
		for _, x := range held {
			f.wantState(t, x.ID, stateRunning)
			f.wantEvents(t, x.ID, "lease acquired")
		}
	}
}

func TestCompleteAndClaim_judges_each_alone(t *testing.T) {
	f := newFixture(t)
	held := f.startMany(t, 4)
	next := f.create(t)
	completions := completionsOf(held...)
	completions[1].Lease.Epoch-- // stale
	completions[2].Result = make([]byte, engine.DefaultMaxPayload+1)
	completions[3] = completions[0] // a repetition
	outcomes, claimed, err := f.claimer(t).CompleteAndClaim(t.Context(), completions, 5)
	if err != nil || len(claimed) != 1 || claimed[0].ID != next {
		t.Fatalf("claimed %v, %v; want %s", claimed, err, next)
	}
	for i, want := range []error{nil, engine.ErrStaleLease, engine.ErrInvalidInput, nil} {
		if !errors.Is(outcomes[i], want) {
			t.Errorf("outcome %d: %v, want %v", i, outcomes[i], want)
		}
	}
	f.wantState(t, held[0].ID, stateCompleted)
	for _, c := range held[1:] {
		f.wantState(t, c.ID, stateRunning)
	}
}

// Of nothing, and of nothing valid, it is a claim.
func TestCompleteAndClaim_without_completions(t *testing.T) {
	f := newFixture(t)
	claimer := f.claimer(t)
	for _, completions := range [][]engine.Completion{nil, {{Result: []byte("of no lease")}}} {
		x := f.create(t)
		outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), completions, 1)
		if err != nil || len(outcomes) != len(completions) || len(claimed) != 1 || claimed[0].ID != x {
			t.Errorf("%d completions: %v, claimed %v, %v; want %s", len(completions), outcomes, claimed, err, x)
		}
	}
	if _, _, err := claimer.CompleteAndClaim(t.Context(), nil, 0); !errors.Is(err, engine.ErrInvalidInput) {
		t.Errorf("claim of 0: %v", err)
	}
}

// What a member's completion releases can be claimed by the same call.
func TestCompleteAndClaim_of_a_member(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b")
	first := f.claim(t)
	outcomes, claimed, err := f.claimer(t).CompleteAndClaim(t.Context(), completionsOf(first), 1)
	if err != nil || outcomes[0] != nil || len(claimed) != 1 || claimed[0].Flow == nil || *claimed[0].Flow != flow {
		t.Errorf("%v, claimed %v, %v; want the downstream", outcomes, claimed, err)
	}
}

// Rows that a fast path does not serve, on either side, are served one call after the other.
func TestCompleteAndClaim_of_what_another_program_left(t *testing.T) {
	for name, arrange := range map[string]func(*testing.T, *fixture, engine.Lease){
		"its attempt is gone behind the pointer": func(t *testing.T, f *fixture, l engine.Lease) {
			f.setExecution(t, l.Execution, "attempt_index = 1")
			f.create(t)
		},
		"the claimed one has an attempt already": func(t *testing.T, f *fixture, _ engine.Lease) {
			x := f.seed(t, columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "ffx_lease_epoch": 1})
			f.seedAttempt(t, x, 0, columns{"lease_epoch": 5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			held := f.start(t)
			arrange(t, f, held.Lease)
			outcomes, claimed, err := f.claimer(t).CompleteAndClaim(t.Context(), completionsOf(held), 1)
			if err != nil || outcomes[0] != nil || len(claimed) != 1 {
				t.Fatal(outcomes, claimed, err)
			}
			f.wantState(t, held.ID, stateCompleted)
			f.wantState(t, claimed[0].ID, stateRunning)
		})
	}
}

// A transaction that is refused at its end keeps neither the completion nor the claim, and both may be repeated.
func TestCompleteAndClaim_whose_commit_is_refused(t *testing.T) {
	f := cloneFixture(t)
	f.atCommit(t, "IF current_setting('test.refuse', true) = 'on' THEN RAISE EXCEPTION 'not today'; END IF")
	held := f.start(t)
	next := f.create(t)
	before, beforeNext := f.dump(t, held.ID), f.dump(t, next)
	refused := f.rival(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["test.refuse"] = "on" })
	claimer, err := refused.NewClaimer(f.worker())
	if err != nil {
		t.Fatal(err)
	}
	outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), completionsOf(held), 1)
	if !errors.Is(err, engine.ErrTransport) || outcomes != nil || claimed != nil {
		t.Fatalf("%v, claimed %v, %v; want only the server's refusal", outcomes, claimed, err)
	}
	f.wantUnchanged(t, held.ID, before)
	f.wantUnchanged(t, next, beforeNext)
	outcomes, claimed, err = f.claimer(t).CompleteAndClaim(t.Context(), completionsOf(held), 1)
	if err != nil || outcomes[0] != nil || len(claimed) != 1 || claimed[0].ID != next {
		t.Errorf("repeated: %v, claimed %v, %v", outcomes, claimed, err)
	}
}

// In the caller's transaction both happen with it, or not at all.
func TestCompleteAndClaim_in_the_callers_transaction(t *testing.T) {
	f := newFixture(t)
	held := f.start(t)
	next := f.create(t)
	before, beforeNext := f.dump(t, held.ID), f.dump(t, next)
	for _, commits := range []bool{false, true} {
		tx := beginWith(t, f.pool, pgx.TxOptions{})
		claimer, err := f.WithTx(tx).NewClaimer(f.worker())
		if err != nil {
			t.Fatal(err)
		}
		outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), completionsOf(held), 1)
		if err != nil || outcomes[0] != nil || len(claimed) != 1 || claimed[0].ID != next {
			t.Fatal(outcomes, claimed, err)
		}
		f.end(t, tx, commits)
		if !commits {
			f.wantUnchanged(t, held.ID, before)
			f.wantUnchanged(t, next, beforeNext)
		}
	}
	f.wantState(t, held.ID, stateCompleted)
	f.wantState(t, next, stateRunning)
}

// The lease is given back beside the call. As long as its row is locked neither part waits for it. Then the completion
// is refused, and the claim after it in the same transaction takes the same execution under a new lease.
func TestInterleaving_complete_and_claim_beside_a_release(t *testing.T) {
	f := newFixture(t)
	held := f.start(t)
	claimer, err := f.NewClaimer(f.worker())
	if err != nil {
		t.Fatal(err)
	}
	tx := f.begin(t)
	if outcomes, err := f.WithTx(tx).ReleaseLeases(t.Context(), []engine.Lease{held.Lease}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), completionsOf(held), 1)
	if err != nil || !errors.Is(outcomes[0], engine.ErrBusy) || len(claimed) > 0 {
		t.Fatalf("got %v, %v, %v; want that it is busy, and nothing claimed", outcomes, claimed, err)
	}
	commit(t, tx)
	outcomes, claimed, err = claimer.CompleteAndClaim(t.Context(), completionsOf(held), 1)
	if err != nil || len(claimed) != 1 || claimed[0].ID != held.ID || claimed[0].Lease.Epoch <= held.Lease.Epoch {
		t.Fatalf("claimed %v, %v; want %s again", claimed, err, held.ID)
	}
	wantLeaseError(t, outcomes[0], engine.ErrStaleLease)
	if err := f.CompleteExecution(t.Context(), claimed[0].Lease, nil); err != nil {
		t.Error(err)
	}
}
