package operators

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// startWithDeadline starts an execution that retries at once.
func startWithDeadline(t *testing.T, f *fixture.Fixture, in time.Duration) engine.Claimed {
	t.Helper()
	return f.Start(t, fixture.Retrying(policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(0)}),
		func(spec *engine.ExecutionSpec) { spec.Deadline = f.Time().Add(in) })
}

// The reference keeps the count of retries, the outcome and the failure: a replayed run has no retry left, and shows
// the failure of the run before.
func TestReplayStartsAfresh_E49(t *testing.T) {
	f := fixture.NewCloned(t)
	c := startWithDeadline(t, f, time.Hour)
	f.Fail(t, c.Lease, engine.Failure{Message: "no luck"})
	c = f.ClaimOne(t)
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	c = f.ClaimOne(t)
	f.Fail(t, c.Lease, engine.Failure{Message: "again", Category: "upstream"})
	f.SeedGrant(t, c.ID)
	f.SetExecution(t, c.ID, `raw_fields = raw_fields || '{"terminal_outcome":"failed","retry_count":"1","delay_until":"7",
		"pending_retry_reason":"x","pending_replay_attempt_reason":"y","kept":"z"}'`)
	before, attempts := storedRows(t, f, c.ID)
	if before["lease_reclaim_count"] != 1.0 || before["ffx_retry_count"] != 1.0 || before["ffx_execution_deadline_ms"].(float64) > 0 {
		t.Fatalf("the run before left %v", before)
	}
	f.Advance(time.Second)

	if got, want := f.Replay(t, c.ID), (operator.Replayed{State: state.PublicWaiting, Replays: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	after, left := storedRows(t, f, c.ID)
	raw := before["raw_fields"].(map[string]any)
	for _, key := range []string{
		"failure_reason", "failure_category", "failure_class", "last_failure_message", "terminal_outcome", "retry_count",
		"delay_until", "pending_retry_reason", "pending_replay_attempt_reason",
	} {
		if _, had := raw[key]; !had {
			t.Errorf("the run before left no %s", key)
		}
		delete(raw, key)
	}
	raw["replay_count"], raw["ffx_replay_count"], raw["last_mutation_at"] = 1.0, 1.0, fmt.Sprint(nowMs(f))
	deadline := fixture.Start.Add(time.Hour).UnixMilli()
	wantChanged(t, "execution", before, after, fixture.Columns{
		"lifecycle_phase": "runnable", "eligibility_state": "eligible_now", "public_state": "waiting",
		"attempt_state": "pending_replay_attempt", "blocking_reason": "waiting_for_worker", "raw_fields": raw,
		"terminal_at_ms": nil, "lease_reclaim_count": 0, "ffx_retry_count": 0, "ffx_lease_epoch": 5,
		"ffx_execution_deadline_ms": deadline, "ffx_last_mutation_at_ms": nowMs(f),
	})
	wantChanged(t, "the attempt before", attempts[0], left[0], nil)
	wantChanged(t, "attempt", attempts[1], left[1], fixture.Columns{
		"outcome": nil, "terminal_at_ms": nil, "worker_id": nil, "worker_instance_id": nil, "started_at_ms": nil, "lease_epoch": 5,
		"ffx_resumed_at_ms": nil,
	})
	if f.CountGrants(t, c.ID) != 0 {
		t.Error("a grant is left")
	}
	if got, want := operatorEvents(t, f, c.ID), []string{`replayed {"branch": "normal"}`}; !slices.Equal(got, want) {
		t.Errorf("operator events %q, want %q", got, want)
	}
	if got := f.Describe(t, c.ID); got.FailureReason != "" || got.State.Outcome != state.OutcomeNone || !got.EndedAt.IsZero() || got.Retries != 0 {
		t.Errorf("described as %+v", got)
	}

	next := f.ClaimOne(t)
	if next.ID != c.ID || next.Lease.Attempt != 1 || next.Lease.Epoch != 6 || next.Type != state.ReplayAttempt || next.Resumed || next.Retries != 0 {
		t.Errorf("claimed %+v", next)
	}
	if got := f.Stored(t, c.ID); got.AttemptCount != 2 || *got.StartedAtMs != fixture.Start.UnixMilli() {
		t.Errorf("stored %+v", got)
	}
	if got := f.Fail(t, next.Lease, engine.Failure{}); !got.Retry {
		t.Errorf("failed %+v, want its retries back", got)
	}
}

// How executions end.
var endings = map[string]func(t *testing.T, f *fixture.Fixture) id.ExecutionID{
	"completed": func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		c := startWithDeadline(t, f, time.Minute)
		if err := f.CompleteExecution(t.Context(), c.Lease, []byte("out")); err != nil {
			t.Fatal(err)
		}
		return c.ID
	},
	"failed": func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		c := f.Start(t)
		f.Fail(t, c.Lease, fixture.ForGood)
		return c.ID
	},
	"cancelled": func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		c := f.Start(t)
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: c.ID, Reason: "no more"}); err != nil {
			t.Fatal(err)
		}
		return c.ID
	},
	"cancelled before it ran": func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		x := f.Create(t)
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x, Reason: "no more"}); err != nil {
			t.Fatal(err)
		}
		return x
	},
	"expired": func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = f.Time().Add(time.Second) })
		f.Advance(time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
		return x
	},
	// By the reference: a cancel of its handle writes phase terminal and takes the attempt's outcome away, one of an operator
	// leaves the lease.
	"cancelled by the reference's worker": func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		x := f.Seed(t, fixture.Columns{
			"lifecycle_phase": "terminal", "eligibility_state": "not_applicable", "public_state": "cancelled",
			"attempt_state": "attempt_terminal", "terminal_at_ms": fixture.Start.UnixMilli(), "cancellation_reason": "no more", "cancelled_by": "worker",
		})
		f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 1})
		return x
	},
	"cancelled by the reference's operator": func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
		x := f.Seed(t, fixture.Columns{
			"lifecycle_phase": "cancelled", "ownership_state": "leased", "eligibility_state": "cancelled",
			"public_state": "cancelled", "attempt_state": "cancelled", "terminal_at_ms": fixture.Start.UnixMilli(), "attempt_index": 1,
			"cancellation_reason": "no more",
		})
		f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 4, "lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
		return x
	},
}

