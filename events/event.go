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

// Event is what all events have.
type Event struct {
	ID          int64          // names the event in its outbox; later events of an execution have greater ids
	Execution   id.ExecutionID // zero for what is a flow's
	Namespace   *id.Namespace  // nil: another program left it out
	InstanceTag *string        // nil: the execution has none, or another program left it out
	At          time.Time      // when it happened, in milliseconds, by the database's clock

	// Kind, Lane, NodeKey and Tags are the execution's, as they are when the event is read: tags may have been set since it
	// happened. They are empty if the execution has been deleted by then, and for what is a flow's.
	Kind    string
	Lane    id.LaneID
	NodeKey string // its key in the flow, where it was created as a node
	Tags    map[string]string
}

// Cursor is the position right behind e.
func (e Event) Cursor() Cursor { return cursorOf(e.ID) }

// Completion tells that an execution has ended.
type Completion struct {
	Event
	Flow     *id.FlowID // nil: it is no member of one
	Outcome  state.CompletionOutcome
	Inserted time.Time // when the event was inserted, by the database's clock
}

func completionOf(row *outbox.Row) (Completion, error) {
	head, err := headOf(row)
	if err != nil {
		return Completion{}, err
	}
	outcome := state.CompletionOutcome(row.Kind)
	if row.Kind == "failure" { // nothing is known to write it, and FlowFabric reads it
		outcome = state.CompletionFailure
	}
	return Completion{Event: head, Flow: row.Flow, Outcome: outcome, Inserted: time.UnixMilli(row.CommittedAt)}, nil
}

// Lease tells what happened to a lease.
type Lease struct {
	Event
	Type      state.LeaseEventType // or a word that this library does not know
	Lease     *id.LeaseID          // nil: not recorded
	Worker    *id.WorkerInstanceID // the holder, or who was it; nil: not recorded, as by FlowFabric
	RevokedBy string               // of a revoked lease: operator, reconciler or backend. A holder that gives its lease back revokes it too
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

// Signal tells that a signal was delivered.
type Signal struct {
	Event
	Signal       id.SignalID
	Waitpoint    *id.WaitpointID // nil: none, or not readable
	Source       *string         // who sent it; nil: not recorded
	Effect       Effect
	EffectStored bool // false: FlowFabric wrote the event, and does not say
}

// Effect is what a signal did, or a word that this library does not know.
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

// OperatorCall tells what an operator did. One of the pointers is set, unless Type is a word that this library does not
// know.
type OperatorCall struct {
	Event
	Type            state.OperatorEventType
	PriorityChanged *PriorityChanged
	Replayed        *Replayed
	FlowCancel      *FlowCancel
	Details         json.RawMessage // as stored
}

// PriorityChanged tells of a change of priority.
type PriorityChanged struct {
	Old int32 `json:"old_priority"`
	New int32 `json:"new_priority"`
}

// Replayed tells of a replay.
type Replayed struct {
	Branch      string `json:"branch"`       // normal, or skipped_flow_member
	GroupsReset int    `json:"groups_reset"` // of a skipped member
}

// FlowCancel tells that the cancellation of a flow was asked for.
type FlowCancel struct {
	Flow    id.FlowID              `json:"-"`
	Policy  state.FlowCancelPolicy `json:"cancellation_policy"`
	Reason  string                 `json:"reason"`
	Members int                    `json:"member_count"` // that it concerned
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

// InstanceTag would tell that an execution was given an instance tag, or has lost it: see [InstanceTags].
type InstanceTag struct {
	Event
	Tag     string
	Cleared bool
}

// headOf is what all events have.
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

// flowHeadOf is headOf for an event of a flow.
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

// tagsOf reads stored tags. A value that is no text, which another program may have stored, is left out.
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
