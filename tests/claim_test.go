package tests

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// claimN claims up to n executions of the fixture's lane.
func (f *fixture) claimN(t *testing.T, n int) []engine.Claimed {
	t.Helper()
	claimed, err := f.Claim(t.Context(), f.worker(), n)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

func executionsOf(claimed []engine.Claimed) []id.ExecutionID {
	ids := make([]id.ExecutionID, len(claimed))
	for i := range claimed {
		ids[i] = claimed[i].ID
	}
	return ids
}

func TestClaim_leases_a_fresh_execution(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		x := f.create(t, func(spec *engine.ExecutionSpec) {
			spec.Payload, spec.Tags, spec.Priority = []byte("in"), map[string]string{"cairn.instance_id": "i1"}, 3
			spec.Policy = &policy.Execution{AttemptTimeout: time.Minute}
		})
		f.advance(time.Second)
		now := f.now()
		c := f.claim(t)

		want := engine.Claimed{
			ID: x,
			Lease: engine.Lease{
				Fence: engine.Fence{Execution: x, Epoch: 1}, ID: c.Lease.ID, AttemptID: c.Lease.AttemptID, Lane: f.lane,
				Instance: id.WorkerInstanceID(f.name), TTL: leaseTTL,
			},
			ExpiresAt: now.Add(leaseTTL), Kind: "test", Payload: []byte("in"), Tags: map[string]string{"cairn.instance_id": "i1"},
			Priority: 3, CreatedAt: start, Type: state.InitialAttempt, TimeoutAt: now.Add(time.Minute),
		}
		if !reflect.DeepEqual(c, want) {
			t.Errorf("claimed\n%+v, want\n%+v", c, want)
		}
		stored := f.stored(t, x)
		if stored.State != stateRunning || stored.AttemptIndex != 0 || stored.AttemptCount != 1 || stored.LeaseEpoch != 1 ||
			*stored.StartedAtMs != now.UnixMilli() || *stored.LastMutation != now.UnixMilli() {
			t.Errorf("stored %+v", stored)
		}
		attempts := f.attempts(t, x)
		wantAttempts := []storedAttempt{{
			WorkerID: &f.name, WorkerInstanceID: &f.name, LeaseEpoch: 1, LeaseExpiresAtMs: new(now.Add(leaseTTL).UnixMilli()),
			StartedAtMs: new(now.UnixMilli()), Type: "initial", AttemptID: &c.Lease.AttemptID, LeaseID: &c.Lease.ID,
			TimeoutAtMs: new(now.Add(time.Minute).UnixMilli()), RawFields: "{}",
		}}
		if !reflect.DeepEqual(attempts, wantAttempts) {
			t.Errorf("attempts\n%+v, want\n%+v", attempts, wantAttempts)
		}
		if entries := texts(t, f.pool, "SELECT q::text FROM ffx_ready AS q WHERE execution_id = $1", x.UUID()); len(entries) > 0 {
			t.Errorf("still queued: %s", entries)
		}
		f.wantEvents(t, x, "lease acquired")
		event := one[struct {
			LeaseID, Namespace, InstanceTag, FfxWorkerInstanceID string
			OccurredAtMs                                         int64
		}](t, f.pool, `SELECT lease_id, namespace, instance_tag, ffx_worker_instance_id, occurred_at_ms
		FROM ff_lease_event WHERE execution_id = ($1::uuid)::text`, x.UUID())
		if event.LeaseID != c.Lease.ID.String() || event.Namespace != "default" || event.InstanceTag != "i1" ||
			event.FfxWorkerInstanceID != f.name || event.OccurredAtMs != now.UnixMilli() {
			t.Errorf("event %+v", event)
		}
		f.wantNothingClaimable(t)
	})
}

func TestClaim_takes_at_most_n(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		for range 5 {
			f.create(t)
		}
		for _, want := range []int{2, 2, 1, 0} {
			if got := len(f.claimN(t, 2)); got != want {
				t.Errorf("claimed %d, want %d", got, want)
			}
		}
	})
}

