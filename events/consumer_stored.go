package events

import (
	"encoding/json"
	"fmt"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// storedEvent is the document of a skipped event: the columns of its outbox by name, and the fields of its execution.
type storedEvent struct {
	EventID      int64   `json:"event_id"`
	PartitionKey int32   `json:"partition_key"`
	ExecutionID  string  `json:"execution_id"`
	Namespace    *string `json:"namespace,omitempty"`
	InstanceTag  *string `json:"instance_tag,omitempty"`

	OccurredAtMs  *int64 `json:"occurred_at_ms,omitempty"`
	CommittedAtMs *int64 `json:"committed_at_ms,omitempty"`
	DeliveredAtMs *int64 `json:"delivered_at_ms,omitempty"`

	Outcome   string     `json:"outcome,omitempty"`
	EventType string     `json:"event_type,omitempty"`
	FlowID    *id.FlowID `json:"flow_id,omitempty"`

	LeaseID          *string `json:"lease_id,omitempty"`
	WorkerInstanceID *string `json:"ffx_worker_instance_id,omitempty"`
	RevokedBy        *string `json:"ffx_revoked_by,omitempty"`

	SignalID       string  `json:"signal_id,omitempty"`
	WaitpointID    *string `json:"waitpoint_id,omitempty"`
	SourceIdentity *string `json:"source_identity,omitempty"`
	Effect         *string `json:"ffx_effect,omitempty"`

	Details json.RawMessage `json:"details,omitempty"`

	Kind    string          `json:"execution_kind,omitempty"`
	LaneID  string          `json:"lane_id,omitempty"`
	NodeKey string          `json:"ffx_node_key,omitempty"`
	Tags    json.RawMessage `json:"tags,omitempty"`
}

// storeEvent returns the document for an event.
func storeEvent(from outbox.Name, row *outbox.Row) (string, error) {
	e := storedEvent{
		EventID: row.ID, PartitionKey: row.Partition, ExecutionID: row.Execution,
		Namespace: row.Namespace, InstanceTag: row.InstanceTag,
		LeaseID: row.Lease, WorkerInstanceID: row.Worker, RevokedBy: row.RevokedBy,
		SignalID: row.Signal, WaitpointID: row.Waitpoint, SourceIdentity: row.Source, Effect: row.Effect,
		Details: row.Details, FlowID: row.Flow,
		Kind: row.Of.Kind, LaneID: row.Of.Lane, NodeKey: row.Of.Node, Tags: row.Of.Tags,
	}
	switch from {
	case outbox.Completion:
		e.Outcome, e.OccurredAtMs, e.CommittedAtMs = row.Kind, &row.At, &row.CommittedAt
	case outbox.Signal:
		e.DeliveredAtMs = &row.At
	default:
		e.EventType, e.OccurredAtMs = row.Kind, &row.At
	}
	document, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("store event %d: %w", row.ID, err)
	}
	return string(document), nil
}

// readStoredEvent returns the row stored in a document.
func readStoredEvent(from outbox.Name, document []byte) (*outbox.Row, error) {
	var e storedEvent
	if err := json.Unmarshal(document, &e); err != nil {
		return nil, err
	}
	value := func(ms *int64) int64 {
		if ms == nil {
			return 0
		}
		return *ms
	}
	row := &outbox.Row{
		ID: e.EventID, Partition: e.PartitionKey, Execution: e.ExecutionID,
		Namespace: e.Namespace, InstanceTag: e.InstanceTag,
		Lease: e.LeaseID, Worker: e.WorkerInstanceID, RevokedBy: e.RevokedBy,
		Signal: e.SignalID, Waitpoint: e.WaitpointID, Source: e.SourceIdentity, Effect: e.Effect,
		Details: e.Details, Flow: e.FlowID,
		Kind: e.EventType, At: value(e.OccurredAtMs),
		Of: outbox.Execution{Kind: e.Kind, Lane: e.LaneID, Node: e.NodeKey, Tags: e.Tags},
	}
	switch from {
	case outbox.Completion:
		row.Kind, row.CommittedAt = e.Outcome, value(e.CommittedAtMs)
	case outbox.Signal:
		row.At = value(e.DeliveredAtMs)
	}
	return row, nil
}
