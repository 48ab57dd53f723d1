package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The states of an execution that was blocked before its first attempt.

const stateByBudget = "runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget"

const stateByQuota = "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota"

const stateByRoute = "runnable unowned blocked_by_route waiting pending_first_attempt waiting_for_capable_worker"

const stateByLane = "runnable unowned blocked_by_lane_state waiting pending_first_attempt paused_by_policy"

var stateBlocked = map[state.BlockingReason]string{
	state.WaitingForBudget: stateByBudget, state.WaitingForQuota: stateByQuota, state.WaitingForCapableWorker: stateByRoute,
	state.PausedByPolicy: stateByLane, state.PausedByOperator: fixture.StateByOperator,
}

type admission struct {
	Admitted bool
	Gate     string
	Grants   int
}

func admissionOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) admission {
	t.Helper()
	return fixture.One[admission](t, f.Pool, `SELECT coalesce(ffx_admitted, false) AS admitted, coalesce(ffx_gate_id::text, '') AS gate,
		(SELECT count(*)::integer FROM ff_claim_grant AS g WHERE g.partition_key = e.partition_key AND g.execution_id = e.execution_id) AS grants
		FROM ff_exec_core AS e WHERE partition_key = $1 AND execution_id = $2`, x.Partition(), x.UUID())
}

// The reference cannot block on Postgres, and labels executions blocked by their route as limited by a rate.
func TestOperatorBlocksAndUnblocks_E43(t *testing.T) {
	for _, reason := range fixture.BlockReasons {
		t.Run(string(reason), func(t *testing.T) {
			f := fixture.New(t)
			x, other := f.Create(t), f.Create(t)
			f.Advance(time.Second)
			f.Block(t, x, reason, "because")
			f.WantState(t, x, stateBlocked[reason])
			stored := f.Stored(t, x)
			if stored.Raw(t, "blocking_detail") != "because" || stored.Raw(t, "last_mutation_at") != fmt.Sprint(f.Time().UnixMilli()) ||
				*stored.LastMutation != f.Time().UnixMilli() {
				t.Errorf("stored %+v", stored)
			}
			snapshot, err := f.DescribeExecution(t.Context(), x)
			if err != nil || snapshot.BlockingDetail != "because" || !snapshot.State.Consistent() {
				t.Errorf("described as %+v, %v", snapshot, err)
			}
			f.WantEvents(t, x)
			if claimed, err := f.Claim(t.Context(), f.Worker(), 10); len(claimed) != 1 || claimed[0].ID != other || err != nil {
				t.Errorf("claimed %v, %v; want %v", fixture.ExecutionsOf(claimed), err, other)
			}
			before := f.Dump(t, x)
			f.Advance(time.Second)
			f.Block(t, x, reason, "another") // is blocked for that already
			f.WantUnchanged(t, x, before)
			for _, wrong := range append(slices.Clone(fixture.BlockReasons), state.WaitingForChildren) {
				if wrong == reason {
					continue
				}
				err := operator.Unblock(t.Context(), f.Engine, x, wrong)
				if refusal, ok := errors.AsType[*fferr.StateError](err); !ok || !errors.Is(err, fferr.ErrNotEligible) || refusal.Execution != x {
					t.Errorf("unblocked as %s: %v", wrong, err)
				}
				if blocking, err := operator.Block(t.Context(), f.Engine, x, wrong, ""); wrong != state.WaitingForChildren &&
					(blocking.Rejected != operator.RejectedNotEligible || err != nil) {
					t.Errorf("blocked for %s too: %+v, %v", wrong, blocking, err)
				}
			}
			f.WantUnchanged(t, x, before)
			f.Unblock(t, x, reason)
			f.WantState(t, x, fixture.StateReady)
			if stored := f.Stored(t, x); stored.Raw(t, "blocking_detail") != "" || *stored.LastMutation != f.Time().UnixMilli() {
				t.Errorf("stored %+v", stored)
			}
			if got := f.ClaimOne(t); got.ID != x {
				t.Errorf("claimed %v, want %v", got.ID, x)
			}
		})
	}
}

