package outbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// page is rows of an outbox and its floor, in one snapshot.
type page struct {
	rows  []*Row
	floor int64
	kept  state.Kept
}

// source has the query of an outbox.
type source struct {
	name    Name
	table   string
	channel string
	read    func(ctx context.Context, q *db.Queries, conn db.DBTX, p db.ReadCompletionEventsParams) (page, error)
}

var sources = map[Name]*source{
	Completion: {Completion, "ff_completion_event", "ff_completion", readCompletions},
	Lease:      {Lease, "ff_lease_event", "ff_lease_event", readLeases},
	Signal:     {Signal, "ff_signal_event", "ff_signal_event", readSignals},
	Operator:   {Operator, "ff_operator_event", "ff_operator_event", readOperatorCalls},
}

func readCompletions(ctx context.Context, q *db.Queries, conn db.DBTX, p db.ReadCompletionEventsParams) (page, error) {
	rows, err := q.ReadCompletionEvents(ctx, conn, p)
	return pageOf(rows, err, func(r *db.ReadCompletionEventsRow) (int64, bool, Row) {
		row := Row{
			ID: r.EventID, Partition: r.PartitionKey, Execution: r.ExecutionID, Namespace: r.Namespace, InstanceTag: r.InstanceTag,
			At: r.OccurredAtMs, Kind: r.Outcome, CommittedAt: r.CommittedAtMs,
		}
		if r.FlowID.Valid {
			row.Flow = new(id.FlowID(r.FlowID.Bytes))
		}
		return r.FloorEventID, r.Found, row
	})
}

func readLeases(ctx context.Context, q *db.Queries, conn db.DBTX, p db.ReadCompletionEventsParams) (page, error) {
	rows, err := q.ReadLeaseEvents(ctx, conn, db.ReadLeaseEventsParams(p))
	read, err := pageOf(rows, err, func(r *db.ReadLeaseEventsRow) (int64, bool, Row) {
		return r.FloorEventID, r.Found, Row{
			ID: r.EventID, Partition: r.PartitionKey, Execution: r.ExecutionID, Namespace: r.Namespace, InstanceTag: r.InstanceTag,
			At: r.OccurredAtMs, Kind: r.EventType, Lease: r.LeaseID, Worker: r.FfxWorkerInstanceID, RevokedBy: r.FfxRevokedBy,
		}
	})
	if err == nil {
		read.kept = state.Kept(rows[0].Kept)
	}
	return read, err
}

func readSignals(ctx context.Context, q *db.Queries, conn db.DBTX, p db.ReadCompletionEventsParams) (page, error) {
	rows, err := q.ReadSignalEvents(ctx, conn, db.ReadSignalEventsParams(p))
	return pageOf(rows, err, func(r *db.ReadSignalEventsRow) (int64, bool, Row) {
		return r.FloorEventID, r.Found, Row{
			ID: r.EventID, Partition: r.PartitionKey, Execution: r.ExecutionID, Namespace: r.Namespace, InstanceTag: r.InstanceTag,
			At: r.DeliveredAtMs, Signal: r.SignalID, Waitpoint: r.WaitpointID, Source: r.SourceIdentity, Effect: r.FfxEffect,
		}
	})
}

func readOperatorCalls(ctx context.Context, q *db.Queries, conn db.DBTX, p db.ReadCompletionEventsParams) (page, error) {
	rows, err := q.ReadOperatorEvents(ctx, conn, db.ReadOperatorEventsParams(p))
	return pageOf(rows, err, func(r *db.ReadOperatorEventsRow) (int64, bool, Row) {
		return r.FloorEventID, r.Found, Row{
			ID: r.EventID, Partition: r.PartitionKey, Execution: r.ExecutionID, Namespace: r.Namespace, InstanceTag: r.InstanceTag,
			At: r.OccurredAtMs, Kind: r.EventType, Details: r.Details,
		}
	})
}

// pageOf makes a page of the rows of a query.
func pageOf[R any](stored []R, err error, decode func(*R) (floor int64, found bool, row Row)) (page, error) {
	if err != nil {
		return page{}, err
	}
	p := page{kept: state.KeptAll}
	for i := range stored {
		floor, found, row := decode(&stored[i])
		p.floor = floor
		if found {
			p.rows = append(p.rows, &row) // allocated alone, so a buffer with one waiting row keeps no others
		}
	}
	return p, nil
}

// isDrift reports whether an error shows missing or changed columns of the table. Retrying does not help.
func isDrift(err error) bool {
	if scan, ok := errors.AsType[pgx.ScanArgError](err); ok {
		return scan.Err != nil
	}
	server, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch server.Code {
	case "42703", "42804", "42846": // undefined_column, datatype_mismatch, cannot_coerce
		return true
	}
	return false
}

func pgUUID(u [16]byte) pgtype.UUID { return pgtype.UUID{Bytes: u, Valid: true} }
