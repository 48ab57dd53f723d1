package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
)

// HandleOption is an option of [Handle] for one kind in one worker.
type HandleOption func(*kindOptions)

// kindOptions are the options of a kind.
type kindOptions struct {
	concurrency, timeout bool // which are given
	most                 int
	after                time.Duration
}

// Concurrency limits the kind to n handlers at once in this worker, within the handlers of its lane. At least 1.
//
// The worker then claims the kind apart from the other kinds of its lane, up to the number of free handlers. The rest
// stays in the lane for other workers, and doesn't keep this worker from claiming other kinds. Priorities order the
// kind's work, but no longer apply between the kind and others in the lane.
func Concurrency(n int) HandleOption {
	return func(o *kindOptions) { o.concurrency, o.most = true, n }
}

// Timeout cancels the context of a handler of the kind d after its start, with the cause [ErrHandlerTimeout]. If the handler
// then returns an error, the attempt fails with the class [policy.TimedOut], and the retry policy decides about another. A
// result, a [Fail], and the error of a wait or a delay keep their meaning. The time starts again when an attempt continues.
//
// Timeout is local to this worker, and depends on the handler to return. AttemptTimeout of [policy.Execution] is stored
// with the execution, and applies even if the handler ignores its context or the worker is gone.
func Timeout(d time.Duration) HandleOption {
	return func(o *kindOptions) { o.timeout, o.after = true, d }
}

// optionsOf collects the options of a kind.
func optionsOf(options []HandleOption) (kindOptions, error) {
	var o kindOptions
	for _, option := range options {
		if option == nil {
			return o, &fferr.InputError{Field: "options", Reason: "has a nil option"}
		}
		option(&o)
	}
	switch {
	case o.concurrency && o.most < 1:
		return o, &fferr.InputError{Field: "Concurrency", Reason: fmt.Sprintf("is %d, and at least 1 is needed", o.most)}
	case o.concurrency && o.most > MaxConcurrency:
		return o, &fferr.InputError{Field: "Concurrency", Reason: tooLarge(int64(o.most), MaxConcurrency, false)}
	case o.timeout && o.after <= 0:
		return o, &fferr.InputError{Field: "Timeout", Reason: "is not positive"}
	}
	return o, nil
}

// timed returns a handler whose context ends after a time.
func timed(inner handler, after time.Duration) handler {
	return func(ctx context.Context, work *engine.Claimed, askedAt time.Time) ([]byte, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, after, ErrHandlerTimeout)
		defer cancel()
		result, err := inner(ctx, work, askedAt)
		if err == nil || !errors.Is(context.Cause(ctx), ErrHandlerTimeout) || isFail(err) || ContinuesLater(err) {
			return result, err
		}
		return nil, &Fail{Class: policy.TimedOut, Err: fmt.Errorf("%w after %v: %w", ErrHandlerTimeout, after, err)}
	}
}

// slots are the handlers of a kind or a lane.
type slots struct {
	most   int
	taken  atomic.Int64 // by running handlers, queued work, and claims under way
	wanted atomic.Bool  // the fetcher waits for a free one
}

// limits are the slots taken by each execution of a claimer: the slots of the kind and of the lane. Without slots there
// is no limit.
type limits []*slots

// free returns the number of free slots, up to n.
func (l limits) free(n int) int {
	for _, s := range l {
		n = max(0, min(n, s.most-int(s.taken.Load())))
	}
	return n
}

// take takes n free slots for a claim. Only the fetcher takes.
func (l limits) take(n int) {
	for _, s := range l {
		s.taken.Add(int64(n))
	}
}

// full reports whether no slot is free. If so, the next slot given back notifies the fetcher.
func (l limits) full() bool {
	for _, s := range l {
		if one := (limits{s}); one.free(1) == 0 {
			s.wanted.Store(true)
			if one.free(1) == 0 { // the slot may have become free before wanted was set
				return true
			}
		}
	}
	return false
}

// giveBack gives back slots, and reports whether the fetcher waits for one.
func (l limits) giveBack(n int) (wanted bool) {
	if n == 0 {
		return false
	}
	for _, s := range l {
		s.taken.Add(-int64(n))
		if s.wanted.Load() && s.wanted.Swap(false) {
			wanted = true
		}
	}
	return wanted
}
