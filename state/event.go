package state

// LeaseEventType is the kind of a lease event.
type LeaseEventType string

// The lease event types.
const (
	LeaseEventAcquired  LeaseEventType = "acquired"
	LeaseEventRenewed   LeaseEventType = "renewed"
	LeaseEventExpired   LeaseEventType = "expired"
	LeaseEventReclaimed LeaseEventType = "reclaimed"
	LeaseEventRevoked   LeaseEventType = "revoked"
)

// Kept says which events of an outbox are written. Of all but lease events it is always [KeptAll].
type Kept string

// Which events are written.
const (
	KeptAll  Kept = "all"
	KeptLost Kept = "lost" // of leases that the holder did not end
	KeptNone Kept = "none"
)

// Valid reports whether k is one of the above.
func (k Kept) Valid() bool { return k == KeptAll || k == KeptLost || k == KeptNone }

// OperatorEventType is the kind of an operator event.
type OperatorEventType string

// The operator event types.
const (
	OperatorEventPriorityChanged     OperatorEventType = "priority_changed"
	OperatorEventReplayed            OperatorEventType = "replayed"
	OperatorEventFlowCancelRequested OperatorEventType = "flow_cancel_requested"
	OperatorEventAction              OperatorEventType = "action" // FlowFabric does not know it
)

// WorkerEventKind is the kind of a worker registry event.
type WorkerEventKind string

// The worker event kinds.
const (
	WorkerEventRegistered WorkerEventKind = "registered"
	WorkerEventHeartbeat  WorkerEventKind = "heartbeat"
	WorkerEventMarkedDead WorkerEventKind = "marked_dead"
	WorkerEventTTLSwept   WorkerEventKind = "ttl_swept"
)
