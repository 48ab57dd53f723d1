package leases

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCompleteExecution(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	f.Advance(time.Second)
	now := f.Time().UnixMilli()
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("out")); err != nil {
		t.Fatal(err)
	}
	stored := f.Stored(t, c.ID)
	if stored.State != fixture.StateCompleted || string(stored.Result) != "out" || *stored.TerminalAtMs != now || *stored.LastMutation != now ||
		stored.LeaseEpoch != 1 || stored.AttemptIndex != 0 {
		t.Errorf("stored %+v", stored)
	}
	attempt := f.StoredAttempts(t, c.ID)[0]
	if attempt.Outcome != "success" || *attempt.TerminalAtMs != now || attempt.LeaseExpiresAtMs != nil || attempt.LeaseEpoch != 1 ||
		attempt.WorkerInstanceID == nil || *attempt.WorkerInstanceID != f.Name {
		t.Errorf("attempt %+v", attempt)
	}
	f.WantEvents(t, c.ID, "lease acquired", "lease revoked backend", "completion success")
	if got := f.Describe(t, c.ID); !got.EndedAt.Equal(f.Time()) || got.State.Outcome != state.OutcomeSuccess {
		t.Errorf("described as %+v", got)
	}
	f.WantNothingClaimable(t)
}

// A completion that is repeated, since its answer was lost, answers as the first did.
func TestCompleteMayBeRepeated_E42(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("first")); err != nil {
		t.Fatal(err)
	}
	before := f.Dump(t, c.ID)
	f.Advance(time.Hour) // the lease is long over
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("second")); err != nil {
		t.Error(err)
	}
	f.WantUnchanged(t, c.ID, before)
	if _, err := f.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "late"}); !errors.Is(err, fferr.ErrNotActive) {
		t.Errorf("got %v, want not active", err)
	} else if refusal, _ := errors.AsType[*fferr.LeaseError](err); refusal.Outcome != state.OutcomeSuccess {
		t.Errorf("outcome %s, want success", refusal.Outcome)
	}
	f.WantUnchanged(t, c.ID, before)
}

// A different outcome than the one asked for is never reported as success.
func TestCompleteExecutionReportsAnotherOutcome(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct {
		class policy.Class
		phase state.LifecyclePhase
		how   state.TerminalOutcome
	}{{policy.Permanent, state.Terminal, state.OutcomeFailed}, {policy.Transient, state.Runnable, state.OutcomeNone}} {
		lost := f.Start(t)
		if _, err := f.FailExecution(t.Context(), lost.Lease, engine.Failure{Class: c.class}); err != nil {
			t.Fatal(err)
		}
		before := f.Dump(t, lost.ID)
		err := f.CompleteExecution(t.Context(), lost.Lease, nil)
		refusal, ok := errors.AsType[*fferr.LeaseError](err)
		if !ok || refusal.Err != fferr.ErrNotActive || refusal.Phase != c.phase || refusal.Outcome != c.how {
			t.Errorf("after a %s failure: %v", c.class, err)
		}
		f.WantUnchanged(t, lost.ID, before)
	}
}