// The reference replays only the phase terminal: executions cancelled by an operator or a flow stay cancelled.
func TestReplayAcceptsEveryEnd_E28(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := end(t, f)
			was := f.Stored(t, x)
			attempts := f.StoredAttempts(t, x)
			f.Advance(time.Hour)
			if got := f.Replay(t, x); got.State != state.PublicWaiting {
				t.Errorf("got %+v", got)
			}
			stored := f.Stored(t, x)
			if stored.State != fixture.StateReplayed || stored.TerminalAtMs != nil || stored.Result != nil || stored.CancelReason != nil ||
				stored.DeadlineAtMs != nil || *stored.LastDeadline != 0 || stored.DelayUntilMs != nil || stored.Raw(t, "replay_count") != "1" {
				t.Errorf("stored %+v", stored)
			}
			if snapshot := f.Describe(t, x); snapshot.State.Outcome != state.OutcomeNone || !snapshot.State.Consistent() ||
				snapshot.CancelledBy != "" || snapshot.FailureReason != "" {
				t.Errorf("described as %+v", snapshot)
			}
			if _, err := f.ExecutionResult(t.Context(), x); !errors.Is(err, fferr.ErrNotEnded) {
				t.Errorf("its result: %v", err)
			}
			if n, err := upkeep.Of(f.Engine).ExpireDeadlines(t.Context(), 10); err != nil || n != 0 {
				t.Errorf("%d expired, %v", n, err)
			}
			next := f.ClaimOne(t)
			epoch := was.LeaseEpoch
			for _, a := range attempts {
				epoch = max(epoch, a.LeaseEpoch)
			}
			if next.ID != x || next.Lease.Attempt != 0 || next.Lease.Epoch != epoch+2 || next.Type != state.ReplayAttempt {
				t.Errorf("claimed %+v after epoch %d", next, epoch)
			}
			if err := f.CompleteExecution(t.Context(), next.Lease, []byte("new")); err != nil {
				t.Error(err)
			}
			if got, err := f.ExecutionResult(t.Context(), x); err != nil || string(got) != "new" {
				t.Errorf("its result: %s, %v", got, err)
			}
		})
	}
}

