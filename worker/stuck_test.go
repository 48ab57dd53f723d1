package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// hangHere is in the stack of a handler that hangs.
func hangHere(release <-chan struct{}) { <-release }

// A handler that ignores the end of its context is logged once, with the place where it hangs.
func TestHandlersThatIgnoreTheirContextAreLogged(t *testing.T) {
	release := make(chan struct{})
	setUp := func(w *Worker, _ *fakeEngine) {
		hang := func(context.Context, Job[size]) (size, error) {
			hangHere(release)
			return size{}, nil
		}
		Handle(w, engine.Kind[size, size]{Name: "limited"}, hang, Timeout(time.Minute))
		on(w, "long", hang)
		on(w, "patient", hang)
		on(w, "obeys", func(ctx context.Context, _ Job[size]) (size, error) {
			<-ctx.Done()
			return size{}, ctx.Err()
		})
	}
	inBubble(t, Config{StuckAfter: 20 * time.Second, LeaseTTL: time.Hour}, setUp, func(t *testing.T, b *bubble) {
		release = make(chan struct{}) // of this bubble
		timesOut := work("long")
		timesOut.ExpiresAt = time.Now().Add(time.Hour)
		timesOut.TimeoutAt = time.Now().Add(time.Minute)
		obeys := work("obeys")
		obeys.ExpiresAt, obeys.TimeoutAt = timesOut.ExpiresAt, timesOut.TimeoutAt
		b.eng.put(engine.DefaultLane, work("limited"), timesOut, obeys, work("patient"))
		b.wakeLane()
		b.pass(79 * time.Second)
		if n := b.StuckHandlers(); n != 0 {
			t.Errorf("%d are reported before the time", n)
		}
		b.pass(time.Hour)
		if n := b.StuckHandlers(); n != 2 {
			t.Errorf("%d are reported, want 2", n)
		}
		if beats := b.seen().beats; beats[len(beats)-1].stuck != 2 {
			t.Errorf("the last heartbeat is %+v, want two stuck handlers", beats[len(beats)-1])
		}
		close(release)
		b.pass(time.Second)
		b.stop()
		log := b.log.String()
		if n := strings.Count(log, "handler runs on although its context has ended"); n != 2 {
			t.Errorf("logged %d times, want 2:\n%s", n, log)
		}
		for _, want := range []string{
			"kind=limited", "kind=long", timesOut.ID.String(), "worker.hangHere", ErrHandlerTimeout.Error(), ErrAttemptTimeout.Error(),
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q", want)
			}
		}
		if strings.Contains(log, "kind=patient") {
			t.Errorf("a handler whose context hasn't ended is logged:\n%s", log)
		}
	})
}

// After the drain timeout too.
func TestHandlersThatIgnoreAShutdownAreLogged(t *testing.T) {
	var release chan struct{}
	inBubble(t, Config{StuckAfter: time.Second, DrainTimeout: time.Second}, func(w *Worker, _ *fakeEngine) {
		release = make(chan struct{})
		on(w, "k", func(context.Context, Job[size]) (size, error) {
			hangHere(release)
			return size{}, nil
		})
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("k"))
		b.wakeLane()
		time.AfterFunc(time.Minute, func() { close(release) })
		b.stop()
		if log := b.log.String(); b.StuckHandlers() != 1 || !strings.Contains(log, ErrShutdown.Error()) {
			t.Errorf("%d reported:\n%s", b.StuckHandlers(), log)
		}
	})
}
