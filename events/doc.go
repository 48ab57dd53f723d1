// Package events reads the outboxes: tables of events about executions, leases, signals and operator calls. A reader gets
// the events in order and loses none.
//
// Each operation of the engine inserts its events in the transaction that makes the change. A [Subscription] delivers each
// committed event that matches its [Filter] exactly once, in the order of the ids, whichever program wrote it and however
// many transactions were open at once. After a restart it continues from a [Cursor]; events handled since that cursor was
// stored are then delivered again.
//
// For effects that happen exactly once, [Handle] stores the position of a named consumer in the transaction that its
// handler writes in.
//
// An event inserted by a transaction that is still open holds back the events of that outbox with greater ids until the
// transaction ends. So a long transaction that completes or cancels executions stalls the readers of those outboxes. Other
// transactions don't.
//
// Notifications only make delivery fast. Behind a transaction pooler, or without a listener, readers poll four times a
// second.
package events
