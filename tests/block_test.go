package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// blockReasons are the reasons that an operator may block for.
var blockReasons = []state.BlockingReason{
	state.WaitingForBudget, state.WaitingForQuota, state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator,
}

// The states of an execution that was blocked before its first attempt.
const (
	stateByBudget   = "runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget"
	stateByQuota    = "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota"
	stateByRoute    = "runnable unowned blocked_by_route waiting pending_first_attempt waiting_for_capable_worker"
	stateByLane     = "runnable unowned blocked_by_lane_state waiting pending_first_attempt paused_by_policy"
	stateByOperator = "runnable unowned blocked_by_operator waiting pending_first_attempt paused_by_operator"
)

var stateBlocked = map[state.BlockingReason]string{
	state.WaitingForBudget: stateByBudget, state.WaitingForQuota: stateByQuota, state.WaitingForCapableWorker: stateByRoute,
	state.PausedByPolicy: stateByLane, state.PausedByOperator: stateByOperator,
}

func (f *fixture) block(t *testing.T, x id.ExecutionID, reason state.BlockingReason, detail string) {
	t.Helper()
	if blocking, err := f.Operator().BlockExecution(t.Context(), x, reason, detail); err != nil || blocking.Rejected != "" {
		t.Fatalf("rejected %q, %v", blocking.Rejected, err)
	}
}

func (f *fixture) unblock(t *testing.T, x id.ExecutionID, expected state.BlockingReason) {
	t.Helper()
	if err := f.Operator().UnblockExecution(t.Context(), x, expected); err != nil {
		t.Fatal(err)
	}
}

type admission struct {
	Admitted bool
	Gate     string
	Slots    int
	Grants   int
}

func (f *fixture) admission(t *testing.T, x id.ExecutionID) admission {
	t.Helper()
	return one[admission](t, f.pool, `SELECT coalesce(ffx_admitted, false) AS admitted, coalesce(ffx_gate_id::text, '') AS gate,
		(SELECT count(*)::integer FROM ff_quota_admitted WHERE execution_id = $3) AS slots,
		(SELECT count(*)::integer FROM ff_claim_grant AS g WHERE g.partition_key = e.partition_key AND g.execution_id = e.execution_id) AS grants
		FROM ff_exec_core AS e WHERE partition_key = $1 AND execution_id = $2`, x.Partition(), x.UUID(), x.String())
}

// The reference cannot block on Postgres, and labels what is blocked by its route as limited by a rate.
func TestE43_an_operator_blocks_and_unblocks(t *testing.T) {
	for _, reason := range blockReasons {
		t.Run(string(reason), func(t *testing.T) {
			f := newFixture(t)
			x, other := f.create(t), f.create(t)
			f.advance(time.Second)
			f.block(t, x, reason, "because")
			f.wantState(t, x, stateBlocked[reason])
			stored := f.stored(t, x)
			if stored.raw(t, "blocking_detail") != "because" || stored.raw(t, "last_mutation_at") != fmt.Sprint(f.now().UnixMilli()) ||
				*stored.LastMutation != f.now().UnixMilli() {
				t.Errorf("stored %+v", stored)
			}
			snapshot, err := f.DescribeExecution(t.Context(), x)
			if err != nil || snapshot.BlockingDetail != "because" || !snapshot.State.Consistent() {
				t.Errorf("described as %+v, %v", snapshot, err)
			}
			f.wantEvents(t, x)
			if claimed, err := f.Claim(t.Context(), f.worker(), 10); len(claimed) != 1 || claimed[0].ID != other || err != nil {
				t.Errorf("claimed %v, %v; want %v", executionsOf(claimed), err, other)
			}
			before := f.dump(t, x)
			f.advance(time.Second)
			f.block(t, x, reason, "another") // is blocked for that already
			f.wantUnchanged(t, x, before)
			for _, wrong := range append(slices.Clone(blockReasons), state.WaitingForChildren) {
				if wrong == reason {
					continue
				}
				err := f.Operator().UnblockExecution(t.Context(), x, wrong)
				if refusal, ok := errors.AsType[*engine.StateError](err); !ok || !errors.Is(err, engine.ErrNotEligible) || refusal.Execution != x {
					t.Errorf("unblocked as %s: %v", wrong, err)
				}
				if blocking, err := f.Operator().BlockExecution(t.Context(), x, wrong, ""); wrong != state.WaitingForChildren &&
					(blocking.Rejected != engine.RejectedNotEligible || err != nil) {
					t.Errorf("blocked for %s too: %+v, %v", wrong, blocking, err)
				}
			}
			f.wantUnchanged(t, x, before)
			f.unblock(t, x, reason)
			f.wantState(t, x, stateReady)
			if stored := f.stored(t, x); stored.raw(t, "blocking_detail") != "" || *stored.LastMutation != f.now().UnixMilli() {
				t.Errorf("stored %+v", stored)
			}
			if got := f.claim(t); got.ID != x {
				t.Errorf("claimed %v, want %v", got.ID, x)
			}
		})
	}
}

