package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// cancelFlow cancels a flow as the test's own process.
func (f *flowFixture) cancelFlow(t *testing.T, flow id.FlowID, policy state.FlowCancelPolicy) engine.CancelledFlow {
	t.Helper()
	cancelled, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow, Policy: policy, Reason: "not needed"})
	if err != nil {
		t.Fatal(err)
	}
	return cancelled
}

// flowRow returns the row of a flow.
func (f *flowFixture) flowRow(t *testing.T, flow id.FlowID) map[string]any {
	t.Helper()
	return storedRow(t, f.pool, "ff_flow_core", "partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
}

// addMember adds a member that waits for nobody.
func (f *flowFixture) addMember(t *testing.T, flow id.FlowID, key string) id.ExecutionID {
	t.Helper()
	x := f.NodeID(flow, key)
	f.names[x.UUID()] = key
	if created := f.create(t, func(s *engine.ExecutionSpec) { s.ID, s.Flow = x, &flow }); created != x {
		t.Fatalf("created %s, want %s", created, x)
	}
	return x
}

// menagerie is a flow with a member in every state that is stored, by this library or another program, called by it.
func (f *flowFixture) menagerie(t *testing.T) id.FlowID {
	t.Helper()
	flow := f.draw(t, nil, "completed", "failed", "failed>skipped", "cancelled", "active", "active>blocked", "suspended", "resumable",
		"retried", "delayed", "parked", "stale", "unheard")
	f.claimAll(t)
	f.succeed(t, flow, "completed")
	f.fail(t, flow, "failed")
	f.cancel(t, f.NodeID(flow, "cancelled"))
	f.fixture.fail(t, f.lease(t, flow, "retried"), engine.Failure{})
	f.fixture.fail(t, f.lease(t, flow, "stale"), engine.Failure{})
	for _, key := range []string{"suspended", "resumable"} {
		f.suspend(t, f.NodeID(flow, key))
	}
	f.setExecution(t, f.NodeID(flow, "resumable"), "lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'resumable'")
	if err := f.DelayExecution(t.Context(), f.lease(t, flow, "delayed"), f.now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitForChildren(t.Context(), f.lease(t, flow, "parked")); err != nil {
		t.Fatal(err)
	}
	f.addMember(t, flow, "ready")
	f.seedGrant(t, f.addMember(t, flow, "granted"))
	f.setExecution(t, f.NodeID(flow, "granted"), "eligibility_state = 'pending_claim'")
	for _, phase := range []string{"submitted", "pending", "blocked legacy", "eligible"} {
		phase, _, _ = strings.Cut(phase, " ")
		f.setExecution(t, f.addMember(t, flow, phase+" legacy"), fmt.Sprintf("lifecycle_phase = '%s'", phase))
	}
	// As the typed fail of the reference leaves it: the attempt that has failed stands at the pointer.
	f.setExecution(t, f.NodeID(flow, "stale"), "attempt_index = 0")
	f.setExecution(t, f.NodeID(flow, "unheard"), "lifecycle_phase = 'hibernating'")
	return flow
}

// The reference cancels what is called pending, which nobody stores, or whatever has not ended in a phase that nobody
// stores either; it leaves leases, attempts and waitpoints as they are.
func TestF1_F2_F3_F4_F7_members_by_policy(t *testing.T) {
	t.Parallel()
	pending := "blocked blocked_legacy delayed eligible_legacy granted parked pending_legacy ready retried stale submitted_legacy"
	for policy, want := range map[state.FlowCancelPolicy]string{
		state.CancelFlowOnly: "",
		state.CancelPending:  pending,
		state.CancelAll:      pending + " active resumable suspended unheard",
	} {
		t.Run(string(policy), func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.menagerie(t)
			before := make(map[string]string)
			earlier := make(map[string][]string)
			for key := range f.members(t, flow) {
				x := f.NodeID(flow, key)
				before[key], earlier[key] = f.dump(t, x), f.events(t, x)
			}
			f.advance(time.Second)
			got := f.cancelFlow(t, flow, policy)

			var keys []string
			for _, x := range got.Members {
				keys = append(keys, strings.ReplaceAll(f.name(x.UUID()), " ", "_"))
			}
			slices.Sort(keys)
			if !slices.Equal(keys, sortedFields(want)) || !slices.IsSortedFunc(got.Members, id.ExecutionID.Compare) {
				t.Errorf("cancelled\n\t%q, want\n\t%q", keys, sortedFields(want))
			}
			if got.Policy != policy || got.Reason != "not needed" || got.Missing || got.Already {
				t.Errorf("answer %+v", got)
			}
			row := f.flowRow(t, flow)
			raw := row["raw_fields"].(map[string]any)
			if row["public_flow_state"] != "cancelled" || row["terminal_at_ms"] != float64(f.now().UnixMilli()) ||
				raw["cancellation_policy"] != string(policy) || raw["cancel_reason"] != "not needed" ||
				raw["last_mutation_at_ms"] != float64(f.now().UnixMilli()) {
				t.Errorf("flow %v", row)
			}
			outcomes := map[string]string{"active": "cancelled", "suspended": "cancelled", "resumable": "cancelled", "retried": "retry"}
			for key := range before {
				x := f.NodeID(flow, key)
				if !slices.Contains(keys, strings.ReplaceAll(key, " ", "_")) {
					f.wantUnchanged(t, x, before[key])
					continue
				}
				stored := f.stored(t, x)
				if stored.State != stateCancelled || *stored.CancelReason != "not needed" || *stored.TerminalAtMs != f.now().UnixMilli() ||
					*stored.LastMutation != f.now().UnixMilli() || stored.GateID != nil || stored.DelayUntilMs != nil || f.grants(t, x) != 0 {
					t.Errorf("%s: stored %+v", key, stored)
				}
				if by := f.fixture.describe(t, x).CancelledBy; by != "cancel_flow" {
					t.Errorf("%s: cancelled by %q", key, by)
				}
				want := slices.Clone(earlier[key])
				if key == "active" || key == "unheard" {
					want = append(want, "lease revoked operator")
				}
				if events := f.events(t, x); !slices.Equal(events, append(want, "completion cancelled")) {
					t.Errorf("%s: events %q", key, events)
				}
				for i, a := range f.attempts(t, x) {
					want, ok := outcomes[key]
					if key == "unheard" {
						want, ok = "cancelled", true
					}
					if a.Outcome != want || i > 0 || a.LeaseExpiresAtMs != nil || a.TimeoutAtMs != nil || ok && a.TerminalAtMs == nil {
						t.Errorf("%s: attempt %+v", key, a)
					}
					if l, held := f.leases[x]; held && key != "retried" && key != "stale" && (a.LeaseEpoch <= l.Epoch || stored.LeaseEpoch != a.LeaseEpoch) {
						t.Errorf("%s: epoch %d and %d, was %d", key, stored.LeaseEpoch, a.LeaseEpoch, l.Epoch)
					}
				}
			}
			if left := texts(t, f.pool, `
				SELECT 'suspension' FROM ff_suspension_current WHERE partition_key = $1 AND execution_id = ANY ($2::uuid[])
				UNION ALL SELECT 'waitpoint' FROM ff_waitpoint_pending WHERE partition_key = $1 AND execution_id = ANY ($2::uuid[])`,
				partitionOf(flow), uuidsOf(got.Members)); len(left) > 0 {
				t.Errorf("left %q", left)
			}
			if rows := texts(t, f.pool, "SELECT downstream_eid::text FROM ff_pending_cancel_groups WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow); len(rows) > 0 {
				t.Errorf("noted groups %q", rows)
			}
			edges := map[string]string{"active>blocked": "applied", "failed>skipped": "impossible failed"}
			if policy == state.CancelAll {
				edges["active>blocked"] = "impossible cancelled"
			}
			wantEqual(t, "edges", f.edges(t, flow), edges)
			_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.lane, Kind: "test", Flow: &flow})
			if !errors.Is(err, engine.ErrFlowTerminal) {
				t.Errorf("grown: %v", err)
			}
		})
	}
}

