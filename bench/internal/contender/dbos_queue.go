package contender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	dbosQueue = "bench"
	dbosKind  = "noop"
	dbosPoll  = 5 * time.Millisecond  // for a queue, which has no notifications
	dbosLook  = 20 * time.Millisecond // between two counts of ended workflows
)

var errNotDBOS = errors.New("is not measured with DBOS")

// Limited returns DBOS with limits of the queue, on the same database. Jobs are spread over so many partitions of the
// queue, 0 for a queue without partitions.
func (d *DBOS) Limited(note string, partitions int, limits ...dbos.QueueOption) *DBOS {
	return &DBOS{pool: d.pool, note: note, partitions: partitions, limits: limits}
}

func (d *DBOS) registerQueue(c dbos.Context) error {
	_, err := dbos.RegisterQueue(c, dbosQueue, append(slices.Clone(d.limits), dbos.WithQueueBasePollingInterval(dbosPoll))...)
	return err
}

// Insert implements [Contender]: each job is a workflow added to a queue on its own.
func (d *DBOS) Insert(ctx context.Context, jobs []Job) error {
	if d.client == nil {
		client, err := d.open(ctx)
		if err != nil {
			return err
		}
		if err := d.registerQueue(client); err != nil {
			return err
		}
		d.client = client
	}
	var adding errgroup.Group
	adding.SetLimit(dbosStarts)
	for _, job := range jobs {
		adding.Go(func() error {
			var options []dbos.EnqueueOption
			if d.partitions > 0 {
				options = append(options, dbos.WithEnqueueQueuePartitionKey(strconv.Itoa(job.Num%d.partitions)))
			}
			_, err := dbos.Enqueue[int](d.client, dbosQueue, dbosKind, job.Num, options...)
			return err
		})
	}
	return adding.Wait()
}

// InsertTx implements [Contender].
func (d *DBOS) InsertTx(context.Context, pgx.Tx, Job) error { return errNotDBOS }

// Run implements [Contender].
func (d *DBOS) Run(ctx context.Context, w Work) error {
	c, err := d.open(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(c, func(_ dbos.Context, num int) (int, error) {
		if w.Started != nil {
			w.Started(num)
		}
		return num, nil
	}, dbos.WithWorkflowName(dbosKind))
	if err := d.registerQueue(c); err != nil {
		return err
	}
	if w.Begun != nil {
		w.Begun()
	}
	if err := dbos.Launch(c); err != nil {
		return err
	}
	err = d.reportEnds(ctx, w.Done)
	return errors.Join(err, dbos.Shutdown(c, time.Minute))
}

// reportEnds calls done for each workflow whose end is committed, until ctx ends. DBOS reports no ends.
func (d *DBOS) reportEnds(ctx context.Context, done func()) error {
	look := time.NewTicker(dbosLook)
	defer look.Stop()
	for before := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		ended, err := d.ended(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for ; before < ended && done != nil; before++ {
			done()
		}
	}
}

func (d *DBOS) ended(ctx context.Context) (n int, err error) {
	err = d.pool.QueryRow(ctx, "select count(*) from dbos.workflow_status where status = 'SUCCESS'").Scan(&n)
	return n, err
}

// Check implements [Contender].
func (d *DBOS) Check(ctx context.Context, ended int) error {
	n, err := d.ended(ctx)
	if err == nil && n != ended {
		err = fmt.Errorf("%d workflows succeeded instead of %d", n, ended)
	}
	return err
}
