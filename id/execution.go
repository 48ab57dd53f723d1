package id

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// ExecutionID identifies an execution: a UUID and the partition of its rows. The partition is fixed when the id is made,
// so an id keeps it even if the number of partitions changes. It is comparable and usable as a map key.
type ExecutionID struct {
	partition uint16
	uuid      ExecutionUUID
}

// NewExecutionID returns a new id for an execution outside any flow, in the lane's partition.
func NewExecutionID(lane LaneID, p Partitions) ExecutionID {
	return ExecutionIDFor(lane, p, NewExecutionUUID())
}

// NewMemberExecutionID returns a new id for a member of flow, in the flow's partition.
func NewMemberExecutionID(flow FlowID, p Partitions) ExecutionID {
	return MemberExecutionIDFor(flow, p, NewExecutionUUID())
}

// ExecutionIDFor is [NewExecutionID] with the caller's UUID. The same arguments return the same id.
func ExecutionIDFor(lane LaneID, p Partitions, u ExecutionUUID) ExecutionID {
	return ExecutionIDFromRow(p.LanePartition(lane), u)
}

// MemberExecutionIDFor is [NewMemberExecutionID] with the caller's UUID. The same arguments return the same id.
func MemberExecutionIDFor(flow FlowID, p Partitions, u ExecutionUUID) ExecutionID {
	return ExecutionIDFromRow(p.FlowPartition(flow), u)
}

// ExecutionIDFromRow returns the id for a row's partition_key and execution_id. Applications that assign partitions in
// their own way use it to make ids. A negative partition becomes one above 32767, which no operation accepts.
func ExecutionIDFromRow(partition int16, u ExecutionUUID) ExecutionID {
	return ExecutionID{partition: uint16(partition), uuid: u}
}

// ParseExecutionID parses "{fp:N}:<uuid>" or the short form "N-<uuid>": N in plain decimal, at most 65535, and the UUID in
// its 36-character form with hex digits in either case. It does not check N against the configuration; see
// [Partitions.CheckExecution].
//
// A UUID alone does not have the partition, which follows from a flow or a lane. engine.Engine.FindExecution looks for it in all.
//
// Errors: [*ParseError] with ReasonMissingTag, ReasonInvalidPartitionIndex or ReasonInvalidUUID, the first that applies.
func ParseExecutionID(s string) (ExecutionID, error) {
	if short, ok := parseShort(s); ok {
		return short, nil
	}
	body, tagged := strings.CutPrefix(s, "{fp:")
	index, text, closed := strings.Cut(body, "}:")
	if !tagged || !closed {
		return ExecutionID{}, refuse(executionType, ReasonMissingTag, s)
	}
	partition, ok := parseIndex(index)
	if !ok {
		return ExecutionID{}, refuse(executionType, ReasonInvalidPartitionIndex, index)
	}
	u, ok := parseHyphenated[execution](text)
	if !ok {
		return ExecutionID{}, refuse(executionType, ReasonInvalidUUID, text)
	}
	return ExecutionID{partition: partition, uuid: u}, nil
}

// parseShort parses "N-<uuid>". N has at most five digits and the first group of a UUID has eight, so no text has both forms.
func parseShort(s string) (ExecutionID, bool) {
	index, text, _ := strings.Cut(s, "-")
	partition, ok := parseIndex(index)
	if !ok {
		return ExecutionID{}, false
	}
	u, ok := parseHyphenated[execution](text)
	return ExecutionID{partition: partition, uuid: u}, ok
}

const executionType = "execution id"

// Partition returns the partition_key of the execution's rows, or -1, which no row has, if the id's number does not fit
// that column.
func (e ExecutionID) Partition() int16 {
	if e.partition > math.MaxInt16 {
		return -1
	}
	return int16(e.partition)
}

// UUID returns the execution_id of the execution's rows.
func (e ExecutionID) UUID() ExecutionUUID { return e.uuid }

// IsZero reports whether e is the zero value: the nil UUID in partition 0.
func (e ExecutionID) IsZero() bool { return e == ExecutionID{} }

// Compare orders by partition, then by UUID bytes: the order in which rows are locked.
func (e ExecutionID) Compare(other ExecutionID) int {
	if c := cmp.Compare(e.partition, other.partition); c != 0 {
		return c
	}
	return e.uuid.Compare(other.uuid)
}

// String returns the canonical form of e: "{fp:N}:<uuid>".
func (e ExecutionID) String() string {
	var buf [maxExecutionText]byte
	return string(e.appendTo(buf[:0]))
}

// Short returns the form of e for URLs and command lines, which needs no escapes: "N-<uuid>". [ParseExecutionID] reads it. Store
// and compare the canonical form.
func (e ExecutionID) Short() string {
	return strconv.Itoa(int(e.partition)) + "-" + e.uuid.String()
}

// AppendText appends the canonical form of e to b.
func (e ExecutionID) AppendText(b []byte) ([]byte, error) { return e.appendTo(b), nil }

// MarshalText returns the canonical form of e.
func (e ExecutionID) MarshalText() ([]byte, error) {
	return e.appendTo(make([]byte, 0, maxExecutionText)), nil
}

// UnmarshalText parses text as [ParseExecutionID] does.
func (e *ExecutionID) UnmarshalText(text []byte) error {
	parsed, err := ParseExecutionID(string(text))
	if err != nil {
		return err
	}
	*e = parsed
	return nil
}

// Length of the longest text: "{fp:65535}:" and a UUID.
const maxExecutionText = 11 + uuidLen

func (e ExecutionID) appendTo(b []byte) []byte {
	b = append(b, "{fp:"...)
	b = strconv.AppendUint(b, uint64(e.partition), 10)
	b = append(b, "}:"...)
	return e.uuid.appendTo(b)
}

// parseIndex parses a plain decimal uint16: digits only, no leading zero.
func parseIndex(s string) (uint16, bool) {
	if s == "" || len(s) > 1 && s[0] == '0' || s[0] == '+' || s[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil
}
