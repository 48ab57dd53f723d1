package claims

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestClaimLeasesANewExecution(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		x := f.Create(t, func(spec *engine.ExecutionSpec) {
			spec.Payload, spec.Tags, spec.Priority = []byte("in"), map[string]string{"cairn.instance_id": "i1"}, 3
			spec.Policy = &policy.Execution{AttemptTimeout: time.Minute}
		})
		f.Advance(time.Second)
		now := f.Time()
		c := f.ClaimOne(t)

		want := engine.Claimed{
			ID: x,
			Lease: engine.Lease{
				Fence: id.Fence{Execution: x, Epoch: 1}, ID: c.Lease.ID, AttemptID: c.Lease.AttemptID, Lane: f.Lane,
				Instance: id.WorkerInstanceID(f.Name), TTL: fixture.LeaseTTL,
			},
			ExpiresAt: now.Add(fixture.LeaseTTL), Kind: "test", Payload: []byte("in"), Tags: map[string]string{"cairn.instance_id": "i1"},
			Priority: 3, CreatedAt: fixture.Start, ReadyAt: fixture.Start, Type: state.InitialAttempt, TimeoutAt: now.Add(time.Minute),
		}
		if !reflect.DeepEqual(c, want) {
			t.Errorf("claimed\n%+v, want\n%+v", c, want)
		}
		stored := f.Stored(t, x)
		if stored.State != fixture.StateRunning || stored.AttemptIndex != 0 || stored.AttemptCount != 1 || stored.LeaseEpoch != 1 ||
			*stored.StartedAtMs != now.UnixMilli() || *stored.LastMutation != now.UnixMilli() {
			t.Errorf("stored %+v", stored)
		}
		attempts := f.StoredAttempts(t, x)
		wantAttempts := []fixture.StoredAttempt{{
			WorkerID: &f.Name, WorkerInstanceID: &f.Name, LeaseEpoch: 1, LeaseExpiresAtMs: new(now.Add(fixture.LeaseTTL).UnixMilli()),
			StartedAtMs: new(now.UnixMilli()), Type: "initial", AttemptID: &c.Lease.AttemptID, LeaseID: &c.Lease.ID,
			TimeoutAtMs: new(now.Add(time.Minute).UnixMilli()), RawFields: "{}",
		}}
		if !reflect.DeepEqual(attempts, wantAttempts) {
			t.Errorf("attempts\n%+v, want\n%+v", attempts, wantAttempts)
		}
		if entries := fixture.Texts(t, f.Pool, "SELECT q::text FROM ffx_ready AS q WHERE execution_id = $1", x.UUID()); len(entries) > 0 {
			t.Errorf("still queued: %s", entries)
		}
		f.WantEvents(t, x, "lease acquired")
		event := fixture.One[struct {
			LeaseID, Namespace, InstanceTag, FfxWorkerInstanceID string
			OccurredAtMs                                         int64
		}](t, f.Pool, `SELECT lease_id, namespace, instance_tag, ffx_worker_instance_id, occurred_at_ms
		FROM ff_lease_event WHERE execution_id = ($1::uuid)::text`, x.UUID())
		if event.LeaseID != c.Lease.ID.String() || event.Namespace != "default" || event.InstanceTag != "i1" ||
			event.FfxWorkerInstanceID != f.Name || event.OccurredAtMs != now.UnixMilli() {
			t.Errorf("event %+v", event)
		}
		f.WantNothingClaimable(t)
	})
}

func TestClaimTakesAtMostN(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		for range 5 {
			f.Create(t)
		}
		for _, want := range []int{2, 2, 1, 0} {
			if got := len(f.ClaimN(t, 2)); got != want {
				t.Errorf("claimed %d, want %d", got, want)
			}
		}
	})
}