// The reference goes through the partitions one by one, each in a transaction of its own, so that priority
// counts only within a partition.
func TestE30_claim_orders_over_all_partitions(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		make := func(partition int16, priority int, age time.Duration) id.ExecutionID {
			return f.create(t, func(spec *engine.ExecutionSpec) {
				spec.ID = id.ExecutionIDFromRow(partition, id.NewExecutionUUID())
				spec.Priority, spec.CreatedAt = priority, start.Add(-age)
			})
		}
		young := make(0, 0, time.Second)
		old := make(255, 0, time.Minute)
		low := make(1, 1, time.Second)
		same1 := make(200, 5, time.Second)
		same2 := make(100, 5, time.Second) // a later id on an earlier partition
		high := make(254, 9, 0)
		if got, want := executionsOf(f.claimN(t, 10)), []id.ExecutionID{high, same1, same2, low, old, young}; !slices.Equal(got, want) {
			t.Errorf("claimed\n%v, want\n%v", got, want)
		}
	})
}

// A row that a worker cannot do hides nothing behind it: in the reference it ends the scan.
func TestE31_claim_passes_over_what_the_worker_cannot_do(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		needs := func(tokens ...string) id.ExecutionID {
			return f.create(t, func(spec *engine.ExecutionSpec) {
				spec.Policy = &policy.Execution{Capabilities: tokens}
			})
		}
		for range 20 {
			needs("gpu", "tpu")
		}
		needs("GPU")
		anywhere, gpu := needs(), needs("gpu")

		spec := f.worker()
		spec.Capabilities = id.NewCapabilities("gpu", "ssd")
		claimed, err := f.Claim(t.Context(), spec, 100)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := executionsOf(claimed), []id.ExecutionID{anywhere, gpu}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		f.wantNothingClaimable(t)
	})
}

func TestClaim_keeps_to_its_lane(t *testing.T) {
	f, other := newFixture(t), anotherFixture(t)
	f.create(t)
	other.wantNothingClaimable(t)
	if got := len(f.claimN(t, 10)); got != 1 {
		t.Errorf("claimed %d, want 1", got)
	}
}

func TestClaim_passes_over_what_is_not_claimable(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		delayed := f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Millisecond) })
		f.seed(t, nil) // the reference's; adopt's work
		f.seed(t, columns{"lifecycle_phase": "runnable", "eligibility_state": "pending_claim"})
		f.seed(t, columns{"lifecycle_phase": "runnable", "eligibility_state": "blocked_by_operator"})
		f.seed(t, columns{"lifecycle_phase": "suspended", "eligibility_state": "not_applicable"})
		done := f.start(t)
		if err := f.CompleteExecution(t.Context(), done.Lease, nil); err != nil {
			t.Fatal(err)
		}
		f.wantNothingClaimable(t)
		f.advance(time.Hour)
		f.wantNothingClaimable(t) // a delay ends by promotion
		f.wantState(t, delayed, stateDelayed)
	})
}

// An execution past its deadline may be handed out until the deadline's job ends it.
func TestClaim_tests_no_deadline(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) })
		f.advance(time.Minute)
		if c := f.claim(t); c.ID != x {
			t.Errorf("claimed %s, want %s", c.ID, x)
		}
	})
}

func TestClaim_waits_for_nobody(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		held, free := f.create(t), f.create(t)
		tx := f.begin(t)
		lockExecution(t, tx, held)
		if got, want := executionsOf(f.claimN(t, 10)), []id.ExecutionID{free}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		commit(t, tx)
		if got, want := executionsOf(f.claimN(t, 10)), []id.ExecutionID{held}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
	})
}

func TestClaim_by_two_workers_shares_out(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		first, second := f.create(t), f.create(t)
		tx := f.begin(t)
		one, err := f.WithTx(tx).Claim(t.Context(), f.worker(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := executionsOf(one), []id.ExecutionID{first}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		if got, want := executionsOf(f.claimN(t, 10)), []id.ExecutionID{second}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		commit(t, tx)
		f.wantNothingClaimable(t)
	})
}

