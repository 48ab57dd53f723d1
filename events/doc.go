// Package events reads the outboxes: tables of events about executions, leases, signals and operator calls. A reader gets
// the events in order and loses none.
//
// Each operation of the engine inserts its events in the transaction of the change. A [Subscription] delivers each
// committed event matching its [Filter] exactly once, in the order of the ids, whichever program wrote the event and
// however many transactions were open at once. After a restart the subscription continues from a [Cursor]; events
// handled since this cursor was stored are then delivered again.
//
// For effects exactly once, [Handle] stores the position of a named consumer in the handler's transaction.
//
// An event inserted by an open transaction delays the later events of the same outbox until the transaction ends. So a
// long transaction that completes or cancels executions stalls the readers of these outboxes. Other transactions don't.
//
// Notifications only make delivery fast. Behind a transaction pooler, or without a listener, readers poll four times a
// second.
package events
