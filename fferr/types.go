package fferr

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/state"
)

// InputError reports an invalid argument. Field names the argument, Reason says why.
type InputError struct {
	Field  string
	Reason string
	Cause  error // the error of the parser that refused the value, if any
}

func (e *InputError) Error() string { return "invalid input: " + e.Field + ": " + e.Reason }

// Unwrap returns [ErrInvalidInput] and Cause.
func (e *InputError) Unwrap() []error { return withCause(ErrInvalidInput, e.Cause) }

// CorruptionError reports an unreadable stored value. Column names the column.
type CorruptionError struct {
	Column string
	Cause  error // why the value is unreadable
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("stored value cannot be read: %s: %v", e.Column, e.Cause)
}

// Unwrap returns [ErrCorruption] and Cause.
func (e *CorruptionError) Unwrap() []error { return withCause(ErrCorruption, e.Cause) }

// NotFoundError names a missing object: never created here, or deleted by retention. Entity is "execution", "attempt",
// "flow", "edge" or "worker".
type NotFoundError struct {
	Entity string
	ID     string
}

func (e *NotFoundError) Error() string { return e.Entity + " " + e.ID + " not found" }

// Unwrap returns [ErrNotFound].
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// KeyConflictError names the execution or flow with a key: an idempotency key, a business key, or the key of unique work, for
// which both names are empty.
type KeyConflictError struct {
	Key          id.IdempotencyKey
	BusinessKey  id.BusinessKey
	Existing     id.ExecutionID // zero if a flow has the business key
	ExistingFlow *id.FlowID     // the flow that has the business key; nil for an execution
	Differs      string         // how the execution differs from the requested one, or that the execution has the business key
}

func (e *KeyConflictError) Error() string {
	if e.ExistingFlow != nil {
		return fmt.Sprintf("%v: flow %s %s", ErrKeyConflict, e.ExistingFlow, e.Differs)
	}
	return fmt.Sprintf("%v: execution %s %s", ErrKeyConflict, e.Existing, e.Differs)
}

// Unwrap returns [ErrKeyConflict].
func (e *KeyConflictError) Unwrap() error { return ErrKeyConflict }

// RevisionError reports a flow's unexpected revision.
type RevisionError struct {
	Flow               id.FlowID
	Expected, Revision int64
}

func (e *RevisionError) Error() string {
	return fmt.Sprintf("flow %s: %v: %d, not %d", e.Flow, ErrStaleRevision, e.Revision, e.Expected)
}

// Unwrap returns [ErrStaleRevision].
func (e *RevisionError) Unwrap() error { return ErrStaleRevision }

// MemberError is a refusal because of the flow that an execution belongs to. Err is [ErrOtherFlow] or [ErrNotMember].
type MemberError struct {
	Execution id.ExecutionID
	Flow      *id.FlowID // the execution's flow; nil if none
	Err       error
}

func (e *MemberError) Error() string {
	if e.Flow == nil {
		return fmt.Sprintf("execution %s: %v", e.Execution, e.Err)
	}
	return fmt.Sprintf("execution %s: %v: it belongs to flow %s", e.Execution, e.Err, e.Flow)
}

// Unwrap returns the sentinel in Err.
func (e *MemberError) Unwrap() error { return e.Err }

// EdgeExistsError describes the existing edge that conflicts with the requested one.
type EdgeExistsError struct {
	Edge                 id.EdgeID
	Upstream, Downstream id.ExecutionID
}

func (e *EdgeExistsError) Error() string {
	return fmt.Sprintf("%v: %s, from execution %s to %s", ErrEdgeExists, e.Edge, e.Upstream, e.Downstream)
}

// Unwrap returns [ErrEdgeExists].
func (e *EdgeExistsError) Unwrap() error { return ErrEdgeExists }

// EndedError reports how an execution ended: either without success and a result, or so that it can no longer be
// changed.
type EndedError struct {
	Execution id.ExecutionID
	Outcome   state.TerminalOutcome
	Failure   string // why the execution failed or was cancelled; "" if not recorded
}

func (e *EndedError) Error() string {
	if e.Outcome == state.OutcomeSuccess {
		return fmt.Sprintf("execution %s ended with success", e.Execution)
	}
	text := fmt.Sprintf("execution %s ended without success: %s", e.Execution, cmp.Or(e.Outcome, "no outcome is recorded"))
	if e.Failure != "" {
		text += ": " + e.Failure
	}
	return text
}

// Unwrap returns [ErrEnded].
func (e *EndedError) Unwrap() error { return ErrEnded }

// LeaseError is a refusal of a lease holder's call. Err is [ErrStaleLease], [ErrLeaseExpired], [ErrLeaseRevoked] or
// [ErrNotActive]. For [ErrNotActive], Phase and Outcome have the execution's state. Epoch is the current one.
type LeaseError struct {
	Execution id.ExecutionID
	Attempt   int
	Epoch     int64
	Phase     state.LifecyclePhase
	Outcome   state.TerminalOutcome
	Err       error
}

