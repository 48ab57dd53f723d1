package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Document is the JSON document made by the summary frames of an attempt.
type Document struct {
	JSON      json.RawMessage // an object; the order of members is not kept
	Version   int             // number of patches, from 1
	FirstAt   time.Time       // of the first patch
	UpdatedAt time.Time       // of the last one
}

// ReadSummary returns the document made by the summary frames of an attempt, given by index. It needs no lease, and works
// until retention deletes the execution.
//
// Errors: [fferr.ErrNotFound] if the attempt has written no summary; [fferr.ErrInvalidInput]. One statement; takes no locks.
func ReadSummary(ctx context.Context, eng *engine.Engine, x id.ExecutionID, attempt int) (Document, error) {
	c := core.Of(eng)
	const op = "read summary"
	if err := checkStream(c, x, attempt); err != nil {
		return Document{}, core.Wrap(op, err)
	}
	row, err := c.Q.GetStreamSummary(ctx, c.Reader(), db.GetStreamSummaryParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(), AttemptIndex: int32(attempt),
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Document{}, core.Wrap(op, &fferr.NotFoundError{Entity: "summary of attempt", ID: fmt.Sprintf("%s/%d", x, attempt)})
	case err != nil:
		return Document{}, core.Wrap(op, err)
	}
	return Document{
		JSON: row.DocumentJSON, Version: int(row.Version),
		FirstAt: time.UnixMilli(row.FirstAppliedMs), UpdatedAt: time.UnixMilli(row.LastUpdatedMs),
	}, nil
}

// mergeSummary merges the patches among frames into the document of the attempt, and returns the document's version and the
// number of summary frames; zeros without patches.
func mergeSummary(ctx context.Context, c *core.Core, tx *core.Txn, f *frameColumns, tsMs int64) (row db.MergeSummaryRow, err error) {
	if len(f.patches) == 0 {
		return row, nil
	}
	row, err = c.Q.MergeSummary(ctx, tx, db.MergeSummaryParams{
		PartitionKey: f.Lease.Execution.Partition(), ExecutionID: f.Lease.Execution.UUID(), AttemptIndex: int32(f.Lease.Attempt),
		Patches: f.patches, TsMs: tsMs,
	})
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(refusal.Code, "22") {
		// The server's text would quote the document.
		return row, core.Invalid("frames", "a summary frame has a value that the server's JSON can't hold: a number out of range, or U+0000")
	}
	if err != nil {
		return row, err
	}
	if row.Size > MaxSummary {
		return row, core.Invalid("frames", fmt.Sprintf("the summary would have %d bytes, limit %d", row.Size, MaxSummary))
	}
	f.number(row.Version)
	return row, nil
}
