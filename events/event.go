package events

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/state"
)

// Event holds the fields of all events.
type Event struct {
	ID          int64          // unique in its outbox; later events of an execution have greater ids
	Execution   id.ExecutionID // zero for an event of a flow, and an action that is not about one execution
	Namespace   *id.Namespace  // nil if another program left it out
	InstanceTag *string        // nil if the execution has none, or another program left it out
	At          time.Time      // when it happened, by the database's clock, in milliseconds

	// Kind, Lane, NodeKey and Tags are the execution's, looked up when the event is read, so tags may have changed since. They
	// are empty if the execution has been deleted, and for an event of a flow.
	Kind    string
	Lane    id.LaneID
	NodeKey string // its key in the flow, if created as a node
	Tags    map[string]string
}

// Cursor returns the position right after e.
func (e Event) Cursor() Cursor { return cursorOf(e.ID) }

// Completion reports the end of an execution.
type Completion struct {
	Event
	Flow     *id.FlowID // nil outside flows
	Outcome  state.CompletionOutcome
	Inserted time.Time // when the event was inserted, by the database's clock
}

func completionOf(row *outbox.Row) (Completion, error) {
	head, err := headOf(row)
	if err != nil {
		return Completion{}, err
	}
	outcome := state.CompletionOutcome(row.Kind)
	if row.Kind == "failure" { // read like FlowFabric does, though no known program writes it
		outcome = state.CompletionFailure
	}
	return Completion{Event: head, Flow: row.Flow, Outcome: outcome, Inserted: time.UnixMilli(row.CommittedAt)}, nil
}

// Lease reports a change of a lease.
type Lease struct {
	Event
	Type      state.LeaseEventType // may be unknown to this library
	Lease     *id.LeaseID          // nil if not recorded
	Worker    *id.WorkerInstanceID // the current or previous holder; nil if not recorded, as by FlowFabric
	RevokedBy string               // for a revoked lease: operator, reconciler or backend; also set when a holder gives its lease back
}

func leaseOf(row *outbox.Row) (Lease, error) {
	head, err := headOf(row)
	if err != nil {
		return Lease{}, err
	}
	lease := Lease{Event: head, Type: state.LeaseEventType(row.Kind)}
	if row.Lease != nil {
		if parsed, err := id.ParseLeaseID(*row.Lease); err == nil {
			lease.Lease = &parsed
		}
	}
	if row.Worker != nil && *row.Worker != "" {
		lease.Worker = new(id.WorkerInstanceID(*row.Worker))
	}
	switch {
	case row.RevokedBy != nil:
		lease.RevokedBy = *row.RevokedBy
	case lease.Type == state.LeaseEventRevoked:
		lease.RevokedBy = "operator"
	}
	return lease, nil
}

// Signal reports the delivery of a signal.
type Signal struct {
	Event
	Signal       id.SignalID
	Waitpoint    *id.WaitpointID // nil if there is none or it is not readable
	Source       *string         // the sender; nil if not recorded
	Effect       Effect
	EffectStored bool // false if FlowFabric wrote the event, which does not record the effect
}

// Effect is the effect of a signal. The value may be unknown to this library.
type Effect string

// The effects.
const (
	SignalSatisfied Effect = "satisfied"
	SignalBuffered  Effect = "buffered"
	SignalAppended  Effect = "appended"
)

func signalOf(row *outbox.Row) (Signal, error) {
	head, err := headOf(row)
	if err != nil {
		return Signal{}, err
	}
	signal := Signal{Event: head, Source: row.Source, Effect: SignalSatisfied, EffectStored: row.Effect != nil}
	if signal.Signal, err = id.ParseSignalID(row.Signal); err != nil {
		return Signal{}, corrupt(row, "signal_id", row.Signal)
	}
	if row.Waitpoint != nil {
		if parsed, err := id.ParseWaitpointID(*row.Waitpoint); err == nil {
			signal.Waitpoint = &parsed
		}
	}
	if row.Effect != nil {
		signal.Effect = Effect(*row.Effect)
	}
	return signal, nil
}

// OperatorCall reports an operator's call. One of its pointers is set, unless this library does not know Type.
type OperatorCall struct {
	Event
	Type            state.OperatorEventType
	PriorityChanged *PriorityChanged
	Replayed        *Replayed
	FlowCancel      *FlowCancel
	Action          *Action
	Details         json.RawMessage // as stored
}

