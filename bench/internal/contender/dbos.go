package contender

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// DBOS is DBOS Transact at its defaults, on a pool of the usual size.
type DBOS struct {
	pool   *pgxpool.Pool
	opens  sync.Mutex   // processes must not create the tables at once
	client dbos.Context // adds jobs to the queue; nil until the first

	note       string // on the limits of the queue; empty for the plain one
	partitions int    // of its queue
	limits     []dbos.QueueOption
}

// Name implements [Contender].
func (d *DBOS) Name() string {
	if d.note != "" {
		return "DBOS v1.8.0, " + d.note
	}
	return "DBOS v1.8.0"
}

// Pool implements [Contender].
func (d *DBOS) Pool() *pgxpool.Pool { return d.pool }

// Reset implements [Contender]. The next job creates the tables.
func (d *DBOS) Reset(ctx context.Context) error {
	if d.client != nil {
		_ = dbos.Shutdown(d.client, time.Second) // nothing runs there
		d.client = nil
	}
	_, err := d.pool.Exec(ctx, "drop schema if exists dbos cascade")
	return err
}

// open returns a context of DBOS on a pool of its own, which ends with the context, and creates missing tables.
func (d *DBOS) open(ctx context.Context) (dbos.Context, error) {
	d.opens.Lock()
	defer d.opens.Unlock()
	pool, err := pgxpool.NewWithConfig(ctx, d.pool.Config())
	if err != nil {
		return nil, err
	}
	return dbos.NewContext(ctx, dbos.Config{AppName: "ffbench", SystemDBPool: pool, Logger: slog.New(slog.DiscardHandler)})
}

const (
	dbosTopic  = "proceed"
	dbosStarts = 16 // workflows started at once
)

// dbosWaits are workflows of DBOS. Their ids are their numbers.
type dbosWaits struct{ dbos.Context }

// Wait implements [Signaller].
func (d *DBOS) Wait(ctx context.Context, n int, received func(num int)) (Waits, error) {
	c, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	var waiting atomic.Int64
	workflow := func(ctx dbos.Context, num int) (int, error) {
		waiting.Add(1)
		message, err := dbos.Recv[int](ctx, dbosTopic, time.Hour)
		if err == nil {
			received(num)
		}
		return message, err
	}
	dbos.RegisterWorkflow(c, workflow)
	w := dbosWaits{c}
	if err := dbos.Launch(c); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	var starting errgroup.Group
	starting.SetLimit(dbosStarts)
	for num := range n {
		starting.Go(func() error {
			_, err := dbos.RunWorkflow(c, workflow, num, dbos.WithWorkflowID(strconv.Itoa(num)))
			return err
		})
	}
	err = starting.Wait()
	for err == nil && waiting.Load() < int64(n) {
		time.Sleep(10 * time.Millisecond)
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w dbosWaits) Signal(_ context.Context, num int) error {
	return dbos.Send(w.Context, strconv.Itoa(num), num, dbosTopic)
}

func (w dbosWaits) SignalAll(_ context.Context, nums []int) error {
	messages := make([]dbos.SendMessage, len(nums))
	for i, num := range nums {
		messages[i] = dbos.SendMessage{DestinationID: strconv.Itoa(num), Message: num, Topic: dbosTopic}
	}
	return dbos.SendBulk(w.Context, messages)
}

// Stop does not wait for waiting workflows.
func (w dbosWaits) Stop() error {
	_ = dbos.Shutdown(w.Context, time.Second)
	return nil
}
