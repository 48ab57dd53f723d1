package flows

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
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// branches are an error branch and a clean-up.
var branches = fixture.When{"refund": policy.OnFailure(), "tidy": policy.Always()}

// drawOrder draws an order: a charge and its later steps, a refund for their failure, and a clean-up. Only the refund
// leads to the mail; the audit also waits for an ordinary member.
func drawOrder(t *testing.T, f *fixture.Flows) id.FlowID {
	t.Helper()
	return f.Draw(t, branches, "charge>ship", "charge>refund", "ship>refund", "refund>mail", "ship>tidy", "charge>audit", "refund>audit")
}

// keysOfExecutions are the keys of members, sorted.
func keysOfExecutions(f *fixture.Flows, executions []id.ExecutionID) string {
	keys := make([]string, len(executions))
	for i, x := range executions {
		keys[i] = f.Name(x.UUID())
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// wantCancelled compares the cancelled and the running members.
func wantCancelled(t *testing.T, f *fixture.Flows, got engine.CancelledFlow, members, running string) {
	t.Helper()
	if m, r := keysOfExecutions(f, got.Members), keysOfExecutions(f, got.StillRunning); m != members || r != running {
		t.Errorf("cancelled %q, still running %q; want %q and %q", m, r, members, running)
	}
	if !slices.IsSortedFunc(got.StillRunning, id.ExecutionID.Compare) {
		t.Errorf("still running in no order: %v", got.StillRunning)
	}
}

// wantOneEnd fails the test unless each member has ended once.
func wantOneEnd(t *testing.T, f *fixture.Flows, flow id.FlowID) {
	t.Helper()
	ends := make(map[string]int)
	for _, event := range f.CompletionEvents(t, flow) {
		key, _, _ := strings.Cut(event, " ")
		ends[key]++
	}
	for key, stored := range f.Members(t, flow) {
		if ends[key] != 1 || !strings.HasPrefix(stored, "terminal") && !strings.HasPrefix(stored, "cancelled") {
			t.Errorf("%s has ended %d times: %s", key, ends[key], stored)
		}
	}
}

// endFlow completes all claimable executions, until nothing is left.
func endFlow(t *testing.T, f *fixture.Flows, flow id.FlowID) {
	t.Helper()
	for {
		if _, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		f.ClaimAll(t)
		var keys []string
		for key, stored := range f.Members(t, flow) {
			if stored == fixture.StateRunning {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			return
		}
		f.Succeed(t, flow, keys...)
	}
}

type cancelOf func(context.Context, *engine.Engine, id.FlowID, state.FlowCancelPolicy) (engine.CancelledFlow, error)

// cancelsOf are the ways to cancel a flow at once.
var cancelsOf = map[string]cancelOf{
	"cancel": func(ctx context.Context, e *engine.Engine, flow id.FlowID, how state.FlowCancelPolicy) (engine.CancelledFlow, error) {
		return e.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: how})
	},
	"request": func(ctx context.Context, e *engine.Engine, flow id.FlowID, how state.FlowCancelPolicy) (engine.CancelledFlow, error) {
		return e.RequestFlowCancel(ctx, engine.FlowCancelRequest{ID: flow, Policy: how})
	},
}

// With a charge made, cancelling the order runs its refund, and the members that only the refund leads to.
func TestCancelFlowRunsTheRefund(t *testing.T) {
	t.Parallel()
	for way, cancel := range cancelsOf {
		t.Run(way, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := drawOrder(t, f)
			f.Succeed(t, flow, "charge")
			f.Lease(t, flow, "ship")
			got, err := cancel(t.Context(), f.Engine, flow, "")
			if err != nil {
				t.Fatal(err)
			}
			wantCancelled(t, f, got, "audit ship", "mail refund tidy")
			f.WantMembers(t, flow, map[string]string{
				fixture.StateCompleted: "charge", fixture.StateCancelled: "audit ship", fixture.StateReady: "refund tidy", fixture.StateHeld: "mail",
			})
			upstreams, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "refund"))
			if err != nil || len(upstreams) != 2 {
				t.Fatalf("upstreams %+v, %v", upstreams, err)
			}
			for _, u := range upstreams {
				if want := map[string]state.TerminalOutcome{"charge": state.OutcomeSuccess, "ship": state.OutcomeCancelled}[u.Node]; u.Outcome != want {
					t.Errorf("%s ended as %q", u.Node, u.Outcome)
				}
			}
			fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
			wantSummary(t, f, flow, "blocked 6/6 cancelled=2 completed=1 waiting=2 waiting_children=1")
			f.Succeed(t, flow, "refund", "tidy")
			f.Succeed(t, flow, "mail")
			f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "charge mail refund tidy", fixture.StateCancelled: "audit ship"})
			wantOneEnd(t, f, flow)
			described, err := f.AwaitFlow(t.Context(), flow)
			if err != nil || !described.Ended || described.State != state.FlowCancelled {
				t.Errorf("described as %+v, %v", described, err)
			}
			fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
			wantSummary(t, f, flow, "failed 6/6 cancelled=2 completed=4")
		})
	}
}