func sortedFields(s string) []string {
	fields := strings.Fields(s)
	slices.Sort(fields)
	return fields
}

func uuidsOf(executions []id.ExecutionID) []string {
	uuids := make([]string, len(executions))
	for i, x := range executions {
		uuids[i] = x.UUID().String()
	}
	return uuids
}

// After a milder cancel the graph goes on: what is worked on ends as it ends, and releases and skips what waits for it.
func TestCancelFlow_what_goes_on(t *testing.T) {
	t.Run("flow only", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil, "a>b", "b>c")
		f.lease(t, flow, "a")
		f.cancelFlow(t, flow, state.CancelFlowOnly)
		f.succeed(t, flow, "a")
		f.succeed(t, flow, "b")
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a b", stateReady: "c"})
		if _, err := f.Operator().ReplayExecution(t.Context(), f.NodeID(flow, "a")); !errors.Is(err, engine.ErrFlowTerminal) {
			t.Errorf("replayed: %v", err)
		}
	})
	t.Run("pending", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil, "a>b", "b>c", "d")
		f.claimAll(t)
		f.cancelFlow(t, flow, state.CancelPending)
		f.wantMembers(t, flow, map[string]string{stateRunning: "a d", stateCancelled: "b c"})
		f.succeed(t, flow, "a")
		f.fail(t, flow, "d")
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateFailed: "d", stateCancelled: "b c"})
		ends := f.completionEvents(t, flow)
		if slices.Sort(ends); !slices.Equal(ends, []string{"a success", "b cancelled", "c cancelled", "d failed"}) {
			t.Errorf("events %q", ends)
		}
	})
}

