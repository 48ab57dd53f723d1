package flows

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
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// flowRow returns the row of a flow.
func flowRow(t *testing.T, f *fixture.Flows, flow id.FlowID) map[string]any {
	t.Helper()
	return fixture.StoredRow(t, f.Pool, "ff_flow_core", "partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
}

// addMember adds a member without upstreams.
func addMember(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) id.ExecutionID {
	t.Helper()
	x := f.NodeID(flow, key)
	f.Names[x.UUID()] = key
	if created := f.Create(t, func(s *engine.ExecutionSpec) { s.ID, s.Flow = x, &flow }); created != x {
		t.Fatalf("created %s, want %s", created, x)
	}
	return x
}

// menagerie is a flow with a member in every state that is stored, by this library or another program, called by it.
func menagerie(t *testing.T, f *fixture.Flows) id.FlowID {
	t.Helper()
	flow := f.Draw(t, nil, "completed", "failed", "failed>skipped", "cancelled", "active", "active>blocked", "suspended", "resumable",
		"retried", "delayed", "parked", "stale", "unheard")
	f.ClaimAll(t)
	f.Succeed(t, flow, "completed")
	f.Fail(t, flow, "failed")
	f.Cancel(t, f.NodeID(flow, "cancelled"))
	f.Fixture.Fail(t, f.Lease(t, flow, "retried"), engine.Failure{})
	f.Fixture.Fail(t, f.Lease(t, flow, "stale"), engine.Failure{})
	for _, key := range []string{"suspended", "resumable"} {
		f.SeedSuspension(t, f.NodeID(flow, key))
	}
	f.SetExecution(t, f.NodeID(flow, "resumable"), "lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'resumable'")
	if err := f.DelayExecution(t.Context(), f.Lease(t, flow, "delayed"), f.Time().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WaitForChildren(t.Context(), f.Lease(t, flow, "parked")); err != nil {
		t.Fatal(err)
	}
	addMember(t, f, flow, "ready")
	f.SeedGrant(t, addMember(t, f, flow, "granted"))
	f.SetExecution(t, f.NodeID(flow, "granted"), "eligibility_state = 'pending_claim'")
	for _, phase := range []string{"submitted", "pending", "blocked legacy", "eligible"} {
		phase, _, _ = strings.Cut(phase, " ")
		f.SetExecution(t, addMember(t, f, flow, phase+" legacy"), fmt.Sprintf("lifecycle_phase = '%s'", phase))
	}
	// As the typed fail of the reference leaves it: the attempt that has failed stands at the pointer.
	f.SetExecution(t, f.NodeID(flow, "stale"), "attempt_index = 0")
	f.SetExecution(t, f.NodeID(flow, "unheard"), "lifecycle_phase = 'hibernating'")
	return flow
}

// The reference cancels members in the phase pending, which no program stores, or all members outside phases that no
// program stores either; it leaves leases, attempts and waitpoints unchanged.
func TestCancelFlowEndsMembersByPolicy_F1_F2_F3_F4_F7_E44(t *testing.T) {
	t.Parallel()
	pending := "blocked blocked_legacy delayed eligible_legacy granted parked pending_legacy ready retried stale submitted_legacy"
	for policy, want := range map[state.FlowCancelPolicy]string{
		state.CancelFlowOnly:   "",
		state.CancelPending:    pending,
		state.CancelAll:        pending + " active resumable suspended unheard",
		state.CancelEverything: pending + " active resumable suspended unheard",
	} {
		t.Run(string(policy), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := menagerie(t, f)
			before := make(map[string]string)
			earlier := make(map[string][]string)
			for key := range f.Members(t, flow) {
				x := f.NodeID(flow, key)
				before[key], earlier[key] = f.Dump(t, x), f.Events(t, x)
			}
			f.Advance(time.Second)
			got := f.CancelBy(t, flow, policy)

			var keys []string
			for _, x := range got.Members {
				keys = append(keys, strings.ReplaceAll(f.Name(x.UUID()), " ", "_"))
			}
			slices.Sort(keys)
			if !slices.Equal(keys, sortedFields(want)) || !slices.IsSortedFunc(got.Members, id.ExecutionID.Compare) {
				t.Errorf("cancelled\n\t%q, want\n\t%q", keys, sortedFields(want))
			}
			if got.Policy != policy || got.Reason != "not needed" || got.Already {
				t.Errorf("answer %+v", got)
			}
			row := flowRow(t, f, flow)
			raw := row["raw_fields"].(map[string]any)
			if row["public_flow_state"] != "cancelled" || row["terminal_at_ms"] != float64(f.Time().UnixMilli()) ||
				raw["cancellation_policy"] != string(policy) || raw["cancel_reason"] != "not needed" ||
				raw["last_mutation_at_ms"] != float64(f.Time().UnixMilli()) {
				t.Errorf("flow %v", row)
			}
			outcomes := map[string]string{"active": "cancelled", "suspended": "cancelled", "resumable": "cancelled", "retried": "retry"}
			for key := range before {
				x := f.NodeID(flow, key)
				if !slices.Contains(keys, strings.ReplaceAll(key, " ", "_")) {
					f.WantUnchanged(t, x, before[key])
					continue
				}
				stored := f.Stored(t, x)
				if stored.State != fixture.StateCancelled || *stored.CancelReason != "not needed" || *stored.TerminalAtMs != f.Time().UnixMilli() ||
					*stored.LastMutation != f.Time().UnixMilli() || stored.GateID != nil || stored.DelayUntilMs != nil || f.CountGrants(t, x) != 0 {
					t.Errorf("%s: stored %+v", key, stored)
				}
				if by := f.Fixture.Describe(t, x).CancelledBy; by != "cancel_flow" {
					t.Errorf("%s: cancelled by %q", key, by)
				}
				want := slices.Clone(earlier[key])
				if key == "active" || key == "unheard" {
					want = append(want, "lease revoked operator")
				}
				if events := f.Events(t, x); !slices.Equal(events, append(want, "completion cancelled")) {
					t.Errorf("%s: events %q", key, events)
				}
				for i, a := range f.StoredAttempts(t, x) {
					want, ok := outcomes[key]
					if key == "unheard" {
						want, ok = "cancelled", true
					}
					if a.Outcome != want || i > 0 || a.LeaseExpiresAtMs != nil || a.TimeoutAtMs != nil || ok && a.TerminalAtMs == nil {
						t.Errorf("%s: attempt %+v", key, a)
					}
					if l, held := f.Leases[x]; held && key != "retried" && key != "stale" && (a.LeaseEpoch <= l.Epoch || stored.LeaseEpoch != a.LeaseEpoch) {
						t.Errorf("%s: epoch %d and %d, was %d", key, stored.LeaseEpoch, a.LeaseEpoch, l.Epoch)
					}
				}
			}
			if left := fixture.Texts(t, f.Pool, `
				SELECT 'suspension' FROM ff_suspension_current WHERE partition_key = $1 AND execution_id = ANY ($2::uuid[])
				UNION ALL SELECT 'waitpoint' FROM ff_waitpoint_pending WHERE partition_key = $1 AND execution_id = ANY ($2::uuid[])`,
				fixture.PartitionOf(flow), uuidsOf(got.Members)); len(left) > 0 {
				t.Errorf("left %q", left)
			}
			if rows := fixture.Texts(t, f.Pool, "SELECT downstream_eid::text FROM ff_pending_cancel_groups WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow); len(rows) > 0 {
				t.Errorf("noted groups %q", rows)
			}
			edges := map[string]string{"active>blocked": "applied", "failed>skipped": "impossible failed"}
			if policy == state.CancelAll || policy == state.CancelEverything {
				edges["active>blocked"] = "impossible cancelled"
			}
			fixture.WantEqual(t, "edges", f.Edges(t, flow), edges)
			_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Flow: &flow})
			if !errors.Is(err, fferr.ErrFlowTerminal) {
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

// After a milder cancel the graph goes on: running members end by themselves, and release and skip their dependents.
func TestCancelFlowLetsRunningMembersFinish(t *testing.T) {
	t.Run("flow only", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>b", "b>c")
		f.Lease(t, flow, "a")
		f.CancelBy(t, flow, state.CancelFlowOnly)
		f.Succeed(t, flow, "a")
		f.Succeed(t, flow, "b")
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b", fixture.StateReady: "c"})
		if _, err := operator.Replay(t.Context(), f.Fixture.Engine, f.NodeID(flow, "a"), operator.ReplayCompleted); !errors.Is(err, fferr.ErrFlowTerminal) {
			t.Errorf("replayed: %v", err)
		}
	})
	t.Run("pending", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>b", "b>c", "d")
		f.ClaimAll(t)
		f.CancelBy(t, flow, state.CancelPending)
		f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a d", fixture.StateCancelled: "b c"})
		f.Succeed(t, flow, "a")
		f.Fail(t, flow, "d")
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateFailed: "d", fixture.StateCancelled: "b c"})
		ends := f.CompletionEvents(t, flow)
		if slices.Sort(ends); !slices.Equal(ends, []string{"a success", "b cancelled", "c cancelled", "d failed"}) {
			t.Errorf("events %q", ends)
		}
	})
}