// Executions that run, have ended or wait for something else cannot be blocked; the call reports it.
func TestBlockRefusesOtherPhases_E43(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, f *fixture.Fixture) id.ExecutionID
		want    operator.Rejection
	}{
		{"running", func(t *testing.T, f *fixture.Fixture) id.ExecutionID { return f.Start(t).ID }, operator.RejectedNotEligible},
		{"delayed", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			return f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.Time().Add(time.Hour) })
		}, operator.RejectedNotEligible},
		{"granted", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := f.Create(t)
			f.SetExecution(t, x, "eligibility_state = 'pending_claim'")
			return x
		}, operator.RejectedNotEligible},
		{"owned", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := f.Create(t)
			f.SetExecution(t, x, "ownership_state = 'leased'")
			return x
		}, operator.RejectedNotEligible},
		{"suspended", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := f.Create(t)
			f.SetExecution(t, x, "lifecycle_phase = 'suspended', eligibility_state = 'not_applicable', public_state = 'suspended'")
			return x
		}, operator.RejectedNotEligible},
		{"completed", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			c := f.Start(t)
			if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
				t.Fatal(err)
			}
			return c.ID
		}, operator.RejectedEnded},
		{"cancelled", func(t *testing.T, f *fixture.Fixture) id.ExecutionID {
			x := f.Create(t)
			f.SetExecution(t, x, fixture.ForeignCancel)
			return x
		}, operator.RejectedEnded},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			x := c.arrange(t, f)
			before := f.Dump(t, x)
			for _, e := range []*engine.Engine{f.Engine, f.WithTx(f.BeginTx(t))} {
				if blocking, err := operator.Block(t.Context(), e, x, state.PausedByOperator, ""); blocking.Rejected != c.want || err != nil {
					t.Errorf("rejected %q, %v; want %q", blocking.Rejected, err, c.want)
				}
				if err := operator.Unblock(t.Context(), e, x, ""); !errors.Is(err, fferr.ErrNotEligible) {
					t.Errorf("unblocked: %v", err)
				}
			}
			f.WantUnchanged(t, x, before)
		})
	}
}

// Executions of the reference, which stores other words, and executions that go on with another attempt.
func TestBlockReadsEverySpellingOfReady_E43(t *testing.T) {
	for name, assignments := range map[string]string{
		"created by the reference": "lifecycle_phase = 'submitted', attempt_state = 'pending', blocking_reason = NULL",
		"released":                 "ownership_state = 'released'",
		"resumable":                "public_state = 'resumable', attempt_state = 'attempt_interrupted'",
		"without documents":        "raw_fields = '[]'",
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			x := f.Create(t)
			f.SetExecution(t, x, assignments)
			attempt := strings.Fields(f.Stored(t, x).State)[4]
			want := strings.Fields(fixture.StateByOperator)
			want[4] = attempt
			f.Block(t, x, state.PausedByOperator, "")
			f.WantState(t, x, strings.Join(want, " "))
			f.Unblock(t, x, "")
			ready := strings.Fields(fixture.StateReady)
			ready[4] = attempt
			f.WantState(t, x, strings.Join(ready, " "))
		})
	}
}

// An execution that waits for others is unblocked only by a call that names this reason.
func TestUnblockNamesTheReason_E43(t *testing.T) {
	f := fixture.FlowsOn(fixture.New(t))
	flow := f.Draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	if err := operator.Unblock(t.Context(), f.Fixture.Engine, b, ""); !errors.Is(err, fferr.ErrNotEligible) {
		t.Errorf("unblocked: %v", err)
	}
	f.Unblock(t, b, state.WaitingForChildren)
	f.WantState(t, b, fixture.StateReady)
}

// A block withdraws an execution's admission, with its slot, and a gate may admit it again; an unblock is past the
// gate.
func TestBlockReturnsAdmissions_E43(t *testing.T) {
	budgetID, quotaID := id.NewBudgetID(), id.NewQuotaPolicyID()
	budget, quota := budgetID.String(), quotaID.String()
	for _, c := range []struct {
		name          string
		budget, quota string
		reason        state.BlockingReason
		gate          string
	}{
		{"budget, for it", budget, "", state.WaitingForBudget, budget},
		{"quota, for it", "", quota, state.WaitingForQuota, quota},
		{"both, for the quota", budget, quota, state.WaitingForQuota, quota},
		{"both, for the budget", budget, quota, state.WaitingForBudget, budget},
		{"quota, for a budget that it lacks", "", quota, state.WaitingForBudget, ""},
		{"both, by an operator", budget, quota, state.PausedByOperator, ""},
		{"both, by its route", budget, quota, state.WaitingForCapableWorker, ""},
		{"none", "", "", state.WaitingForQuota, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.New(t)
			x := f.Create(t)
			if c.budget != "" || c.quota != "" {
				var budgets []id.BudgetID
				var policy *id.QuotaPolicyID
				if c.budget != "" {
					budgets = append(budgets, budgetID)
				}
				if c.quota != "" {
					policy = &quotaID
				}
				f.Attach(t, x, budgets, policy)
				f.Admit(t, x)
			}
			f.SeedGrant(t, x)
			f.Block(t, x, c.reason, "")
			if got := admissionOf(t, f, x); got != (admission{Gate: c.gate}) {
				t.Errorf("blocked: %+v, want the gate %q and nothing else", got, c.gate)
			}
			f.Unblock(t, x, c.reason)
			f.WantState(t, x, fixture.StateReady)
			if got, want := admissionOf(t, f, x), (admission{Admitted: c.budget != "" || c.quota != ""}); got != want {
				t.Errorf("unblocked: %+v, want %+v", got, want)
			}
			if got := f.ClaimOne(t); got.ID != x {
				t.Errorf("claimed %v", got.ID)
			}
		})
	}
}

func TestBlockRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	op := f.Engine
	block := func(x id.ExecutionID, reason state.BlockingReason, detail string) error {
		_, err := operator.Block(t.Context(), op, x, reason, detail)
		return err
	}
	for what, err := range map[string]error{
		"no reason":              block(x, "", ""),
		"another reason":         block(x, state.WaitingForDelay, ""),
		"an unknown reason":      block(x, "tired", ""),
		"a long detail":          block(x, state.PausedByOperator, strings.Repeat("d", 1025)),
		"an empty id":            block(id.ExecutionID{}, state.PausedByOperator, ""),
		"a reason to expect":     operator.Unblock(t.Context(), op, x, state.WaitingForDelay),
		"an empty id to unblock": operator.Unblock(t.Context(), op, id.ExecutionID{}, ""),
	} {
		if !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
	unknown := id.NewExecutionID(f.Lane, id.Partitions{})
	if err := block(unknown, state.PausedByOperator, ""); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
	if err := operator.Unblock(t.Context(), op, unknown, ""); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
	f.SetExecution(t, x, "public_state = 'dozing'")
	if err := block(x, state.PausedByOperator, ""); !errors.Is(err, fferr.ErrCorruption) {
		t.Error(err)
	}
	f.SetExecution(t, x, "public_state = 'waiting'")
	f.WantState(t, x, fixture.StateReady)
}

// Unblocking wakes workers that wait for the lane, but not from a caller's transaction.
func TestUnblockWakesWorkers(t *testing.T) {
	f := fixture.New(t)
	marker := id.LaneID(f.Name + "-marker")
	e := f.Rival(t).ListenTo(t, f.Lane, marker)
	x := f.Create(t)
	e.Want(t, f.Lane)
	f.Block(t, x, state.PausedByOperator, "")
	tx := f.BeginTx(t)
	if err := operator.Unblock(t.Context(), f.WithTx(tx), x, ""); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	f.Flush() // its notification comes before the marker
	f.Wake(marker)
	e.Want(t, marker)
	f.Block(t, x, state.PausedByOperator, "")
	f.Unblock(t, x, "")
	e.Want(t, f.Lane)
}

// A deadline also ends blocked executions, which are then no longer listed.
func TestBlockedExecutionEndsByItsDeadline(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = f.Time().Add(time.Second) })
	f.Block(t, x, state.PausedByOperator, "")
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
	f.WantState(t, x, fixture.StateUnstarted)
	f.WantQueue(t, t, "the deadline")
}