// What is cancelled already stays as it is; a stricter policy cancels the rest. The reference overwrites the policy, with a
// milder one too, cancels again, and says nothing of a flow that is not there.
func TestF5_cancelled_flows_and_missing_ones(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := id.NewFlowID()
		if got := f.cancelFlow(t, flow, state.CancelPending); !got.Missing || got.Already || len(got.Members) > 0 || got.Policy != state.CancelPending {
			t.Errorf("answer %+v", got)
		}
		f.wantNoFlow(t, flow)
	})
	t.Run("empty", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil)
		if got := f.cancelFlow(t, flow, ""); got.Missing || got.Already || len(got.Members) > 0 || got.Policy != state.CancelAll {
			t.Errorf("answer %+v", got)
		}
	})
	order := []state.FlowCancelPolicy{state.CancelFlowOnly, state.CancelPending, state.CancelAll}
	for i, first := range order {
		for j, second := range order {
			t.Run(fmt.Sprintf("%s and %s", first, second), func(t *testing.T) {
				f := newFlowFixture(t)
				flow := f.draw(t, nil, "a>b", "d")
				f.lease(t, flow, "a")
				f.addMember(t, flow, "c")
				f.succeed(t, flow, "d")
				at := f.now().UnixMilli()
				f.cancelFlow(t, flow, first)
				f.advance(time.Second)
				before := f.dumpFlow(t, flow)
				got, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow, Policy: second, Reason: "a whim"})
				if err != nil {
					t.Fatal(err)
				}
				if j <= i {
					if !got.Already || got.Policy != first || got.Reason != "not needed" || len(got.Members) != 4 {
						t.Errorf("answer %+v", got)
					}
					if after := f.dumpFlow(t, flow); after != before {
						t.Errorf("stored\n%s, was\n%s", after, before)
					}
					return
				}
				if got.Already || got.Policy != second || got.Reason != "not needed" {
					t.Errorf("answer %+v", got)
				}
				row := f.flowRow(t, flow)
				raw := row["raw_fields"].(map[string]any)
				if row["terminal_at_ms"] != float64(at) || raw["cancel_reason"] != "not needed" || raw["cancellation_policy"] != string(second) {
					t.Errorf("flow %v", row)
				}
				want := map[string]string{stateRunning: "a", stateCompleted: "d", stateCancelled: "b c"}
				if second == state.CancelAll {
					want = map[string]string{stateCompleted: "d", stateCancelled: "a b c"}
				}
				f.wantMembers(t, flow, want)
				if len(got.Members) != map[bool]int{true: 1, false: 2}[first == state.CancelPending]+map[bool]int{true: 1}[first != state.CancelPending && second == state.CancelAll] {
					t.Errorf("cancelled %d", len(got.Members))
				}
			})
		}
	}
	for _, stored := range []string{"completed", "failed"} {
		t.Run(stored, func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, nil, "a")
			f.exec(t, "UPDATE ff_flow_core SET public_flow_state = $3 WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow, stored)
			if got := f.cancelFlow(t, flow, state.CancelPending); !got.Already || got.Policy != state.CancelPending || len(got.Members) != 1 {
				t.Errorf("answer %+v", got)
			}
			f.wantMembers(t, flow, map[string]string{stateReady: "a"})
		})
	}
	t.Run("many", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, wide(1000, true))
		f.cancelFlow(t, flow, state.CancelAll)
		if got := f.cancelFlow(t, flow, state.CancelAll); !got.Already || len(got.Members) != engine.MaxBatch {
			t.Errorf("answers with %d members", len(got.Members))
		}
	})
}

