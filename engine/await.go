package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/notify"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// AwaitExecution waits until an execution has ended and answers as [Engine.ExecutionResult] does then: what it has left,
// nil when it left nothing. It ends with ctx: give it a deadline.
//
// It is woken by the notification of a completion, by any process, and looks now and then by itself, after 50
// milliseconds and ever longer up to a second. All who wait by an engine share a look, which is one statement for
// 10,000 of them, and the engine's listener: see [Engine.Listen]. One of the callers looks for all, and another one
// goes on when that has ended. A look whose connection was cut is tried again. An outage of the database is waited out once
// it has been looked at.
//
// Errors: [ErrNotFound], at once; an [*EndedError] when it ended without success; [ErrCorruption];
// [ErrInvalidInput] on an engine bound to a transaction, which does not see what others commit as long as it holds
// what it has locked; [ErrUnavailable], or another error of the database, of the first look; ctx's error. Locks nothing, and holds no connection of the pool but for a look.
func (e *Engine) AwaitExecution(ctx context.Context, x id.ExecutionID) ([]byte, error) {
	const op = "await execution"
	if err := cmp.Or(e.checkAwait(), e.checkExecution(x)); err != nil {
		return nil, wrap(op, err)
	}
	w := newWaiter()
	leave := e.awaiting.joinExecution(x, w)
	defer leave()
	if err := e.await(ctx, w); err != nil {
		return nil, wrap(op, err)
	}
	return w.result, nil
}

// AwaitFlow waits until every member of a flow has ended and returns the flow as it is then. It ends with ctx: give it a
// deadline. A flow without members has ended. One whose members all succeeded has as many of them completed as
// [FlowSnapshot.Counts] has in all.
//
// It waits as [Engine.AwaitExecution] does, in the same looks: for one member that has not ended at a time. The whole
// flow is looked through when none of a thousand of those is left, and in the end.
//
// Errors: [ErrNotFound], at once; [ErrCorruption], also of a member that has ended in a state that cannot be read;
// [ErrInvalidInput] on an engine bound to a transaction; ctx's error.
func (e *Engine) AwaitFlow(ctx context.Context, flow id.FlowID) (*FlowSnapshot, error) {
	const op = "await flow"
	if err := e.checkAwait(); err != nil {
		return nil, wrap(op, err)
	}
	for {
		if err := e.awaitMembers(ctx, flow); err != nil {
			return nil, wrap(op, err)
		}
		var unreadable error
		snapshot, err := readAgain(e, func() (snapshot *FlowSnapshot, err error) {
			snapshot, unreadable, err = e.describeFlow(ctx, flow)
			return snapshot, err
		})
		switch {
		case err != nil:
			return nil, wrap(op, err)
		case snapshot.Ended:
			return snapshot, nil
		case unreadable != nil:
			return nil, wrap(op, unreadable)
		}
		// A member was added meanwhile.
	}
}

func (e *Engine) awaitMembers(ctx context.Context, flow id.FlowID) error {
	w := newWaiter()
	leave := e.awaiting.joinFlow(flow, w)
	defer leave()
	return e.await(ctx, w)
}

func (e *Engine) checkAwait() error {
	if err := pgtx.Refusal(e.tx); err != nil {
		return err
	}
	if e.tx != nil {
		return invalid("engine", "is bound to a transaction, which must not wait for what others commit")
	}
	return nil
}

// waiter is one call that waits. Once done is closed the rest is the answer.
type waiter struct {
	done   chan struct{}
	result []byte
	err    error

	seen bool // by a look; only who has the turn knows
}

func newWaiter() *waiter { return &waiter{done: make(chan struct{})} }

// answer answers unless it has been done. Only who has the turn calls it.
func (w *waiter) answer(result []byte, err error) {
	if !w.over() {
		w.result, w.err = result, err
		close(w.done)
	}
}

func (w *waiter) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// awaiting is who waits by an engine, and for what.
type awaiting struct {
	turn  chan struct{} // full while one of those who wait looks for all
	woken chan struct{} // has room for one: something has ended, or somebody has joined

	mu         sync.Mutex
	executions map[id.ExecutionID][]*waiter
	flows      map[id.FlowID]*awaitedFlow

	next   time.Time // the earliest look; only who has the turn knows
	failed error     // of the last look, nil when it was none; under mu
}