func TestReplayRefusesAnUnfinishedExecution(t *testing.T) {
	f := fixture.New(t)
	cases := notReady(t, f)
	delete(cases, "ended")
	cases["waiting"] = f.Create(t)
	for name, x := range cases {
		before := f.Dump(t, x)
		_, err := operator.Replay(t.Context(), f.Engine, x, operator.ReplayCompleted)
		if state, ok := errors.AsType[*fferr.StateError](err); !ok || !errors.Is(err, fferr.ErrNotEnded) || state.Execution != x {
			t.Errorf("%s: got %v, want that it has not ended", name, err)
		}
		f.WantUnchanged(t, x, before)
	}
	c := startAlone(t, f)
	f.Fail(t, c, fixture.ForGood)
	f.Replay(t, c.Execution)
	if _, err := operator.Replay(t.Context(), f.Engine, c.Execution, operator.ReplayCompleted); !errors.Is(err, fferr.ErrNotEnded) {
		t.Errorf("a repetition: got %v", err)
	}
}

// Ten replays where nothing else is said. The reference knows no limit.
func TestReplayIsLimitedByThePolicy_E28(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		want         int
	}{
		{"no policy", "NULL", 10},
		{"no limit", `'{}'`, 10},
		{"two", `'{"max_replay_count":2}'`, 2},
		{"none", `'{"max_replay_count":0}'`, 0},
		{"unreadable", `'{"max_replay_count":"many"}'`, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			l := f.Start(t).Lease
			f.Fail(t, l, fixture.ForGood)
			f.SetExecution(t, l.Execution, "policy = "+c.policy)
			for n := range c.want {
				if got := f.Replay(t, l.Execution); got.Replays != n+1 {
					t.Errorf("got %+v, want the %dth", got, n+1)
				}
				if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
					t.Fatal(err)
				}
			}
			before := f.Dump(t, l.Execution)
			if _, err := operator.Replay(t.Context(), f.Engine, l.Execution, operator.ReplayCompleted); !errors.Is(err, fferr.ErrMaxReplays) {
				t.Errorf("got %v, want that it was replayed too often", err)
			}
			f.WantUnchanged(t, l.Execution, before)
		})
	}
}

// The policy of a spec limits replays too. L19
func TestReplayIsLimitedByThePolicyOfTheSpec(t *testing.T) {
	for given, want := range map[int]int{0: policy.DefaultMaxReplays, 1: 1, 12: 12, policy.NoReplays: 0} {
		f := fixture.Another(t)
		l := f.Start(t, func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{MaxReplays: given} }).Lease
		f.Fail(t, l, fixture.ForGood)
		for range want {
			f.Replay(t, l.Execution)
			f.Fail(t, f.ClaimOne(t).Lease, fixture.ForGood)
		}
		if _, err := operator.Replay(t.Context(), f.Engine, l.Execution); !errors.Is(err, fferr.ErrMaxReplays) {
			t.Errorf("MaxReplays %d: replay %d got %v", given, want+1, err)
		}
	}
}