// What no cancel may be asked for, and what cannot be read.
func TestCancelFlow_refusals(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b")
	before := f.dumpFlow(t, flow)
	for field, spec := range map[string]engine.CancelFlowSpec{
		"policy": {ID: flow, Policy: "cancel_everything"},
		"reason": {ID: flow, Reason: strings.Repeat("x", engine.MaxFlowCancelReason+1)},
	} {
		_, err := f.CancelFlow(t.Context(), spec)
		if input, ok := errors.AsType[*engine.InputError](err); !ok || input.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	for field, request := range map[string]engine.FlowCancelRequest{
		"policy":    {ID: flow, Policy: "flow_only"},
		"reason":    {ID: flow, Reason: "a\x00b"},
		"requester": {ID: flow, Requester: strings.Repeat("x", 257)},
		"grace":     {ID: flow, Grace: -1},
	} {
		_, err := f.RequestFlowCancel(t.Context(), request)
		if input, ok := errors.AsType[*engine.InputError](err); !ok || input.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	other := f.create(t)
	if err := f.AckFlowCancel(t.Context(), flow, id.ExecutionIDFromRow(partitionOf(flow)^1, other.UUID())); !errors.Is(err, engine.ErrInvalidInput) {
		t.Errorf("acknowledged: %v", err)
	}
	if after := f.dumpFlow(t, flow); after != before {
		t.Errorf("stored\n%s, was\n%s", after, before)
	}
	f.exec(t, "UPDATE ff_flow_core SET raw_fields = '[]' WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
	if _, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); !errors.Is(err, engine.ErrCorruption) {
		t.Errorf("got %v", err)
	}
	f.wantMembers(t, flow, map[string]string{stateReady: "a", stateHeld: "b"})
}

// The holders of cancelled members are refused, however they call, and nothing brings a member back.
func TestF4_cancelled_holders_are_refused(t *testing.T) {
	t.Parallel()
	for name, call := range holderCalls {
		t.Run(name, func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, nil, "a>b")
			l := f.lease(t, flow, "a")
			f.cancelFlow(t, flow, state.CancelAll)
			before := f.dumpFlow(t, flow)
			if err := call(t, f.Engine, l); !errors.Is(err, engine.ErrStaleLease) {
				t.Errorf("got %v", err)
			}
			if after := f.dumpFlow(t, flow); after != before {
				t.Errorf("stored\n%s, was\n%s", after, before)
			}
		})
	}
	t.Run("grant", func(t *testing.T) {
		f := flowsOn(grantFixture(t))
		flow := f.draw(t, nil, "a")
		grant := f.issue(t, f.NodeID(flow, "a"))
		f.cancelFlow(t, flow, state.CancelPending)
		if _, err := f.Grants().ClaimExecution(t.Context(), f.using(grant)); err == nil {
			t.Error("claimed by a grant")
		}
		f.wantMembers(t, flow, map[string]string{stateCancelled: "a"})
	})
}

// The reference sends four statements a member.
func TestF6_cancel_flow_statements(t *testing.T) {
	f, log := loggedFixture(t)
	f.cancelFlow(t, f.draw(t, nil, "a>b"), state.CancelAll) // prepares the statements
	for policy, many := range map[state.FlowCancelPolicy]int{state.CancelAll: engine.MaxNodes, state.CancelPending: 1000} {
		var counts [][]string
		for _, n := range []int{10, many} {
			flow := f.createFlow(t, layered(n, n-1))
			sent := names(log.during(func() {
				if got := f.cancelFlow(t, flow, policy); len(got.Members) != n {
					t.Errorf("cancelled %d of %d", len(got.Members), n)
				}
			}))
			sent = slices.DeleteFunc(sent, func(name string) bool { return isSettings(name) || name == "commit" })
			counts = append(counts, sent)
		}
		if !slices.Equal(counts[0], counts[1]) || len(counts[0]) > 11 {
			t.Errorf("%s: few take %q, many %q", policy, counts[0], counts[1])
		}
		t.Logf("%s: %d statements: %q", policy, len(counts[0]), counts[0])
	}
}