// What runs, has ended or waits for something else cannot be blocked; that is an answer.
func TestE43_what_cannot_be_blocked(t *testing.T) {
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, f *fixture) id.ExecutionID
		want    engine.Rejection
	}{
		{"running", func(t *testing.T, f *fixture) id.ExecutionID { return f.start(t).ID }, engine.RejectedNotEligible},
		{"delayed", func(t *testing.T, f *fixture) id.ExecutionID {
			return f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.now().Add(time.Hour) })
		}, engine.RejectedNotEligible},
		{"granted", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.setExecution(t, x, "eligibility_state = 'pending_claim'")
			return x
		}, engine.RejectedNotEligible},
		{"owned", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.setExecution(t, x, "ownership_state = 'leased'")
			return x
		}, engine.RejectedNotEligible},
		{"suspended", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.setExecution(t, x, "lifecycle_phase = 'suspended', eligibility_state = 'not_applicable', public_state = 'suspended'")
			return x
		}, engine.RejectedNotEligible},
		{"completed", func(t *testing.T, f *fixture) id.ExecutionID {
			c := f.start(t)
			if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
				t.Fatal(err)
			}
			return c.ID
		}, engine.RejectedEnded},
		{"cancelled", func(t *testing.T, f *fixture) id.ExecutionID {
			x := f.create(t)
			f.setExecution(t, x, foreignCancel)
			return x
		}, engine.RejectedEnded},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			x := c.arrange(t, f)
			before := f.dump(t, x)
			for _, e := range []*engine.Engine{f.Engine, f.WithTx(f.begin(t))} {
				if blocking, err := e.Operator().BlockExecution(t.Context(), x, state.PausedByOperator, ""); blocking.Rejected != c.want || err != nil {
					t.Errorf("rejected %q, %v; want %q", blocking.Rejected, err, c.want)
				}
				if err := e.Operator().UnblockExecution(t.Context(), x, ""); !errors.Is(err, engine.ErrNotEligible) {
					t.Errorf("unblocked: %v", err)
				}
			}
			f.wantUnchanged(t, x, before)
		})
	}
}

// What the reference created, which stores other words, and what another attempt goes on with.
func TestE43_blocks_in_every_spelling_of_ready(t *testing.T) {
	for name, assignments := range map[string]string{
		"created by the reference": "lifecycle_phase = 'submitted', attempt_state = 'pending', blocking_reason = NULL",
		"released":                 "ownership_state = 'released'",
		"resumable":                "public_state = 'resumable', attempt_state = 'attempt_interrupted'",
		"without documents":        "raw_fields = '[]'",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			x := f.create(t)
			f.setExecution(t, x, assignments)
			attempt := strings.Fields(f.stored(t, x).State)[4]
			want := strings.Fields(stateByOperator)
			want[4] = attempt
			f.block(t, x, state.PausedByOperator, "")
			f.wantState(t, x, strings.Join(want, " "))
			f.unblock(t, x, "")
			ready := strings.Fields(stateReady)
			ready[4] = attempt
			f.wantState(t, x, strings.Join(ready, " "))
		})
	}
}

