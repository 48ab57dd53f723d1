// Package outbox follows the outboxes of a database: it hands on each committed event exactly once to each
// subscription, in the order of the event ids, however many transactions write at once.
//
// # Why nothing is lost
//
// An event takes its id when it is inserted and is seen when its transaction commits, so a smaller id may appear after a
// greater one. Whoever asks for what is greater than the last he saw would never see it. A rolled-back transaction leaves
// a hole that never fills, so whoever waits for each hole would wait for ever.
//
// A [tailer] reads in the order of the ids and stops at a hole until it is filled, or until every transaction that may
// own it has ended. Which those are, the lock table tells: an INSERT locks its table in mode RowExclusiveLock before it
// takes an id, and keeps the lock until its transaction ends, or the subtransaction whose rows are gone with it; a commit
// shows the rows before it gives up the lock. So, in statements one after another:
//
//  1. S is the position of the sequence,
//  2. W are the transactions that hold that lock,
//  3. wait until none of W does,
//  4. read again.
//
// Take any event that commits with an id up to S. Its id was given out before step 1, so its transaction held the lock
// by then. In step 2 it still did, and then it is in W and had ended before step 4, or it had ended already. Either way
// step 4 sees it. So what is missing then up to S is not there to come: it was rolled back, or deleted, which the floor
// tells.
//
// The steps are statements of any sessions, so the wait holds no connection. But they must be of one life of one server: a
// crash may give ids up to S out again, and so may another server that takes its place. So step 1 names processes of the
// server that a crash ends, and a step 5 asks whether they still run. If they don't, all begins again.
//
// The position of a reader is the id of an event that was read, or the floor; never a number of the sequence, which may
// step back after a crash over ids that nothing committed had, and give them out again.
//
// # Who reads
//
// A [Hub] has one tailer for each outbox that somebody subscribes to. It has a goroutine, and hands each event to the
// buffers of all subscriptions, which share it. It waits for none of them: one whose buffer is full is left behind, and
// reads for itself, when it is asked for the next event, what lies between its position and that of the tailer, where no
// hole is open. Once it has come up to the tailer it is handed events again.
package outbox

import (
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/id"
)

// Name is the name of an outbox, as the table of the floors has it.
type Name string

// The outboxes.
const (
	Completion Name = "completion"
	Lease      Name = "lease"
	Signal     Name = "signal"
	Operator   Name = "operator"
)

// Row is an event as it is stored. What its outbox does not have is zero. Those who are handed one share it, and do not
// change it.
type Row struct {
	ID                     int64
	Partition              int32
	Execution              string // or flow, a uuid where nobody has meddled
	Namespace, InstanceTag *string
	At                     int64  // milliseconds: when it happened
	Kind                   string // the outcome of a completion, the type of a lease or an operator event

	Flow        *id.FlowID // of a completion
	CommittedAt int64      // of a completion: milliseconds, when it was inserted

	Lease, Worker, RevokedBy *string // of a lease event

	Signal                    string // of a signal event
	Waitpoint, Source, Effect *string

	Details []byte // of an operator event

	Of Execution // looked up before the event is handed on
}

// Execution is what an event carries of its execution. Zero: the execution was deleted before the event was read.
type Execution struct {
	Kind, Lane, Node string
	Tags             []byte // a JSON object
}

// same says whether what was read twice by one id is one event.
func (r *Row) same(other *Row) bool {
	return r.Execution == other.Execution && r.Kind == other.Kind && r.Signal == other.Signal && r.At == other.At
}

// Filter says which events a subscription is handed. The zero value accepts all.
type Filter struct {
	Namespace   *string
	InstanceTag *string // the value of [InstanceTagKey]
	Partitions  []int16
	Without     string // a kind that is not handed on; empty: all are
}

// InstanceTagKey is the only tag that events carry.
const InstanceTagKey = "cairn.instance_id"

// Options are the options of a subscription.
type Options struct {
	After   *int64 // the position to go on from; nil: from now
	Buffer  int
	Notices bool // of outages, by [DisconnectedError]
	Filter  Filter
}

// ErrClosed: the subscription was closed.
var ErrClosed = errors.New("subscription is closed")

// GapError: events behind the position were deleted, and may not have been seen.
type GapError struct {
	Outbox          Name
	Position, Floor int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s events after %d were deleted up to %d", e.Outbox, e.Position, e.Floor)
}

// AheadError: the database is behind the position: it was restored, or is another one.
type AheadError struct {
	Outbox             Name
	Position, Database int64
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("the position %d in the %s events is not one of this database, which has come to %d", e.Position, e.Outbox, e.Database)
}

// DisconnectedError: the database could not be read for a while, or its notifications not heard. Nothing was lost.
type DisconnectedError struct {
	Outbox   Name
	Position int64 // of the last event handed out
}

func (e *DisconnectedError) Error() string {
	return fmt.Sprintf("the %s events were interrupted after %d", e.Outbox, e.Position)
}

// UnreadableError: the table is not what this library reads.
type UnreadableError struct {
	Outbox   Name
	Position int64
	Err      error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("the %s events after %d cannot be read: %v", e.Outbox, e.Position, e.Err)
}

// Unwrap gives what was in the way.
func (e *UnreadableError) Unwrap() error { return e.Err }

// DeniedError: the role may not read the sequence of an outbox, without which nobody knows how far it has come.
type DeniedError struct {
	Role, Sequence string // as SQL has them
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("role %s may not read sequence %s: GRANT USAGE ON SEQUENCE %[2]s TO %[1]s", e.Role, e.Sequence)
}

// StandbyError: the server is a standby, whose lock table does not tell who writes.
type StandbyError struct{}

func (*StandbyError) Error() string { return "the server is a standby: events are read on the primary" }
