package engine

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxFailureMessage is the longest failure message, category or detail, in bytes.
const MaxFailureMessage = 64 << 10

// Failure describes why an attempt failed. Class decides whether it may be retried at all (default [policy.Transient]).
// Category is matched against the categories of [policy.Retry] (default: the class).
//
// Detail is further text for debugging, such as the stack of a panic. It is only stored with the attempt and returned
// by reads of attempts; Message also appears in [EndedError] and listings.
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

// Failed is the result of a failure: either a retry at RetryAt as attempt NextAttempt, or the end of the execution.
type Failed struct {
	Retry       bool
	RetryAt     time.Time
	NextAttempt int
}

// FailExecution ends the attempt that l holds as failed. The execution's retry policy, or the default of
// [policy.Execution], decides whether another attempt follows. If not, the execution ends as failed, and the same
// transaction skips executions that can no longer run. Characters that the database's encoding lacks are stored as
// escapes.
//
// Errors: [*LeaseError] with [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] or [ErrNotActive]: nothing was
// written, and there is nothing left to do. [ErrNotFound] if the execution or attempt no longer exists;
// [ErrInvalidInput] for a message that can't be stored.
//
// Transaction: a constant number of statements, plus one round per level of skipped executions. Locks the flow of a
// member that ends exclusively, then the execution and its attempt; waits for each up to two seconds, three times, then
// fails with [ErrContention]. Safe to repeat after an unknown outcome: a repetition returns the first result.
func (e *Engine) FailExecution(ctx context.Context, l Lease, f Failure) (Failed, error) {
	results, err := e.fail(ctx, []AttemptFailure{{Lease: l, Failure: f}})
	if err != nil {
		return Failed{}, err
	}
	return results[0].Value, results[0].Err
}

// FailExecutions is [Engine.FailExecution] for many leases, [MaxBatch] per transaction. Outcomes are in input order; a
// lost lease affects only its own. The error means that nothing happened.
//
// It never waits for locks. If another transaction holds a row that an item needs, its outcome is [ErrBusy]; repeat
// that item.
func (e *Engine) FailExecutions(ctx context.Context, failures []AttemptFailure) ([]Outcome[Failed], error) {
	return e.impatient().fail(ctx, failures)
}

func (e *Engine) fail(ctx context.Context, failures []AttemptFailure) ([]Outcome[Failed], error) {
	const op = "fail executions"
	results := make([]Outcome[Failed], len(failures))
	var order []int
	for i := range failures {
		if results[i].Err = e.checkFailing(failures[i]); results[i].Err == nil {
			order = append(order, i)
		}
	}
	flows := e.leases.flowsOf(len(failures), func(i int) *Lease { return &failures[i].Lease })
	chunks := chunkByFlows(order, func(i int) *id.FlowID { return flows[i] }, func(i int) int {
		return len(failures[i].Failure.Message) + len(failures[i].Failure.Category) + len(failures[i].Failure.Detail)
	})
	err := inChunks(len(chunks), 1, func(n, _ int) error {
		err := e.failChunk(ctx, op, failures, chunks[n], results)
		if !isUntranslatable(err) {
			return err
		}
		storable := slices.Clone(failures)
		for _, i := range chunks[n] {
			storable[i].Failure = storable[i].Failure.inASCII()
		}
		return e.failChunk(ctx, op, storable, chunks[n], results)
	}, func(n int, err error) {
		for _, i := range chunks[n] {
			results[i].Err = err
		}
	})
	return results, err
}

// isUntranslatable reports whether the server's encoding lacks a character of a text.
func isUntranslatable(err error) bool {
	switch pgtx.SQLState(err) {
	case sqlUntranslatable, sqlNoSuchCharacter:
		return true
	}
	return false
}

// inASCII replaces characters that a server may not be able to store by escapes. Otherwise the failure would be refused
// forever, and its attempt would never end.
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
		if err := checkText(text.field, text.value, MaxFailureMessage); err != nil {
			return err
		}
	}
	switch f.Failure.Class {
	case "", policy.Transient, policy.Permanent, policy.InfraCrash, policy.TimedOut, policy.Cancelled:
	default:
		return invalid("failure class", "is unknown")
	}
	return e.checkLease(f.Lease)
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

