package id

import (
	"fmt"
	"math"

	"github.com/flowfabric/flowfabric-go/internal/hash"
)

// Partitions configures over how many partitions rows are spread. A zero field takes its default: 256 flow partitions, 32
// budget, 32 quota. All programs on one database must use the same values; the table ff_partition_config is not consulted.
type Partitions struct {
	Flow   uint16 // executions and flows; at most 256
	Budget uint16 // at most 32767
	Quota  uint16 // at most 32767
}

// The defaults of [Partitions].
const (
	DefaultFlowPartitions   = 256
	DefaultBudgetPartitions = 32
	DefaultQuotaPartitions  = 32
)

const maxFlowPartitions = 256

// Validate returns an error for a count that rows cannot be stored with.
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

// FlowPartition returns the partition_key of the rows of a flow and its members.
func (p Partitions) FlowPartition(f FlowID) int16 {
	return partitionOf(f[:], p.WithDefaults().Flow)
}

// LanePartition returns the partition of executions made on the lane outside any flow.
func (p Partitions) LanePartition(lane LaneID) int16 {
	return partitionOf([]byte(lane), p.WithDefaults().Flow)
}

// BudgetPartition returns the partition_key of a budget's rows, including its usage by execution.
func (p Partitions) BudgetPartition(b BudgetID) int16 {
	return partitionOf(b[:], p.WithDefaults().Budget)
}

// QuotaPartition returns the partition_key of a quota policy's rows.
func (p Partitions) QuotaPartition(q QuotaPolicyID) int16 {
	return partitionOf(q[:], p.WithDefaults().Quota)
}

// CheckExecution returns an error for an id whose partition this configuration does not have. No other program would look
// for its rows there.
//
// Errors: [*ParseError] with ReasonOutOfRange.
func (p Partitions) CheckExecution(e ExecutionID) error {
	if count := p.WithDefaults().Flow; e.partition >= count {
		return &ParseError{
			Type: executionType, Reason: ReasonOutOfRange,
			Detail: fmt.Sprintf("partition %d of %d", e.partition, count),
		}
	}
	return nil
}

func partitionOf(b []byte, count uint16) int16 { return int16(hash.CRC16(b) % count) }