// A count that is no number makes every replay of the reference fail.
func TestReplayToleratesABadReplayCount_E52(t *testing.T) {
	for text, want := range map[string]int{`"3"`: 4, `3`: 4, `"many"`: 1, `""`: 1, `null`: 1, `-4`: 1, `{}`: 1, `"10"`: 0} {
		f := fixture.Another(t)
		l := f.Start(t).Lease
		f.Fail(t, l, fixture.ForGood)
		f.SetExecution(t, l.Execution, `raw_fields = raw_fields || '{"replay_count":`+text+`,"retry_count":"soon"}'`)
		got, err := operator.Replay(t.Context(), f.Engine, l.Execution, operator.ReplayCompleted)
		if want == 0 {
			if !errors.Is(err, fferr.ErrMaxReplays) {
				t.Errorf("%s: got %v", text, err)
			}
			continue
		}
		if err != nil || got.Replays != want || f.Stored(t, l.Execution).Raw(t, "replay_count") != fmt.Sprint(want) {
			t.Errorf("%s: got %+v, %v, want %d", text, got, err, want)
		}
	}
}

// The attempt before is history: the one that was scheduled after it begins, under an epoch above all assigned ones,
// by any way of claiming, and after any epoch that another program gave the one before.
func TestReplayOfACancelledRetry(t *testing.T) {
	claim := func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) engine.Claimed { return f.ClaimOne(t) }
	ways := map[string]func(*testing.T, *fixture.Fixture, id.ExecutionID) engine.Claimed{
		"by a claim": claim,
		"after a position": func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) engine.Claimed {
			f.After = f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = fixture.FullScanGuard{} }), engine.Config{})
			return f.ClaimOne(t)
		},
		"by a claim that does not serve another": func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) engine.Claimed {
			other := f.Create(t)
			f.SeedAttempt(t, other, 0, fixture.Columns{"outcome": "failed", "terminal_at_ms": 1})
			claimed := f.ClaimN(t, 2)
			at := slices.IndexFunc(claimed, func(c engine.Claimed) bool { return c.ID == x })
			if len(claimed) != 2 || at < 0 {
				t.Fatalf("claimed %+v", claimed)
			}
			return claimed[at]
		},
		"by a grant": func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) engine.Claimed {
			claimed, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, "", fixture.LeaseTTL)
			if err != nil {
				t.Fatal(err)
			}
			return claimed
		},
		"of an epoch of another program": func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) engine.Claimed {
			return claim(t, f, x)
		},
	}
	for name, way := range ways {
		for _, timedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, timed out %t", name, timedOut), func(t *testing.T) {
				f := fixture.NewCloned(t)
				c := f.Start(t, fixture.TimingOutAfter(time.Second, &policy.Retry{Backoff: policy.Fixed(time.Hour)}))
				if timedOut {
					f.Advance(time.Second)
					fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
				} else {
					f.Fail(t, c.Lease, engine.Failure{Message: "no luck"})
				}
				if name == "of an epoch of another program" {
					f.SetAttempt(t, c.ID, 0, "lease_epoch = 40")
				}
				if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: c.ID}); err != nil {
					t.Fatal(err)
				}
				_, before := storedRows(t, f, c.ID)
				f.Replay(t, c.ID)
				_, after := storedRows(t, f, c.ID)
				if len(after) != 1 {
					t.Fatalf("attempts %v", after)
				}
				wantChanged(t, "the attempt before", before[0], after[0], nil)
				next := way(t, f, c.ID)
				if next.Lease.Attempt != 1 || next.Type != state.ReplayAttempt || next.Resumed || float64(next.Lease.Epoch) <= before[0]["lease_epoch"].(float64) {
					t.Errorf("claimed %+v", next)
				}
				if got := f.Stored(t, c.ID); got.AttemptCount != 2 || got.AttemptIndex != 1 || got.LeaseEpoch != next.Lease.Epoch {
					t.Errorf("stored %+v", got)
				}
				fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), fferr.ErrStaleLease)
				if err := f.CompleteExecution(t.Context(), next.Lease, []byte("new")); err != nil {
					t.Error(err)
				}
				if got := f.StoredAttempts(t, c.ID); len(got) != 2 || got[0].Outcome != map[bool]string{false: "retry", true: "interrupted"}[timedOut] || got[1].Outcome != "success" {
					t.Errorf("attempts %+v", got)
				}
			})
		}
	}
}