// Clean-ups may do anything when their flow is cancelled: only CancelEverything cancels them, and every member ends
// once.
func TestCancelFlowSparesCleanUps(t *testing.T) {
	t.Parallel()
	type test struct {
		name    string
		arrange func(t *testing.T, f *fixture.Flows) id.FlowID
		all     string // cancelled by CancelAll and
		pending string // by CancelPending
	}
	cases := []test{
		{"waiting", drawOrder, "audit charge ship", "audit charge ship"},
		{"released", func(t *testing.T, f *fixture.Flows) id.FlowID {
			flow := f.Draw(t, branches, "a>refund", "refund>mail", "a>tidy", "b")
			f.Fail(t, flow, "a")
			return flow
		}, "b", ""},
		{"running", func(t *testing.T, f *fixture.Flows) id.FlowID {
			flow := f.Draw(t, branches, "a>refund", "refund>mail", "a>tidy", "b>c")
			f.Fail(t, flow, "a")
			f.ClaimAll(t)
			return flow
		}, "b c", "c"},
		{"delayed", func(t *testing.T, f *fixture.Flows) id.FlowID {
			flow := f.Draw(t, branches, "a>tidy", "b>c")
			f.Fail(t, flow, "a")
			if err := f.DelayExecution(t.Context(), f.Lease(t, flow, "tidy"), f.Time().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			f.Succeed(t, flow, "b")
			return flow
		}, "c", "c"},
		{"parked", func(t *testing.T, f *fixture.Flows) id.FlowID {
			flow := f.Draw(t, branches, "a>tidy", "b>c")
			l := f.Early(t, flow, "tidy")
			if got, err := f.WaitForChildren(t.Context(), l); err != nil || got != engine.WaitingParked {
				t.Fatalf("%s, %v", got, err)
			}
			return flow
		}, "a b c", "c"},
		{"ended", func(t *testing.T, f *fixture.Flows) id.FlowID {
			flow := f.Draw(t, branches, "a>refund", "refund>mail", "a>tidy", "b>c")
			f.Fail(t, flow, "a")
			f.Succeed(t, flow, "refund", "tidy")
			return flow
		}, "b c", "c"},
		{"skipped", func(t *testing.T, f *fixture.Flows) id.FlowID {
			flow := f.Draw(t, branches, "a>refund", "refund>mail", "b>c")
			f.Succeed(t, flow, "a")
			fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
			return flow
		}, "b c", "c"},
		{"about to be skipped", func(t *testing.T, f *fixture.Flows) id.FlowID {
			flow := f.Draw(t, branches, "a>refund", "refund>mail", "b>c")
			f.Succeed(t, flow, "a")
			return flow
		}, "b c", "c"},
		{"below others", func(t *testing.T, f *fixture.Flows) id.FlowID {
			return f.Draw(t, fixture.When{"x": policy.OnFailure(), "z": policy.Always(), "any": policy.AnyOf(policy.CancelRemaining)},
				"a>x", "x>y", "y>z", "z>any", "x>any", "a>z")
		}, "a", "a"},
		{"none", func(t *testing.T, f *fixture.Flows) id.FlowID { return f.Draw(t, nil, "a>b", "b>c") }, "a b c", "a b c"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			for _, how := range []state.FlowCancelPolicy{state.CancelFlowOnly, state.CancelPending, state.CancelAll, state.CancelEverything} {
				for way, cancel := range cancelsOf {
					t.Run(fmt.Sprintf("%s/%s", how, way), func(t *testing.T) {
						flow := c.arrange(t, f)
						wantSpared(t, f, flow, how, map[state.FlowCancelPolicy]string{state.CancelAll: c.all, state.CancelPending: c.pending}[how], cancel)
					})
				}
			}
		})
	}
}

