package wire

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/id"
)

// LeaseFence is the proof of ownership the typed operations take: the lease, its epoch and its attempt.
type LeaseFence struct {
	LeaseID    id.LeaseID   `json:"lease_id"`
	LeaseEpoch uint64       `json:"lease_epoch"`
	AttemptID  id.AttemptID `json:"attempt_id"`
}

// UnmarshalJSON requires all three members.
func (f *LeaseFence) UnmarshalJSON(data []byte) error {
	const typ = "lease fence"
	members, err := requireMembers(typ, data, "lease_id", "lease_epoch", "attempt_id")
	if err != nil {
		return err
	}
	var parsed LeaseFence
	for i, into := range []any{&parsed.LeaseID, &parsed.LeaseEpoch, &parsed.AttemptID} {
		if err := json.Unmarshal(members[i], into); err != nil {
			return &id.ParseError{Type: typ, Reason: id.ReasonMalformed}
		}
	}
	*f = parsed
	return nil
}

// StoredAttemptIndex converts an attempt index to its column's type.
//
// Errors: [*id.ParseError] with ReasonOutOfRange above 2147483647.
func StoredAttemptIndex(index uint32) (int32, error) {
	if index > math.MaxInt32 {
		return 0, &id.ParseError{
			Type: "attempt index", Reason: id.ReasonOutOfRange,
			Detail: strconv.FormatUint(uint64(index), 10),
		}
	}
	return int32(index), nil
}

// StoredLeaseEpoch converts a lease epoch to its column's type.
//
// Errors: [*id.ParseError] with ReasonOutOfRange above the int64 maximum.
func StoredLeaseEpoch(epoch uint64) (int64, error) {
	if epoch > math.MaxInt64 {
		return 0, &id.ParseError{Type: "lease epoch", Reason: id.ReasonOutOfRange, Detail: strconv.FormatUint(epoch, 10)}
	}
	return int64(epoch), nil
}

// LeaseTriple identifies a lease by its place in storage.
type LeaseTriple struct {
	Execution    id.ExecutionUUID
	AttemptIndex int32
	LeaseEpoch   int64
}

// Synthetic returns the label under which expired leases are listed: the execution's UUID with epoch and index folded in.
// The label is no key or fence, since two leases may share one.
func (t LeaseTriple) Synthetic() id.LeaseID {
	label := id.LeaseID(t.Execution)
	binary.BigEndian.PutUint64(label[0:], binary.BigEndian.Uint64(label[0:])^uint64(t.LeaseEpoch))
	binary.BigEndian.PutUint32(label[8:], binary.BigEndian.Uint32(label[8:])^uint32(t.AttemptIndex))
	return label
}

// String returns "pg:<execution uuid>:<attempt index>:<lease epoch>".
func (t LeaseTriple) String() string {
	return leasePrefix + t.Execution.String() + ":" + strconv.FormatInt(int64(t.AttemptIndex), 10) +
		":" + strconv.FormatInt(t.LeaseEpoch, 10)
}

const leasePrefix = "pg:"

// ParseLeaseTriple parses the result of [LeaseTriple.String]. Index and epoch must not be negative or have leading
// zeros.
func ParseLeaseTriple(s string) (LeaseTriple, error) {
	rest, tagged := strings.CutPrefix(s, leasePrefix)
	executionText, rest, _ := strings.Cut(rest, ":")
	index, epoch, _ := strings.Cut(rest, ":")
	indexValue, indexOK := parsePlain(index, 32)
	epochValue, epochOK := parsePlain(epoch, 64)
	uuidValue, err := id.ParseExecutionUUID(executionText)
	if !tagged || !indexOK || !epochOK || err != nil || len(executionText) != uuidLen {
		return LeaseTriple{}, refuse("lease", id.ReasonMalformed, s)
	}
	return LeaseTriple{Execution: uuidValue, AttemptIndex: int32(indexValue), LeaseEpoch: epochValue}, nil
}

// ExpectedLease is the lease a caller expects to be current, in any form known to callers. The zero value matches every
// lease.
type ExpectedLease string

// Matches reports whether e names the lease t with the given stored id: by the id, by the "pg:" text or by the
// synthetic label. Any other text matches nothing.
func (e ExpectedLease) Matches(t LeaseTriple, stored id.LeaseID) bool {
	if e == "" {
		return true
	}
	if triple, err := ParseLeaseTriple(string(e)); err == nil {
		return triple == t
	}
	given, err := id.ParseLeaseID(string(e))
	return err == nil && (given == t.Synthetic() || !stored.IsZero() && given == stored)
}

// parsePlain parses a non-negative decimal of a signed integer of the given size, without
// sign or leading zeros.
func parsePlain(s string, bits int) (int64, bool) {
	if s == "" || s[0] == '+' || s[0] == '-' || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, bits)
	return n, err == nil
}