func TestBlockedExecutions(t *testing.T) {
	f := fixture.NewCloned(t)
	lanes := []id.LaneID{"B", "a"}
	var want []operator.BlockedExecution
	for _, lane := range lanes {
		for i, reason := range []state.BlockingReason{state.PausedByOperator, state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator} {
			x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Lane = lane }, capable("gpu"))
			f.Advance(time.Second)
			f.Block(t, x, reason, strings.Repeat("d", i))
			want = append(want, operator.BlockedExecution{
				ID: x, Lane: lane, Kind: "test", Reason: reason, Detail: strings.Repeat("d", i), Since: f.Time(),
				Capabilities: id.NewCapabilities("gpu"),
			})
		}
	}
	f.Create(t)
	f.Block(t, f.Create(t), state.WaitingForBudget, "") // stands before its gate
	f.Advance(time.Hour)
	if err := f.SetExecutionTag(t.Context(), want[0].ID, "app.tag", "v"); err != nil { // is blocked no later for it
		t.Fatal(err)
	}
	same := func(a, b operator.BlockedExecution) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
	only := func(keep func(operator.BlockedExecution) bool) []operator.BlockedExecution {
		return slices.DeleteFunc(slices.Clone(want), func(b operator.BlockedExecution) bool { return !keep(b) })
	}
	for _, c := range []struct {
		filter operator.BlockedFilter
		want   []operator.BlockedExecution
	}{
		{operator.BlockedFilter{}, want},
		{operator.BlockedFilter{Lane: "a"}, want[4:]},
		{operator.BlockedFilter{Lane: "A"}, nil},
		{operator.BlockedFilter{Reason: state.PausedByOperator}, only(func(b operator.BlockedExecution) bool { return b.Reason == state.PausedByOperator })},
		{operator.BlockedFilter{Lane: "B", Reason: state.PausedByPolicy}, want[2:3]},
	} {
		if got := fixture.Listed(t, operator.BlockedExecutions(t.Context(), f.Engine, c.filter)); !slices.EqualFunc(got, c.want, same) {
			t.Errorf("%+v:\n%v, want\n%v", c.filter, got, c.want)
		}
	}
	for what, filter := range map[string]operator.BlockedFilter{
		"a reason of a gate": {Reason: state.WaitingForQuota},
		"no lane":            {Lane: "a\nb"},
	} {
		if err := fixture.Unlisted(t, operator.BlockedExecutions(t.Context(), f.Engine, filter)); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Executions that were blocked in the same millisecond are on both sides of a page's end.
func TestBlockedExecutionsOfSeveralPages(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	f.Block(t, x, state.PausedByOperator, "")
	created, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}}, engine.MaxPage))
	if err != nil {
		t.Fatal(err)
	}
	want := []id.ExecutionID{x}
	for _, c := range created {
		want = append(want, c.Value.ID)
	}
	f.Exec(t, `
		UPDATE ff_exec_core AS e
		SET eligibility_state = b.eligibility_state, blocking_reason = b.blocking_reason, public_state = b.public_state,
			raw_fields = b.raw_fields, ffx_last_mutation_at_ms = b.ffx_last_mutation_at_ms
		FROM ff_exec_core AS b
		WHERE b.execution_id = $1 AND e.execution_id <> $1`, x.UUID())
	var got []id.ExecutionID
	for _, blocked := range fixture.Listed(t, operator.BlockedExecutions(t.Context(), f.Engine, operator.BlockedFilter{})) {
		got = append(got, blocked.ID)
	}
	slices.SortFunc(want, id.ExecutionID.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("listed %d: %v, want %d: %v", len(got), got, len(want), want)
	}
}

// capable is for a creation that requires capabilities.
func capable(tokens ...string) func(*engine.ExecutionSpec) {
	return func(spec *engine.ExecutionSpec) { spec.Policy = &policy.Execution{Capabilities: tokens} }
}

func TestUnblockRoutes(t *testing.T) {
	for _, c := range []struct {
		name  string
		needs []string
		here  func(t *testing.T, f *fixture.Fixture)
		want  bool
	}{
		{"nobody is registered", []string{"gpu"}, func(*testing.T, *fixture.Fixture) {}, false},
		{"a worker with what it needs", []string{"gpu"}, func(t *testing.T, f *fixture.Fixture) {
			f.Registered(t, "i", "gpu", time.Minute, f.Lane)
		}, true},
		{"a worker with more", []string{"b", "c"}, func(t *testing.T, f *fixture.Fixture) {
			f.Registered(t, "i", "a,b,c,d", time.Minute, "another", f.Lane)
		}, true},
		{"any worker", nil, func(t *testing.T, f *fixture.Fixture) { f.Registered(t, "i", "", time.Minute, f.Lane) }, true},
		{"a worker that lacks one", []string{"b", "e"}, func(t *testing.T, f *fixture.Fixture) {
			f.Registered(t, "i", "a,b,c,d", time.Minute, f.Lane)
		}, false},
		{"two workers with half of it each", []string{"a", "b"}, func(t *testing.T, f *fixture.Fixture) {
			f.Registered(t, "i", "a", time.Minute, f.Lane)
			f.Registered(t, "j", "b", time.Minute, f.Lane)
		}, false},
		{"a worker on another lane", []string{"gpu"}, func(t *testing.T, f *fixture.Fixture) {
			f.Registered(t, "i", "gpu", time.Minute, "another")
		}, false},
		{"a worker that has just died", []string{"gpu"}, func(t *testing.T, f *fixture.Fixture) {
			f.Registered(t, "i", "gpu", time.Second, f.Lane)
			f.Advance(time.Second)
		}, false},
		{"a worker that still lives", []string{"gpu"}, func(t *testing.T, f *fixture.Fixture) {
			f.Registered(t, "i", "gpu", time.Second, f.Lane)
			f.Advance(time.Second - time.Millisecond)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Create(t, capable(c.needs...))
			f.Block(t, x, state.WaitingForCapableWorker, "nobody can")
			other := f.Create(t)
			f.Block(t, other, state.PausedByOperator, "")
			c.here(t, f)
			n, err := upkeep.Of(f.Engine).UnblockRoutes(t.Context(), 10)
			if err != nil || (n == 1) != c.want {
				t.Errorf("unblocked %d, %v", n, err)
			}
			if !c.want {
				f.WantState(t, x, stateByRoute)
				return
			}
			f.WantState(t, x, fixture.StateReady)
			if f.Stored(t, x).Raw(t, "blocking_detail") != "" {
				t.Error("its detail is left")
			}
			f.WantState(t, other, fixture.StateByOperator)
			f.WantQueue(t, t, "the job")
			fixture.Run(t, upkeep.Of(f.Engine).UnblockRoutes, 0)
		})
	}
}

