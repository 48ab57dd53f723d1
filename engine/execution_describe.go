package engine

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExecutionSnapshot is the state of an execution at one moment.
type ExecutionSnapshot struct {
	ID                   id.ExecutionID
	Flow                 *id.FlowID     // nil outside a flow
	Node                 string         // the node's key in the flow; "" unless created as a node
	BusinessKey          id.BusinessKey // optional
	Sequence             *SequencePlace // nil outside a sequence
	Fair                 FairShare      // optional
	Unique               string         // [Unique.While], a colon and the unique key in hex; "" unless unique
	Lane                 id.LaneID
	Namespace            id.Namespace
	Kind                 string
	Priority             int
	Tags                 map[string]string
	RequiredCapabilities id.Capabilities

	// State is the complete state; show State.Public to users. State is correct even if another program left the stored
	// state outdated.
	State              state.Vector
	BlockingDetail     string
	CancellationReason string
	CancelledBy        string
	FailureReason      string // of an ended execution; for a retried failure see [Attempt.Failure]

	CreatedAt      time.Time
	StartedAt      time.Time // first claim; zero before
	EndedAt        time.Time // zero before the end
	LastMutationAt time.Time
	DelayUntil     time.Time // zero unless delayed
	Deadline       time.Time // zero without a deadline

	Attempt     *AttemptSnapshot // nil before the first claim
	Lease       *LeaseSnapshot   // nil unless leased
	Waitpoint   *id.WaitpointID  // nil unless suspended
	Wait        *OpenWait        // nil unless suspended
	Attempts    int              // made so far; also the index of the next new one
	Retries     int              // scheduled so far
	LeasesLost  int              // expired leases
	BudgetIDs   []id.BudgetID
	QuotaPolicy *id.QuotaPolicyID
	Limits      []LimitKey // in the order of waiting
	LimitWait   *LimitWait // nil unless waiting for a limit or a quota policy
}

// LimitWait is the wait of an execution for a limit.
type LimitWait struct {
	LimitKey // without a name: the quota policy

	Since time.Time // creation, or the last delay, release or move to another limit
	Ahead int       // earlier executions waiting for the key, at most 1,000
}

// AttemptSnapshot is the current attempt of an execution.
type AttemptSnapshot struct {
	ID     id.AttemptID // zero if another program stored none
	Index  int
	Frames int64 // written to the output stream, also trimmed ones
}

// LeaseSnapshot is the lease recorded on the current attempt, expired or not.
type LeaseSnapshot struct {
	ID        id.LeaseID // zero if another program stored none
	Epoch     int64
	Attempt   int
	Instance  id.WorkerInstanceID
	ExpiresAt time.Time
}

// DescribeExecution returns the current state of an execution.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput] if the id's partition does not exist in this database;
// [fferr.ErrCorruption] naming the column with an unknown value.
func (e *Engine) DescribeExecution(ctx context.Context, x id.ExecutionID) (*ExecutionSnapshot, error) {
	const op = "describe execution"
	row, err := e.getExecution(ctx, x)
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	snapshot, err := snapshotOf(x, row)
	return snapshot, core.Wrap(op, err)
}

// rawExecution has the fields that reads use from raw_fields. A document other than an object reads as empty.
type rawExecution struct {
	Namespace       string          `json:"namespace"`
	Kind            string          `json:"execution_kind"`
	LastMutationAt  json.RawMessage `json:"last_mutation_at"`
	AttemptCount    json.RawMessage `json:"total_attempt_count"`
	RetryCount      json.RawMessage `json:"retry_count"`
	Tags            json.RawMessage `json:"tags"`
	BlockingDetail  string          `json:"blocking_detail"`
	TerminalOutcome string          `json:"terminal_outcome"`
	LastFailure     string          `json:"last_failure_message"`
	FailureReason   string          `json:"failure_reason"`
	DelayUntil      json.RawMessage `json:"delay_until"`
	Waitpoint       string          `json:"current_waitpoint_id"`
	Node            string          `json:"ffx_node_key"`
	BusinessKey     id.BusinessKey  `json:"ffx_business_key"`
	Unique          string          `json:"ffx_unique"`
	Sequence        rawSequence     `json:"ffx_sequence"`
	Fair            rawFair         `json:"ffx_fair"`
	Limits          []rawLimit      `json:"ffx_limits"`
}