func TestCompleteExecutionsKeepsInputOrder(t *testing.T) {
	f := fixture.New(t)
	held := f.StartMany(t, 4)
	slices.Reverse(held)
	stale := held[1].Lease
	stale.Epoch = 0
	f.SetAttempt(t, held[2].ID, 0, "lease_expires_at_ms = 1")
	f.SetExecution(t, held[3].ID, "attempt_index = 1") // served by the form that locks first
	missing := held[0].Lease
	missing.Execution = id.NewExecutionID(f.Lane, id.Partitions{})
	outcomes, err := f.CompleteExecutions(t.Context(), []engine.Completion{
		{Lease: held[0].Lease, Result: []byte("0")},
		{Lease: stale, Result: []byte("stale")},
		{Lease: held[1].Lease, Result: []byte("1")},
		{Lease: held[2].Lease},
		{Lease: missing},
		{Lease: held[0].Lease, Result: []byte("again")},
		{Lease: held[3].Lease, Result: []byte("3")},
		{Lease: held[3].Lease, Result: make([]byte, engine.DefaultMaxPayload+1)},
		{Lease: held[3].Lease, Result: []byte("again")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, fferr.ErrStaleLease, nil, fferr.ErrLeaseExpired, fferr.ErrNotFound, nil, nil, fferr.ErrInvalidInput, nil} {
		if !errors.Is(outcomes[i], want) {
			t.Errorf("outcome %d is %v, want %v", i, outcomes[i], want)
		}
	}
	for i, want := range map[int]string{0: "0", 1: "1", 3: "3"} {
		if got := f.Stored(t, held[i].ID); string(got.Result) != want || got.State != fixture.StateCompleted || got.AttemptIndex != 0 {
			t.Errorf("execution %d: %+v, want result %q", i, got, want)
		}
		f.WantEvents(t, held[i].ID, "lease acquired", "lease revoked backend", "completion success")
	}
	f.WantState(t, held[2].ID, fixture.StateRunning)
}

func TestCompleteExecutionsAcceptsAnEmptyBatch(t *testing.T) {
	f := fixture.New(t)
	if outcomes, err := f.CompleteExecutions(t.Context(), nil); err != nil || len(outcomes) != 0 {
		t.Errorf("got %v, %v", outcomes, err)
	}
}

func TestCompleteExecutionsOfMany(t *testing.T) {
	f := fixture.New(t)
	held := slices.Concat(f.StartMany(t, engine.MaxBatch), f.StartMany(t, 5))
	completions := make([]engine.Completion, len(held))
	for i, c := range held {
		completions[i] = engine.Completion{Lease: c.Lease, Result: fmt.Append(nil, i)}
	}
	outcomes, err := f.CompleteExecutions(t.Context(), completions)
	if err := errors.Join(append(outcomes, err)...); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, engine.MaxBatch - 1, engine.MaxBatch, len(held) - 1} {
		if got := string(f.Stored(t, held[i].ID).Result); got != fmt.Sprint(i) {
			t.Errorf("execution %d has the result %q", i, got)
		}
	}
}

// The reference leaves namespace and tag of most completion events NULL, so that filtered readers miss them.
func TestCompletionEventsCarryNamespaceAndTag_E29_I18(t *testing.T) {
	f := fixture.NewCloned(t)
	tagged := func(spec *engine.ExecutionSpec) {
		spec.Namespace, spec.Tags = "tenant", map[string]string{"cairn.instance_id": "i1"}
		spec.Deadline = fixture.Start.Add(time.Hour)
	}
	complete := func(c engine.Claimed) error { return f.CompleteExecution(t.Context(), c.Lease, nil) }
	for _, c := range []struct {
		name, outcome string
		end           func(engine.Claimed) error
	}{
		{"completed", "success", complete},
		{"completed by the slow path", "success", func(c engine.Claimed) error {
			f.SetExecution(t, c.ID, "attempt_index = 1")
			return complete(c)
		}},
		{"failed", "failed", func(c engine.Claimed) error {
			_, err := f.FailExecution(t.Context(), c.Lease, engine.Failure{Class: policy.Permanent})
			return err
		}},
		{"lost too often", "failed", func(c engine.Claimed) error {
			f.SetExecution(t, c.ID, "lease_reclaim_count = 1000")
			f.Advance(fixture.LeaseTTL)
			_, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 10)
			return err
		}},
		{"expired", "expired", func(engine.Claimed) error {
			f.Advance(time.Hour)
			_, err := upkeep.Of(f.Engine).ExpireDeadlines(t.Context(), 10)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := f.Start(t, tagged)
			if err := c.end(held); err != nil {
				t.Fatal(err)
			}
			now := f.Time().UnixMilli()
			got := f.CompletionEvents(t, held.ID)
			if len(got) != 1 || got[0].Outcome != c.outcome || *got[0].Namespace != "tenant" || *got[0].InstanceTag != "i1" ||
				got[0].OccurredAtMs != now || *got[0].DispatchedAtMs != now {
				t.Errorf("events %+v, want one of outcome %s", got, c.outcome)
			}
			lease := fixture.Texts(t, f.Pool, `SELECT concat_ws(' ', event_type, namespace, instance_tag, lease_id, ffx_worker_instance_id)
				FROM ff_lease_event WHERE execution_id = ($1::uuid)::text ORDER BY event_id`, held.ID.UUID())
			for i, event := range []string{"acquired", map[string]string{"success": "revoked", "failed": "revoked", "expired": "expired"}[c.outcome]} {
				if c.name == "lost too often" && i == 1 {
					event = "expired"
				}
				if want := fmt.Sprintf("%s tenant i1 %s %s", event, held.Lease.ID, f.Name); lease[i] != want {
					t.Errorf("lease event %d is %q, want %q", i, lease[i], want)
				}
			}
		})
	}
}

func TestCompleteExecutionReturnsAdmissions(t *testing.T) {
	f := fixture.New(t)
	quota := id.NewQuotaPolicyID()
	for _, attach := range []func(x id.ExecutionID){
		func(x id.ExecutionID) { f.Attach(t, x, nil, &quota) },
		func(x id.ExecutionID) { f.Attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil) },
	} {
		x := f.Create(t)
		attach(x)
		f.Admit(t, x)
		c := f.ClaimOne(t)
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
		got := f.Stored(t, x)
		if got.State != fixture.StateCompleted || got.Admitted != nil || got.GateID != nil || f.Slots(t, x) != 0 {
			t.Errorf("stored %+v with %d slots", got, f.Slots(t, x))
		}
		f.WantEvents(t, x, "lease acquired", "lease revoked backend", "completion success")
	}
}

// The items that the fast path completed stay completed when those that it left fail: the error is theirs.
func TestCompleteExecutionsKeepsTheFastPathOnErrors(t *testing.T) {
	f := fixture.New(t)
	held := f.StartMany(t, 2)
	f.SetExecution(t, held[1].ID, "attempt_index = 1") // left to the form that locks first
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, held[1].ID)
	completions := []engine.Completion{{Lease: held[0].Lease}, {Lease: held[1].Lease}}
	outcomes, err := f.CompleteExecutions(t.Context(), completions)
	if err != nil || outcomes[0] != nil || !errors.Is(outcomes[1], fferr.ErrBusy) {
		t.Errorf("got %v, %v; want that the second is busy", outcomes, err)
	}
	f.WantState(t, held[0].ID, fixture.StateCompleted)
	f.WantState(t, held[1].ID, fixture.StateRunning)
	fixture.Commit(t, tx)
	outcomes, err = f.CompleteExecutions(t.Context(), completions)
	if err := errors.Join(append(outcomes, err)...); err != nil {
		t.Error(err)
	}
	f.WantState(t, held[1].ID, fixture.StateCompleted)
}

// A batch with refused members completes the executions in no flow.
func TestCompleteExecutionsMembersRefusedBesideOthers(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	stale := f.Lease(t, flow, "a")
	stale.Epoch--
	alone := f.Start(t)
	outcomes, err := f.CompleteExecutions(t.Context(), []engine.Completion{{Lease: stale}, {Lease: alone.Lease}})
	if err != nil || outcomes[1] != nil {
		t.Fatal(outcomes, err)
	}
	fixture.WantLeaseError(t, outcomes[0], fferr.ErrStaleLease)
	f.WantState(t, alone.ID, fixture.StateCompleted)
}
