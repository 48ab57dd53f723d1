package engine

import (
	"bytes"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/jackc/pgx/v5/pgtype"
)

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func executionsOf(ids []id.ExecutionID) (arrays executionArrays) {
	for _, x := range ids {
		arrays.add(x.Partition(), x.UUID())
	}
	return arrays
}

func textsOf(executions []id.ExecutionID) []string {
	texts := make([]string, len(executions))
	for i, x := range executions {
		texts[i] = x.String()
	}
	return texts
}

// executionArrays are executions as the columns of an input table.
type executionArrays struct {
	partitions []int16
	executions []pgtype.UUID
}

func (a *executionArrays) add(partition int16, execution id.ExecutionUUID) {
	a.addUUID(partition, pgUUID(execution))
}

func (a *executionArrays) addUUID(partition int16, execution pgtype.UUID) {
	a.partitions = append(a.partitions, partition)
	a.executions = append(a.executions, execution)
}

// ords numbers the executions from 0.
func (a *executionArrays) ords() []int32 {
	ords := make([]int32, len(a.executions))
	for i := range ords {
		ords[i] = int32(i)
	}
	return ords
}

func (a *executionArrays) ids() []id.ExecutionID {
	ids := make([]id.ExecutionID, len(a.executions))
	for i, x := range a.executions {
		ids[i] = id.ExecutionIDFromRow(a.partitions[i], x.Bytes)
	}
	return ids
}

func (a *executionArrays) empty() bool { return len(a.executions) == 0 }

type flowMemberArrays struct {
	executionArrays
	flows []pgtype.UUID
}

// addMember adds an execution if it is in a flow.
func (a *flowMemberArrays) addMember(x id.ExecutionID, flow *id.FlowID) {
	if flow != nil {
		a.add(x.Partition(), x.UUID())
		a.flows = append(a.flows, pgUUID(*flow))
	}
}

func compareUUID(a, b id.ExecutionUUID) int { return bytes.Compare(a[:], b[:]) }

func flowOf(u pgtype.UUID) *id.FlowID {
	if !u.Valid {
		return nil
	}
	return new(id.FlowID(u.Bytes))
}

// pgFlow returns the flow of a member, or NULL.
func pgFlow(flow *id.FlowID) pgtype.UUID {
	if flow == nil {
		return pgtype.UUID{}
	}
	return pgUUID(*flow)
}

// pgUUID converts a typed id to the type of parameters.
func pgUUID[K any](u id.UUID[K]) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }

func pgUUIDs[K any](ids []id.UUID[K]) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, u := range ids {
		out[i] = pgUUID(u)
	}
	return out
}