// Cancelled members stay unchanged; a stricter policy cancels the rest. The reference overwrites the policy, even
// with a milder one, cancels again, and does not report a missing flow.
func TestCancelFlowRepeatedOrMissing_F5(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := id.NewFlowID()
		got, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow, Policy: state.CancelPending})
		if fixture.WantNotFound(t, err, "flow", flow.String()); got.Policy != "" || len(got.Members) > 0 {
			t.Errorf("answer %+v", got)
		}
		f.WantNoFlow(t, flow)
	})
	t.Run("empty", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil)
		if got := f.CancelBy(t, flow, ""); got.Already || len(got.Members) > 0 || got.Policy != state.CancelAll {
			t.Errorf("answer %+v", got)
		}
	})
	order := []state.FlowCancelPolicy{state.CancelFlowOnly, state.CancelPending, state.CancelAll, state.CancelEverything}
	cancels := []int{0, 2, 3, 3} // members
	for i, first := range order {
		for j, second := range order {
			t.Run(fmt.Sprintf("%s and %s", first, second), func(t *testing.T) {
				f := fixture.NewFlows(t)
				flow := f.Draw(t, nil, "a>b", "d")
				f.Lease(t, flow, "a")
				addMember(t, f, flow, "c")
				f.Succeed(t, flow, "d")
				at := f.Time().UnixMilli()
				f.CancelBy(t, flow, first)
				f.Advance(time.Second)
				before := f.DumpFlow(t, flow)
				got, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow, Policy: second, Reason: "a whim"})
				if err != nil {
					t.Fatal(err)
				}
				if j <= i {
					if !got.Already || got.Policy != first || got.Reason != "not needed" || len(got.Members) != 4 {
						t.Errorf("answer %+v", got)
					}
					if after := f.DumpFlow(t, flow); after != before {
						t.Errorf("stored\n%s, was\n%s", after, before)
					}
					return
				}
				if got.Already || got.Policy != second || got.Reason != "not needed" {
					t.Errorf("answer %+v", got)
				}
				row := flowRow(t, f, flow)
				raw := row["raw_fields"].(map[string]any)
				if row["terminal_at_ms"] != float64(at) || raw["cancel_reason"] != "not needed" || raw["cancellation_policy"] != string(second) {
					t.Errorf("flow %v", row)
				}
				want := map[string]string{fixture.StateRunning: "a", fixture.StateCompleted: "d", fixture.StateCancelled: "b c"}
				if second != state.CancelPending {
					want = map[string]string{fixture.StateCompleted: "d", fixture.StateCancelled: "a b c"}
				}
				f.WantMembers(t, flow, want)
				if len(got.Members) != cancels[j]-cancels[i] || len(got.StillRunning) != 3-cancels[j] {
					t.Errorf("cancelled %d, %d still run", len(got.Members), len(got.StillRunning))
				}
			})
		}
	}
	for _, stored := range []string{"completed", "failed"} {
		t.Run(stored, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a")
			f.Exec(t, "UPDATE ff_flow_core SET public_flow_state = $3 WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow, stored)
			if got := f.CancelBy(t, flow, state.CancelPending); !got.Already || got.Policy != state.CancelPending || len(got.Members) != 1 {
				t.Errorf("answer %+v", got)
			}
			f.WantMembers(t, flow, map[string]string{fixture.StateReady: "a"})
		})
	}
	t.Run("many", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, fixture.Wide(1000, true))
		f.CancelBy(t, flow, state.CancelAll)
		if got := f.CancelBy(t, flow, state.CancelAll); !got.Already || len(got.Members) != engine.MaxBatch {
			t.Errorf("answers with %d members", len(got.Members))
		}
	})
}