// wantSpared cancels a flow and fails the test unless that cancels some members, or, by CancelEverything, all, and unless
// the others go on to their end.
func wantSpared(t *testing.T, f *fixture.Flows, flow id.FlowID, how state.FlowCancelPolicy, want string, cancel cancelOf) {
	t.Helper()
	before := make(map[string]string)
	var live []string
	for key, stored := range f.Members(t, flow) {
		before[key] = f.Dump(t, f.NodeID(flow, key))
		if !strings.HasPrefix(stored, "terminal") {
			live = append(live, key)
		}
	}
	if slices.Sort(live); how == state.CancelEverything {
		want = strings.Join(live, " ")
	}
	got, err := cancel(t.Context(), f.Engine, flow, how)
	if err != nil {
		t.Fatal(err)
	}
	if members := keysOfExecutions(f, got.Members); members != want {
		t.Errorf("cancelled %q, want %q", members, want)
	}
	for key, stored := range f.Members(t, flow) {
		cancelled := slices.Contains(strings.Fields(want), key)
		running := slices.Contains(got.StillRunning, f.NodeID(flow, key))
		ended := strings.HasPrefix(stored, "terminal") || strings.HasPrefix(stored, "cancelled")
		if cancelled != strings.HasPrefix(stored, "cancelled") || running == ended {
			t.Errorf("%s: %s, listed as running: %t", key, stored, running)
		}
		if how == state.CancelFlowOnly || !slices.Contains(live, key) {
			f.WantUnchanged(t, f.NodeID(flow, key), before[key])
		}
	}
	f.Advance(2 * time.Second)
	if _, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	endFlow(t, f, flow)
	if _, err := upkeep.Of(f.Engine).CancelSiblings(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	wantOneEnd(t, f, flow)
}

// CancelEverything after a milder cancel ends the clean-ups too.
func TestCancelEverythingAfterAMilderCancel(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := drawOrder(t, f)
	f.Succeed(t, flow, "charge")
	wantCancelled(t, f, f.CancelBy(t, flow, state.CancelPending), "audit ship", "mail refund tidy")
	if got := f.CancelBy(t, flow, state.CancelPending); !got.Already || keysOfExecutions(f, got.StillRunning) != "mail refund tidy" {
		t.Errorf("again: %+v", got)
	}
	wantCancelled(t, f, f.CancelBy(t, flow, state.CancelAll), "", "mail refund tidy")
	f.Lease(t, flow, "refund")
	wantCancelled(t, f, f.CancelBy(t, flow, state.CancelEverything), "mail refund tidy", "")
	wantOneEnd(t, f, flow)
	if described, err := f.DescribeFlow(t.Context(), flow); err != nil || described.CancelPolicy != state.CancelEverything {
		t.Errorf("described as %+v, %v", described, err)
	}
}

// A clean-up that nothing can release in a cancelled flow would wait for ever, so it is cancelled with the rest, and
// so are the members that only it leads to.
func TestCancelFlowCancelsCleanUpsThatNothingReleases(t *testing.T) {
	t.Parallel()
	t.Run("staged edge", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, branches, "a>tidy", "b>tidy", "tidy>last", "a>refund")
		f.StageOnly(t, flow, "b", "tidy")
		wantCancelled(t, f, f.CancelBy(t, flow, state.CancelAll), "a b last tidy", "refund")
	})
	t.Run("replayed", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, branches, "a>refund", "refund>mail", "b>tidy")
		f.Succeed(t, flow, "a")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.Replay(t, f.NodeID(flow, "refund"))
		wantCancelled(t, f, f.CancelBy(t, flow, state.CancelAll), "b refund", "tidy")
		f.Succeed(t, flow, "tidy")
		f.WantState(t, f.NodeID(flow, "mail"), fixture.StateSkipped)
	})
	t.Run("replayed, beside an upstream that runs", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, branches, "a>tidy", "a>refund", "b>refund", "tidy>both", "refund>both")
		f.Succeed(t, flow, "a", "b") // refund is skipped, and so is both
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 2)
		f.Replay(t, f.NodeID(flow, "both"))
		f.WantState(t, f.NodeID(flow, "both"), fixture.StateReplayedHeld)
		wantCancelled(t, f, f.CancelBy(t, flow, state.CancelAll), "both", "tidy")
		f.Succeed(t, flow, "tidy")
		f.WantState(t, f.NodeID(flow, "both"), fixture.StateCancelled)
	})
	t.Run("quorum of more than there are", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, branches, "a>tidy", "b", "c>b")
		if _, err := f.SetGroupPolicy(t.Context(), flow, f.NodeID(flow, "late"), policy.Quorum(2, policy.LetRun)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.GrowFlow(t.Context(), f.Growth(flow, nil, "late", "tidy>late")); err != nil {
			t.Fatal(err)
		}
		wantCancelled(t, f, f.CancelBy(t, flow, state.CancelAll), "a b c late", "tidy")
	})
	t.Run("below", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, branches, "a>refund", "refund>mail", "b")
		f.Succeed(t, flow, "a")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.Replay(t, f.NodeID(flow, "mail"))
		f.WantState(t, f.NodeID(flow, "mail"), fixture.StateReplayedHeld)
		wantCancelled(t, f, f.CancelBy(t, flow, state.CancelAll), "b mail", "")
	})
}

