package id

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/google/uuid"
)

// NewFlowID returns a new flow id. Like all ids from this package it is a UUIDv7: it begins with the time, so new rows go
// to one end of an index. Ids of one process ascend from call to call, except that a batch may run a few microseconds
// ahead.
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
	return UUID[K](uuid.Must(uuid.NewV7())) // never fails: crypto/rand doesn't
}

// newUUIDs makes the first id with [uuid.NewV7] and counts up from its time. So a batch reads the clock once, and the
// system's randomness twice.
func newUUIDs[K any](n int) []UUID[K] {
	if n <= 0 {
		return nil
	}
	ids := make([]UUID[K], n)
	ids[0] = newUUID[K]()
	random := make([]byte, tailLen*(n-1))
	rand.Read(random)
	ticks := ids[0].ticks()
	for i := range ids[1:] {
		copy(ids[i+1][tailStart:], random[tailLen*i:])
		ids[i+1].stamp(ticks + uint64(i) + 1)
	}
	return ids
}

// The random half of a UUIDv7, after its time.
const (
	tailStart = 8
	tailLen   = 16 - tailStart
)

// ticks returns the time of a UUIDv7: its 48-bit millisecond, and the 12 bits that refine it.
func (u *UUID[K]) ticks() uint64 {
	head := binary.BigEndian.Uint64(u[:tailStart])
	return head>>16<<12 | head&0xfff
}

// stamp writes the time, version and variant bits over u; the rest stays random.
func (u *UUID[K]) stamp(ticks uint64) {
	binary.BigEndian.PutUint64(u[:tailStart], ticks>>12<<16|ticks&0xfff)
	u[6] |= 0x70
	u[8] = u[8]&0x3f | 0x80
}

// budgetKeys is the name space of the ids [BudgetIDOf] derives.
var budgetKeys = uuid.MustParse("7d2c5a0e-3f6b-5b1d-9c48-0a1e6f8b2d34")

// BudgetIDOf returns the id of the budget with a key in a namespace. It is the same in every process.
func BudgetIDOf(namespace Namespace, key string) BudgetID {
	return BudgetID(uuid.NewSHA1(budgetKeys, []byte(string(namespace)+"\x00"+key)))
}
