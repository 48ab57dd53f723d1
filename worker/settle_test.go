package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
)

// quick and slow are handlers of the kinds "quick" and "slow": one returns at once, one after a second.
func quickAndSlow(w *Worker, _ *fakeEngine) {
	on(w, "quick", func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
	on(w, "slow", func(ctx context.Context, _ Job[struct{}]) (struct{}, error) {
		select {
		case <-ctx.Done():
			return struct{}{}, context.Cause(ctx)
		case <-time.After(time.Second):
			return struct{}{}, nil
		}
	})
}

func TestSettle_alone_at_once(t *testing.T) {
	bothWays(t, Config{}, quickAndSlow, func(t *testing.T, b *bubble) {
		began := sinceEpoch()
		b.eng.putMany(1, "quick")
		b.tell()
		if len(b.seen().done) != 1 || b.seen().done[0].at != began {
			t.Errorf("completions %v, want one at %v", b.seen().done, began)
		}
	})
}

func TestSettle_together_what_came_during_a_commit(t *testing.T) {
	var commit chan struct{}
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		commit = make(chan struct{})
		eng.doneErr = func([]engine.Completion) (item, call error) {
			if len(eng.done) == 1 {
				eng.mu.Unlock()
				<-commit
				eng.mu.Lock()
			}
			return nil, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.tell()
		b.eng.putMany(3, "quick")
		b.tell()
		close(commit)
		synctest.Wait()
		if done := b.seen().done; len(done) != 2 || len(done[0].items) != 1 || len(done[1].items) != 3 {
			t.Errorf("completions %v, want one, and then the three that came meanwhile", done)
		}
	})
}

func TestSettle_full_batches(t *testing.T) {
	inBubble(t, Config{SettleBatch: 10}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(35, "quick")
		b.tell()
		b.pass(time.Second)
		if n := items(b.seen().done); n != 35 {
			t.Errorf("%d completed, want 35", n)
		}
		for _, c := range b.seen().done {
			if len(c.items) > 10 {
				t.Errorf("batch of %d, want at most 10", len(c.items))
			}
		}
	})
}

func TestSettle_repeats_after_failures(t *testing.T) {
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = outOfReach(2)
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.tell()
		b.pass(time.Second)
		if len(b.seen().done) != 3 {
			t.Fatalf("%d calls, want 3", len(b.seen().done))
		}
		for i, full := range []time.Duration{firstSettlePause, 2 * firstSettlePause} {
			if pause := b.seen().done[i+1].at - b.seen().done[i].at; pause < full/2 || pause > full {
				t.Errorf("pause %d is %v, want between %v and %v", i, pause, full/2, full)
			}
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held, want 0", n)
		}
	})
}

func TestSettle_one_execution_does_not_keep_the_others(t *testing.T) {
	poison := work("quick")
	settled := make(map[string]int)
	lost := false
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func(batch []engine.Completion) (item, call error) {
			if slices.ContainsFunc(batch, func(c engine.Completion) bool { return c.Lease.Execution == poison.ID }) {
				return nil, fmt.Errorf("complete: %w", engine.ErrTransport)
			}
			for _, c := range batch {
				settled[c.Lease.Execution.String()]++
			}
			return nil, nil
		}
		eng.renewErr = func(engine.Lease) (item, call error) {
			if lost {
				item = &engine.LeaseError{Err: engine.ErrLeaseRevoked}
			}
			return item, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(20, "quick")
		b.eng.put(engine.DefaultLane, poison)
		b.eng.putMany(20, "quick")
		b.tell()
		b.pass(10 * time.Second)
		if len(settled) != 40 {
			t.Errorf("%d of 40 settled beside the one that cannot be", len(settled))
		}
		for execution, n := range settled {
			if n != 1 {
				t.Errorf("%s settled %d times", execution, n)
			}
		}
		b.pass(10 * DefaultLeaseTTL)
		if n := b.held.len(); n != 1 {
			t.Errorf("%d executions held, want the impossible one, as long as its lease lives", n)
		}
		b.eng.mu.Lock()
		lost = true
		b.eng.mu.Unlock()
		b.pass(DefaultLeaseTTL)
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held, want the impossible one given up", n)
		}
	})
}

func TestSettle_refused_result_is_a_failure(t *testing.T) {
	bothWays(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func([]engine.Completion) (item, call error) {
			return &engine.InputError{Field: "result", Reason: "too large"}, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.tell()
		if items(b.seen().failed) != 1 {
			t.Fatalf("failures %v, want one", b.seen().failed)
		}
		got := b.seen().failed[0].items[0].Failure
		if got.Class != policy.Permanent || got.Category != "result" || !strings.Contains(got.Message, "too large") {
			t.Errorf("failure %+v, want a permanent one of the result", got)
		}
	})
}

func TestSettle_lost_lease_is_dropped(t *testing.T) {
	var outcomes []Report
	inBubble(t, Config{Hooks: hookFunc(func(o Report) { outcomes = append(outcomes, o) })}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func([]engine.Completion) (item, call error) {
			return &engine.LeaseError{Err: engine.ErrStaleLease}, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.tell()
		b.pass(time.Minute)
		if len(b.seen().done) != 1 || len(b.seen().failed) != 0 {
			t.Errorf("%d completions and %d failures, want 1 and 0", len(b.seen().done), len(b.seen().failed))
		}
		if len(outcomes) != 1 || outcomes[0].Settlement != Abandoned || !errors.Is(outcomes[0].Err, engine.ErrStaleLease) {
			t.Errorf("outcomes %v, want one abandoned to a stale lease", outcomes)
		}
	})
}

func TestSettle_looks_for_work_that_a_flow_released(t *testing.T) {
	bothWays(t, Config{PollInterval: time.Hour}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func(batch []engine.Completion) (item, call error) {
			if len(eng.done) == 1 {
				eng.lanes[engine.DefaultLane] = append(eng.lanes[engine.DefaultLane], work("quick")) // its downstream
			}
			return nil, nil
		}
	}, func(t *testing.T, b *bubble) {
		member := work("quick")
		member.Flow = new(newFlowID())
		b.eng.put(engine.DefaultLane, member)
		b.tell()
		synctest.Wait()
		if n := items(b.seen().done); n != 2 {
			t.Errorf("%d completed, want the downstream too, without being told", n)
		}
	})
}