// Input that no cancel accepts, or that cannot be read.
func TestCancelFlowRefusesBadInput(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	before := f.DumpFlow(t, flow)
	for field, spec := range map[string]engine.CancelFlowSpec{
		"policy": {ID: flow, Policy: "cancel_none"},
		"reason": {ID: flow, Reason: strings.Repeat("x", engine.MaxFlowCancelReason+1)},
	} {
		_, err := f.CancelFlow(t.Context(), spec)
		if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != field {
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
		if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	other := f.Create(t)
	if err := f.AckFlowCancel(t.Context(), flow, id.ExecutionIDFromRow(fixture.PartitionOf(flow)^1, other.UUID())); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("acknowledged: %v", err)
	}
	if after := f.DumpFlow(t, flow); after != before {
		t.Errorf("stored\n%s, was\n%s", after, before)
	}
	f.Exec(t, "UPDATE ff_flow_core SET raw_fields = '[]' WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
	if _, err := f.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); !errors.Is(err, fferr.ErrCorruption) {
		t.Errorf("got %v", err)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateReady: "a", fixture.StateHeld: "b"})
}

// The holders of cancelled members are refused, however they call, and nothing brings a member back.
func TestHoldersOfCancelledMembersAreRefused_F4(t *testing.T) {
	t.Parallel()
	for name, call := range fixture.HolderCalls {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b")
			l := f.Lease(t, flow, "a")
			f.CancelBy(t, flow, state.CancelAll)
			before := f.DumpFlow(t, flow)
			if err := call(t, f.Engine, l); !errors.Is(err, fferr.ErrStaleLease) {
				t.Errorf("got %v", err)
			}
			if after := f.DumpFlow(t, flow); after != before {
				t.Errorf("stored\n%s, was\n%s", after, before)
			}
		})
	}
	t.Run("grant", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.GrantFixture(t))
		flow := f.Draw(t, nil, "a")
		grant := f.Issue(t, f.NodeID(flow, "a"))
		f.CancelBy(t, flow, state.CancelPending)
		if _, err := interop.ClaimExecution(t.Context(), f.Fixture.Engine, f.Using(grant)); err == nil {
			t.Error("claimed by a grant")
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a"})
	})
}