func snapshotOf(x id.ExecutionID, row *db.GetExecutionRow) (*ExecutionSnapshot, error) {
	var raw rawExecution
	_ = json.Unmarshal(row.RawFields, &raw)
	vector, err := vectorOf(row, &raw)
	if err != nil {
		return nil, err
	}
	s := &ExecutionSnapshot{
		ID:                   x,
		Flow:                 row.FlowID,
		Node:                 raw.Node,
		BusinessKey:          raw.BusinessKey,
		Unique:               uniqueText(raw.Unique, row.FfxUniqueKey),
		Fair:                 FairShare(raw.Fair),
		Lane:                 id.LaneID(row.LaneID),
		Namespace:            id.Namespace(raw.Namespace),
		Kind:                 raw.Kind,
		Priority:             int(row.Priority),
		Tags:                 core.DecodeTags(raw.Tags),
		RequiredCapabilities: row.RequiredCapabilities,
		State:                vector,
		BlockingDetail:       raw.BlockingDetail,
		CancellationReason:   row.CancellationReason,
		CancelledBy:          core.Deref(row.CancelledBy),
		FailureReason:        raw.FailureReason,
		CreatedAt:            time.UnixMilli(row.CreatedAtMs),
		EndedAt:              core.OptionalTime(row.TerminalAtMs),
		Attempts:             int(max(int64(row.AttemptRows), int64(core.Deref(row.FfxAttemptCount)), core.Number(raw.AttemptCount))),
		Retries:              int(max(int64(core.Deref(row.FfxRetryCount)), core.Number(raw.RetryCount), 0)),
		LeasesLost:           int(max(row.LeaseReclaimCount, 0)),
	}
	if err := s.Lane.Validate(); err != nil {
		return nil, core.Corrupt("ff_exec_core.lane_id", err)
	}
	if vector.Phase.Terminal() {
		s.BlockingDetail = ""
	}
	if s.FailureReason == "" {
		s.FailureReason = raw.LastFailure
	}
	lastMutation := max(core.Deref(row.FfxLastMutationAtMs), core.Number(raw.LastMutationAt))
	if lastMutation <= 0 {
		lastMutation = row.CreatedAtMs
	}
	s.LastMutationAt = time.UnixMilli(lastMutation)
	s.StartedAt = core.OptionalTime(row.StartedAtMs)
	if s.StartedAt.IsZero() {
		s.StartedAt = core.OptionalTime(row.FirstAttemptStartedAtMs)
	}
	s.setTimes(row, core.Number(raw.DelayUntil))
	if err := s.setAttempt(row, &raw); err != nil {
		return nil, err
	}
	s.setWait(row)
	s.setSequence(row, raw.Sequence)
	for _, budget := range row.FfxBudgetIDs {
		s.BudgetIDs = append(s.BudgetIDs, id.BudgetID(budget.Bytes))
	}
	if row.FfxQuotaPolicyID.Valid {
		s.QuotaPolicy = new(id.QuotaPolicyID(row.FfxQuotaPolicyID.Bytes))
	}
	s.Limits = keysOf(raw.Limits)
	s.setLimitWait(row)
	return s, nil
}

// setLimitWait sets the wait for a limit.
func (s *ExecutionSnapshot) setLimitWait(row *db.GetExecutionRow) {
	at := slices.Index(row.FfxLimitIDs, row.FfxGateID)
	if s.State.Eligibility != state.BlockedByQuota || !row.FfxGateID.Valid || at < 0 {
		return
	}
	s.LimitWait = &LimitWait{Since: s.LastMutationAt, Ahead: int(row.GateAhead)}
	if at < len(s.Limits) {
		s.LimitWait.LimitKey = s.Limits[at]
	}
}