// The reference goes through the partitions one by one, each in a transaction of its own, so that priority
// counts only within a partition.
func TestClaimOrdersAcrossPartitions_E30(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		make := func(partition int16, priority int, age time.Duration) id.ExecutionID {
			return f.Create(t, func(spec *engine.ExecutionSpec) {
				spec.ID = id.ExecutionIDFromRow(partition, id.NewExecutionUUID())
				spec.Priority, spec.CreatedAt = priority, fixture.Start.Add(-age)
			})
		}
		young := make(0, 0, time.Second)
		old := make(255, 0, time.Minute)
		low := make(1, 1, time.Second)
		same1 := make(200, 5, time.Second)
		same2 := make(100, 5, time.Second) // a later id on an earlier partition
		high := make(254, 9, 0)
		if got, want := fixture.ExecutionsOf(f.ClaimN(t, 10)), []id.ExecutionID{high, same1, same2, low, old, young}; !slices.Equal(got, want) {
			t.Errorf("claimed\n%v, want\n%v", got, want)
		}
	})
}

// A row that a worker cannot do hides nothing behind it: in the reference it ends the scan.
func TestClaimSkipsMissingCapabilities_E31(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		needs := func(tokens ...string) id.ExecutionID {
			return f.Create(t, func(spec *engine.ExecutionSpec) {
				spec.Policy = &policy.Execution{Capabilities: tokens}
			})
		}
		for range 20 {
			needs("gpu", "tpu")
		}
		needs("GPU")
		anywhere, gpu := needs(), needs("gpu")

		spec := f.Worker()
		spec.Capabilities = id.NewCapabilities("gpu", "ssd")
		claimed, err := f.Claim(t.Context(), spec, 100)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fixture.ExecutionsOf(claimed), []id.ExecutionID{anywhere, gpu}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		f.WantNothingClaimable(t)
	})
}

func TestClaimStaysInItsLane(t *testing.T) {
	f, other := fixture.New(t), fixture.Another(t)
	f.Create(t)
	other.WantNothingClaimable(t)
	if got := len(f.ClaimN(t, 10)); got != 1 {
		t.Errorf("claimed %d, want 1", got)
	}
}

func TestClaimSkipsUnclaimableExecutions(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		delayed := f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Millisecond) })
		f.Seed(t, nil) // the reference's; adopt's work
		f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "eligibility_state": "pending_claim"})
		f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "eligibility_state": "blocked_by_operator"})
		f.Seed(t, fixture.Columns{"lifecycle_phase": "suspended", "eligibility_state": "not_applicable"})
		done := f.Start(t)
		if err := f.CompleteExecution(t.Context(), done.Lease, nil); err != nil {
			t.Fatal(err)
		}
		f.WantNothingClaimable(t)
		f.Advance(time.Hour)
		f.WantNothingClaimable(t) // a delay ends by promotion
		f.WantState(t, delayed, fixture.StateDelayed)
	})
}

// An execution past its deadline may be handed out until the deadline's job ends it.
func TestClaimIgnoresDeadlines(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) })
		f.Advance(time.Minute)
		if c := f.ClaimOne(t); c.ID != x {
			t.Errorf("claimed %s, want %s", c.ID, x)
		}
	})
}

func TestClaimSkipsLockedRows(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		held, free := f.Create(t), f.Create(t)
		tx := f.BeginTx(t)
		fixture.LockExecution(t, tx, held)
		if got, want := fixture.ExecutionsOf(f.ClaimN(t, 10)), []id.ExecutionID{free}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		fixture.Commit(t, tx)
		if got, want := fixture.ExecutionsOf(f.ClaimN(t, 10)), []id.ExecutionID{held}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
	})
}

func TestClaimSharesBetweenTwoWorkers(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		first, second := f.Create(t), f.Create(t)
		tx := f.BeginTx(t)
		one, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fixture.ExecutionsOf(one), []id.ExecutionID{first}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		if got, want := fixture.ExecutionsOf(f.ClaimN(t, 10)), []id.ExecutionID{second}; !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		fixture.Commit(t, tx)
		f.WantNothingClaimable(t)
	})
}