// A grace holds back the clean-ups of members that it leaves running, and the job that ends it releases them.
func TestCleanUpsRunWhenTheGraceIsOver(t *testing.T) {
	t.Parallel()
	for how, noted := range map[state.FlowCancelPolicy]string{
		state.CancelAll: "cancel_all audit charge ship", state.CancelEverything: "cancel_everything audit charge mail refund ship tidy",
	} {
		t.Run(string(how), func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := drawOrder(t, f)
			f.Lease(t, flow, "charge")
			got := f.Request(t, engine.FlowCancelRequest{ID: flow, Policy: how, Grace: time.Minute})
			wantBacklog(t, f, flow, noted)
			if how == state.CancelEverything {
				wantCancelled(t, f, got, "audit charge mail refund ship tidy", "charge")
				f.Advance(time.Minute)
				fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 6)
				wantOneEnd(t, f, flow)
				return
			}
			wantCancelled(t, f, got, "audit charge ship", "charge mail refund tidy")
			f.WantMembers(t, flow, map[string]string{
				fixture.StateRunning: "charge", fixture.StateCancelled: "audit ship", fixture.StateHeld: "mail refund", fixture.StateReady: "tidy",
			})
			f.Advance(time.Minute)
			fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 3)
			f.WantMembers(t, flow, map[string]string{
				fixture.StateCancelled: "audit charge ship", fixture.StateReady: "refund tidy", fixture.StateHeld: "mail",
			})
			wantBacklog(t, f, flow, "")
			endFlow(t, f, flow)
			wantOneEnd(t, f, flow)
		})
	}
}

