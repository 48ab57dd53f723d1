// Command transactional-enqueue writes an order and the execution that bills it in one transaction: both or neither. The
// bill is counted in the transaction that completes the execution, so it is counted once, even across crashes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

type Order struct{ Number int64 }

var Bill = engine.Kind[Order, struct{}]{Name: "bill"}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	must(pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS example_order (
		number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text, bills integer DEFAULT 0)`))
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.HandleFunc(w, Bill, func(ctx context.Context, job worker.Job[Order]) error {
		defer stop() // this program has one order
		return eng.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error {
			var item string
			var bills int
			err := tx.QueryRow(ctx, "UPDATE example_order SET bills = bills + 1 WHERE number = $1 RETURNING item, bills",
				job.Args.Number).Scan(&item, &bills)
			if err != nil {
				return err
			}
			fmt.Printf("order of one %s: %d bill\n", item, bills)
			return job.Complete(ctx, tx, struct{}{})
		})
	})

	must(0, eng.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
		var order Order
		err := tx.QueryRow(ctx, "INSERT INTO example_order (item) VALUES ('anvil') RETURNING number").Scan(&order.Number)
		if err != nil {
			return err
		}
		_, err = Bill.Create(ctx, eng, order)
		return err
	}))
	must(0, w.Run(ctx))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
