package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// seatCreated gives executions just created as blocked their places in sequences, and corrects their states in the
// run. The sequences stay locked, in the order of their ids, until the transaction ends, so places are in commit
// order.
//
// The executions are inserted first: the insert finds duplicates, which take no place. Only executions of sequences
// pay for the second write.
func (e *Engine) seatCreated(ctx context.Context, tx *core.Txn, r *creationRun) error {
	members := make(map[core.SequenceID][]*creation)
	for _, i := range r.creates {
		c := &r.creations[i]
		if _, isNew := r.created[c.id]; isNew && !c.sequence.IsZero() {
			s := core.SequenceOf(c.namespace, c.sequence.Key)
			members[s] = append(members[s], c)
		}
	}
	if len(members) == 0 {
		return nil
	}
	sequences := slices.SortedFunc(maps.Keys(members), core.SequenceID.Compare)
	locked, err := e.c.Q.LockSequences(ctx, tx, sequenceParams(sequences, members, 1)) // one new place per member
	if err != nil {
		return err
	}
	last := make(map[core.SequenceID]int64, len(locked))
	for _, row := range locked {
		last[row.SequenceID.Bytes] = row.LastPlace
	}
	var seats db.SeatMembersParams
	if seats.NowMs, err = e.c.Q.GetNow(ctx, tx, e.c.NowMs()); err != nil {
		return err
	}
	lanes := make(map[id.ExecutionID]string)
	for _, s := range sequences {
		first := last[s] - int64(len(members[s])) + 1
		for n, c := range members[s] {
			seats.PartitionKeys = append(seats.PartitionKeys, s.Partition())
			seats.SequenceIDs = append(seats.SequenceIDs, s.PG())
			seats.Places = append(seats.Places, first+int64(n))
			seats.ExecutionPartitionKeys = append(seats.ExecutionPartitionKeys, c.id.Partition())
			seats.ExecutionIDs = append(seats.ExecutionIDs, core.PgUUID(c.id.UUID()))
			seats.Skips = append(seats.Skips, c.sequence.OnFailure == SequenceSkips)
			seats.Foremost = append(seats.Foremost, n == 0)
			lanes[c.id] = c.lane
		}
	}
	rows, err := e.c.Q.SeatMembers(ctx, tx, seats)
	if err != nil {
		return err
	}
	for _, row := range rows {
		x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
		r.created[x] = Created{ID: x, State: state.PublicState(row.PublicState)}
		switch r.created[x].State {
		case state.PublicWaiting:
			tx.Due.Lane(lanes[x])
		case state.PublicDelayed:
			tx.Due.Delayed = true
		case state.PublicRateLimited:
			tx.Due.Gated()
		}
	}
	return nil
}

// sequenceParams returns the parameters to lock sequences and add places: each per new member.
func sequenceParams(sequences []core.SequenceID, members map[core.SequenceID][]*creation, each int64) (params db.LockSequencesParams) {
	for _, s := range sequences {
		c := members[s][0]
		params.PartitionKeys = append(params.PartitionKeys, s.Partition())
		params.SequenceIDs = append(params.SequenceIDs, s.PG())
		params.Namespaces = append(params.Namespaces, c.namespace)
		params.SequenceKeys = append(params.SequenceKeys, c.sequence.Key)
		params.Counts = append(params.Counts, each*int64(len(members[s])))
	}
	return params
}
