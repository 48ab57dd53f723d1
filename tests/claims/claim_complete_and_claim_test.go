package claims

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// From the head of the lane, and after a position, one by one and two by two: each time one round trip and one commit.
func TestCompleteAndClaim(t *testing.T) {
	shared := fixture.New(t)
	log := new(fixture.RoundTripLog)
	f := fixture.On(t, fixture.OpenPool(t, shared.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log }), shared.Url)
	claimer := f.Claimer(t)
	held := f.StartMany(t, 1)
	for range 9 {
		f.Create(t)
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
		sent, trips := log.Of(func() {
			outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), fixture.CompletionsOf(done...), c.n)
			if err != nil || len(outcomes) != len(done) || errors.Join(outcomes...) != nil || len(claimed) != c.n {
				t.Fatal(outcomes, claimed, err)
			}
			held = claimed
		})
		if want := append([]string{"select"}, c.sent...); !slices.Equal(sent, want) || trips != 1 {
			t.Errorf("takes %q in %d round trips, want %q in one", sent, trips, want)
		}
		for _, x := range done {
			f.WantState(t, x.ID, fixture.StateCompleted)
			f.WantEvents(t, x.ID, "lease acquired", "lease revoked backend", "completion success")
		}
		for _, x := range held {
			f.WantState(t, x.ID, fixture.StateRunning)
			f.WantEvents(t, x.ID, "lease acquired")
		}
	}
}

func TestCompleteAndClaimJudgesEachAlone(t *testing.T) {
	f := fixture.New(t)
	held := f.StartMany(t, 4)
	next := f.Create(t)
	completions := fixture.CompletionsOf(held...)
	completions[1].Lease.Epoch-- // stale
	completions[2].Result = make([]byte, engine.DefaultMaxPayload+1)
	completions[3] = completions[0] // a repetition
	outcomes, claimed, err := f.Claimer(t).CompleteAndClaim(t.Context(), completions, 5)
	if err != nil || len(claimed) != 1 || claimed[0].ID != next {
		t.Fatalf("claimed %v, %v; want %s", claimed, err, next)
	}
	for i, want := range []error{nil, fferr.ErrStaleLease, fferr.ErrInvalidInput, nil} {
		if !errors.Is(outcomes[i], want) {
			t.Errorf("outcome %d: %v, want %v", i, outcomes[i], want)
		}
	}
	f.WantState(t, held[0].ID, fixture.StateCompleted)
	for _, c := range held[1:] {
		f.WantState(t, c.ID, fixture.StateRunning)
	}
}

// Of nothing, and of nothing valid, it is a claim.
func TestCompleteAndClaimWithoutCompletions(t *testing.T) {
	f := fixture.New(t)
	claimer := f.Claimer(t)
	for _, completions := range [][]engine.Completion{nil, {{Result: []byte("of no lease")}}} {
		x := f.Create(t)
		outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), completions, 1)
		if err != nil || len(outcomes) != len(completions) || len(claimed) != 1 || claimed[0].ID != x {
			t.Errorf("%d completions: %v, claimed %v, %v; want %s", len(completions), outcomes, claimed, err, x)
		}
	}
	if _, _, err := claimer.CompleteAndClaim(t.Context(), nil, 0); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("claim of 0: %v", err)
	}
}

// The call can claim executions that a member's completion releases.
func TestCompleteAndClaimOfAMember(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	first := f.ClaimOne(t)
	outcomes, claimed, err := f.Claimer(t).CompleteAndClaim(t.Context(), fixture.CompletionsOf(first), 1)
	if err != nil || outcomes[0] != nil || len(claimed) != 1 || claimed[0].Flow == nil || *claimed[0].Flow != flow {
		t.Errorf("%v, claimed %v, %v; want the downstream", outcomes, claimed, err)
	}
}

// Rows that a fast path does not serve, on either side, are served one call after the other.
func TestCompleteAndClaimOfForeignRows(t *testing.T) {
	for name, arrange := range map[string]func(*testing.T, *fixture.Fixture, engine.Lease){
		"its attempt is gone behind the pointer": func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SetExecution(t, l.Execution, "attempt_index = 1")
			f.Create(t)
		},
		"the claimed one has an attempt already": func(t *testing.T, f *fixture.Fixture, _ engine.Lease) {
			x := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "ffx_lease_epoch": 1})
			f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			held := f.Start(t)
			arrange(t, f, held.Lease)
			outcomes, claimed, err := f.Claimer(t).CompleteAndClaim(t.Context(), fixture.CompletionsOf(held), 1)
			if err != nil || outcomes[0] != nil || len(claimed) != 1 {
				t.Fatal(outcomes, claimed, err)
			}
			f.WantState(t, held.ID, fixture.StateCompleted)
			f.WantState(t, claimed[0].ID, fixture.StateRunning)
		})
	}
}

