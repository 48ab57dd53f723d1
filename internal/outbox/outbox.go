// Package outbox follows the outboxes of a database: it hands on each committed event exactly once to each
// subscription, in the order of the event ids, however many transactions write at once.
//
// # Why nothing is lost
//
// An event takes its id when inserted and becomes visible when its transaction commits, so a smaller id may appear
// after a greater one. A reader asking for ids greater than the last seen would miss the smaller one. A rolled-back
// transaction leaves a permanent hole, so a reader waiting for each hole would wait for ever.
//
// A [tailer] reads in the order of the ids. It stops at a hole until an event fills the hole, or until every
// transaction that may own the id has ended. The lock table shows these transactions: an INSERT locks its table in mode
// RowExclusiveLock before taking an id. The lock lasts until the transaction ends, or until the subtransaction is
// rolled back together with its rows. A commit makes the rows visible before releasing the lock. So, in statements one
// after another:
//
//  1. S is the position of the sequence,
//  2. W are the transactions that hold that lock,
//  3. wait until none of W does,
//  4. read again.
//
// Take any event committed with an id up to S. Its id was assigned before step 1, so its transaction held the lock by
// then. In step 2 the transaction either still held the lock, and so is in W and ended before step 4, or had ended
// already. Either way step 4 sees the event. So ids missing then up to S will never appear: they were rolled back, or
// deleted, which the floor shows.
//
// The steps may run in different sessions, so the wait holds no connection. But they must run between two crashes of
// one server: after a crash the server, or another in its place, may assign ids up to S again. So step 1 names
// processes of the server that a crash ends, and a step 5 asks whether they still run. If not, the steps begin again.
//
// The position of a reader is the id of a read event, or the floor. A value of the sequence is no position: after a
// crash the sequence may step back over uncommitted ids and assign them again.
//
// # Readers
//
// A [Hub] has one tailer for each outbox with subscriptions. The tailer has a goroutine, and puts each event into the
// buffers of all subscriptions, which share the event. A tailer never waits for a subscription: if a buffer is full,
// the tailer detaches the subscription. When the next event is requested, a detached subscription reads the events
// between its position and the tailer's position, where no hole is open. After catching up, the subscription is
// attached again.
package outbox

import (
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// Name is the name of an outbox, as in ffx_outbox_floor.
type Name string

// The outboxes.
const (
	Completion Name = "completion"
	Lease      Name = "lease"
	Signal     Name = "signal"
	Operator   Name = "operator"
)

// Row is an event as stored. Fields missing in the outbox are zero. Subscriptions share the row, so nothing may change
// it.
type Row struct {
	ID                     int64
	Partition              int32
	Execution              string // or flow; a uuid unless another program wrote something else
	Namespace, InstanceTag *string
	At                     int64  // milliseconds: the time of the event
	Kind                   string // the outcome of a completion, the type of a lease or an operator event

	Flow        *id.FlowID // of a completion
	CommittedAt int64      // of a completion: milliseconds, when inserted

	Lease, Worker, RevokedBy *string // of a lease event

	Signal                    string // of a signal event
	Waitpoint, Source, Effect *string

	Details []byte // of an operator event

	Of Execution // looked up before the event is handed on
}

// Execution has an event's columns from its execution. All are zero if the execution was deleted before the event was
// read.
type Execution struct {
	Kind, Lane, Node string
	Tags             []byte // a JSON object
}

// same reports whether two rows read by one id are the same event.
func (r *Row) same(other *Row) bool {
	return r.Execution == other.Execution && r.Kind == other.Kind && r.Signal == other.Signal && r.At == other.At
}

// Filter selects the events of a subscription. The zero value accepts all.
type Filter struct {
	Namespace   *string
	InstanceTag *string // the value of [InstanceTagKey]
	Partitions  []int16
	Without     string // a kind to leave out; empty: none
	Lost        bool   // only lease events of leases that the holder did not end
}

// InstanceTagKey is the only tag in events.
const InstanceTagKey = "cairn.instance_id"

// Options are the options of a subscription.
type Options struct {
	After   *int64 // the position to start after; nil: the present end
	Buffer  int
	Notices bool // report outages, by [DisconnectedError]
	Filter  Filter
}

// ErrClosed reports a closed subscription.
var ErrClosed = errors.New("subscription is closed")

// GapError reports deleted events after the position, which the reader may have missed.
type GapError struct {
	Outbox          Name
	Position, Floor int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s events after %d were deleted up to %d", e.Outbox, e.Position, e.Floor)
}

// AheadError reports a position ahead of the database: the database was restored, or is another one.
type AheadError struct {
	Outbox             Name
	Position, Database int64
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("the position %d in the %s events is not one of this database, which has come to %d", e.Position, e.Outbox, e.Database)
}

// NotKeptError reports that not all events of the filter are written.
type NotKeptError struct {
	Outbox   Name
	Position int64
	Kept     state.Kept
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("%s events after %d are not all kept: %s", e.Outbox, e.Position, e.Kept)
}

// DisconnectedError reports that the database could not be read for a while, or that notifications were lost. No events
// were lost.
type DisconnectedError struct {
	Outbox   Name
	Position int64 // of the last event handed out
}

func (e *DisconnectedError) Error() string {
	return fmt.Sprintf("the %s events were interrupted after %d", e.Outbox, e.Position)
}

// UnreadableError reports a table in an unexpected form.
type UnreadableError struct {
	Outbox   Name
	Position int64
	Err      error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the %s events after %d cannot be read: %v", e.Outbox, e.Position, e.Err)
}

// Unwrap returns the cause.
func (e *UnreadableError) Unwrap() error { return e.Err }

// DeniedError reports that the role may not read the sequence of an outbox.
type DeniedError struct {
	Role, Sequence string // as written in SQL
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("role %s may not read sequence %s: GRANT USAGE ON SEQUENCE %[2]s TO %[1]s", e.Role, e.Sequence)
}

// StandbyError reports that the server is a standby. Its lock table does not show the writers.
type StandbyError struct{}

func (*StandbyError) Error() string { return "the server is a standby: events are read on the primary" }
