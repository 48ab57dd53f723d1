// Package id holds the typed identifiers of executions, flows and their parts, and the
// byte formats built from them: partition numbers, handles, cursors, tokens and grant keys.
// It knows nothing of the database.
//
// A program meets the names that it chooses ([LaneID], [Namespace], [IdempotencyKey]), the ids that it keeps
// ([ExecutionID], [FlowID]) and, to hand a lease to another process, a [Handle]. The rest is for readers and writers of
// those formats, in this library and in other programs on the same database.
package id

import (
	"bytes"
	"encoding/hex"
	"strings"
)

// UUID is a 128-bit identifier; K keeps the kinds apart. Its zero value is the nil UUID,
// which parses and renders like any other; operations that need an id refuse it.
// A google/uuid value converts directly: id.FlowID(u).
type UUID[K any] [16]byte

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
	// ExecutionUUID is the UUID half of an [ExecutionID], what uuid columns hold.
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

// String renders u canonically: 36 characters, lower-case hex, hyphens at 8-13-18-23.
func (u UUID[K]) String() string {
	var text [uuidLen]byte
	u.encode(&text)
	return string(text[:])
}

// IsZero reports whether u is the nil UUID.
func (u UUID[K]) IsZero() bool { return u == UUID[K]{} }

// Compare orders u and v by their bytes, as Postgres orders uuid.
func (u UUID[K]) Compare(v UUID[K]) int { return bytes.Compare(u[:], v[:]) }

// AppendText appends the canonical form of u to b.
func (u UUID[K]) AppendText(b []byte) ([]byte, error) {
	var text [uuidLen]byte
	u.encode(&text)
	return append(b, text[:]...), nil
}

// MarshalText renders u canonically.
func (u UUID[K]) MarshalText() ([]byte, error) {
	return u.AppendText(make([]byte, 0, uuidLen))
}

// UnmarshalText parses the 36-character hyphenated form, 32 bare hex digits, the hyphenated
// form in braces, or the hyphenated form after "urn:uuid:"; hex digits in either case.
// Anything else is a [*ParseError], surrounding blanks included.
func (u *UUID[K]) UnmarshalText(text []byte) error {
	parsed, err := parseUUID[K]("uuid", string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}

const uuidLen = 36

func (u UUID[K]) encode(text *[uuidLen]byte) {
	hex.Encode(text[0:8], u[0:4])
	text[8] = '-'
	hex.Encode(text[9:13], u[4:6])
	text[13] = '-'
	hex.Encode(text[14:18], u[6:8])
	text[18] = '-'
	hex.Encode(text[19:23], u[8:10])
	text[23] = '-'
	hex.Encode(text[24:36], u[10:16])
}

func parseUUID[K any](typ, s string) (UUID[K], error) {
	var u UUID[K]
	ok := false
	if len(s) == 2*len(u) {
		_, err := hex.Decode(u[:], []byte(s))
		ok = err == nil
	} else {
		body := s
		if rest, cut := strings.CutPrefix(s, "urn:uuid:"); cut {
			body = rest
		} else if len(s) == uuidLen+2 && s[0] == '{' && s[len(s)-1] == '}' {
			body = s[1 : len(s)-1]
		}
		ok = decodeHyphenated(u[:], body)
	}
	if !ok {
		return UUID[K]{}, refuse(typ, ReasonInvalidUUID, s)
	}
	return u, nil
}

// decodeHyphenated decodes the 36-character form, and no other, into dst's 16 bytes.
func decodeHyphenated(dst []byte, s string) bool {
	if len(s) != uuidLen || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	var digits [32]byte
	n := copy(digits[:], s[0:8])
	n += copy(digits[n:], s[9:13])
	n += copy(digits[n:], s[14:18])
	n += copy(digits[n:], s[19:23])
	copy(digits[n:], s[24:36])
	_, err := hex.Decode(dst, digits[:])
	return err == nil
}