func (e *LeaseError) Error() string {
	if e.Err == ErrNotActive && e.Outcome != state.OutcomeNone {
		return fmt.Sprintf("execution %s attempt %d: %v (%s, outcome %s)", e.Execution, e.Attempt, e.Err, e.Phase, e.Outcome)
	}
	if e.Err == ErrNotActive {
		return fmt.Sprintf("execution %s attempt %d: %v (%s)", e.Execution, e.Attempt, e.Err, e.Phase)
	}
	return fmt.Sprintf("execution %s attempt %d: %v", e.Execution, e.Attempt, e.Err)
}

// Unwrap returns the sentinel in Err.
func (e *LeaseError) Unwrap() error { return e.Err }

// StateError is a refusal because of an execution's state. Err is [ErrNotEligible], [ErrNotEnded] or [ErrCompleted]
// from an operator's call, [ErrStarted] from an edge, and [ErrNotLeaseable] or [ErrNotReclaimable] from a grant or a
// claim, with the reason in Reason.
type StateError struct {
	Execution id.ExecutionID
	State     state.Vector
	Reason    string // "" if Err says enough
	Err       error
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("execution %s: %v: ", e.Execution, e.Err)
	if e.Reason != "" {
		text += e.Reason + ": "
	}
	text += "it is " + string(e.State.Phase)
	if e.State.Eligibility != state.NotApplicable {
		text += ", " + string(e.State.Eligibility)
	}
	return text
}

// Unwrap returns the sentinel in Err.
func (e *StateError) Unwrap() error { return e.Err }

// GrantError is a refusal of a grant. Err is [ErrGrantExists], [ErrInvalidGrant] or [ErrGrantExpired]. For an invalid
// grant, Reason is [id.ReasonMalformed], [id.ReasonUnknownKid], [id.ReasonUnknownGrant] or
// [id.ReasonSignatureMismatch].
type GrantError struct {
	Execution id.ExecutionID
	Reason    id.Reason
	Err       error
}

func (e *GrantError) Error() string {
	text := fmt.Sprintf("execution %s: %v", e.Execution, e.Err)
	if e.Reason != "" {
		text += ": " + string(e.Reason)
	}
	return text
}

// Unwrap returns the sentinel in Err.
func (e *GrantError) Unwrap() error { return e.Err }

// ReclaimCapError reports the number of leases that an execution has lost.
type ReclaimCapError struct {
	Execution id.ExecutionID
	Reclaims  int
}

func (e *ReclaimCapError) Error() string {
	return fmt.Sprintf("execution %s: %v: %d", e.Execution, ErrReclaimCapExceeded, e.Reclaims)
}

// Unwrap returns [ErrReclaimCapExceeded].
func (e *ReclaimCapError) Unwrap() error { return ErrReclaimCapExceeded }

// HaltedError names the lane ([state.HaltedLane]) or worker instance ([state.HaltedWorker]) that an operator has halted.
type HaltedError struct {
	Halt state.Halt
	Name string
}

func (e *HaltedError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.Halt, e.Name, ErrHalted)
}

// Unwrap returns [ErrHalted].
func (e *HaltedError) Unwrap() error { return ErrHalted }

// UnsupportedError gives the reason why the database, as set up, can't serve an operation.
type UnsupportedError struct{ Reason string }

func (e *UnsupportedError) Error() string {
	return ErrUnsupported.Error() + ": " + e.Reason
}

// Unwrap returns [ErrUnsupported].
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// DeniedError reports the rights missing for a database role. Grants are the statements to grant the rights; the owner
// of the tables can run the statements.
type DeniedError struct {
	User   string // the database role, quoted for SQL
	Grants []string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%v: %s lacks rights: run %s", ErrDenied, e.User, strings.Join(e.Grants, "; "))
}

// Unwrap returns [ErrDenied].
func (e *DeniedError) Unwrap() error { return ErrDenied }

// StreamMovedError reports that nothing was appended, because the stream has another number of frames than
// the batch says. After an unknown outcome that shows whether the frames were appended.
type StreamMovedError struct {
	Frames int64 // that the stream has, trimmed ones included
}

func (e *StreamMovedError) Error() string {
	return fmt.Sprintf("%v: %d", ErrStreamMoved, e.Frames)
}

// Unwrap returns [ErrStreamMoved].
func (e *StreamMovedError) Unwrap() error { return ErrStreamMoved }

// StreamGapError reports durable frames that a reader has missed.
type StreamGapError struct {
	Execution id.ExecutionID
	Attempt   int
	Frames    int64              // how many are missing
	After     wire.FramePosition // the last earlier frame read; zero: none
}

func (e *StreamGapError) Error() string {
	return fmt.Sprintf("%d frames of attempt %d of execution %s, after %s: %v", e.Frames, e.Attempt, e.Execution, e.After, ErrStreamGap)
}

// Unwrap returns [ErrStreamGap].
func (e *StreamGapError) Unwrap() error { return ErrStreamGap }

// DecodeError is a stored payload or result that can't be decoded into the type of the kind. The text never contains
// the stored value, but the text of Err may.
type DecodeError struct {
	Kind string // the kind's name
	What string // "payload", "result", "signal", or which payload, result or signal
	Type string // the Go type
	Err  error  // the codec's error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("%s of kind %q does not decode into %s", e.What, e.Kind, e.Type)
}

// Unwrap returns the codec's error.
func (e *DecodeError) Unwrap() error { return e.Err }

func withCause(sentinel, cause error) []error {
	if cause == nil {
		return []error{sentinel}
	}
	return []error{sentinel, cause}
}