// What waits for others is set free only by him who says that it does.
func TestE43_unblocks_what_waits_for_others(t *testing.T) {
	f := flowsOn(newFixture(t))
	flow := f.draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	if err := f.Operator().UnblockExecution(t.Context(), b, ""); !errors.Is(err, engine.ErrNotEligible) {
		t.Errorf("unblocked: %v", err)
	}
	f.unblock(t, b, state.WaitingForChildren)
	f.wantState(t, b, stateReady)
}

// A block takes back what admitted an execution, with its slot, and a gate may admit it again; an unblock is past the gate.
func TestE43_blocks_give_back_what_admitted(t *testing.T) {
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
			f := newFixture(t)
			x := f.create(t)
			if c.budget != "" || c.quota != "" {
				var budgets []id.BudgetID
				var policy *id.QuotaPolicyID
				if c.budget != "" {
					budgets = append(budgets, budgetID)
				}
				if c.quota != "" {
					policy = &quotaID
				}
				f.attach(t, x, budgets, policy)
				f.admit(t, x)
			}
			f.seedGrant(t, x)
			f.block(t, x, c.reason, "")
			if got := f.admission(t, x); got != (admission{Gate: c.gate}) {
				t.Errorf("blocked: %+v, want the gate %q and nothing else", got, c.gate)
			}
			f.unblock(t, x, c.reason)
			f.wantState(t, x, stateReady)
			if got, want := f.admission(t, x), (admission{Admitted: c.budget != "" || c.quota != ""}); got != want {
				t.Errorf("unblocked: %+v, want %+v", got, want)
			}
			if got := f.claim(t); got.ID != x {
				t.Errorf("claimed %v", got.ID)
			}
		})
	}
}

func TestBlock_refuses_bad_input(t *testing.T) {
	f := newFixture(t)
	x := f.create(t)
	op := f.Operator()
	block := func(x id.ExecutionID, reason state.BlockingReason, detail string) error {
		_, err := op.BlockExecution(t.Context(), x, reason, detail)
		return err
	}
	for what, err := range map[string]error{
		"no reason":              block(x, "", ""),
		"another reason":         block(x, state.WaitingForDelay, ""),
		"an unknown reason":      block(x, "tired", ""),
		"a long detail":          block(x, state.PausedByOperator, strings.Repeat("d", 1025)),
		"an empty id":            block(id.ExecutionID{}, state.PausedByOperator, ""),
		"a reason to expect":     op.UnblockExecution(t.Context(), x, state.WaitingForDelay),
		"an empty id to unblock": op.UnblockExecution(t.Context(), id.ExecutionID{}, ""),
	} {
		if !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
	unknown := id.NewExecutionID(f.lane, id.Partitions{})
	if err := block(unknown, state.PausedByOperator, ""); !errors.Is(err, engine.ErrNotFound) {
		t.Error(err)
	}
	if err := op.UnblockExecution(t.Context(), unknown, ""); !errors.Is(err, engine.ErrNotFound) {
		t.Error(err)
	}
	f.setExecution(t, x, "public_state = 'dozing'")
	if err := block(x, state.PausedByOperator, ""); !errors.Is(err, engine.ErrCorruption) {
		t.Error(err)
	}
	f.setExecution(t, x, "public_state = 'waiting'")
	f.wantState(t, x, stateReady)
}

// Who waits for the work of a lane hears of what is unblocked, but not from a caller's transaction.
func TestBlock_unblocking_wakes(t *testing.T) {
	f := newFixture(t)
	marker := id.LaneID(f.name + "-marker")
	e := f.rival(t).listen(t, f.lane, marker)
	x := f.create(t)
	e.want(t, f.lane)
	f.block(t, x, state.PausedByOperator, "")
	tx := f.begin(t)
	if err := f.WithTx(tx).Operator().UnblockExecution(t.Context(), x, ""); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
	f.Flush() // what is told of it comes before the marker
	f.Wake(marker)
	e.want(t, marker)
	f.block(t, x, state.PausedByOperator, "")
	f.unblock(t, x, "")
	e.want(t, f.lane)
}

// A deadline ends what is blocked too, and it is listed no more.
func TestBlock_ends_by_a_deadline(t *testing.T) {
	f := cloneFixture(t)
	x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = f.now().Add(time.Second) })
	f.block(t, x, state.PausedByOperator, "")
	f.advance(time.Second)
	run(t, f.Maintenance().ExpireDeadlines, 1)
	f.wantState(t, x, stateUnstarted)
	f.wantQueue(t, t, "the deadline")
}

