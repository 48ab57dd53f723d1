package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/notify"
)

// AwaitExecution waits until an execution has ended and returns its result, nil if there is none. Only ctx limits the
// wait, so give ctx a deadline.
//
// Waiters are notified of completions by any process, and poll at least once per second. All waiters of an engine share
// the polls and the connection of [Engine.Listen]. After a first successful poll a waiter survives an outage of the
// database.
//
// Errors: [fferr.ErrNotFound], at once; [*fferr.EndedError] if the execution ended without success; [fferr.ErrCorruption];
// [fferr.ErrInvalidInput] on an engine bound to a transaction; [fferr.ErrUnavailable] or another database error if the
// first poll fails; ctx's error.
func (e *Engine) AwaitExecution(ctx context.Context, x id.ExecutionID) ([]byte, error) {
	const op = "await execution"
	if err := cmp.Or(e.c.CheckAwait(), e.c.CheckExecution(x)); err != nil {
		return nil, core.Wrap(op, err)
	}
	w := newWaiter()
	leave := e.awaiting.joinExecution(x, w)
	defer leave()
	if err := e.await(ctx, w); err != nil {
		return nil, core.Wrap(op, err)
	}
	return w.result, nil
}

// AwaitFlow waits until every member of a flow has ended and returns the ended flow. A flow without members has ended.
// If all members succeeded, [FlowSnapshot.Counts] has as many completed members as members in total. The flow's waiters
// share notifications and polls with [Engine.AwaitExecution]; give ctx a deadline.
//
// Errors: [fferr.ErrNotFound], at once; [fferr.ErrCorruption], also if a member ended in an unreadable state;
// [fferr.ErrInvalidInput] on an engine bound to a transaction; ctx's error.
func (e *Engine) AwaitFlow(ctx context.Context, flow id.FlowID) (*FlowSnapshot, error) {
	const op = "await flow"
	if err := e.c.CheckAwait(); err != nil {
		return nil, core.Wrap(op, err)
	}
	for {
		if err := e.awaitMembers(ctx, flow); err != nil {
			return nil, core.Wrap(op, err)
		}
		var unreadable error
		snapshot, err := core.ReadAgain(e.c, func() (snapshot *FlowSnapshot, err error) {
			snapshot, unreadable, err = e.describeFlow(ctx, flow)
			return snapshot, err
		})
		switch {
		case err != nil:
			return nil, core.Wrap(op, err)
		case snapshot.Ended:
			return snapshot, nil
		case unreadable != nil:
			return nil, core.Wrap(op, unreadable)
		}
		// A member was added in the meantime.
	}
}

func (e *Engine) awaitMembers(ctx context.Context, flow id.FlowID) error {
	w := newWaiter()
	leave := e.awaiting.joinFlow(flow, w)
	defer leave()
	return e.await(ctx, w)
}

// waiter is one waiting call. After done is closed, result and err hold the answer.
type waiter struct {
	done   chan struct{}
	result []byte
	err    error

	seen bool // by a poll; only for the holder of the turn
}

func newWaiter() *waiter { return &waiter{done: make(chan struct{})} }

// answer stores the answer unless the waiter has one. Only the holder of the turn calls answer.
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

// awaiting holds the waiting calls of an engine.
type awaiting struct {
	turn  chan struct{} // full while one waiter polls for all
	woken chan struct{} // buffered for one; signals that something ended or a waiter joined

	mu         sync.Mutex
	executions map[id.ExecutionID][]*waiter
	flows      map[id.FlowID]*awaitedFlow

	next   time.Time // the earliest next poll; only for the holder of the turn
	failed error     // error of the last poll, nil if it succeeded; under mu
}

// awaitedFlow is a flow with waiters.
type awaitedFlow struct {
	waiters []*waiter
	open    []id.ExecutionID // members that some poll found open; only for the holder of the turn
}

func newAwaiting() *awaiting {
	return &awaiting{
		turn: make(chan struct{}, 1), woken: make(chan struct{}, 1),
		executions: make(map[id.ExecutionID][]*waiter), flows: make(map[id.FlowID]*awaitedFlow),
	}
}

// wake makes the holder of the turn poll.
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
	return e.awaiting.await(ctx, w, e.c.Listener, e.look)
}

// await returns when w has its answer or ctx has ended. If no other waiter polls, await polls for all.
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

// unanswered returns the reason why a call ends without an answer.
func (a *awaiting) unanswered(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w; the last poll: %w", ctx.Err(), a.failed)
}

const (
	minLookGap   = 20 * time.Millisecond // between two polls, however many notifications arrive
	lookGapRatio = 4                     // at least so many durations of the last poll between two polls
	minLookPause = 50 * time.Millisecond // to the next poll without a notification, doubling
	maxLookPause = time.Second
)

// lookForAll polls for all waiters until w has its answer or ctx ends.
//
// No notification is lost. The polling waiter joins the listener before its first poll, so the poll sees a completion by
// this process, or a notification follows. When the connection starts to listen, or reconnects, the listener causes a
// poll, which sees the earlier completions by other processes. A notification is received before the poll, so one
// arriving during the poll causes another poll. A waiter may give the turn back after receiving a notification, without
// polling; the next holder therefore polls first.
func (a *awaiting) lookForAll(ctx context.Context, w *waiter, listener *notify.Listener, look func(context.Context) bool) error {
	defer listener.Join(core.CompletionChannel, a.wake)()
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
				connected = true // waiters done within one pause need no connection
				connection.Go(func() { _ = listener.Serve(serving) })
			}
		}
	}
	return w.err
}