func (e *Engine) failChunk(ctx context.Context, op string, all []AttemptFailure, chunk []int, results []Outcome[Failed]) error {
	order := slices.Clone(chunk)
	slices.SortStableFunc(order, func(a, b int) int { return compareLeases(all[a].Lease, all[b].Lease) })
	failure := func(n int) Failure { return all[order[n]].Failure }
	settled, err := settle(ctx, e, op, leasesOf(order, func(i int) Lease { return all[i].Lease }), settling[Outcome[Failed]]{
		repeated: func(_ int, f *leaseFacts) bool {
			switch f.AttemptOutcome {
			case "retry":
				return true
			case "failed":
				return isTerminalPhase(f.LifecyclePhase)
			case "failure": // another program's, either retried or ended
				return true
			}
			return false
		},
		again: func(facts *leaseFacts, first Outcome[Failed]) Outcome[Failed] {
			if facts == nil {
				return first
			}
			return Outcome[Failed]{Value: facts.failedBefore()}
		},
		refused: func(err error) Outcome[Failed] { return Outcome[Failed]{Err: err} },
		needsExclusive: func(n int, row db.LockExecutionsRow) bool {
			retry, _ := retryDecision(row.Policy, row.RetryCount, row.RawRetryCount, failure(n))
			return !retry
		},
		write: func(tx *txn, batch *settlementBatch, results []Outcome[Failed]) ([]endedExecution, error) {
			return e.writeFailures(ctx, tx, batch, failure, results)
		},
	})
	if err != nil {
		return err
	}
	for n, i := range order {
		results[i] = settled[n]
		if results[i].Err == nil && results[i].Value.Retry {
			results[i].Value.NextAttempt = all[i].Lease.Attempt + 1
		}
	}
	e.forgetSettled(order, func(i int) (Fence, error) { return all[i].Lease.Fence, results[i].Err })
	return nil
}

// failedBefore returns the answer to a failure that was already recorded.
func (f *leaseFacts) failedBefore() Failed {
	if f.AttemptOutcome == "failed" || f.AttemptOutcome == "failure" && isTerminalPhase(f.LifecyclePhase) {
		return Failed{}
	}
	retryAt := f.NowMs
	switch {
	case f.FfxDelayUntilMs != nil:
		retryAt = *f.FfxDelayUntilMs
	case f.AttemptTerminalAtMs != nil:
		retryAt = *f.AttemptTerminalAtMs
	}
	return Failed{Retry: true, RetryAt: time.UnixMilli(retryAt)}
}

// retryDecision returns whether a failure is retried, and after how many milliseconds, by the stored policy of its
// execution. Without a retry policy it uses [document.RetryWhenAbsent], whichever program created the execution.
func retryDecision(policyDocument []byte, retryCount int32, rawRetryCount string, f Failure) (retry bool, pause int64) {
	rules, ok := storedRetryPolicy(policyDocument)
	if !ok {
		rules = document.RetryWhenAbsent()
	}
	retries := usedRetries(retryCount, rawRetryCount)
	return rules.Retries(f.class(), f.category(), retries), rules.PauseMs(retries, rand.Float64())
}

// usedRetries returns how many retries were scheduled: the larger of this library's column and the other program's key.
func usedRetries(column int32, raw string) int {
	n, err := strconv.ParseUint(raw, 10, 31)
	if err != nil {
		return int(column)
	}
	return max(int(column), int(n))
}

// storedRetryPolicy reads the retry policy of an execution's stored policy. It is lenient, because other programs store
// some of them. It returns false if there is none.
func storedRetryPolicy(policyDocument []byte) (document.Retry, bool) {
	var stored struct {
		Retry json.RawMessage `json:"retry_policy"`
	}
	if len(policyDocument) == 0 || json.Unmarshal(policyDocument, &stored) != nil || len(stored.Retry) == 0 || string(stored.Retry) == "null" {
		return document.Retry{}, false
	}
	retry, err := document.RetryFromJSON(stored.Retry)
	return retry, err == nil
}

func (e *Engine) writeFailures(
	ctx context.Context, tx *txn, batch *settlementBatch, failure func(int) Failure, results []Outcome[Failed],
) ([]endedExecution, error) {
	retries := newRetries(batch.nowMs, "retry", "revoked")
	ends := newEnding(batch.nowMs, state.OutcomeFailed)
	for _, n := range batch.acting {
		l, f := batch.leases[n], failure(n)
		attempt := endingAttempt{
			execution: l.Execution, index: int32(l.Attempt), leaseID: batch.facts[n].LeaseID, instance: batch.facts[n].WorkerInstanceID,
			leaseEvent: "revoked", reason: f.Message, category: f.category(), class: f.class(), detail: f.Detail,
		}
		row := batch.rows[n]
		retry, pause := retryDecision(row.Policy, row.RetryCount, row.RawRetryCount, f)
		if !retry {
			ends.add(attempt)
			results[n] = Outcome[Failed]{}
			continue
		}
		retryAt := addTTL(batch.nowMs, pause)
		retries.add(attempt, retryAt)
		results[n].Value = Failed{Retry: true, RetryAt: time.UnixMilli(retryAt)}
	}
	if err := e.scheduleRetries(ctx, tx, retries); err != nil {
		return nil, err
	}
	return e.endUnsuccessful(ctx, tx, ends)
}