func TestBlockedExecutions(t *testing.T) {
	f := cloneFixture(t)
	lanes := []id.LaneID{"B", "a"}
	var want []engine.BlockedExecution
	for _, lane := range lanes {
		for i, reason := range []state.BlockingReason{state.PausedByOperator, state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator} {
			x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Lane = lane }, capable("gpu"))
			f.advance(time.Second)
			f.block(t, x, reason, strings.Repeat("d", i))
			want = append(want, engine.BlockedExecution{
				ID: x, Lane: lane, Kind: "test", Reason: reason, Detail: strings.Repeat("d", i), Since: f.now(),
				Capabilities: id.NewCapabilities("gpu"),
			})
		}
	}
	f.create(t)
	f.block(t, f.create(t), state.WaitingForBudget, "") // stands before its gate
	f.advance(time.Hour)
	if err := f.SetExecutionTag(t.Context(), want[0].ID, "app.tag", "v"); err != nil { // is blocked no later for it
		t.Fatal(err)
	}
	same := func(a, b engine.BlockedExecution) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
	only := func(keep func(engine.BlockedExecution) bool) []engine.BlockedExecution {
		return slices.DeleteFunc(slices.Clone(want), func(b engine.BlockedExecution) bool { return !keep(b) })
	}
	for _, c := range []struct {
		filter engine.BlockedFilter
		want   []engine.BlockedExecution
	}{
		{engine.BlockedFilter{}, want},
		{engine.BlockedFilter{Lane: "a"}, want[4:]},
		{engine.BlockedFilter{Lane: "A"}, nil},
		{engine.BlockedFilter{Reason: state.PausedByOperator}, only(func(b engine.BlockedExecution) bool { return b.Reason == state.PausedByOperator })},
		{engine.BlockedFilter{Lane: "B", Reason: state.PausedByPolicy}, want[2:3]},
	} {
		for limit := range 5 {
			got := paged(t, func(after string) (engine.Page[engine.BlockedExecution], error) {
				return f.Operator().ListBlockedExecutions(t.Context(), c.filter, after, limit)
			})
			if !slices.EqualFunc(got, c.want, same) {
				t.Errorf("%+v, %d a page:\n%v, want\n%v", c.filter, limit, got, c.want)
			}
		}
		var all []engine.BlockedExecution
		for b, err := range f.Operator().BlockedExecutions(t.Context(), c.filter) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		if !slices.EqualFunc(all, c.want, same) {
			t.Errorf("%+v: %v", c.filter, all)
		}
	}
	page, err := f.Operator().ListBlockedExecutions(t.Context(), engine.BlockedFilter{}, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for what, list := range map[string]func() error{
		"the cursor of another filter": func() error {
			_, err := f.Operator().ListBlockedExecutions(t.Context(), engine.BlockedFilter{Lane: "a"}, page.Next, 1)
			return err
		},
		"a negative limit": func() error {
			_, err := f.Operator().ListBlockedExecutions(t.Context(), engine.BlockedFilter{}, "", -1)
			return err
		},
		"a reason of a gate": func() error {
			_, err := f.Operator().ListBlockedExecutions(t.Context(), engine.BlockedFilter{Reason: state.WaitingForQuota}, "", 1)
			return err
		},
		"no lane": func() error {
			_, err := f.Operator().ListBlockedExecutions(t.Context(), engine.BlockedFilter{Lane: "a\nb"}, "", 1)
			return err
		},
	} {
		if err := list(); !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// capable is for a creation that requires capabilities.
func capable(tokens ...string) func(*engine.ExecutionSpec) {
	return func(spec *engine.ExecutionSpec) { spec.Policy = &policy.Execution{Capabilities: tokens} }
}

// registered enters a worker process as FlowFabric's do.
func (f *fixture) registered(t *testing.T, instance, capabilities string, ttl time.Duration, lanes ...id.LaneID) {
	t.Helper()
	f.exec(t, `INSERT INTO ff_worker_registry (partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities_csv,
		last_heartbeat_ms, liveness_ttl_ms, registered_at_ms) VALUES (1, 'n', $1, 'w', $2, $3, $4, $5, 0)`,
		instance, lanes, capabilities, f.now().UnixMilli(), ttl.Milliseconds())
}

func TestUnblockRoutes(t *testing.T) {
	for _, c := range []struct {
		name  string
		needs []string
		here  func(t *testing.T, f *fixture)
		want  bool
	}{
		{"nobody is registered", []string{"gpu"}, func(*testing.T, *fixture) {}, false},
		{"a worker with what it needs", []string{"gpu"}, func(t *testing.T, f *fixture) {
			f.registered(t, "i", "gpu", time.Minute, f.lane)
		}, true},
		{"a worker with more", []string{"b", "c"}, func(t *testing.T, f *fixture) {
			f.registered(t, "i", "a,b,c,d", time.Minute, "another", f.lane)
		}, true},
		{"any worker", nil, func(t *testing.T, f *fixture) { f.registered(t, "i", "", time.Minute, f.lane) }, true},
		{"a worker that lacks one", []string{"b", "e"}, func(t *testing.T, f *fixture) {
			f.registered(t, "i", "a,b,c,d", time.Minute, f.lane)
		}, false},
		{"two workers with half of it each", []string{"a", "b"}, func(t *testing.T, f *fixture) {
			f.registered(t, "i", "a", time.Minute, f.lane)
			f.registered(t, "j", "b", time.Minute, f.lane)
		}, false},
		{"a worker on another lane", []string{"gpu"}, func(t *testing.T, f *fixture) {
			f.registered(t, "i", "gpu", time.Minute, "another")
		}, false},
		{"a worker that has just died", []string{"gpu"}, func(t *testing.T, f *fixture) {
			f.registered(t, "i", "gpu", time.Second, f.lane)
			f.advance(time.Second)
		}, false},
		{"a worker that still lives", []string{"gpu"}, func(t *testing.T, f *fixture) {
			f.registered(t, "i", "gpu", time.Second, f.lane)
			f.advance(time.Second - time.Millisecond)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.create(t, capable(c.needs...))
			f.block(t, x, state.WaitingForCapableWorker, "nobody can")
			other := f.create(t)
			f.block(t, other, state.PausedByOperator, "")
			c.here(t, f)
			n, err := f.Maintenance().UnblockRoutes(t.Context(), 10)
			if err != nil || (n == 1) != c.want {
				t.Errorf("unblocked %d, %v", n, err)
			}
			if !c.want {
				f.wantState(t, x, stateByRoute)
				return
			}
			f.wantState(t, x, stateReady)
			if f.stored(t, x).raw(t, "blocking_detail") != "" {
				t.Error("its detail is left")
			}
			f.wantState(t, other, stateByOperator)
			f.wantQueue(t, t, "the job")
			run(t, f.Maintenance().UnblockRoutes, 0)
		})
	}
}

// In batches, the longest blocked first, past what is locked; one with a budget goes before its gate.
func TestUnblockRoutes_in_batches(t *testing.T) {
	f := cloneFixture(t)
	var all []id.ExecutionID
	for range 7 {
		x := f.create(t, capable("gpu"))
		all = append(all, x)
		f.advance(time.Millisecond)
		f.block(t, x, state.WaitingForCapableWorker, "")
	}
	budget := id.NewBudgetID().String()
	f.setExecution(t, all[6], "ffx_budget_ids = ARRAY['"+budget+"'::uuid]")
	f.registered(t, "i", "gpu", time.Hour, f.lane)
	f.registered(t, "j", "gpu,more", time.Hour, f.lane)
	e := f.rival(t).listen(t, f.lane)
	tx := f.begin(t)
	lockExecution(t, tx, all[1])
	for i, want := range []int{3, 3, 0} {
		if n, err := f.Maintenance().UnblockRoutes(t.Context(), 3); n != want || err != nil {
			t.Errorf("call %d unblocked %d, %v; want %d", i, n, err, want)
		}
	}
	e.want(t, f.lane)
	for i, x := range all[:6] {
		if i != 1 {
			f.wantState(t, x, stateReady)
		}
	}
	f.wantState(t, all[6], stateByBudget)
	if got := f.admission(t, all[6]); got != (admission{Gate: budget}) {
		t.Errorf("before the gate: %+v", got)
	}
	commit(t, tx)
	run(t, f.Maintenance().UnblockRoutes, 1)
	if _, err := f.Maintenance().UnblockRoutes(t.Context(), 0); !errors.Is(err, engine.ErrInvalidInput) {
		t.Error(err)
	}
}

// What somebody changes while the job looks is judged by what it is under its lock.
func TestUnblockRoutes_with_an_old_snapshot(t *testing.T) {
	f := cloneFixture(t)
	x := f.create(t, capable("gpu"))
	f.block(t, x, state.WaitingForCapableWorker, "")
	f.registered(t, "i", "gpu", time.Hour, f.lane)
	held, release := f.holding(t, "UnblockRoutes")
	wait := async(t, func(ctx context.Context) error {
		n, err := held.Maintenance().UnblockRoutes(ctx, 10)
		if n != 0 {
			err = errors.Join(err, fmt.Errorf("unblocked %d", n))
		}
		return err
	})
	held.awaitBlocked(t, f)
	f.unblock(t, x, "")
	f.block(t, x, state.PausedByOperator, "")
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	f.wantState(t, x, stateByOperator)
}

// What was blocked, set free or deleted while no trigger fired, the sweep finds.
func TestRepairQueue_mends_the_list_of_what_is_blocked(t *testing.T) {
	const set = "UPDATE ff_exec_core SET "
	for name, unseen := range map[string]string{
		"set free":              set + foreignReady,
		"ended":                 set + foreignCancel,
		"deleted":               "DELETE FROM ff_exec_core",
		"not listed":            "DELETE FROM ffx_blocked",
		"listed otherwise":      "UPDATE ffx_blocked SET eligibility_state = 'blocked_by_route', lane_id = 'another'",
		"blocked otherwise":     set + "eligibility_state = 'blocked_by_lane_state'",
		"with other capability": set + "required_capabilities = '{gpu}'",
	} {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			for i := range 5 {
				x := f.create(t)
				f.block(t, x, state.PausedByOperator, "")
				if i != 2 {
					f.unseen(t, x, unseen)
				}
			}
			if repaired := f.repair(t, 2); repaired < 4 {
				t.Errorf("repaired %d", repaired)
			}
			f.wantQueue(t, t, "the repair")
			if repaired := f.repair(t, 2); repaired != 0 {
				t.Errorf("repaired %d the second time", repaired)
			}
		})
	}
}