// A member that completes while the cancel waits for its row ends as it does, and a clean-up of it is decided by that.
func TestCleanUpsFollowACompletionThatComesFirst(t *testing.T) {
	t.Parallel()
	for way, cancel := range cancelsOf {
		t.Run(way, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.Draw(t, branches, "a>refund", "refund>mail", "a>tidy", "b")
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if err := f.WithTx(tx).CompleteExecution(t.Context(), f.Lease(t, flow, "a"), nil); err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, func(ctx context.Context) error { _, err := cancel(ctx, late.Engine, flow, ""); return err })
			late.AwaitBlocked(t, f.Fixture)
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			endFlow(t, f, flow)
			f.WantMembers(t, flow, map[string]string{
				fixture.StateCompleted: "a tidy", fixture.StateCancelled: "b", fixture.StateSkipped: "refund mail",
			})
			wantOneEnd(t, f, flow)
		})
	}
}

// A member that is completed while the cancel holds its locks is refused, and its clean-ups are released once.
func TestCleanUpsRunOnceWhenACompletionComesLate(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := drawOrder(t, f)
	l := f.Lease(t, flow, "charge")
	late := f.Rival(t)
	tx := f.BeginTx(t)
	if _, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
		t.Fatal(err)
	}
	wait := fixture.Async(t, func(ctx context.Context) error { return late.CompleteExecution(ctx, l, nil) })
	late.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); !errors.Is(err, fferr.ErrStaleLease) {
		t.Errorf("completed: %v", err)
	}
	endFlow(t, f, flow)
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "audit charge ship", fixture.StateCompleted: "mail refund tidy"})
	wantOneEnd(t, f, flow)
}

// Of two concurrent cancels the second one finds the state that the first left.
func TestTwoCancelsAtOnceReleaseCleanUpsOnce(t *testing.T) {
	t.Parallel()
	for how, want := range map[state.FlowCancelPolicy]string{state.CancelAll: "", state.CancelEverything: "mail refund tidy"} {
		t.Run(string(how), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := drawOrder(t, f)
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if _, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
				t.Fatal(err)
			}
			var got engine.CancelledFlow
			wait := fixture.Async(t, func(ctx context.Context) (err error) {
				got, err = late.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow, Policy: how})
				return err
			})
			late.AwaitBlocked(t, f.Fixture)
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			if how == state.CancelAll {
				if !got.Already || keysOfExecutions(f, got.StillRunning) != "mail refund tidy" {
					t.Errorf("answer %+v", got)
				}
			} else {
				wantCancelled(t, f, got, want, "")
			}
			endFlow(t, f, flow)
			wantOneEnd(t, f, flow)
		})
	}
}

// A clean-up that a growth adds at the same time is one of the flow, or the growth is refused.
func TestGrowthAddsACleanUpToAFlowBeingCancelled(t *testing.T) {
	t.Parallel()
	growth := func(f *fixture.Flows, flow id.FlowID) engine.Growth {
		return f.Growth(flow, fixture.When{"late": policy.Always()}, "late next", "a>late", "late>next")
	}
	t.Run("before", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>b")
		late := f.Rival(t)
		tx := f.BeginTx(t)
		if _, err := f.WithTx(tx).GrowFlow(t.Context(), growth(f, flow)); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error {
			_, err := late.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
			return err
		})
		late.AwaitBlocked(t, f.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b", fixture.StateReady: "late", fixture.StateHeld: "next"})
	})
	t.Run("after", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>b")
		late := f.Rival(t)
		tx := f.BeginTx(t)
		if _, err := f.WithTx(tx).CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error { _, err := late.GrowFlow(ctx, growth(f, flow)); return err })
		late.AwaitBlocked(t, f.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); !errors.Is(err, fferr.ErrFlowTerminal) {
			t.Errorf("grown: %v", err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b"})
	})
}