func TestClaim_continues_an_interrupted_attempt(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		first := f.start(t, timingOutAfter(time.Hour, nil))
		if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{first.Lease}); err != nil || outcomes[0] != nil {
			t.Fatal(err, outcomes)
		}
		f.advance(time.Minute)
		second := f.claim(t)
		if !second.Resumed || second.Lease.Attempt != 0 || second.Lease.Epoch != 2 || second.Lease.AttemptID != first.Lease.AttemptID || second.Lease.ID == first.Lease.ID ||
			second.Type != state.InitialAttempt {
			t.Errorf("claimed %+v after %+v", second, first)
		}
		stored := f.stored(t, second.ID)
		if stored.State != stateRunning || stored.AttemptCount != 1 || *stored.StartedAtMs != start.UnixMilli() || stored.LeaseEpoch != 2 {
			t.Errorf("stored %+v", stored)
		}
		attempt := f.attempts(t, second.ID)[0]
		if attempt.Outcome != "" || attempt.TerminalAtMs != nil || attempt.DelayUntilMs != nil || *attempt.LeaseID != second.Lease.ID ||
			*attempt.StartedAtMs != start.UnixMilli() || *attempt.LeaseExpiresAtMs != f.now().Add(leaseTTL).UnixMilli() ||
			attempt.TimeoutAtMs == nil || *attempt.TimeoutAtMs != f.now().Add(time.Hour).UnixMilli() {
			t.Errorf("attempt %+v", attempt)
		}
		f.wantEvents(t, second.ID, "lease acquired", "lease revoked backend", "lease acquired")
	})
}

// The columns of an earlier delay are put right by every claim: the reference leaves them.
func TestClaim_restores_the_deadline(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		for name, c := range map[string]struct{ set, want string }{
			"deadline": {fmt.Sprintf("ffx_execution_deadline_ms = %d, deadline_at_ms = 5, ffx_delay_until_ms = 5", start.UnixMilli()), relative(new(start.UnixMilli()))},
			"none":     {"ffx_execution_deadline_ms = 0, deadline_at_ms = 5, ffx_delay_until_ms = 5", "NULL"},
			// Another program replayed it: its end had put the deadline away.
			"of an end taken back": {fmt.Sprintf("ffx_execution_deadline_ms = -5, deadline_at_ms = %d, ffx_delay_until_ms = 5", start.UnixMilli()), relative(new(start.UnixMilli()))},
			"unknown":              {fmt.Sprintf("ffx_execution_deadline_ms = NULL, deadline_at_ms = %d, ffx_delay_until_ms = 5", start.UnixMilli()), relative(new(start.UnixMilli()))},
		} {
			x := f.create(t)
			f.setExecution(t, x, c.set)
			f.claim(t)
			if got := f.stored(t, x); relative(got.DeadlineAtMs) != c.want || got.DelayUntilMs != nil || got.LastDeadline != nil && *got.LastDeadline < 0 {
				t.Errorf("%s: deadline_at_ms %s, wake-up %s; want %s and NULL", name, relative(got.DeadlineAtMs), relative(got.DelayUntilMs), c.want)
			}
		}
	})
}

func TestE7_M9_first_start_is_recorded_by_every_claim(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.seed(t, columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt"})
		first := f.claim(t)
		f.wantState(t, first.ID, stateRunning)
		if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{first.Lease}); err != nil || outcomes[0] != nil {
			t.Fatal(err, outcomes)
		}
		f.advance(time.Minute)
		f.claim(t)
		if got := f.stored(t, first.ID).StartedAtMs; relative(got) != "start+0 ms" {
			t.Errorf("started at %s, want the first claim", relative(got))
		}
	})
}

// The reference's index is whatever its caller expects, and its count of attempts stays at 0, so that a
// second attempt overwrites the first.
func TestE6_M4_next_attempt_keeps_the_history(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		first := f.start(t)
		if failed, err := f.FailExecution(t.Context(), first.Lease, engine.Failure{Message: "first"}); err != nil || !failed.Retry {
			t.Fatal(failed, err)
		}
		second := f.claim(t)
		if second.Lease.Attempt != 1 || second.Type != state.RetryAttempt || second.Lease.Epoch != 2 || second.Lease.AttemptID == first.Lease.AttemptID || second.Retries != 1 {
			t.Errorf("claimed %+v", second)
		}
		attempts := f.attempts(t, first.ID)
		if len(attempts) != 2 || attempts[0].Outcome != "retry" || attempts[1].Outcome != "" ||
			attempts[0].Type != "initial" || attempts[1].Type != "retry" {
			t.Errorf("attempts %+v", attempts)
		}
		if got := f.describe(t, first.ID); got.Attempts != 2 || f.stored(t, first.ID).AttemptCount != 2 {
			t.Errorf("%d attempts, want 2", got.Attempts)
		}
	})
}