// PriorityChanged reports a change of priority.
type PriorityChanged struct {
	Old int32 `json:"old_priority"`
	New int32 `json:"new_priority"`
}

// Replayed reports a replay.
type Replayed struct {
	Branch      string `json:"branch"`       // normal or skipped_flow_member
	GroupsReset int    `json:"groups_reset"` // for a skipped member
}

// FlowCancel reports a request to cancel a flow.
type FlowCancel struct {
	Flow    id.FlowID              `json:"-"`
	Policy  state.FlowCancelPolicy `json:"cancellation_policy"`
	Reason  string                 `json:"reason"`
	Members int                    `json:"member_count"` // number of members concerned
}

// Action reports an action recorded by operator.RecordAction. Without an execution, the event is in partition 0 and has
// neither a namespace nor an instance tag.
type Action struct {
	By     string `json:"by"`     // the person
	Name   string `json:"action"` // such as "limit.set"
	Object string `json:"object"` // may be empty
	Detail string `json:"detail"` // may be empty
}

func operatorCallOf(row *outbox.Row) (OperatorCall, error) {
	call := OperatorCall{Type: state.OperatorEventType(row.Kind), Details: row.Details}
	var details any
	var err error
	switch call.Type {
	case state.OperatorEventFlowCancelRequested:
		call.FlowCancel = new(FlowCancel)
		details = call.FlowCancel
		call.Event, call.FlowCancel.Flow, err = flowHeadOf(row)
	case state.OperatorEventPriorityChanged:
		call.PriorityChanged = new(PriorityChanged)
		details = call.PriorityChanged
		call.Event, err = headOf(row)
	case state.OperatorEventReplayed:
		call.Replayed = new(Replayed)
		details = call.Replayed
		call.Event, err = headOf(row)
	case state.OperatorEventAction:
		call.Action = new(Action)
		details = call.Action
		if row.Execution == "" {
			call.Event, err = eventOf(row)
		} else {
			call.Event, err = headOf(row)
		}
	default:
		call.Event, err = headOf(row)
	}
	switch {
	case err != nil:
		return OperatorCall{}, err
	case details != nil && len(row.Details) > 0 && json.Unmarshal(row.Details, details) != nil:
		return OperatorCall{}, corrupt(row, "details", string(row.Details))
	}
	return call, nil
}

// InstanceTag reports that an execution's instance tag was set or cleared. No program writes such events yet; see
// [InstanceTags].
type InstanceTag struct {
	Event
	Tag     string
	Cleared bool
}

// headOf returns the common fields of an execution's event.
func headOf(row *outbox.Row) (Event, error) {
	execution, err := id.ParseExecutionUUID(row.Execution)
	if err != nil {
		return Event{}, corrupt(row, "execution_id", row.Execution)
	}
	e, err := eventOf(row)
	if err == nil {
		e.Execution = id.ExecutionIDFromRow(int16(row.Partition), execution)
	}
	return e, err
}

// flowHeadOf returns the common fields of a flow's event.
func flowHeadOf(row *outbox.Row) (Event, id.FlowID, error) {
	flow, err := id.ParseFlowID(row.Execution)
	if err != nil {
		return Event{}, flow, corrupt(row, "execution_id", row.Execution)
	}
	e, err := eventOf(row)
	return e, flow, err
}

func eventOf(row *outbox.Row) (Event, error) {
	if row.Partition < 0 || row.Partition > math.MaxInt16 {
		return Event{}, corrupt(row, "partition_key", row.Partition)
	}
	e := Event{ID: row.ID, At: time.UnixMilli(row.At)}
	if row.InstanceTag != nil { // another program may have stored it with its key
		e.InstanceTag = new(strings.TrimPrefix(*row.InstanceTag, InstanceTagKey+"="))
	}
	if row.Namespace != nil {
		e.Namespace = new(id.Namespace(*row.Namespace))
	}
	e.Kind, e.Lane, e.NodeKey, e.Tags = row.Of.Kind, id.LaneID(row.Of.Lane), row.Of.Node, tagsOf(row.Of.Tags)
	return e, nil
}

// tagsOf parses stored tags. It drops other values than strings, which another program may have stored.
func tagsOf(document []byte) map[string]string {
	var raw map[string]any
	if json.Unmarshal(document, &raw) != nil || len(raw) == 0 {
		return nil
	}
	tags := make(map[string]string, len(raw))
	for key, value := range raw {
		if text, ok := value.(string); ok {
			tags[key] = text
		}
	}
	return tags
}
