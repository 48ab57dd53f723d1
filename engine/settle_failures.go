package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxFailureMessage is the longest failure message, category or detail, in bytes.
const MaxFailureMessage = 64 << 10

// Failure describes why an attempt failed. Class decides whether a retry is possible (default [policy.Transient]).
// Category is compared with the categories of [policy.Retry] (default: the class).
//
// Detail is further text for debugging, such as the stack of a panic, and only returned by reads of attempts. Message
// also appears in [fferr.EndedError] and listings.
type Failure struct {
	Message  string
	Class    policy.Class
	Category string
	Detail   string
}

// AttemptFailure is the failure of one leased attempt.
type AttemptFailure struct {
	Lease   Lease
	Failure Failure
}

// Failed is the result of a failure: a retry at RetryAt as attempt NextAttempt, or the end of the execution.
type Failed struct {
	Retry       bool
	RetryAt     time.Time
	NextAttempt int
}

// FailExecution ends the leased attempt as failed. The execution's retry policy, or the default of [policy.Execution],
// decides whether another attempt follows. Otherwise the execution ends as failed, and the same transaction skips
// executions that can no longer run. Characters missing in the database's encoding are stored as escapes.
//
// Errors: [*fferr.LeaseError]: nothing was written, and nothing is left to do. [fferr.ErrNotFound] if the execution or
// attempt no longer exists; [fferr.ErrInvalidInput] for a text that can't be stored.
//
// Transaction: one. Locks the flow exclusively if a member ends, then the execution and its attempt; waits for each up
// to two seconds, three times, then [fferr.ErrContention]. Safe to repeat: a repetition returns the first result.
func (e *Engine) FailExecution(ctx context.Context, l Lease, f Failure) (Failed, error) {
	results, err := e.fail(ctx, []AttemptFailure{{Lease: l, Failure: f}})
	if err != nil {
		return Failed{}, err
	}
	return results[0].Value, results[0].Err
}

// FailExecutions is [Engine.FailExecution] for many leases, [MaxBatch] per transaction. Outcomes are in input order; a
// lost lease affects only its own. An item with locked rows gets [fferr.ErrBusy] at once. A returned error means
// nothing happened.
func (e *Engine) FailExecutions(ctx context.Context, failures []AttemptFailure) ([]fferr.Outcome[Failed], error) {
	return e.shortWait().fail(ctx, failures)
}

func (e *Engine) fail(ctx context.Context, failures []AttemptFailure) ([]fferr.Outcome[Failed], error) {
	outcomes := make([]fferr.Outcome[Failed], len(failures))
	valid := core.ValidItems(outcomes, func(n int) error { return e.checkFailing(failures[n]) })
	lease := func(n int) id.Fence { return failures[n].Lease.Fence }
	flows := e.c.Leases.FlowsOf(len(failures), lease)
	chunks := core.LeaseChunks(valid, lease, func(n int) *id.FlowID { return flows[n] }, func(n int) int {
		return len(failures[n].Failure.Message) + len(failures[n].Failure.Category) + len(failures[n].Failure.Detail)
	})
	err := core.InChunks(len(chunks), 1, func(c, _ int) error {
		err := core.Settle(ctx, e.failing(failures), lease, chunks[c:c+1], outcomes)
		if !isUntranslatable(err) {
			return err
		}
		storable := slices.Clone(failures)
		for _, n := range chunks[c] {
			storable[n].Failure = storable[n].Failure.inASCII()
		}
		return core.Settle(ctx, e.failing(storable), lease, chunks[c:c+1], outcomes)
	}, func(c int, err error) {
		for _, n := range chunks[c] {
			outcomes[n].Err = err
		}
	})
	return outcomes, err
}

// isUntranslatable reports whether the server's encoding lacks a character of a text.
func isUntranslatable(err error) bool {
	switch pgtx.SQLState(err) {
	case core.SQLUntranslatable, core.SQLNoSuchCharacter:
		return true
	}
	return false
}