// awaitedFlow is a flow that somebody waits for.
type awaitedFlow struct {
	waiters []*waiter
	open    []id.ExecutionID // members that had not ended at some look; only who has the turn knows
}

func newAwaiting() *awaiting {
	return &awaiting{
		turn: make(chan struct{}, 1), woken: make(chan struct{}, 1),
		executions: make(map[id.ExecutionID][]*waiter), flows: make(map[id.FlowID]*awaitedFlow),
	}
}

// wake makes whoever has the turn look.
func (a *awaiting) wake(string) {
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

func (a *awaiting) joinExecution(x id.ExecutionID, w *waiter) (leave func()) {
	a.mu.Lock()
	a.executions[x] = append(a.executions[x], w)
	a.mu.Unlock()
	a.wake("")
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.executions[x] = without(a.executions[x], w); len(a.executions[x]) == 0 {
			delete(a.executions, x)
		}
	}
}

func (a *awaiting) joinFlow(flow id.FlowID, w *waiter) (leave func()) {
	a.mu.Lock()
	if a.flows[flow] == nil {
		a.flows[flow] = new(awaitedFlow)
	}
	a.flows[flow].waiters = append(a.flows[flow].waiters, w)
	a.mu.Unlock()
	a.wake("")
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.flows[flow].waiters = without(a.flows[flow].waiters, w); len(a.flows[flow].waiters) == 0 {
			delete(a.flows, flow)
		}
	}
}

func without(waiters []*waiter, gone *waiter) []*waiter {
	return slices.DeleteFunc(waiters, func(w *waiter) bool { return w == gone })
}

func (e *Engine) await(ctx context.Context, w *waiter) error {
	return e.awaiting.await(ctx, w, e.listener, e.look)
}

// await returns once w has its answer, or ctx has ended. Until somebody else does, it looks for all.
func (a *awaiting) await(ctx context.Context, w *waiter, listener *notify.Listener, look func(context.Context) bool) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return a.unanswered(ctx)
	case a.turn <- struct{}{}:
	}
	defer func() { <-a.turn }()
	return a.lookForAll(ctx, w, listener, look)
}

// unanswered is why a call ends without an answer.
func (a *awaiting) unanswered(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w; the last look: %w", ctx.Err(), a.failed)
}

const (
	minLookGap   = 20 * time.Millisecond // between two looks, however often somebody is woken
	lookGapRatio = 4                     // and so many times what the last look took
	minLookPause = 50 * time.Millisecond // to the next look when nobody is woken, doubling
	maxLookPause = time.Second
)

// lookForAll looks for all who wait, until w has its answer or ctx ends.
//
// No wake-up is lost. Whoever looks has joined the listener before its first look, so that what this process completes
// is either seen by that look or wakes it. What others complete before the connection listens is seen by the look that
// the connection causes when it begins to listen; so it is after the connection was lost. A wake-up is taken before the
// look that it causes, and what comes during that causes another one. Who gives the turn away may have taken one
// without looking: the next begins with a look.
func (a *awaiting) lookForAll(ctx context.Context, w *waiter, listener *notify.Listener, look func(context.Context) bool) error {
	defer listener.Join(completionChannel, a.wake)()
	serving, stop := context.WithCancel(ctx)
	var connection sync.WaitGroup
	defer connection.Wait()
	defer stop()

	timer := time.NewTimer(time.Until(a.next))
	defer timer.Stop()
	connected := false
	for pause := minLookPause; !w.over(); {
		select {
		case <-ctx.Done():
			return a.unanswered(ctx)
		case <-timer.C:
		}
		select {
		case <-a.woken:
		default:
		}
		began := time.Now()
		if fresh := look(ctx); fresh {
			pause = minLookPause
		}
		gap := max(minLookGap, lookGapRatio*time.Since(began))
		a.next = time.Now().Add(gap)
		if w.over() {
			break
		}
		timer.Reset(max(pause, gap))
		select {
		case <-ctx.Done():
		case <-a.woken:
			timer.Reset(time.Until(a.next))
		case <-timer.C:
			timer.Reset(0)
			pause = min(2*pause, maxLookPause)
			if !connected {
				connected = true // who waits for less than a pause needs no connection
				connection.Go(func() { _ = listener.Serve(serving) })
			}
		}
	}
	return w.err
}
