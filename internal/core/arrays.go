package core

import (
	"bytes"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/id"
)

// Deref returns *p, or the zero value for nil.
func Deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// ExecutionsOf returns executions as columns, in order.
func ExecutionsOf(ids []id.ExecutionID) (arrays ExecutionArrays) {
	for _, x := range ids {
		arrays.Add(x.Partition(), x.UUID())
	}
	return arrays
}

// TextsOf returns the texts of execution ids, in order.
func TextsOf(executions []id.ExecutionID) []string {
	texts := make([]string, len(executions))
	for i, x := range executions {
		texts[i] = x.String()
	}
	return texts
}

// ExecutionArrays are executions as the columns of an input table.
type ExecutionArrays struct {
	Partitions []int16
	Executions []pgtype.UUID
}

// Add adds an execution.
func (a *ExecutionArrays) Add(partition int16, execution id.ExecutionUUID) {
	a.AddUUID(partition, PgUUID(execution))
}

// AddUUID adds an execution by the columns of its row.
func (a *ExecutionArrays) AddUUID(partition int16, execution pgtype.UUID) {
	a.Partitions = append(a.Partitions, partition)
	a.Executions = append(a.Executions, execution)
}

// Ords numbers the executions from 0.
func (a *ExecutionArrays) Ords() []int32 {
	ords := make([]int32, len(a.Executions))
	for i := range ords {
		ords[i] = int32(i)
	}
	return ords
}

// IDs returns the executions, in order.
func (a *ExecutionArrays) IDs() []id.ExecutionID {
	ids := make([]id.ExecutionID, len(a.Executions))
	for i, x := range a.Executions {
		ids[i] = id.ExecutionIDFromRow(a.Partitions[i], x.Bytes)
	}
	return ids
}

// Empty reports whether there are no executions.
func (a *ExecutionArrays) Empty() bool { return len(a.Executions) == 0 }

// FlowMemberArrays are members of flows as the columns of an input table.
type FlowMemberArrays struct {
	ExecutionArrays
	Flows []pgtype.UUID
}

// AddMember adds an execution, unless flow is nil.
func (a *FlowMemberArrays) AddMember(x id.ExecutionID, flow *id.FlowID) {
	if flow != nil {
		a.Add(x.Partition(), x.UUID())
		a.Flows = append(a.Flows, PgUUID(*flow))
	}
}

// CompareUUID compares executions in the order of their rows.
func CompareUUID(a, b id.ExecutionUUID) int { return bytes.Compare(a[:], b[:]) }

// FlowOf returns the flow of a row, or nil for NULL.
func FlowOf(u pgtype.UUID) *id.FlowID {
	if !u.Valid {
		return nil
	}
	return new(id.FlowID(u.Bytes))
}

// PgFlow returns the flow of a member, or NULL.
func PgFlow(flow *id.FlowID) pgtype.UUID {
	if flow == nil {
		return pgtype.UUID{}
	}
	return PgUUID(*flow)
}

// PgUUID converts a typed id to the type of parameters.
func PgUUID[K any](u id.UUID[K]) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }

// PgUUIDs returns ids as an array.
func PgUUIDs[K any](ids []id.UUID[K]) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, u := range ids {
		out[i] = PgUUID(u)
	}
	return out
}
