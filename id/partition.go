package id

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Partitions is how many partitions rows are spread over. A field left zero takes its
// default: 256 flow partitions, 32 budget, 32 quota. All programs on one database must
// agree on them; the table ff_partition_config has no say.
type Partitions struct {
	Flow   uint16 // executions and flows; at most 256
	Budget uint16 // at most 32767
	Quota  uint16 // at most 32767
}

// The defaults of [Partitions], and the fixed number of worker partitions.
const (
	DefaultFlowPartitions   = 256
	DefaultBudgetPartitions = 32
	DefaultQuotaPartitions  = 32
	WorkerPartitions        = 256
)

const maxFlowPartitions = 256

// Validate reports a count that rows cannot be kept under.
func (p Partitions) Validate() error {
	p = p.WithDefaults()
	switch {
	case p.Flow > maxFlowPartitions:
		return fmt.Errorf("flow partitions: %d is above %d", p.Flow, maxFlowPartitions)
	case p.Budget > math.MaxInt16:
		return fmt.Errorf("budget partitions: %d is above %d", p.Budget, math.MaxInt16)
	case p.Quota > math.MaxInt16:
		return fmt.Errorf("quota partitions: %d is above %d", p.Quota, math.MaxInt16)
	}
	return nil
}

// WithDefaults returns p with its zero fields filled in.
func (p Partitions) WithDefaults() Partitions {
	if p.Flow == 0 {
		p.Flow = DefaultFlowPartitions
	}
	if p.Budget == 0 {
		p.Budget = DefaultBudgetPartitions
	}
	if p.Quota == 0 {
		p.Quota = DefaultQuotaPartitions
	}
	return p
}

// FlowPartition is the partition_key of the flow's rows and of its members'.
func (p Partitions) FlowPartition(f FlowID) int16 {
	return partitionOf(f[:], p.WithDefaults().Flow)
}

// LanePartition is the partition of executions made on the lane outside any flow.
func (p Partitions) LanePartition(lane LaneID) int16 {
	return partitionOf([]byte(lane), p.WithDefaults().Flow)
}

// BudgetPartition is the partition_key of the budget's rows, its usage by execution included.
func (p Partitions) BudgetPartition(b BudgetID) int16 {
	return partitionOf(b[:], p.WithDefaults().Budget)
}

// QuotaPartition is the partition_key of the quota policy's rows.
func (p Partitions) QuotaPartition(q QuotaPolicyID) int16 {
	return partitionOf(q[:], p.WithDefaults().Quota)
}

// CheckExecution refuses an id whose partition this configuration does not have: the
// reader would look for its rows where nobody looks.
//
// Errors: [*ParseError] with ReasonOutOfRange.
func (p Partitions) CheckExecution(e ExecutionID) error {
	return p.checkFlowIndex(executionType, e.partition)
}

// CheckFlowKey refuses a key that is not of the flow family or not in this configuration.
//
// Errors: [*ParseError] with ReasonUnknownFamilyPrefix or ReasonOutOfRange.
func (p Partitions) CheckFlowKey(k PartitionKey) error {
	if k.Family != FamilyFlow {
		return refuse(partitionKeyType, ReasonUnknownFamilyPrefix, string(k.Family))
	}
	return p.checkFlowIndex(partitionKeyType, k.Index)
}

func (p Partitions) checkFlowIndex(typ string, index uint16) error {
	if count := p.WithDefaults().Flow; index >= count {
		return &ParseError{
			Type: typ, Reason: ReasonOutOfRange,
			Detail: fmt.Sprintf("partition %d of %d", index, count),
		}
	}
	return nil
}

// WorkerPartition is the partition_key of the worker instance's registry rows.
func WorkerPartition(w WorkerInstanceID) int16 {
	return int16(fnv1a(string(w)) % WorkerPartitions)
}

func partitionOf(b []byte, count uint16) int16 { return int16(CRC16(b) % count) }

// CRC16 is CRC-16/XMODEM: polynomial 0x1021, initial value 0, nothing reflected. Modulo the partition count it is the
// partition of an id: that of the raw bytes of a flow's, a budget's or a quota's, or of a lane's name.
func CRC16(b []byte) uint16 {
	var crc uint16
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// fnv1a is the 64-bit FNV-1a hash; hash/fnv would allocate for a string.
func fnv1a(s string) uint64 {
	hash := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		hash = (hash ^ uint64(s[i])) * 0x100000001b3
	}
	return hash
}

// Scatter spreads s over m slots: the low 16 bits of its FNV-1a hash modulo m, 0 when m is 0.
func Scatter(s string, m uint16) uint16 {
	if m == 0 {
		return 0
	}
	return uint16(fnv1a(s)) % m
}

// Digest8 is a short digest of s for logs: 8 hex digits.
func Digest8(s string) string {
	hash := fnv1a(s)
	return fmt.Sprintf("%08x", uint32(hash)^uint32(hash>>32))
}

// Family says which configured count a partition index belongs to. Executions share the
// flow family.
type Family string

// The partition families, as they are written in a hash tag.
const (
	FamilyFlow   Family = "fp"
	FamilyBudget Family = "b"
	FamilyQuota  Family = "q"
)

// PartitionKey names a partition; its text is a hash tag such as "{fp:7}".
type PartitionKey struct {
	Family Family
	Index  uint16
}

const partitionKeyType = "partition key"

// ParsePartitionKey parses a hash tag.
//
// Errors: [*ParseError] with ReasonMissingBraces, ReasonMalformedBody,
// ReasonUnknownFamilyPrefix or ReasonInvalidIndex, the first that applies.
func ParsePartitionKey(s string) (PartitionKey, error) {
	rest, opened := strings.CutPrefix(s, "{")
	body, closed := strings.CutSuffix(rest, "}")
	if !opened || !closed {
		return PartitionKey{}, refuse(partitionKeyType, ReasonMissingBraces, s)
	}
	prefix, text, ok := strings.Cut(body, ":")
	if !ok {
		return PartitionKey{}, refuse(partitionKeyType, ReasonMalformedBody, body)
	}
	family := Family(prefix)
	switch family {
	case FamilyFlow, FamilyBudget, FamilyQuota:
	default:
		return PartitionKey{}, refuse(partitionKeyType, ReasonUnknownFamilyPrefix, prefix)
	}
	index, ok := parseIndex(text)
	if !ok {
		return PartitionKey{}, refuse(partitionKeyType, ReasonInvalidIndex, text)
	}
	return PartitionKey{Family: family, Index: index}, nil
}

// String renders k as a hash tag.
func (k PartitionKey) String() string {
	return "{" + string(k.Family) + ":" + strconv.Itoa(int(k.Index)) + "}"
}

// MarshalText renders k as a hash tag.
func (k PartitionKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses text as [ParsePartitionKey] does.
func (k *PartitionKey) UnmarshalText(text []byte) error {
	parsed, err := ParsePartitionKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}
