package id

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// NewFlowID returns a new flow id, a UUIDv7 like all ids this package makes: in order of
// their making on one clock, so that they are inserted at one end of an index.
func NewFlowID() FlowID { return newUUID[flow]() }

// NewEdgeID returns a new edge id.
func NewEdgeID() EdgeID { return newUUID[edge]() }

// NewLeaseID returns a new lease id.
func NewLeaseID() LeaseID { return newUUID[lease]() }

// NewAttemptID returns a new attempt id.
func NewAttemptID() AttemptID { return newUUID[attempt]() }

// NewBudgetID returns a new budget id.
func NewBudgetID() BudgetID { return newUUID[budget]() }

// NewQuotaPolicyID returns a new quota policy id.
func NewQuotaPolicyID() QuotaPolicyID { return newUUID[quotaPolicy]() }

// NewSignalID returns a new signal id.
func NewSignalID() SignalID { return newUUID[signal]() }

// NewWaitpointID returns a new waitpoint id.
func NewWaitpointID() WaitpointID { return newUUID[waitpoint]() }

// NewSuspensionID returns a new suspension id.
func NewSuspensionID() SuspensionID { return newUUID[suspension]() }

// NewExecutionUUID returns the UUID half of a new execution id.
func NewExecutionUUID() ExecutionUUID { return newUUID[execution]() }

// NewLeaseIDs returns n new lease ids in ascending order.
func NewLeaseIDs(n int) []LeaseID { return newUUIDs[lease](n) }

// NewAttemptIDs returns n new attempt ids in ascending order.
func NewAttemptIDs(n int) []AttemptID { return newUUIDs[attempt](n) }

// NewEdgeIDs returns n new edge ids in ascending order.
func NewEdgeIDs(n int) []EdgeID { return newUUIDs[edge](n) }

// NewExecutionUUIDs returns the UUID halves of n new execution ids in ascending order.
func NewExecutionUUIDs(n int) []ExecutionUUID { return newUUIDs[execution](n) }

func newUUID[K any]() UUID[K] {
	var u UUID[K]
	rand.Read(u[8:])
	u.stamp(ticks())
	return u
}

// newUUIDs reads the system's randomness once for the whole batch.
func newUUIDs[K any](n int) []UUID[K] {
	if n <= 0 {
		return nil
	}
	ids := make([]UUID[K], n)
	random := make([]byte, 8*n)
	rand.Read(random)
	start := ticks()
	for i := range ids {
		copy(ids[i][8:], random[8*i:])
		ids[i].stamp(start + uint64(i))
	}
	return ids
}

// ticks counts 1/4096 milliseconds since the Unix epoch: the 48-bit millisecond of a
// UUIDv7 followed by the 12 bits that RFC 9562 (6.2, method 3) lets refine it.
func ticks() uint64 {
	now := time.Now()
	const nanosPerMs = uint64(time.Millisecond)
	return uint64(now.UnixMilli())<<12 | (uint64(now.Nanosecond())%nanosPerMs)*4096/nanosPerMs
}

// stamp writes the time, version and variant bits over u; the rest stays random.
func (u *UUID[K]) stamp(ticks uint64) {
	binary.BigEndian.PutUint64(u[:8], ticks>>12<<16|ticks&0xfff)
	u[6] |= 0x70
	u[8] = u[8]&0x3f | 0x80
}
