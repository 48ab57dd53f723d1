// Package id has the identifiers of executions, flows and their parts, and the names that programs choose.
//
// Programs choose [LaneID], [Namespace] and [IdempotencyKey], and keep [ExecutionID] and [FlowID]. The other ids name
// parts in results and events. Package id/wire has the byte formats built from ids.
package id

import (
	"bytes"
	"strings"

	"github.com/google/uuid"
)

// UUID is a 128-bit identifier; K keeps the kinds apart. The zero value is the nil UUID, which parses and prints like any
// other; operations that need an id refuse it. [UUID.UUID] returns the value without its kind, and a conversion sets one:
// id.FlowID(u).
type UUID[K any] uuid.UUID

// Kinds of UUID identifiers. They have no values.
type (
	execution   struct{}
	flow        struct{}
	edge        struct{}
	lease       struct{}
	attempt     struct{}
	budget      struct{}
	quotaPolicy struct{}
	signal      struct{}
	waitpoint   struct{}
	suspension  struct{}
)

type (
	// ExecutionUUID is the UUID half of an [ExecutionID], as stored in uuid columns.
	ExecutionUUID = UUID[execution]
	// FlowID names a flow.
	FlowID = UUID[flow]
	// EdgeID names a dependency edge of a flow.
	EdgeID = UUID[edge]
	// LeaseID names one lease of an attempt.
	LeaseID = UUID[lease]
	// AttemptID names one attempt at an execution.
	AttemptID = UUID[attempt]
	// BudgetID names a budget.
	BudgetID = UUID[budget]
	// QuotaPolicyID names a quota policy.
	QuotaPolicyID = UUID[quotaPolicy]
	// SignalID names a delivered signal.
	SignalID = UUID[signal]
	// WaitpointID names a waitpoint of a suspension.
	WaitpointID = UUID[waitpoint]
	// SuspensionID names one suspension of an execution.
	SuspensionID = UUID[suspension]
)

// ParseExecutionUUID parses the UUID half of an execution id; see [UUID.UnmarshalText].
func ParseExecutionUUID(s string) (ExecutionUUID, error) {
	return parseUUID[execution]("execution uuid", s)
}

// ParseFlowID parses a flow id; see [UUID.UnmarshalText].
func ParseFlowID(s string) (FlowID, error) { return parseUUID[flow]("flow id", s) }

// ParseEdgeID parses an edge id; see [UUID.UnmarshalText].
func ParseEdgeID(s string) (EdgeID, error) { return parseUUID[edge]("edge id", s) }

// ParseLeaseID parses a lease id; see [UUID.UnmarshalText].
func ParseLeaseID(s string) (LeaseID, error) { return parseUUID[lease]("lease id", s) }

// ParseAttemptID parses an attempt id; see [UUID.UnmarshalText].
func ParseAttemptID(s string) (AttemptID, error) { return parseUUID[attempt]("attempt id", s) }

// ParseBudgetID parses a budget id; see [UUID.UnmarshalText].
func ParseBudgetID(s string) (BudgetID, error) { return parseUUID[budget]("budget id", s) }

// ParseQuotaPolicyID parses a quota policy id; see [UUID.UnmarshalText].
func ParseQuotaPolicyID(s string) (QuotaPolicyID, error) {
	return parseUUID[quotaPolicy]("quota policy id", s)
}

// ParseSignalID parses a signal id; see [UUID.UnmarshalText].
func ParseSignalID(s string) (SignalID, error) { return parseUUID[signal]("signal id", s) }

// ParseWaitpointID parses a waitpoint id; see [UUID.UnmarshalText].
func ParseWaitpointID(s string) (WaitpointID, error) {
	return parseUUID[waitpoint]("waitpoint id", s)
}

// ParseSuspensionID parses a suspension id; see [UUID.UnmarshalText].
func ParseSuspensionID(s string) (SuspensionID, error) {
	return parseUUID[suspension]("suspension id", s)
}

// UUID returns u without its kind.
func (u UUID[K]) UUID() uuid.UUID { return uuid.UUID(u) }

// String returns the canonical form of u: 36 characters, lower-case hex, hyphens at 8-13-18-23.
func (u UUID[K]) String() string { return uuid.UUID(u).String() }

// IsZero reports whether u is the nil UUID.
func (u UUID[K]) IsZero() bool { return u == UUID[K]{} }

// Compare orders u and v by their bytes, as Postgres orders uuid.
func (u UUID[K]) Compare(v UUID[K]) int { return bytes.Compare(u[:], v[:]) }

// AppendText appends the canonical form of u to b.
func (u UUID[K]) AppendText(b []byte) ([]byte, error) { return u.appendTo(b), nil }

// MarshalText returns the canonical form of u.
func (u UUID[K]) MarshalText() ([]byte, error) { return uuid.UUID(u).MarshalText() }

// UnmarshalText parses the 36-character hyphenated form, 32 bare hex digits, the hyphenated form in braces, or the
// hyphenated form after "urn:uuid:", with hex digits in either case. It returns a [*ParseError] for anything else,
// including surrounding blanks.
func (u *UUID[K]) UnmarshalText(text []byte) error {
	parsed, err := parseUUID[K]("uuid", string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}

// The prefix of a UUID's URN form. It is accepted in lower case only.
const urnPrefix = "urn:uuid:"

// The lengths of the hyphenated form, bare, in braces and as a URN.
const (
	uuidLen   = 36
	bracedLen = uuidLen + 2
	urnLen    = uuidLen + len(urnPrefix)
)

func (u UUID[K]) appendTo(b []byte) []byte {
	text, _ := uuid.UUID(u).MarshalText() // never fails
	return append(b, text...)
}

// parseUUID is stricter than [uuid.Parse], which accepts any two bytes for the braces and the prefix in either case.
func parseUUID[K any](typ, s string) (UUID[K], error) {
	u, err := uuid.Parse(s)
	ok := err == nil
	switch len(s) {
	case bracedLen:
		ok = ok && s[0] == '{' && s[len(s)-1] == '}'
	case urnLen:
		ok = ok && strings.HasPrefix(s, urnPrefix)
	}
	if !ok {
		return UUID[K]{}, refuse(typ, ReasonInvalidUUID, s)
	}
	return UUID[K](u), nil
}

// parseHyphenated parses only the 36-character form.
func parseHyphenated[K any](s string) (UUID[K], bool) {
	if len(s) != uuidLen {
		return UUID[K]{}, false
	}
	u, err := uuid.Parse(s)
	return UUID[K](u), err == nil
}
