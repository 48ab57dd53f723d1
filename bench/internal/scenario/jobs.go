package scenario

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const (
	insertBatch  = 5000 // jobs per transaction when inserting is not measured
	sizedBatch   = 1000 // the same for jobs with large payloads
	flowInserter = 8    // flows inserted at once
)

// plain returns n jobs of one priority.
func plain(n int) []contender.Job {
	jobs := make([]contender.Job, n)
	for i := range jobs {
		jobs[i].Num = i
	}
	return jobs
}

// sized returns n jobs of one priority with payloads of a size.
func sized(n, size int) []contender.Job {
	jobs := plain(n)
	for i := range jobs {
		jobs[i].Size = size
	}
	return jobs
}

// enqueue inserts jobs and brings the database to the state it would have after a while.
func enqueue(ctx context.Context, c contender.Contender, jobs []contender.Job) error {
	batchSize := insertBatch
	if len(jobs) > 0 && jobs[0].Size > 0 {
		batchSize = sizedBatch
	}
	for batch := range slices.Chunk(jobs, batchSize) {
		if err := c.Insert(ctx, batch); err != nil {
			return err
		}
	}
	return rest(ctx, c)
}

// enqueueFlows inserts n copies of a graph.
func enqueueFlows(ctx context.Context, c contender.FlowInserter, g contender.Graph, n int) error {
	inserting, ctx := errgroup.WithContext(ctx)
	inserting.SetLimit(flowInserter)
	for range n {
		inserting.Go(func() error { return c.InsertFlow(ctx, g) })
	}
	if err := inserting.Wait(); err != nil {
		return err
	}
	return rest(context.WithoutCancel(ctx), c)
}

// rest makes the server do at once, if the role may, the work that would otherwise disturb the measurement: collecting
// statistics and writing out the inserted rows.
func rest(ctx context.Context, c contender.Contender) error {
	if _, err := c.Pool().Exec(ctx, "analyze"); err != nil {
		return err
	}
	_, err := c.Pool().Exec(ctx, "checkpoint")
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok && refusal.Code == "42501" {
		return nil
	}
	return err
}