// What is outside of the cancelled set is resolved: skipped when it can no longer run.
func TestCancelFlow_resolves_what_it_leaves(t *testing.T) {
	f := newFlowFixture(t)
	// c runs beside b, which it may wait for; it is not pulled from under its worker.
	flow := f.draw(t, nil, "a>b", "b>c")
	f.lease(t, flow, "a")
	c := f.NodeID(flow, "c")
	f.setExecution(t, c, "lifecycle_phase = 'suspended', public_state = 'suspended'")
	f.cancelFlow(t, flow, state.CancelPending)
	f.wantGroup(t, flow, "c", storedGroup{Fail: 1, KTarget: 1})
	wantEqual(t, "edges", f.edges(t, flow), map[string]string{"a>b": "applied", "b>c": "impossible cancelled"})
	f.fail(t, flow, "a")
	f.wantGroup(t, flow, "b", storedGroup{Fail: 1, KTarget: 1})
	if got := f.members(t, flow); !strings.HasPrefix(got["c"], "suspended") || got["b"] != stateCancelled {
		t.Errorf("members %v", got)
	}
}

// What was to be cancelled because its siblings decide has ended with the flow; a milder cancel leaves it to its job.
func TestCancelFlow_and_siblings(t *testing.T) {
	t.Parallel()
	for policy, want := range map[state.FlowCancelPolicy]storedGroup{
		state.CancelAll:     {Success: 1, Fail: 2, KTarget: 1},
		state.CancelPending: {Success: 1, Running: 2, KTarget: 1, Flagged: true, Siblings: "b c", Enqueued: true},
	} {
		t.Run(string(policy), func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d", "c>d")
			f.claimAll(t)
			f.succeed(t, flow, "a")
			f.cancelFlow(t, flow, policy)
			f.wantGroup(t, flow, "d", want)
		})
	}
}

// A cancel in a caller's transaction is the caller's: it commits with it, is rolled back with it, and a refusal keeps
// nothing.
func TestCancelFlow_in_a_transaction(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b")
	f.lease(t, flow, "a")
	before := f.dumpFlow(t, flow)
	spec := engine.CancelFlowSpec{ID: flow}
	tx := f.begin(t)
	if _, err := f.WithTx(tx).CancelFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := f.dumpFlow(t, flow); after != before {
		t.Errorf("stored\n%s, was\n%s", after, before)
	}
	tx = f.begin(t)
	bound := f.WithTx(tx)
	if _, err := bound.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow, Policy: "none"}); !errors.Is(err, engine.ErrInvalidInput) {
		t.Errorf("got %v", err)
	}
	if _, err := bound.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: id.NewFlowID()}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if held := f.heldLocks(t, flow, f.NodeID(flow, "a"), f.NodeID(flow, "b")); len(held) > 0 {
		t.Errorf("the refusals hold %q", held)
	}
	if _, err := bound.CancelFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if got, err := bound.CancelFlow(t.Context(), spec); err != nil || !got.Already {
		t.Errorf("again: %+v, %v", got, err)
	}
	commit(t, tx)
	f.wantMembers(t, flow, map[string]string{stateCancelled: "a b"})
}

// At the caller's level nothing is tried again: who began before the flow changed is told so.
func TestCancelFlow_in_an_old_snapshot(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, nil, "a>b")
			tx := beginWith(t, f.pool, pgx.TxOptions{IsoLevel: level})
			execIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2", partitionOf(flow), flow)
			f.addMember(t, flow, "c")
			before := f.dumpFlow(t, flow)
			_, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow})
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40001" || errors.Is(err, engine.ErrContention) {
				t.Errorf("got %v, want 40001", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := f.dumpFlow(t, flow); after != before {
				t.Errorf("stored\n%s, was\n%s", after, before)
			}
			tx = beginWith(t, f.pool, pgx.TxOptions{IsoLevel: level})
			if _, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
				t.Fatal(err)
			}
			commit(t, tx)
			f.wantMembers(t, flow, map[string]string{stateCancelled: "a b c"})
		})
	}
}

// Whoever waits for the flow learns of its end, and of its time being over when it does not end.
func TestCancelFlow_and_AwaitFlow(t *testing.T) {
	f := flowsOn(newClone(t))
	flow := f.draw(t, nil, "a>b")
	f.lease(t, flow, "a")
	if _, err := f.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: flow, Grace: time.Minute}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond) //pace:allow it is to run out
	defer cancel()
	if _, err := f.AwaitFlow(short, flow); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	wait := async(t, func(ctx context.Context) error { _, err := f.AwaitFlow(ctx, flow); return err })
	f.advance(time.Minute)
	run(t, f.Maintenance().CancelFlows, 2)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	snapshot, err := f.DescribeFlow(t.Context(), flow)
	if err != nil || snapshot.State != state.FlowCancelled || snapshot.CancelReason != "flow_cancelled" || snapshot.CancelPolicy != state.CancelAll {
		t.Errorf("described as %+v, %v", snapshot, err)
	}
}