// anySnapshotOf is [snapshotOf] for package explain, which reads the row together with others.
func anySnapshotOf(x id.ExecutionID, row *db.GetExecutionRow) (any, error) { return snapshotOf(x, row) }

// vectorOf maps the stored state. The first unknown literal is the error.
func vectorOf(row *db.GetExecutionRow, raw *rawExecution) (v state.Vector, err error) {
	if v.Phase, err = normalise.LifecyclePhase(row.LifecyclePhase); err != nil {
		return v, core.Corrupt("ff_exec_core.lifecycle_phase", err)
	}
	if v.Ownership, err = normalise.OwnershipState(row.OwnershipState); err != nil {
		return v, core.Corrupt("ff_exec_core.ownership_state", err)
	}
	if v.Eligibility, err = normalise.EligibilityState(row.EligibilityState); err != nil {
		return v, core.Corrupt("ff_exec_core.eligibility_state", err)
	}
	if v.Public, err = normalise.PublicState(row.PublicState); err != nil {
		return v, core.Corrupt("ff_exec_core.public_state", err)
	}
	if v.Attempt, err = normalise.AttemptState(row.AttemptState); err != nil {
		return v, core.Corrupt("ff_exec_core.attempt_state", err)
	}
	if v.Blocking, err = normalise.BlockingReason(row.BlockingReason); err != nil {
		return v, core.Corrupt("ff_exec_core.blocking_reason", err)
	}
	v.Outcome = normalise.TerminalOutcome(normalise.TerminalFacts{
		Phase:              v.Phase,
		StoredPhase:        row.LifecyclePhase,
		PointerOutcome:     row.PointerOutcome,
		StoredPublicState:  row.PublicState,
		CurrentOutcome:     row.CurrentOutcome,
		RawTerminalOutcome: raw.TerminalOutcome,
		CancellationReason: row.CancellationReason,
		LastFailureMessage: raw.LastFailure,
		FailureReason:      raw.FailureReason,
	})
	v.Public = state.Effective(v.Public, v.Phase, v.Eligibility, v.Outcome)
	if v.Phase.Terminal() {
		v.Blocking = state.NotBlocked // left behind by another program
	}
	return v, nil
}

// setTimes separates the end of a delay from the deadline. Another program stores both in one column, or the former only in
// raw_fields.
func (s *ExecutionSnapshot) setTimes(row *db.GetExecutionRow, rawDelay int64) {
	deadline := row.FfxExecutionDeadlineMs
	if core.Deref(deadline) < 0 {
		deadline = new(-*deadline) // negated when the execution ended
		if s.State.Phase != state.Terminal {
			deadline = nil // FlowFabric has undone the end
		}
	}
	delayed := s.State.Eligibility == state.NotEligibleUntilTime
	wake := row.FfxDelayUntilMs
	if wake != nil {
		due := *wake
		if core.Deref(deadline) > 0 {
			due = min(due, *deadline)
		}
		if core.Deref(row.DeadlineAtMs) != due {
			wake = nil // from an earlier delay: another program has written the column since
		}
	}
	switch {
	case !delayed:
		if deadline == nil {
			deadline = row.DeadlineAtMs
		}
	case wake != nil:
		s.DelayUntil = time.UnixMilli(*wake)
	case s.State.Blocking == state.WaitingForRetryBackoff && rawDelay >= 0:
		s.DelayUntil = time.UnixMilli(rawDelay)
		if deadline == nil {
			deadline = row.DeadlineAtMs
		}
	default:
		s.DelayUntil = core.OptionalTime(row.DeadlineAtMs)
	}
	if deadline != nil && *deadline > 0 {
		s.Deadline = time.UnixMilli(*deadline)
	}
}