// inASCII escapes characters that a server may be unable to store. Otherwise the failure would be refused forever, and
// the attempt would never end.
func (f Failure) inASCII() Failure {
	for _, text := range []*string{&f.Message, &f.Category, &f.Detail} {
		var b strings.Builder
		for _, r := range *text {
			if r <= unicode.MaxASCII {
				b.WriteRune(r)
				continue
			}
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		*text = b.String()
	}
	return f
}

func (e *Engine) checkFailing(f AttemptFailure) error {
	for _, text := range []struct{ field, value string }{
		{"failure message", f.Failure.Message}, {"failure category", f.Failure.Category}, {"failure detail", f.Failure.Detail},
	} {
		if err := core.CheckText(text.field, text.value, MaxFailureMessage); err != nil {
			return err
		}
	}
	switch f.Failure.Class {
	case "", policy.Transient, policy.Permanent, policy.InfraCrash, policy.TimedOut, policy.Cancelled:
	default:
		return core.Invalid("failure class", "is unknown")
	}
	return e.c.CheckLease(f.Lease.Fence)
}

func (f Failure) class() policy.Class {
	if f.Class == "" {
		return policy.Transient
	}
	return f.Class
}

func (f Failure) category() string {
	return document.Category(f.class(), []byte(f.Category))
}

// failing returns the settlement for failures.
func (e *Engine) failing(failures []AttemptFailure) core.Transition[*core.HeldLease, Failed] {
	t := core.Settlement(e.c, "fail executions", func(n int) id.Fence { return failures[n].Lease.Fence },
		func(x *core.HeldLease) bool {
			switch x.Facts.AttemptOutcome {
			case "retry":
				return true
			case "failed":
				return core.IsTerminalPhase(x.Facts.LifecyclePhase)
			case "failure": // stored by another program, retried or ended
				return true
			}
			return false
		},
		failedEarlier,
	)
	t.Needs = func(x *core.HeldLease) core.FlowLock {
		f := failures[x.N].Failure
		if retry, _ := core.RetryDecision(x.Row.Policy, x.Row.RetryCount, x.Row.RawRetryCount, f.class(), f.category()); retry {
			return core.NoFlow
		}
		return core.ExclusiveFlow
	}
	t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldLease, outcomes []fferr.Outcome[Failed]) error {
		return e.writeFailures(ctx, tx, items, failures, outcomes)
	}
	return t
}

// failedEarlier returns the result of a failure recorded earlier.
func failedEarlier(x *core.HeldLease) Failed {
	f := x.Facts
	if f.AttemptOutcome == "failed" || f.AttemptOutcome == "failure" && core.IsTerminalPhase(f.LifecyclePhase) {
		return Failed{}
	}
	retryAt := f.NowMs
	switch {
	case f.FfxDelayUntilMs != nil:
		retryAt = *f.FfxDelayUntilMs
	case f.AttemptTerminalAtMs != nil:
		retryAt = *f.AttemptTerminalAtMs
	}
	return retriedAt(x, retryAt)
}

// retriedAt returns the result of a retried failure.
func retriedAt(x *core.HeldLease, ms int64) Failed {
	return Failed{Retry: true, RetryAt: time.UnixMilli(ms), NextAttempt: x.Attempt + 1}
}

// writeFailures retries or ends the attempts of failures.
func (e *Engine) writeFailures(
	ctx context.Context, tx *core.Txn, items []*core.HeldLease, failures []AttemptFailure, outcomes []fferr.Outcome[Failed],
) error {
	nowMs := items[0].Facts.NowMs
	retries, ends := core.NewRetries(nowMs, "retry", "revoked"), core.NewEnding(nowMs, state.OutcomeFailed)
	for _, x := range items {
		f := failures[x.N].Failure
		attempt := core.EndingAttempt{
			Execution: x.ID, Index: int32(x.Attempt), LeaseID: x.Facts.LeaseID, Instance: x.Facts.WorkerInstanceID,
			LeaseEvent: "revoked", Reason: f.Message, Category: f.category(), Class: f.class(), Detail: f.Detail,
			Trace: failures[x.N].Lease.Trace,
		}
		retry, pause := core.RetryDecision(x.Row.Policy, x.Row.RetryCount, x.Row.RawRetryCount, f.class(), f.category())
		if !retry {
			ends.Add(attempt)
			continue
		}
		retryAt := core.AddTTL(nowMs, pause)
		retries.Add(attempt, retryAt)
		outcomes[x.N].Value = retriedAt(x, retryAt)
	}
	if err := e.c.ScheduleRetries(ctx, tx, retries); err != nil {
		return err
	}
	ended, err := e.c.EndUnsuccessful(ctx, tx, ends)
	if err != nil {
		return err
	}
	return e.c.ResolveAndRecord(ctx, tx, ended, nowMs)
}