// A transaction that is refused at its end keeps neither the completion nor the claim, and both may be repeated.
func TestCompleteAndClaimWithARefusedCommit(t *testing.T) {
	f := fixture.NewCloned(t)
	f.AtCommit(t, "IF current_setting('test.refuse', true) = 'on' THEN RAISE EXCEPTION 'not today'; END IF")
	held := f.Start(t)
	next := f.Create(t)
	before, beforeNext := f.Dump(t, held.ID), f.Dump(t, next)
	refused := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["test.refuse"] = "on" })
	claimer, err := refused.NewClaimer(f.Worker())
	if err != nil {
		t.Fatal(err)
	}
	outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), fixture.CompletionsOf(held), 1)
	if !errors.Is(err, fferr.ErrTransport) || outcomes != nil || claimed != nil {
		t.Fatalf("%v, claimed %v, %v; want only the server's refusal", outcomes, claimed, err)
	}
	f.WantUnchanged(t, held.ID, before)
	f.WantUnchanged(t, next, beforeNext)
	outcomes, claimed, err = f.Claimer(t).CompleteAndClaim(t.Context(), fixture.CompletionsOf(held), 1)
	if err != nil || outcomes[0] != nil || len(claimed) != 1 || claimed[0].ID != next {
		t.Errorf("repeated: %v, claimed %v, %v", outcomes, claimed, err)
	}
}

// In the caller's transaction both happen with it, or not at all.
func TestCompleteAndClaimInTheCallersTransaction(t *testing.T) {
	f := fixture.New(t)
	held := f.Start(t)
	next := f.Create(t)
	before, beforeNext := f.Dump(t, held.ID), f.Dump(t, next)
	for _, commits := range []bool{false, true} {
		tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{})
		claimer, err := f.WithTx(tx).NewClaimer(f.Worker())
		if err != nil {
			t.Fatal(err)
		}
		outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), fixture.CompletionsOf(held), 1)
		if err != nil || outcomes[0] != nil || len(claimed) != 1 || claimed[0].ID != next {
			t.Fatal(outcomes, claimed, err)
		}
		f.End(t, tx, commits)
		if !commits {
			f.WantUnchanged(t, held.ID, before)
			f.WantUnchanged(t, next, beforeNext)
		}
	}
	f.WantState(t, held.ID, fixture.StateCompleted)
	f.WantState(t, next, fixture.StateRunning)
}

// The lease is given back beside the call. As long as its row is locked neither part waits for it. Then the completion
// is refused, and the claim after it in the same transaction takes the same execution under a new lease.
func TestCompleteAndClaimRacesARelease(t *testing.T) {
	f := fixture.New(t)
	held := f.Start(t)
	claimer, err := f.NewClaimer(f.Worker())
	if err != nil {
		t.Fatal(err)
	}
	tx := f.BeginTx(t)
	if outcomes, err := f.WithTx(tx).ReleaseLeases(t.Context(), []engine.Lease{held.Lease}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	outcomes, claimed, err := claimer.CompleteAndClaim(t.Context(), fixture.CompletionsOf(held), 1)
	if err != nil || !errors.Is(outcomes[0], fferr.ErrBusy) || len(claimed) > 0 {
		t.Fatalf("got %v, %v, %v; want that it is busy, and nothing claimed", outcomes, claimed, err)
	}
	fixture.Commit(t, tx)
	outcomes, claimed, err = claimer.CompleteAndClaim(t.Context(), fixture.CompletionsOf(held), 1)
	if err != nil || len(claimed) != 1 || claimed[0].ID != held.ID || claimed[0].Lease.Epoch <= held.Lease.Epoch {
		t.Fatalf("claimed %v, %v; want %s again", claimed, err, held.ID)
	}
	fixture.WantLeaseError(t, outcomes[0], fferr.ErrStaleLease)
	if err := f.CompleteExecution(t.Context(), claimed[0].Lease, nil); err != nil {
		t.Error(err)
	}
}