func TestClaimContinuesAnInterruptedAttempt(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		first := f.Start(t, fixture.TimingOutAfter(time.Hour, nil))
		if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{first.Lease}); err != nil || outcomes[0] != nil {
			t.Fatal(err, outcomes)
		}
		f.Advance(time.Minute)
		second := f.ClaimOne(t)
		if !second.Resumed || second.Lease.Attempt != 0 || second.Lease.Epoch != 2 || second.Lease.AttemptID != first.Lease.AttemptID || second.Lease.ID == first.Lease.ID ||
			second.Type != state.InitialAttempt {
			t.Errorf("claimed %+v after %+v", second, first)
		}
		stored := f.Stored(t, second.ID)
		if stored.State != fixture.StateRunning || stored.AttemptCount != 1 || *stored.StartedAtMs != fixture.Start.UnixMilli() || stored.LeaseEpoch != 2 {
			t.Errorf("stored %+v", stored)
		}
		attempt := f.StoredAttempts(t, second.ID)[0]
		if attempt.Outcome != "" || attempt.TerminalAtMs != nil || attempt.DelayUntilMs != nil || *attempt.LeaseID != second.Lease.ID ||
			*attempt.StartedAtMs != fixture.Start.UnixMilli() || *attempt.LeaseExpiresAtMs != f.Time().Add(fixture.LeaseTTL).UnixMilli() ||
			attempt.TimeoutAtMs == nil || *attempt.TimeoutAtMs != f.Time().Add(time.Hour).UnixMilli() {
			t.Errorf("attempt %+v", attempt)
		}
		f.WantEvents(t, second.ID, "lease acquired", "lease revoked backend", "lease acquired")
	})
}

// The columns of an earlier delay are put right by every claim: the reference leaves them.
func TestClaimRestoresTheDeadline(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		for name, c := range map[string]struct{ set, want string }{
			"deadline": {fmt.Sprintf("ffx_execution_deadline_ms = %d, deadline_at_ms = 5, ffx_delay_until_ms = 5", fixture.Start.UnixMilli()), fixture.Relative(new(fixture.Start.UnixMilli()))},
			"none":     {"ffx_execution_deadline_ms = 0, deadline_at_ms = 5, ffx_delay_until_ms = 5", "NULL"},
			"unknown":  {fmt.Sprintf("ffx_execution_deadline_ms = NULL, deadline_at_ms = %d, ffx_delay_until_ms = 5", fixture.Start.UnixMilli()), fixture.Relative(new(fixture.Start.UnixMilli()))},
		} {
			x := f.Create(t)
			f.SetExecution(t, x, c.set)
			f.ClaimOne(t)
			if got := f.Stored(t, x); fixture.Relative(got.DeadlineAtMs) != c.want || got.DelayUntilMs != nil {
				t.Errorf("%s: deadline_at_ms %s, wake-up %s; want %s and NULL", name, fixture.Relative(got.DeadlineAtMs), fixture.Relative(got.DelayUntilMs), c.want)
			}
		}
	})
}

func TestFirstStartIsRecordedByEveryClaim_E7_M9(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt"})
		first := f.ClaimOne(t)
		f.WantState(t, first.ID, fixture.StateRunning)
		if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{first.Lease}); err != nil || outcomes[0] != nil {
			t.Fatal(err, outcomes)
		}
		f.Advance(time.Minute)
		f.ClaimOne(t)
		if got := f.Stored(t, first.ID).StartedAtMs; fixture.Relative(got) != "start+0 ms" {
			t.Errorf("started at %s, want the first claim", fixture.Relative(got))
		}
	})
}