func (s *ExecutionSnapshot) setAttempt(row *db.GetExecutionRow, raw *rawExecution) error {
	if s.State.Phase == state.Suspended && row.PrimaryWaitpointID.Valid {
		s.Waitpoint = new(id.WaitpointID(row.PrimaryWaitpointID.Bytes))
	} else if raw.Waitpoint != "" {
		waitpoint, err := id.ParseWaitpointID(raw.Waitpoint)
		if err != nil {
			return core.Corrupt("ff_exec_core.raw_fields.current_waitpoint_id", err)
		}
		s.Waitpoint = &waitpoint
	}
	if row.CurrentIndex < 0 {
		return nil
	}
	var kept struct {
		AttemptID string `json:"attempt_id"`
		LeaseID   string `json:"lease_id"`
	}
	_ = json.Unmarshal(row.CurrentRawFields, &kept)
	ours := row.FfxLeaseEpoch != nil && *row.FfxLeaseEpoch == row.CurrentEpoch
	attempt := &AttemptSnapshot{Index: int(row.CurrentIndex), ID: core.Deref(row.CurrentAttemptID), Frames: row.CurrentFrames}
	if kept.AttemptID != "" && !ours {
		parsed, err := id.ParseAttemptID(kept.AttemptID)
		if err != nil {
			return core.Corrupt("ff_attempt.raw_fields.attempt_id", err)
		}
		attempt.ID = parsed
	}
	s.Attempt = attempt
	held := s.State.Ownership == state.Leased || s.State.Ownership == state.LeaseExpiredReclaimable
	if row.CurrentLeaseExpiresAtMs == nil || row.CurrentWorkerInstanceID == nil || !held {
		return nil
	}
	lease := &LeaseSnapshot{
		ID:        core.Deref(row.CurrentLeaseID),
		Epoch:     max(row.CurrentEpoch, 0),
		Attempt:   int(row.CurrentIndex),
		Instance:  id.WorkerInstanceID(*row.CurrentWorkerInstanceID),
		ExpiresAt: time.UnixMilli(*row.CurrentLeaseExpiresAtMs),
	}
	if kept.LeaseID != "" && !ours {
		parsed, err := id.ParseLeaseID(kept.LeaseID)
		if err != nil {
			return core.Corrupt("ff_attempt.raw_fields.lease_id", err)
		}
		lease.ID = parsed
	}
	s.Lease = lease
	return nil
}

// setWait describes the wait of a suspended execution. An unreadable condition is left out, since the execution's state is
// known all the same; [Engine.ListWaits] returns the error.
func (s *ExecutionSnapshot) setWait(row *db.GetExecutionRow) {
	if s.State.Phase != state.Suspended || !row.SuspensionID.Valid {
		return
	}
	s.Wait = &OpenWait{
		Execution: s.ID, Suspension: id.SuspensionID(row.SuspensionID.Bytes), Kind: s.Kind, Namespace: s.Namespace, Lane: s.Lane,
		Since: time.UnixMilli(row.WaitingSinceMs), Until: core.OptionalTime(row.WaitTimeoutAtMs), OnTimeout: OnTimeout(row.TimeoutBehavior),
		Reason: s.State.Blocking, Asked: row.Asked,
	}
	_ = s.Wait.setCondition(row.WaitCondition, row.UnusedSignals)
}

// endOf returns the result of an ended execution, or an error for its outcome.
func endOf(x id.ExecutionID, row *db.ListEndedRow) ([]byte, error) {
	if !row.Found {
		return nil, &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	}
	return core.ResultOf(x, &db.GetExecutionResultRow{
		Result:             row.Result,
		LifecyclePhase:     row.LifecyclePhase,
		EligibilityState:   row.EligibilityState,
		PublicState:        row.PublicState,
		CancellationReason: row.CancellationReason,
		RawTerminalOutcome: row.RawTerminalOutcome,
		LastFailureMessage: row.LastFailureMessage,
		FailureReason:      row.FailureReason,
		CurrentOutcome:     row.CurrentOutcome,
		PointerOutcome:     row.PointerOutcome,
	})
}
