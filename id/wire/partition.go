package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/hash"
)

// WorkerPartitions is the fixed number of partitions for the rows of worker instances.
const WorkerPartitions = 256

// WorkerPartition returns the partition_key of the worker instance's registry rows.
func WorkerPartition(w id.WorkerInstanceID) int16 {
	return int16(hash.FNV1a(string(w)) % WorkerPartitions)
}

// Scatter returns a slot for s below m: the low 16 bits of its FNV-1a hash modulo m, or 0 if m is 0.
func Scatter(s string, m uint16) uint16 {
	if m == 0 {
		return 0
	}
	return uint16(hash.FNV1a(s)) % m
}

// Family is the configured count a partition index belongs to. Executions use the flow family.
type Family string

// Partition families, as written in a hash tag.
const (
	FamilyFlow   Family = "fp"
	FamilyBudget Family = "b"
	FamilyQuota  Family = "q"
)

// PartitionKey identifies a partition. The text is a hash tag such as "{fp:7}".
type PartitionKey struct {
	Family Family
	Index  uint16
}

const partitionKeyType = "partition key"

// ParsePartitionKey parses a hash tag.
//
// Errors: [*id.ParseError] with ReasonMissingBraces, ReasonMalformedBody,
// ReasonUnknownFamilyPrefix or ReasonInvalidIndex, the first that applies.
func ParsePartitionKey(s string) (PartitionKey, error) {
	rest, opened := strings.CutPrefix(s, "{")
	body, closed := strings.CutSuffix(rest, "}")
	if !opened || !closed {
		return PartitionKey{}, refuse(partitionKeyType, id.ReasonMissingBraces, s)
	}
	prefix, text, ok := strings.Cut(body, ":")
	if !ok {
		return PartitionKey{}, refuse(partitionKeyType, id.ReasonMalformedBody, body)
	}
	family := Family(prefix)
	switch family {
	case FamilyFlow, FamilyBudget, FamilyQuota:
	default:
		return PartitionKey{}, refuse(partitionKeyType, id.ReasonUnknownFamilyPrefix, prefix)
	}
	index, ok := parsePlain(text, 17) // below 1 << 16
	if !ok {
		return PartitionKey{}, refuse(partitionKeyType, id.ReasonInvalidIndex, text)
	}
	return PartitionKey{Family: family, Index: uint16(index)}, nil
}

// CheckFlow returns an error for a key of another family, or with a partition missing in p.
//
// Errors: [*id.ParseError] with ReasonUnknownFamilyPrefix or ReasonOutOfRange.
func (k PartitionKey) CheckFlow(p id.Partitions) error {
	if k.Family != FamilyFlow {
		return refuse(partitionKeyType, id.ReasonUnknownFamilyPrefix, string(k.Family))
	}
	if count := p.WithDefaults().Flow; k.Index >= count {
		return &id.ParseError{
			Type: partitionKeyType, Reason: id.ReasonOutOfRange, Detail: fmt.Sprintf("partition %d of %d", k.Index, count),
		}
	}
	return nil
}

// String returns k as a hash tag.
func (k PartitionKey) String() string {
	return "{" + string(k.Family) + ":" + strconv.Itoa(int(k.Index)) + "}"
}

// MarshalText returns k as a hash tag.
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
