package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const inserters = 8

func insert(ctx context.Context, b *Bench) error {
	measured := fmt.Sprintf("one by one: %d transactions on one connection, then on %d; in batches: %d executions, also with less in common; beside a row of the caller's in its transaction: %d transactions. Nothing works them off",
		b.N/50, inserters, b.N, b.N/50)
	l := lineup{b.Field.Worker, b.Field.River, b.Field.Raw}
	return b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		var got []reading
		add := func(name string, n int, do func() error) error {
			began := time.Now()
			err := do()
			got = append(got, reading{name: name, unit: "executions/s", value: float64(n) / time.Since(began).Seconds()})
			return err
		}
		some, many := plain(max(1, b.N/50)), plain(b.N)
		if err := add("insert one by one", len(some), func() error { return insertBatches(ctx, c, some, 1, 1) }); err != nil {
			return nil, err
		}
		if err := add(fmt.Sprintf("insert one by one, %d at once", inserters), len(some), func() error { return insertBatches(ctx, c, some, 1, inserters) }); err != nil {
			return nil, err
		}
		if err := add("insert in the caller's transaction", len(some), func() error { return insertBeside(ctx, c, some) }); err != nil {
			return nil, err
		}
		for _, size := range []int{100, 1000, 10_000} {
			if size > len(many) {
				break
			}
			if err := add(fmt.Sprintf("insert in batches of %d", size), len(many), func() error { return insertBatches(ctx, c, many, size, 1) }); err != nil {
				return nil, err
			}
			if err := c.Reset(ctx); err != nil {
				return nil, err
			}
		}
		if b.Quick {
			return got, nil
		}
		for _, unlike := range []struct {
			what   string
			change func(*contender.Job)
		}{
			{"a tag of its own each", func(job *contender.Job) { job.Tag = fmt.Sprintf("order-%d", job.Num) }},
			{"three kinds", func(job *contender.Job) { job.Variant = job.Num % 3 }},
		} {
			jobs := plain(len(many))
			for i := range jobs {
				unlike.change(&jobs[i])
			}
			size := min(1000, len(jobs))
			if err := add(fmt.Sprintf("insert in batches of %d, %s", size, unlike.what), len(jobs), func() error { return insertBatches(ctx, c, jobs, size, 1) }); err != nil {
				return nil, err
			}
			if err := c.Reset(ctx); err != nil {
				return nil, err
			}
		}
		return got, nil
	})
}

func insertBatches(ctx context.Context, c contender.Contender, jobs []contender.Job, size, atOnce int) error {
	inserting, ctx := errgroup.WithContext(ctx)
	inserting.SetLimit(atOnce)
	for batch := range slices.Chunk(jobs, size) {
		inserting.Go(func() error { return c.Insert(ctx, batch) })
	}
	return inserting.Wait()
}

// insertBeside inserts each job in a transaction that also inserts another row.
func insertBeside(ctx context.Context, c contender.Contender, jobs []contender.Job) error {
	conn, err := c.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "create table if not exists callers_row (id bigint generated always as identity primary key, num integer not null)"); err != nil {
		return err
	}
	for _, job := range jobs {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into callers_row (num) values ($1)", job.Num); err != nil {
			return err
		}
		if err := c.InsertTx(ctx, tx, job); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}
