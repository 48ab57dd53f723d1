// Command transactional-enqueue writes an order and the execution that follows from it in one transaction, and handles
// the execution so that its effect on the database happens exactly once.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

const lane id.LaneID = "example-orders"

// order is the payload of a "bill" execution.
type order struct {
	Number int64 `json:"number"`
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS example_order (
		number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		item text NOT NULL,
		bills integer NOT NULL DEFAULT 0
	)`)
	if err != nil {
		return err
	}

	if err := place(ctx, pool, eng, "anvil"); err != nil {
		return err
	}

	w := worker.New(eng, worker.Config{Lanes: []id.LaneID{lane}})
	worker.Handle(w, "bill", func(ctx context.Context, job worker.Job[order]) (struct{}, error) {
		defer stop()
		return struct{}{}, bill(ctx, pool, eng, job)
	})
	return w.Run(ctx)
}

// place writes an order and the execution that bills it: both or neither.
func place(ctx context.Context, pool *pgxpool.Pool, eng *engine.Engine, item string) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var number int64
		err := tx.QueryRow(ctx, "INSERT INTO example_order (item) VALUES ($1) RETURNING number", item).Scan(&number)
		if err != nil {
			return err
		}
		_, err = eng.WithTx(tx).CreateExecution(ctx, engine.ExecutionSpec{
			Lane:    lane,
			Kind:    "bill",
			Payload: fmt.Appendf(nil, `{"number": %d}`, number),
		})
		return err
	})
	if err != nil {
		return err
	}
	eng.Wake(lane) // inside a transaction of ours the engine tells nobody
	return nil
}

// bill counts the bill and completes the execution in one transaction. A worker that lost its lease meanwhile is
// refused by CompleteExecution, and its count is rolled back.
func bill(ctx context.Context, pool *pgxpool.Pool, eng *engine.Engine, job worker.Job[order]) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var (
			item  string
			bills int
		)
		err := tx.QueryRow(ctx, "UPDATE example_order SET bills = bills + 1 WHERE number = $1 RETURNING item, bills", job.Args.Number).
			Scan(&item, &bills)
		if err != nil {
			return err
		}
		fmt.Printf("order of one %s: %d bill\n", item, bills)
		return eng.WithTx(tx).CompleteExecution(ctx, job.Lease, nil)
	})
}
