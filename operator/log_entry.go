package operator

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

func logEntryOf(row *db.ListOperatorEventsRow) LogEntry {
	entry := LogEntry{ID: row.EventID, At: time.UnixMilli(row.OccurredAtMs), Type: state.OperatorEventType(row.EventType)}
	entry.Err = entry.readSubject(row)
	if err := entry.readDetails(row.Details); entry.Err == nil {
		entry.Err = err
	}
	return entry
}

// readSubject sets the execution or the flow.
func (e *LogEntry) readSubject(row *db.ListOperatorEventsRow) error {
	switch {
	case row.ExecutionID == "":
		return nil
	case e.Type == state.OperatorEventFlowCancelRequested:
		flow, err := id.ParseFlowID(row.ExecutionID)
		if err != nil {
			return core.Corrupt("ff_operator_event.execution_id", err)
		}
		e.Flow = &flow
		return nil
	case row.PartitionKey < 0 || row.PartitionKey > math.MaxInt16:
		return core.Corrupt("ff_operator_event.partition_key", fmt.Errorf("%d is no partition", row.PartitionKey))
	}
	execution, err := id.ParseExecutionUUID(row.ExecutionID)
	if err != nil {
		return core.Corrupt("ff_operator_event.execution_id", err)
	}
	e.Execution = id.ExecutionIDFromRow(int16(row.PartitionKey), execution)
	return nil
}

// readDetails decodes the stored details.
func (e *LogEntry) readDetails(document []byte) error {
	if len(document) == 0 {
		document = []byte("{}")
	}
	var action actionDetails
	var priority struct {
		Old int32 `json:"old_priority"`
		New int32 `json:"new_priority"`
	}
	var replay struct {
		Branch      string `json:"branch"`
		GroupsReset int    `json:"groups_reset"`
	}
	var cancel struct {
		Policy  state.FlowCancelPolicy `json:"cancellation_policy"`
		Reason  string                 `json:"reason"`
		Members int                    `json:"member_count"`
	}
	var err error
	switch e.Type {
	case state.OperatorEventAction:
		err = json.Unmarshal(document, &action)
		e.By, e.Action, e.Object, e.Detail = action.By, action.Name, action.Object, action.Detail
	case state.OperatorEventPriorityChanged:
		err = json.Unmarshal(document, &priority)
		e.Detail = fmt.Sprintf("priority %d -> %d", priority.Old, priority.New)
	case state.OperatorEventReplayed:
		err = json.Unmarshal(document, &replay)
		e.Detail = "replayed"
		if replay.Branch == "skipped_flow_member" {
			e.Detail = fmt.Sprintf("replayed a skipped member, %d groups reset", replay.GroupsReset)
		}
	case state.OperatorEventFlowCancelRequested:
		err = json.Unmarshal(document, &cancel)
		e.Detail = fmt.Sprintf("%s, %d members", cancel.Policy, cancel.Members)
		if cancel.Reason != "" {
			e.Detail += ": " + cancel.Reason
		}
	default:
		e.Detail = string(document)
	}
	if err != nil {
		e.By, e.Action, e.Object, e.Detail = "", "", "", ""
		return core.Corrupt("ff_operator_event.details", err)
	}
	return nil
}
