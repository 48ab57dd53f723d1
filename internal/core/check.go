package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// DecodeTags reads the tags of an execution. Values other than strings are left out.
func DecodeTags(document []byte) map[string]string {
	if len(document) == 0 || string(document) == "{}" {
		return nil
	}
	var tags map[string]string
	if !bytes.Contains(document, []byte("null")) && json.Unmarshal(document, &tags) == nil {
		return tags
	}
	var raw map[string]any
	if json.Unmarshal(document, &raw) != nil {
		return nil
	}
	tags = make(map[string]string, len(raw))
	for key, value := range raw {
		if text, ok := value.(string); ok {
			tags[key] = text
		}
	}
	return tags
}

// SpareTags has an empty map of tags, which executions share until a middleware writes to it.
type SpareTags struct{ tags map[string]string }

// Copy returns a copy of tags, or an empty map for nil. If the caller leaves the map empty, it must not keep the map.
func (s *SpareTags) Copy(tags map[string]string) map[string]string {
	if tags != nil {
		return maps.Clone(tags)
	}
	if s.tags == nil || len(s.tags) > 0 {
		s.tags = make(map[string]string)
	}
	return s.tags
}

// TagsOrNil returns tags, or nil if there are none.
func TagsOrNil(tags map[string]string) map[string]string {
	if len(tags) == 0 {
		return nil
	}
	return tags
}

// Number reads a count or time stored as a JSON string or number, and returns -1 for anything else.
func Number(raw json.RawMessage) int64 {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// OptionalTime returns the time of a column, zero for null.
func OptionalTime(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms)
}

// CheckText refuses a text that is too long or that PostgreSQL can't store.
func CheckText(field, value string, limit int) error {
	if len(value) > limit {
		return Invalid(field, fmt.Sprintf("%d bytes, limit %d", len(value), limit))
	}
	if err := id.CheckText(field, value); err != nil {
		return InvalidBecause(field, err)
	}
	return nil
}

// CheckCount refuses a count that no column of 32 bits can have.
func CheckCount(field string, n int) error {
	if n < 0 || n > math.MaxInt32 {
		return Invalid(field, fmt.Sprintf("%d, not between 0 and %d", n, math.MaxInt32))
	}
	return nil
}

// maxKinds limits the kinds that a worker reports.
const maxKinds = 10_000

// CheckKinds refuses too many kinds, and kinds that no execution can have.
func CheckKinds(field string, kinds []string) error {
	if len(kinds) > maxKinds {
		return Invalid(field, fmt.Sprintf("%d kinds, limit %d", len(kinds), maxKinds))
	}
	for i, kind := range kinds {
		if err := CheckText(fmt.Sprintf("%s[%d]", field, i), kind, MaxKind); err != nil {
			return err
		}
	}
	return nil
}

// Instant converts an optional time to milliseconds, 0 for none.
func Instant(field string, t time.Time) (int64, error) {
	if t.IsZero() {
		return 0, nil
	}
	// Outside these years the count of milliseconds would overflow.
	if t.Before(time.UnixMilli(1)) || t.After(time.UnixMilli(math.MaxInt64)) {
		return 0, Invalid(field, "must be after 1970 and within the range of milliseconds in 64 bits")
	}
	return t.UnixMilli(), nil
}

const MaxFreeText = 1024

const MaxKind = 255

const MaxTagValue = 64 << 10

// CheckRetention refuses a retention outside the bounds of [policy.MinRetention].
func CheckRetention(field string, d time.Duration) error {
	switch {
	case d == policy.KeepForever || d >= policy.MinRetention && d <= math.MaxInt64-time.Millisecond:
		return nil
	default:
		return Invalid(field, fmt.Sprintf("%v, must be policy.KeepForever, 0 for the default, or at least %v", d, policy.MinRetention))
	}
}

// IsTerminalPhase reports whether a stored phase is terminal.
func IsTerminalPhase(stored string) bool { return stored == "terminal" || stored == "cancelled" }

// PublicState derives the public state and the outcome of an execution from its stored literals.
func PublicState(phase, eligibility, public string, facts normalise.TerminalFacts) (state.PublicState, state.TerminalOutcome, error) {
	canonical, err := normalise.LifecyclePhase(phase)
	if err != nil {
		return "", "", Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	eligible, err := normalise.EligibilityState(eligibility)
	if err != nil {
		return "", "", Corrupt("ff_exec_core.eligibility_state", err)
	}
	stored, err := normalise.PublicState(public)
	if err != nil {
		return "", "", Corrupt("ff_exec_core.public_state", err)
	}
	facts.Phase, facts.StoredPhase, facts.StoredPublicState = canonical, phase, public
	outcome := normalise.TerminalOutcome(facts)
	return state.Effective(stored, canonical, eligible, outcome), outcome, nil
}

// RetentionOf is the reverse of [RetentionMs].
func RetentionOf(ms int64) time.Duration {
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return policy.KeepForever
	}
	return time.Duration(ms) * time.Millisecond
}

// AddTTL returns atMs + ttlMs, at most the largest time of a column. ttlMs must not be negative.
func AddTTL(atMs, ttlMs int64) int64 {
	if atMs > math.MaxInt64-ttlMs {
		return math.MaxInt64
	}
	return atMs + ttlMs
}

