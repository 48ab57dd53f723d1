package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// calls returns the calls of the registry, in their order.
func (b *bubble) calls() (calls []string) {
	for _, beat := range b.seen().beats {
		calls = append(calls, beat.call)
	}
	return calls
}

// A worker registers when it starts, reports its load three times in a TTL, and leaves when it stops.
func TestWorkerRegistersReportsAndLeaves(t *testing.T) {
	var release chan struct{}
	setUp := func(w *Worker, f *fakeEngine) {
		release = make(chan struct{})
		on(w, "slow", func(context.Context, Job[struct{}]) (struct{}, error) {
			<-release
			return struct{}{}, nil
		})
		on(w, "another", func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
		f.putMany(3, "slow")
	}
	cfg := Config{Worker: "images", Instance: "images-1", Concurrency: 2, Capabilities: []string{"gpu"}}
	inBubble(t, cfg, setUp, func(t *testing.T, b *bubble) {
		b.pass(time.Minute)
		seen := b.seen()
		want := engine.WorkerRegistration{
			WorkerName: engine.WorkerName{Instance: "images-1"}, Worker: "images", Lanes: []id.LaneID{"default"},
			Capabilities: id.Capabilities{"gpu"}, Kinds: []string{"another", "slow"}, Concurrency: 2,
		}
		seen.registration.Running = 0 // as it happens
		if got := seen.registration; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("registered %+v, want %+v", got, want)
		}
		if n := len(seen.beats); n < 6 || n > 8 {
			t.Errorf("%d calls in a minute, want one in ten seconds: %+v", n, seen.beats)
		}
		for i, beat := range seen.beats[1:] {
			if beat.call != "heartbeat" || beat.running != 2 || beat.stopping {
				t.Errorf("call %d is %+v, want a heartbeat with two running", i+1, beat)
			}
			if d := beat.at - seen.beats[i].at; d < presenceInterval*9/10 || d > presenceInterval*11/10 {
				t.Errorf("%v between two calls", d)
			}
		}
		go func() {
			b.pass(5 * time.Second)
			close(release)
		}()
		b.stop()
		beats := b.seen().beats[len(seen.beats):]
		if len(beats) < 2 || beats[0].call != "heartbeat" || !beats[0].stopping || beats[len(beats)-1].call != "stopped" {
			t.Errorf("at the end %+v, want a heartbeat that says so, and the removal", beats)
		}
	})
}