// A pointer that the reference left beside the attempts comes back to the last one.
func TestReplayRepairsThePointer(t *testing.T) {
	f := fixture.New(t)
	x := f.Seed(t, fixture.Columns{
		"lifecycle_phase": "terminal", "eligibility_state": "not_applicable", "public_state": "running",
		"attempt_state": "attempt_terminal", "attempt_index": 2, "terminal_at_ms": fixture.Start.UnixMilli(), "result": []byte("out"),
	})
	f.SeedAttempt(t, x, 1, fixture.Columns{"lease_epoch": 3, "outcome": "success", "terminal_at_ms": fixture.Start.UnixMilli()})
	f.Replay(t, x)
	if got := f.Stored(t, x); got.AttemptIndex != 1 || got.LeaseEpoch != 4 || got.State != fixture.StateReplayed {
		t.Errorf("stored %+v", got)
	}
	if next := f.ClaimOne(t); next.Lease.Attempt != 1 || next.Lease.Epoch != 5 {
		t.Errorf("claimed %+v", next)
	}
}

// An execution that names a budget goes to its gate, as if it had never been admitted.
func TestReplayGoesBeforeItsGate(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	f.Attach(t, l.Execution, []id.BudgetID{id.NewBudgetID()}, nil)
	f.Fail(t, l, fixture.ForGood)
	if got := f.Replay(t, l.Execution); got.State != state.PublicRateLimited {
		t.Errorf("got %+v", got)
	}
	if got := f.Stored(t, l.Execution); got.State != stateReplayedGated || got.GateID == nil || got.Admitted != nil {
		t.Errorf("stored %+v", got)
	}
	f.WantNothingClaimable(t)
}

// A suspension that was left behind would wake it, or end it, in the middle of the new run.
func TestReplayDiscardsSuspensions(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	f.Fail(t, l, fixture.ForGood)
	f.Insert(t, "ff_suspension_current", fixture.Columns{
		"partition_key": l.Execution.Partition(), "execution_id": l.Execution.UUID(), "suspension_id": id.NewLeaseID().String(),
		"suspended_at_ms": fixture.Start.UnixMilli(), "reason_code": "signal", "condition": "{}",
	}, fixture.Columns{})
	f.Replay(t, l.Execution)
	if got := fixture.Texts(t, f.Pool, "SELECT execution_id::text FROM ff_suspension_current WHERE partition_key = $1 AND execution_id = $2",
		l.Execution.Partition(), l.Execution.UUID()); len(got) != 0 {
		t.Errorf("%d suspensions are left", len(got))
	}
}

// A completed execution is not run again by mistake: a payment would be made twice.
func TestReplayOfACompletedExecutionWantsItsOption(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	if err := f.CompleteExecution(t.Context(), c.Lease, []byte("paid")); err != nil {
		t.Fatal(err)
	}
	before := f.Dump(t, c.ID)
	_, err := operator.Replay(t.Context(), f.Engine, c.ID)
	if stateErr, ok := errors.AsType[*fferr.StateError](err); !ok || !errors.Is(err, fferr.ErrCompleted) || stateErr.Execution != c.ID {
		t.Errorf("got %v, want %v", err, fferr.ErrCompleted)
	}
	if _, err := operator.Replay(t.Context(), f.Engine, c.ID, nil); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a nil option: %v", err)
	}
	f.WantUnchanged(t, c.ID, before)
	if _, err := operator.Replay(t.Context(), f.Engine, c.ID, operator.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, c.ID, fixture.StateReplayed)
}
