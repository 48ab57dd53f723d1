package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/notify"
)

// looks is an engine's awaiting with a fake poll, which finds only the ends that the test sets.
type looks struct {
	*awaiting
	listener *notify.Listener
	began    time.Time
	at       []time.Duration // time of each poll
	during   func(n int)     // the n-th poll, from 1
}

func newLooks() *looks {
	return &looks{awaiting: newAwaiting(), listener: notify.NewListener(nil, slog.New(slog.DiscardHandler)), began: time.Now(), during: func(int) {}}
}

func (l *looks) look(context.Context) (fresh bool) {
	l.at = append(l.at, time.Since(l.began))
	l.during(len(l.at))
	items, _ := l.lookFor(id.Partitions{})
	for _, item := range items {
		for _, w := range item.waiters {
			fresh = fresh || !w.seen
			w.seen = true
		}
	}
	return fresh
}

// wait starts a waiter for an execution and returns a function that ends the wait, or waits for its answer.
func (l *looks) wait(t *testing.T, w *waiter) (end func(), answer func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	leave := l.joinExecution(id.NewExecutionID("lane", id.Partitions{}), w)
	ended := make(chan error, 1)
	go func() {
		err := l.await(ctx, w, l.listener, l.look)
		leave()
		ended <- err
	}()
	return cancel, func() error { cancel(); return <-ended }
}

func (l *looks) want(t *testing.T, ms ...int) {
	t.Helper()
	synctest.Wait()
	want := make([]time.Duration, len(ms))
	for i := range ms {
		want[i] = time.Duration(ms[i]) * time.Millisecond
	}
	if !slices.Equal(l.at, want) {
		t.Errorf("looked at %v, want %v", l.at, want)
	}
}

func TestAwaitPollsAtGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooks()
		_, answer := l.wait(t, newWaiter())
		time.Sleep(5 * time.Second)
		l.want(t, 0, 50, 150, 350, 750, 1550, 2550, 3550, 4550)
		if err := answer(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

// Thousands of completions per second cause one poll per twenty milliseconds, and a slow poll is followed by a pause.
func TestAwaitMergesWakeups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooks()
		l.during = func(n int) {
			if n == 4 {
				time.Sleep(30 * time.Millisecond)
			}
		}
		_, answer := l.wait(t, newWaiter())
		for range 2200 {
			l.wake("")
			time.Sleep(100 * time.Microsecond)
		}
		l.want(t, 0, 20, 40, 60, 60+30+4*30)
		_ = answer()
	})
}

// A completion after a poll has read, and before the polling waiter waits again, causes the next poll.
func TestAwaitKeepsAWakeupDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLooks(), newWaiter()
		l.during = func(n int) {
			switch n {
			case 1:
				l.engine().c.Notify(t.Context(), completed())
			case 2:
				w.answer([]byte("done"), nil)
			}
		}
		_, answer := l.wait(t, w)
		<-w.done
		if err := answer(); err != nil || string(w.result) != "done" {
			t.Errorf("got %q, %v", w.result, err)
		}
		l.want(t, 0, 20)
		time.Sleep(time.Second)
	})
}

// The holder of the turn is cancelled at the instant of a notification. Whether or not it has received the wake-up, the
// next holder polls.
func TestAwaitHandsOnItsTurnAtANotification(t *testing.T) {
	for _, notifiedFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, first, second := newLooks(), newWaiter(), newWaiter()
			end, ended := l.wait(t, first)
			synctest.Wait()
			_, answer := l.wait(t, second)
			time.Sleep(300 * time.Millisecond)
			l.want(t, 0, 20, 70, 170)
			l.during = func(int) { second.answer(nil, nil) }
			if notifiedFirst {
				l.wake("")
				end()
			} else {
				end()
				l.wake("")
			}
			<-second.done
			if got := time.Since(l.began); got != 300*time.Millisecond {
				t.Errorf("looked after %v, want at once", got)
			}
			if err := ended(); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the context's error", err)
			}
			if err := answer(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The next holder polls even if the previous one had received the wake-up and was waiting for the end of the gap.
func TestAwaitHandsOnItsTurnBeforeTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, first, second := newLooks(), newWaiter(), newWaiter()
		end, ended := l.wait(t, first)
		synctest.Wait()
		_, answer := l.wait(t, second)
		time.Sleep(25 * time.Millisecond) // the poll for the second one was at 20
		l.wake("")                        // may be polled at 40
		synctest.Wait()
		if len(l.woken) > 0 {
			t.Error("the wake-up was not taken")
		}
		l.during = func(int) { second.answer(nil, nil) }
		end()
		if err := ended(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
		<-second.done
		l.want(t, 0, 20, 40)
		if err := answer(); err != nil {
			t.Error(err)
		}
	})
}