// The policy of the next attempt is given to exactly the attempt it names.
func TestClaim_hands_on_the_next_attempts_policy(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		next := `{"namespace":"default","next_attempt_policy":{"attempt_index":1,"policy":{"tier":2}}}`
		policies := func(x id.ExecutionID) []string {
			return texts(t, f.pool, `SELECT coalesce(policy::text, 'NULL') FROM ff_attempt
			WHERE partition_key = $1 AND execution_id = $2 ORDER BY attempt_index`, x.Partition(), x.UUID())
		}
		named := f.seed(t, columns{"lifecycle_phase": "runnable", "attempt_state": "pending_retry_attempt", "attempt_index": 1, "raw_fields": next})
		f.seedAttempt(t, named, 0, columns{"outcome": "retry", "terminal_at_ms": 1})
		f.claim(t)
		if got, want := policies(named), []string{"NULL", `{"tier": 2}`}; !slices.Equal(got, want) {
			t.Errorf("policies %q, want %q", got, want)
		}
		other := f.seed(t, columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt", "raw_fields": next})
		f.claim(t)
		if got, want := policies(other), []string{"NULL"}; !slices.Equal(got, want) {
			t.Errorf("policies %q, want %q", got, want)
		}
		// By the slow path, too.
		behind := f.seed(t, columns{"lifecycle_phase": "runnable", "attempt_state": "pending_retry_attempt", "attempt_index": 0, "raw_fields": next})
		f.seedAttempt(t, behind, 0, columns{"outcome": "failure", "terminal_at_ms": 1})
		f.claim(t)
		if got, want := policies(behind), []string{"NULL", `{"tier": 2}`}; !slices.Equal(got, want) {
			t.Errorf("policies %q, want %q", got, want)
		}
	})
}

func TestClaim_refuses_bad_input(t *testing.T) {
	f := newFixture(t)
	f.create(t)
	for name, c := range map[string]struct {
		n      int
		change func(*engine.ClaimSpec)
		field  string
	}{
		"nothing":             {0, nil, "limit"},
		"fewer than nothing":  {-1, nil, "limit"},
		"too many":            {engine.MaxBatch + 1, nil, "limit"},
		"no lane":             {1, func(s *engine.ClaimSpec) { s.Lane = "" }, "lane"},
		"lane with NUL":       {1, func(s *engine.ClaimSpec) { s.Lane = "a\x00" }, "lane"},
		"no worker":           {1, func(s *engine.ClaimSpec) { s.Worker = "" }, "worker"},
		"no instance":         {1, func(s *engine.ClaimSpec) { s.Instance = "" }, "worker instance"},
		"instance not UTF-8":  {1, func(s *engine.ClaimSpec) { s.Instance = "\xff" }, "worker instance"},
		"lease of nothing":    {1, func(s *engine.ClaimSpec) { s.LeaseTTL = 0 }, "lease TTL"},
		"lease below 1 ms":    {1, func(s *engine.ClaimSpec) { s.LeaseTTL = time.Millisecond - 1 }, "lease TTL"},
		"negative lease":      {1, func(s *engine.ClaimSpec) { s.LeaseTTL = -time.Second }, "lease TTL"},
		"lease too long":      {1, func(s *engine.ClaimSpec) { s.LeaseTTL = engine.MaxLeaseTTL + 1 }, "lease TTL"},
		"capability with a ,": {1, func(s *engine.ClaimSpec) { s.Capabilities = id.Capabilities{"a,b"} }, "capabilities"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := f.worker()
			if c.change != nil {
				c.change(&spec)
			}
			_, err := f.Claim(t.Context(), spec, c.n)
			wantInputError(t, err, c.field)
			if c.change != nil {
				_, err := f.NewClaimer(spec)
				wantInputError(t, err, c.field)
			}
		})
	}
	if got := len(f.claimN(t, 1)); got != 1 {
		t.Errorf("claimed %d, want 1: refusals take nothing", got)
	}
}

func TestClaim_with_the_longest_lease(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.create(t)
		spec := f.worker()
		spec.LeaseTTL = engine.MaxLeaseTTL
		claimed, err := f.Claim(t.Context(), spec, 1)
		if err != nil || len(claimed) != 1 || !claimed[0].ExpiresAt.Equal(start.Add(engine.MaxLeaseTTL)) {
			t.Errorf("claimed %+v, %v", claimed, err)
		}
	})
}

// wantInputError fails the test unless err is a refusal of the named field.
func wantInputError(t *testing.T, err error, field string) {
	t.Helper()
	refusal, ok := errors.AsType[*engine.InputError](err)
	if !ok || !errors.Is(err, engine.ErrInvalidInput) || refusal.Field != field {
		t.Errorf("got %v, want invalid input: %s", err, field)
	}
}
