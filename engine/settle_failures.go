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

// MaxFailureMessage is the longest failure message, category or detail in bytes.
const MaxFailureMessage = 64 << 10

// Failure says why an attempt failed. Class decides whether it may be retried at all (default
// [policy.Transient]); Category is matched against the categories of [policy.Retry] (default: the class).
//
// Detail is further text for the person who looks for the cause, as the stack of a panic. It is kept with the attempt
// alone, and only reads of attempts return it; Message stands in an [EndedError] and in lists too.
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

// Failed is what became of a failed execution: it is retried at RetryAt as attempt NextAttempt, or it
// has ended.
type Failed struct {
	Retry       bool
	RetryAt     time.Time
	NextAttempt int
}

// FailExecution ends the attempt that l holds as failed. The execution's retry policy decides whether another attempt
// follows, or the default of [policy.Execution] if it has none. If none follows, the execution ends as failed, and in the
// same transaction whatever can no longer run because of it is skipped.
//
// Errors, in a [*LeaseError]: [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] and [ErrNotActive]:
// nothing was written, and the caller has nothing more to do. [ErrNotFound] when the execution or attempt
// is gone; [ErrInvalidInput] for a message that cannot be stored.
//
// Transaction: a constant number of statements, plus one round for each level of executions skipped.
// Locks, where it ends a member of a flow, the flow exclusively; then the execution and its attempt. It waits for
// each up to two seconds, three times; then [ErrContention].
// Repeating it after an unknown outcome is safe: it answers as the call that took effect did. A character that the
// database's encoding lacks is stored as an escape.
func (e *Engine) FailExecution(ctx context.Context, l Lease, f Failure) (Failed, error) {
	results, err := e.fail(ctx, []AttemptFailure{{Lease: l, Failure: f}})
	if err != nil {
		return Failed{}, err
	}
	return results[0].Value, results[0].Err
}

// FailExecutions is [Engine.FailExecution] for many leases, [MaxBatch] to a transaction. Outcomes stand
// in input order; a lost lease affects only its own. The error means that nothing happened.
//
// It waits for nobody: what somebody else holds has the outcome [ErrBusy], and the caller repeats it.
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

// inASCII writes f with escapes instead of characters that a server may not be able to store: otherwise the failure would
// be refused for ever, and its attempt would never end.
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
			case "failure": // another program's, whichever it decided
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

// failedBefore is the answer to a failure that was recorded already.
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

func isTerminalPhase(stored string) bool { return stored == "terminal" || stored == "cancelled" }

// retryDecision says whether a failure is retried, and after how many milliseconds, by the stored policy of its
// execution. One without a retry policy has [document.RetryWhenAbsent], whichever program created it.
func retryDecision(policyDocument []byte, retryCount int32, rawRetryCount string, f Failure) (retry bool, pause int64) {
	rules, ok := storedRetryPolicy(policyDocument)
	if !ok {
		rules = document.RetryWhenAbsent()
	}
	retries := usedRetries(retryCount, rawRetryCount)
	return rules.Retries(f.class(), f.category(), retries), rules.PauseMs(retries, rand.Float64())
}

// usedRetries is how many retries were scheduled: the column of this library, or the key of another
// program, whichever is more.
func usedRetries(column int32, raw string) int {
	n, err := strconv.ParseUint(raw, 10, 31)
	if err != nil {
		return int(column)
	}
	return max(int(column), int(n))
}

// storedRetryPolicy reads the retry policy of an execution's stored policy, leniently: other programs
// store some of them. false: there is none.
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