// One waiter polls for all.
func TestAwaitOneWaiterLooksForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooks()
		var all []*waiter
		var answers []func() error
		for range 1000 {
			w := newWaiter()
			_, answer := l.wait(t, w)
			all, answers = append(all, w), append(answers, answer)
			if len(all) == 1 {
				synctest.Wait() // it polls; the others are in the next poll
			}
		}
		time.Sleep(100 * time.Millisecond)
		l.want(t, 0, 20, 70)
		l.during = func(int) {
			for _, w := range all {
				w.answer(nil, nil)
			}
		}
		l.wake("")
		for i, answer := range answers {
			<-all[i].done
			if err := answer(); err != nil {
				t.Error(err)
			}
		}
		l.want(t, 0, 20, 70, 100)
		if len(l.executions) > 0 {
			t.Errorf("%d executions are left behind", len(l.executions))
		}
	})
}

// noServer is a pool that can't reach a server.
type noServer struct{}

func (noServer) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.New("no server")
}

// engine returns an engine whose commits wake waiters, but not through the server.
func (l *looks) engine() *Engine {
	return &Engine{c: &core.Core{Notifying: &core.Notifying{
		Notifier: notify.NewNotifier(noServer{}, l.listener, slog.New(slog.DiscardHandler)),
	}}, shared: new(shared)}
}

func completed() *core.Notifications {
	var due core.Notifications
	due.Completions()
	return &due
}

// A commit of this engine wakes its waiters without the server.
func TestAwaitWakesOnOwnCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := newLooks(), newWaiter()
		e := l.engine()
		_, answer := l.wait(t, w)
		time.Sleep(400 * time.Millisecond)
		l.want(t, 0, 50, 150, 350)
		l.during = func(int) { w.answer(nil, nil) }
		var due core.Notifications
		due.Lane("lane")
		due.Leases()
		e.c.Notify(t.Context(), &due) // nothing has ended
		synctest.Wait()
		l.want(t, 0, 50, 150, 350)
		e.c.Notify(t.Context(), completed())
		<-w.done
		l.want(t, 0, 50, 150, 350, 400)
		if err := answer(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}

// A waiter that leaves does not affect the others, one that joins wakes the polling one, and the first answer is kept.
func TestAwaitSharesOneExecution(t *testing.T) {
	a := newAwaiting()
	x := id.ExecutionIDFromRow(0, id.NewExecutionUUID())
	first, second := newWaiter(), newWaiter()
	leave := a.joinExecution(x, first)
	defer leave()
	if len(a.woken) != 1 {
		t.Error("joining wakes nobody")
	}
	a.joinExecution(x, second)()
	items, _ := a.lookFor(id.Partitions{})
	if len(items) != 1 || len(items[0].waiters) != 1 || items[0].waiters[0] != first {
		t.Fatalf("looks for %+v, want for the one who stayed", items)
	}
	first.answer([]byte("result"), nil)
	first.answer(nil, errors.New("of a later statement of the same look"))
	if string(first.result) != "result" || first.err != nil {
		t.Errorf("answered %q, %v; want the first answer", first.result, first.err)
	}
	if items, _ := a.lookFor(id.Partitions{}); len(items) != 0 {
		t.Errorf("looks for %+v, which is answered", items)
	}
}