// LaneTexts returns the names of lanes, and refuses invalid ones.
func LaneTexts(lanes []id.LaneID, field string) ([]string, error) {
	texts := make([]string, len(lanes))
	for i, lane := range lanes {
		if err := lane.Validate(); err != nil {
			return nil, InvalidBecause(fmt.Sprintf("%s[%d]", field, i), err)
		}
		texts[i] = string(lane)
	}
	return texts, nil
}

// IDsOfLanes returns lanes by their names.
func IDsOfLanes(texts []string) []id.LaneID {
	lanes := make([]id.LaneID, len(texts))
	for i, text := range texts {
		lanes[i] = id.LaneID(text)
	}
	return lanes
}

// CheckExecution refuses an execution id that can't exist in this database.
func (c *Core) CheckExecution(x id.ExecutionID) error {
	if x.IsZero() {
		return Invalid("execution id", "is empty")
	}
	if err := c.Partitions.CheckExecution(x); err != nil {
		return InvalidBecause("execution id", err)
	}
	return nil
}

// CheckLease refuses a lease that can't exist in this database.
func (c *Core) CheckLease(l id.Fence) error {
	switch {
	case l.Execution.IsZero():
		return Invalid("lease", "names no execution")
	case l.Attempt < 0 || l.Attempt > math.MaxInt32:
		return Invalid("lease", "attempt index must be between 0 and 2^31-1")
	}
	if err := c.Partitions.CheckExecution(l.Execution); err != nil {
		return InvalidBecause("lease", err)
	}
	return nil
}

// CheckAwait refuses a core bound to a transaction, which must not wait for other transactions.
func (c *Core) CheckAwait() error {
	if err := pgtx.Refusal(c.Tx); err != nil {
		return err
	}
	if c.Tx != nil {
		return Invalid("engine", "is bound to a transaction, which must not wait for other transactions")
	}
	return nil
}

// NamespaceOr returns a checked namespace, or the engine's if none is given.
func (c *Core) NamespaceOr(given id.Namespace) (id.Namespace, error) {
	if given == "" {
		return c.Namespace, nil
	}
	if err := given.Validate(); err != nil {
		return "", InvalidBecause("namespace", err)
	}
	return given, nil
}

// CheckWorkers checks the names in a filter of workers. Empty ones select all workers.
func CheckWorkers(namespace id.Namespace, worker id.WorkerID, instance id.WorkerInstanceID, lane id.LaneID) error {
	if lane != "" {
		if err := lane.Validate(); err != nil {
			return InvalidBecause("WorkerFilter.Lane", err)
		}
	}
	return cmp.Or(
		CheckText("WorkerFilter.Namespace", string(namespace), MaxKind),
		CheckText("WorkerFilter.Worker", string(worker), MaxKind),
		CheckText("WorkerFilter.Instance", string(instance), MaxKind),
	)
}

// MaxLeaseTTL is the longest lease.
const MaxLeaseTTL = math.MaxUint32 * time.Millisecond

// CheckTTL refuses the duration of a lease or grant.
func CheckTTL(field string, ttl time.Duration) error {
	if ttl < time.Millisecond || ttl > MaxLeaseTTL {
		return Invalid(field, "must be between 1ms and 2^32-1 ms")
	}
	return nil
}

// CheckClaim refuses the input of a claim.
func CheckClaim(
	lane id.LaneID, capabilities id.Capabilities, kinds []string, worker id.WorkerID, instance id.WorkerInstanceID, ttl time.Duration,
) error {
	if err := lane.Validate(); err != nil {
		return InvalidBecause("lane", err)
	}
	if err := capabilities.Validate(); err != nil {
		return InvalidBecause("capabilities", err)
	}
	for _, kind := range kinds {
		if kind == "" {
			return Invalid("kinds", "must not contain an empty kind")
		}
		if err := CheckText("kinds", kind, MaxKind); err != nil {
			return err
		}
	}
	if err := worker.Validate(); err != nil {
		return InvalidBecause("worker", err)
	}
	if err := instance.Validate(); err != nil {
		return InvalidBecause("worker instance", err)
	}
	return CheckTTL("lease TTL", ttl)
}

// maxShownFailure is the largest size of a failure in a listing, in bytes.
const maxShownFailure = 1 << 10

// ShownFailure returns the beginning of the failure of an execution in a listing, "" unless it failed or expired.
func ShownFailure(public state.PublicState, reason, last string) string {
	if public != state.PublicFailed && public != state.PublicExpired {
		return ""
	}
	failure := cmp.Or(reason, last)
	if len(failure) > maxShownFailure {
		failure = strings.ToValidUTF8(failure[:maxShownFailure], "")
	}
	return failure
}

// ResultOf returns the result of an execution, or an error for its state.
func ResultOf(x id.ExecutionID, row *db.GetExecutionResultRow) ([]byte, error) {
	public, outcome, err := PublicState(row.LifecyclePhase, row.EligibilityState, row.PublicState, normalise.TerminalFacts{
		PointerOutcome:     row.PointerOutcome,
		CurrentOutcome:     row.CurrentOutcome,
		RawTerminalOutcome: row.RawTerminalOutcome,
		CancellationReason: row.CancellationReason,
		LastFailureMessage: row.LastFailureMessage,
		FailureReason:      row.FailureReason,
	})
	switch {
	case err != nil:
		return nil, err
	case outcome == state.OutcomeSuccess:
		return row.Result, nil
	case !public.Terminal():
		return nil, fferr.ErrNotEnded
	}
	return nil, &fferr.EndedError{
		Execution: x, Outcome: outcome, Failure: cmp.Or(row.FailureReason, row.LastFailureMessage, row.CancellationReason),
	}
}