// A heartbeat has the starts of the last ten minutes, and the kinds whose handlers are all taken.
func TestHeartbeatHasStartsAndFullKinds(t *testing.T) {
	var release chan struct{}
	setUp := func(w *Worker, f *fakeEngine) {
		release = make(chan struct{})
		slow := func(context.Context, Job[struct{}]) (struct{}, error) {
			<-release
			return struct{}{}, nil
		}
		Handle(w, engine.Kind[struct{}, struct{}]{Name: "slow"}, slow, Concurrency(2))
		on(w, "quick", func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
		f.putMany(2, "slow")
		f.putMany(5, "quick")
	}
	last := func(b *bubble) beat {
		beats := b.seen().beats
		return beats[len(beats)-1]
	}
	inBubble(t, Config{Concurrency: 10, LeaseTTL: time.Hour}, setUp, func(t *testing.T, b *bubble) {
		b.pass(time.Minute)
		if got := last(b); got.started != 7 || !slices.Equal(got.full, []string{"slow"}) {
			t.Errorf("the heartbeat is %+v, want 7 starts, and all handlers of slow taken", got)
		}
		close(release)
		b.pass(time.Minute)
		b.eng.putMany(3, "quick")
		b.wakeLane()
		b.pass(time.Minute)
		if got := last(b); got.started != 10 || len(got.full) != 0 {
			t.Errorf("the heartbeat is %+v, want 10 starts, and no kind full", got)
		}
		b.pass(startsWindow - 2*time.Minute)
		if got := last(b); got.started != 3 {
			t.Errorf("the heartbeat is %+v, want the last 3 starts", got)
		}
		b.pass(startsWindow)
		if got := last(b); got.started != 0 {
			t.Errorf("the heartbeat is %+v, want no start", got)
		}
		b.stop()
	})
}

// A worker whose row was deleted registers again with its next heartbeat, and reports the starts since then.
func TestSweptWorkerRegistersAgain(t *testing.T) {
	swept := false
	setUp := func(w *Worker, f *fakeEngine) {
		quickAndSlow(w, f)
		f.presenceErr = func(call string) error {
			if swept && call == "heartbeat" {
				swept = false
				return &fferr.NotFoundError{Entity: "worker"}
			}
			return nil
		}
	}
	inBubble(t, Config{}, setUp, func(t *testing.T, b *bubble) {
		b.eng.putMany(5, "quick")
		b.wakeLane()
		b.pass(15 * time.Second)
		if beats := b.seen().beats; beats[len(beats)-1].started != 5 {
			t.Errorf("the heartbeats are %+v, want 5 starts", beats)
		}
		b.eng.mu.Lock()
		swept = true
		b.eng.mu.Unlock()
		b.pass(11 * time.Second)
		b.eng.putMany(2, "quick")
		b.wakeLane()
		b.pass(11 * time.Second)
		if beats := b.seen().beats; beats[len(beats)-1].started != 2 {
			t.Errorf("the heartbeats are %+v, want the 2 starts since the registration", beats)
		}
		calls := b.calls()
		at := slices.Index(calls[1:], "register")
		if at < 1 || calls[at] != "heartbeat" || slices.Contains(calls[at+2:], "register") {
			t.Errorf("calls %q, want another registration right after the refused heartbeat", calls)
		}
		if strings.Contains(b.log.String(), "level=WARN") {
			t.Errorf("logged:\n%s", b.log)
		}
	})
}

// A worker that can't register works all the same. It says so, and tries again.
func TestWorkerRunsWithoutPresence(t *testing.T) {
	setUp := func(w *Worker, f *fakeEngine) {
		quickAndSlow(w, f)
		f.presenceErr = func(string) error { return fferr.ErrInstanceTaken }
	}
	inBubble(t, Config{}, setUp, func(t *testing.T, b *bubble) {
		b.eng.putMany(3, "quick")
		b.wakeLane()
		b.pass(31 * time.Second)
		if n := len(b.seen().done); n == 0 {
			t.Error("nothing was completed")
		}
		calls := b.calls()
		if len(calls) < 3 || slices.Contains(calls, "heartbeat") {
			t.Errorf("calls %q, want registrations alone", calls)
		}
		b.wantLogged(t, map[string]int{"a worker of another pool has its instance id": len(calls)})
	})
}

// With NoRegister a worker makes no call of the registry.
func TestWorkerThatIsNotRegisteredMakesNoCall(t *testing.T) {
	inBubble(t, Config{NoRegister: true}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.pass(time.Minute)
		b.stop()
		if calls := b.calls(); len(calls) > 0 {
			t.Errorf("calls %q", calls)
		}
	})
}

// An operator who drains an idle worker notifies it. It asks at once, and says that it is drained, although it claims
// nothing.
func TestIdleWorkerHearsThatItIsDrained(t *testing.T) {
	inBubble(t, Config{}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.pass(2 * time.Second)
		before := len(b.calls())
		b.eng.mu.Lock()
		b.eng.drainedSince = time.Now()
		b.eng.mu.Unlock()
		for range 5 {
			b.eng.lose()
		}
		b.pass(time.Millisecond)
		if n := len(b.calls()) - before; n != 1 {
			t.Errorf("%d heartbeats after five notifications, want one", n)
		}
		b.wantLogged(t, map[string]int{"worker is drained": 1, "worker claims again": 0})
		b.eng.mu.Lock()
		b.eng.drainedSince = time.Time{}
		b.eng.mu.Unlock()
		b.pass(presenceInterval * 2)
		b.wantLogged(t, map[string]int{"worker is drained": 1, "worker claims again": 1})
	})
}

// Work of a kind that another live worker handles is no reason for a warning: it waits until that worker has room. A
// drained worker, or one that stops, doesn't count.
func TestWorkerWarnsOfNoKindThatAnotherHandles(t *testing.T) {
	var other engine.RegisteredWorker
	setUp := func(w *Worker, f *fakeEngine) {
		quickAndSlow(w, f)
		next := id.ExecutionIDFromRow(0, id.NewExecutionUUID())
		f.waiting = func(engine.WaitingFilter) ([]engine.WaitingKind, error) {
			return []engine.WaitingKind{{Lane: "default", Kind: "report", Waiting: 7, Since: epoch, Next: next}}, nil
		}
		other = engine.RegisteredWorker{Lanes: []id.LaneID{"default"}, Kinds: []string{"mail", "report"}, Live: true}
		f.others = []engine.RegisteredWorker{other}
	}
	inBubble(t, Config{}, setUp, func(t *testing.T, b *bubble) {
		b.pass(5 * time.Minute)
		b.wantLogged(t, map[string]int{"no worker takes work": 0})
		b.eng.mu.Lock()
		b.eng.others[0].DrainedSince = time.Now()
		b.eng.mu.Unlock()
		b.pass(5 * time.Minute)
		synctest.Wait()
		b.wantLogged(t, map[string]int{"no worker takes work": 1})
	})
}