// The reference sends four statements a member.
func TestCancelFlowStatementsAreConstant_F6(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	f.CancelBy(t, f.Draw(t, nil, "a>b"), state.CancelAll) // prepares the statements
	for policy, many := range map[state.FlowCancelPolicy]int{state.CancelAll: engine.MaxNodes, state.CancelPending: 1000} {
		var counts [][]string
		for _, n := range []int{10, many} {
			flow := f.NewFlowOf(t, fixture.Layered(n, n-1))
			sent := fixture.Names(log.During(func() {
				if got := f.CancelBy(t, flow, policy); len(got.Members) != n {
					t.Errorf("cancelled %d of %d", len(got.Members), n)
				}
			}))
			sent = slices.DeleteFunc(sent, func(name string) bool { return fixture.IsSettings(name) || name == "commit" })
			counts = append(counts, sent)
		}
		if !slices.Equal(counts[0], counts[1]) || len(counts[0]) > 14 {
			t.Errorf("%s: few take %q, many %q", policy, counts[0], counts[1])
		}
		t.Logf("%s: %d statements: %q", policy, len(counts[0]), counts[0])
	}
}

// Members outside the cancelled set are resolved: skipped if they can no longer run.
func TestCancelFlowResolvesRemainingMembers(t *testing.T) {
	f := fixture.NewFlows(t)
	// c runs beside b, which it may wait for; it is not pulled from under its worker.
	flow := f.Draw(t, nil, "a>b", "b>c")
	f.Lease(t, flow, "a")
	c := f.NodeID(flow, "c")
	f.SetExecution(t, c, "lifecycle_phase = 'suspended', public_state = 'suspended'")
	f.CancelBy(t, flow, state.CancelPending)
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Fail: 1, KTarget: 1})
	fixture.WantEqual(t, "edges", f.Edges(t, flow), map[string]string{"a>b": "applied", "b>c": "impossible cancelled"})
	f.Fail(t, flow, "a")
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Fail: 1, KTarget: 1})
	if got := f.Members(t, flow); !strings.HasPrefix(got["c"], "suspended") || got["b"] != fixture.StateCancelled {
		t.Errorf("members %v", got)
	}
}

