package worker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
)

func probed(h http.Handler) (int, string) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	return answer.Code, strings.TrimSpace(answer.Body.String())
}

func wantProbes(t *testing.T, w *Worker, when string, healthy, ready int) {
	t.Helper()
	if code, why := probed(Health(w)); code != healthy {
		t.Errorf("%s: health is %d (%s), want %d", when, code, why, healthy)
	}
	if code, why := probed(Ready(w)); code != ready {
		t.Errorf("%s: readiness is %d (%s), want %d", when, code, why, ready)
	}
}

// Probes follow the worker's own calls, and cause none.
func TestProbesFollowTheWorker(t *testing.T) {
	var down atomic.Bool
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimErr = func() error {
			if down.Load() {
				return fferr.ErrUnavailable
			}
			return nil
		}
		wantProbes(t, w, "before the start", 200, 503)
	}, func(t *testing.T, b *bubble) {
		wantProbes(t, b.Worker, "idle", 200, 200)
		b.pass(time.Hour)
		before := len(b.seen().looks) + len(b.seen().claims)
		for range 100 {
			wantProbes(t, b.Worker, "after an hour", 200, 200)
		}
		if n := len(b.seen().looks) + len(b.seen().claims); n != before {
			t.Errorf("probes caused %d calls", n-before)
		}
		down.Store(true)
		b.wakeLane()
		wantProbes(t, b.Worker, "during an outage", 200, 503)
		b.pass(time.Hour)
		wantProbes(t, b.Worker, "during a long outage", 200, 503)
		down.Store(false)
		b.pass(time.Minute)
		wantProbes(t, b.Worker, "afterwards", 200, 200)
		b.stop()
		wantProbes(t, b.Worker, "after the end", 503, 503)
	})
}

// A database that doesn't answer makes a worker unready, a call that never ends unhealthy too.
func TestProbesNoticeAStandstill(t *testing.T) {
	inBubble(t, Config{}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.mu.Lock() // every call hangs
		defer b.eng.mu.Unlock()
		<-time.After(time.Millisecond)
		b.life.answeredAt.Store(int64(time.Since(b.began) - 11*time.Second))
		if code, _ := probed(Ready(b.Worker)); code != 503 {
			t.Error("ready without an answer")
		}
		b.life.turnedAt.Store(int64(time.Since(b.began) - 4*time.Minute))
		if code, _ := probed(Health(b.Worker)); code != 503 {
			t.Error("healthy although nothing moves")
		}
	})
}

// The first signal drains, the second cancels the handlers, and Run's errors come back.
func TestRunUntilSignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng, other := newFakeEngine(), newFakeEngine()
		w, second := onFake(t, eng, Config{DrainTimeout: time.Hour}), onFake(t, other, Config{})
		var cause atomic.Pointer[error]
		on(w, "k", func(ctx context.Context, _ Job[size]) (size, error) {
			<-ctx.Done()
			cause.Store(new(context.Cause(ctx)))
			return size{}, ctx.Err()
		})
		quickAndSlow(second, other)
		eng.put(engine.DefaultLane, work("k"))
		signals, defaults := make(chan os.Signal), false
		ran := make(chan error, 1)
		go func() { ran <- runUntil(t.Context(), signals, func() { defaults = true }, []*Worker{w, second}) }()
		synctest.Wait()
		signals <- syscall.SIGTERM
		<-time.After(time.Minute)
		if code, why := probed(Ready(w)); code != 503 || why != "the worker is draining" || cause.Load() != nil || defaults {
			t.Errorf("after the first signal: %d, %q; the handler's context ended: %v", code, why, cause.Load())
		}
		began := time.Now()
		signals <- os.Interrupt
		if err := <-ran; err != nil || time.Since(began) > time.Second || !defaults {
			t.Errorf("returned %v after %v", err, time.Since(began))
		}
		if got := cause.Load(); got == nil || !errors.Is(*got, ErrShutdown) {
			t.Errorf("the handler was ended by %v", got)
		}
		if n := items(eng.back); n != 1 {
			t.Errorf("%d given back, want 1", n)
		}
	})
}

// A worker that can't start stops the others.
func TestRunUntilSignalReturnsTheErrorOfAStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFakeEngine()
		w := onFake(t, eng, Config{})
		quickAndSlow(w, eng)
		err := runUntil(t.Context(), nil, nil, []*Worker{w, onFake(t, newFakeEngine(), Config{})})
		if !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%v, want that a worker has no handler", err)
		}
	})
	if err := RunUntilSignal(t.Context()); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("without a worker: %v", err)
	}
}

// Serial, because a signal is for the whole process.
func TestRunUntilSignalHearsTheProcess(t *testing.T) {
	eng := newFakeEngine()
	w := onFake(t, eng, Config{})
	started := make(chan struct{})
	on(w, "k", func(context.Context, Job[size]) (size, error) {
		close(started)
		return size{}, nil
	})
	eng.put(engine.DefaultLane, work("k"))
	ran := make(chan error, 1)
	go func() { ran <- RunUntilSignal(t.Context(), w) }()
	<-started
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