// The reference takes its index from the caller, and its count of attempts stays at 0, so that a second attempt
// overwrites the first.
func TestNextAttemptKeepsTheHistory_E6_M4(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		first := f.Start(t, fixture.Retrying(*policy.ImmediateRetries(0)))
		if failed, err := f.FailExecution(t.Context(), first.Lease, engine.Failure{Message: "first"}); err != nil || !failed.Retry {
			t.Fatal(failed, err)
		}
		second := f.ClaimOne(t)
		if second.Lease.Attempt != 1 || second.Type != state.RetryAttempt || second.Lease.Epoch != 2 || second.Lease.AttemptID == first.Lease.AttemptID || second.Retries != 1 {
			t.Errorf("claimed %+v", second)
		}
		attempts := f.StoredAttempts(t, first.ID)
		if len(attempts) != 2 || attempts[0].Outcome != "retry" || attempts[1].Outcome != "" ||
			attempts[0].Type != "initial" || attempts[1].Type != "retry" {
			t.Errorf("attempts %+v", attempts)
		}
		if got := f.Describe(t, first.ID); got.Attempts != 2 || f.Stored(t, first.ID).AttemptCount != 2 {
			t.Errorf("%d attempts, want 2", got.Attempts)
		}
	})
}

// The policy of the next attempt is given to exactly the attempt it names.
func TestClaimAppliesTheNextAttemptsPolicy(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		next := `{"namespace":"default","next_attempt_policy":{"attempt_index":1,"policy":{"tier":2}}}`
		policies := func(x id.ExecutionID) []string {
			return fixture.Texts(t, f.Pool, `SELECT coalesce(policy::text, 'NULL') FROM ff_attempt
			WHERE partition_key = $1 AND execution_id = $2 ORDER BY attempt_index`, x.Partition(), x.UUID())
		}
		named := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_retry_attempt", "attempt_index": 1, "raw_fields": next})
		f.SeedAttempt(t, named, 0, fixture.Columns{"outcome": "retry", "terminal_at_ms": 1})
		f.ClaimOne(t)
		if got, want := policies(named), []string{"NULL", `{"tier": 2}`}; !slices.Equal(got, want) {
			t.Errorf("policies %q, want %q", got, want)
		}
		other := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_first_attempt", "raw_fields": next})
		f.ClaimOne(t)
		if got, want := policies(other), []string{"NULL"}; !slices.Equal(got, want) {
			t.Errorf("policies %q, want %q", got, want)
		}
		// By the slow path, too.
		behind := f.Seed(t, fixture.Columns{"lifecycle_phase": "runnable", "attempt_state": "pending_retry_attempt", "attempt_index": 0, "raw_fields": next})
		f.SeedAttempt(t, behind, 0, fixture.Columns{"outcome": "failure", "terminal_at_ms": 1})
		f.ClaimOne(t)
		if got, want := policies(behind), []string{"NULL", `{"tier": 2}`}; !slices.Equal(got, want) {
			t.Errorf("policies %q, want %q", got, want)
		}
	})
}

func TestClaimRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	f.Create(t)
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
			spec := f.Worker()
			if c.change != nil {
				c.change(&spec)
			}
			_, err := f.Claim(t.Context(), spec, c.n)
			fixture.WantInputError(t, err, c.field)
			if c.change != nil {
				_, err := f.NewClaimer(spec)
				fixture.WantInputError(t, err, c.field)
			}
		})
	}
	if got := len(f.ClaimN(t, 1)); got != 1 {
		t.Errorf("claimed %d, want 1: refusals take nothing", got)
	}
}

func TestClaimWithTheLongestLease(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture.Fixture) {
		f.Create(t)
		spec := f.Worker()
		spec.LeaseTTL = engine.MaxLeaseTTL
		claimed, err := f.Claim(t.Context(), spec, 1)
		if err != nil || len(claimed) != 1 || !claimed[0].ExpiresAt.Equal(fixture.Start.Add(engine.MaxLeaseTTL)) {
			t.Errorf("claimed %+v, %v", claimed, err)
		}
	})
}