// Listed siblings of decided groups end with the flow; a milder cancel leaves them to their job.
func TestCancelFlowSettlesListedSiblings(t *testing.T) {
	t.Parallel()
	for policy, want := range map[state.FlowCancelPolicy]fixture.StoredGroup{
		state.CancelAll:     {Success: 1, Fail: 2, KTarget: 1},
		state.CancelPending: {Success: 1, Running: 2, KTarget: 1, Flagged: true, Siblings: "b c", Enqueued: true},
	} {
		t.Run(string(policy), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d", "c>d")
			f.ClaimAll(t)
			f.Succeed(t, flow, "a")
			f.CancelBy(t, flow, policy)
			f.WantGroup(t, flow, "d", want)
		})
	}
}

// A cancel in a caller's transaction is the caller's: it commits with it, is rolled back with it, and a refusal keeps
// nothing.
func TestCancelFlowInATransaction(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	f.Lease(t, flow, "a")
	before := f.DumpFlow(t, flow)
	spec := engine.CancelFlowSpec{ID: flow}
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).CancelFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := f.DumpFlow(t, flow); after != before {
		t.Errorf("stored\n%s, was\n%s", after, before)
	}
	tx = f.BeginTx(t)
	bound := f.WithTx(tx)
	if _, err := bound.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow, Policy: "none"}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("got %v", err)
	}
	if _, err := bound.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: id.NewFlowID()}); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if held := f.HeldLocks(t, flow, f.NodeID(flow, "a"), f.NodeID(flow, "b")); len(held) > 0 {
		t.Errorf("the refusals hold %q", held)
	}
	if _, err := bound.CancelFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if got, err := bound.CancelFlow(t.Context(), spec); err != nil || !got.Already {
		t.Errorf("again: %+v, %v", got, err)
	}
	fixture.Commit(t, tx)
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b"})
}

// At the caller's level there is no retry: a transaction that began before the flow changed gets an error.
func TestCancelFlowReportsAnOldSnapshot(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b")
			tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
			fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2", fixture.PartitionOf(flow), flow)
			addMember(t, f, flow, "c")
			before := f.DumpFlow(t, flow)
			_, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow})
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40001" || !errors.Is(err, fferr.ErrContention) {
				t.Errorf("got %v, want 40001", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := f.DumpFlow(t, flow); after != before {
				t.Errorf("stored\n%s, was\n%s", after, before)
			}
			tx = fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
			if _, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
				t.Fatal(err)
			}
			fixture.Commit(t, tx)
			f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b c"})
		})
	}
}

// A caller that waits for the flow learns of its end, and that its time is over if it does not end.
func TestCancelFlowEndsAwaitFlow(t *testing.T) {
	f := fixture.FlowsOn(fixture.Clone(t))
	flow := f.Draw(t, nil, "a>b")
	f.Lease(t, flow, "a")
	if _, err := f.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: flow, Grace: time.Minute}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond) //pace:allow it is to run out
	defer cancel()
	if _, err := f.AwaitFlow(short, flow); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	wait := fixture.Async(t, func(ctx context.Context) error { _, err := f.AwaitFlow(ctx, flow); return err })
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 2)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	snapshot, err := f.DescribeFlow(t.Context(), flow)
	if err != nil || snapshot.State != state.FlowCancelled || snapshot.CancelReason != "flow_cancelled" || snapshot.CancelPolicy != state.CancelAll {
		t.Errorf("described as %+v, %v", snapshot, err)
	}
}
