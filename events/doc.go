// Package events reads the outboxes: what happened to executions, leases, signals, and what operators did, in the order in
// which it can be acted on, without losing any of it.
//
// Each operation of the engine inserts its events in the transaction in which it changes what they tell of. A
// [Subscription] hands out each committed event that matches its [Filter] exactly once, in the order of the ids, whichever
// program wrote it, and however many transactions were open at once. It goes on from a [Cursor] after a restart:
// events that were handled after the last stored cursor are then handed out again.
//
// For effects that happen exactly once, Handle keeps the position of a named consumer in the transaction that its
// handler writes in.
//
// An event that was inserted by a transaction that is still open holds back those with greater ids, of that outbox alone:
// they are handed out once it has ended. So a long transaction that completes or cancels executions stalls the readers of
// what it wrote; any other does not.
//
// Nothing here depends on notifications: they make it fast. Behind a transaction pooler, or without a listener, events are
// looked for four times a second.
package events