// In batches, the longest blocked first, skipping locked ones; one with a budget goes before its gate.
func TestUnblockRoutesInBatches(t *testing.T) {
	f := fixture.NewCloned(t)
	var all []id.ExecutionID
	for range 7 {
		x := f.Create(t, capable("gpu"))
		all = append(all, x)
		f.Advance(time.Millisecond)
		f.Block(t, x, state.WaitingForCapableWorker, "")
	}
	budget := id.NewBudgetID().String()
	f.SetExecution(t, all[6], "ffx_budget_ids = ARRAY['"+budget+"'::uuid]")
	f.Registered(t, "i", "gpu", time.Hour, f.Lane)
	f.Registered(t, "j", "gpu,more", time.Hour, f.Lane)
	e := f.Rival(t).ListenTo(t, f.Lane)
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, all[1])
	for i, want := range []int{3, 3, 0} {
		if n, err := upkeep.Of(f.Engine).UnblockRoutes(t.Context(), 3); n != want || err != nil {
			t.Errorf("call %d unblocked %d, %v; want %d", i, n, err, want)
		}
	}
	e.Want(t, f.Lane)
	for i, x := range all[:6] {
		if i != 1 {
			f.WantState(t, x, fixture.StateReady)
		}
	}
	f.WantState(t, all[6], stateByBudget)
	if got := admissionOf(t, f, all[6]); got != (admission{Gate: budget}) {
		t.Errorf("before the gate: %+v", got)
	}
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).UnblockRoutes, 1)
	if _, err := upkeep.Of(f.Engine).UnblockRoutes(t.Context(), 0); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Error(err)
	}
}

// An execution that changes during the job is judged by its state under its lock.
func TestUnblockRoutesWithAnOldSnapshot(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, capable("gpu"))
	f.Block(t, x, state.WaitingForCapableWorker, "")
	f.Registered(t, "i", "gpu", time.Hour, f.Lane)
	held, release := f.Holding(t, "UnblockRoutes")
	wait := fixture.Async(t, func(ctx context.Context) error {
		n, err := upkeep.Of(held.Engine).UnblockRoutes(ctx, 10)
		if n != 0 {
			err = errors.Join(err, fmt.Errorf("unblocked %d", n))
		}
		return err
	})
	held.AwaitBlocked(t, f)
	f.Unblock(t, x, "")
	f.Block(t, x, state.PausedByOperator, "")
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	f.WantState(t, x, fixture.StateByOperator)
}

// The sweep finds executions that were blocked, unblocked or deleted while no trigger fired.
func TestRepairQueueFixesTheListOfBlocked(t *testing.T) {
	const set = "UPDATE ff_exec_core SET "
	for name, unseen := range map[string]string{
		"set free":              set + fixture.ForeignReady,
		"ended":                 set + fixture.ForeignCancel,
		"deleted":               "DELETE FROM ff_exec_core",
		"not listed":            "DELETE FROM ffx_blocked",
		"listed otherwise":      "UPDATE ffx_blocked SET eligibility_state = 'blocked_by_route', lane_id = 'another'",
		"blocked otherwise":     set + "eligibility_state = 'blocked_by_lane_state'",
		"with other capability": set + "required_capabilities = '{gpu}'",
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			for i := range 5 {
				x := f.Create(t)
				f.Block(t, x, state.PausedByOperator, "")
				if i != 2 {
					f.Unseen(t, x, unseen)
				}
			}
			if repaired := f.Repair(t, 2); repaired < 4 {
				t.Errorf("repaired %d", repaired)
			}
			f.WantQueue(t, t, "the repair")
			if repaired := f.Repair(t, 2); repaired != 0 {
				t.Errorf("repaired %d the second time", repaired)
			}
		})
	}
}
