// Command order charges a card, books an item, and gives the money back if the item is sold out. Its handler fails
// halfway; the next attempt continues after the last finished step, so each card is charged once.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Order is the order of a customer.
type Order struct{ Card, Item string }

// Fulfil names the fulfilment of an order. Its result says how it went.
var Fulfil = engine.Kind[Order, string]{
	Name: "fulfil", Policy: &policy.Execution{Retry: policy.ImmediateRetries(3)},
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	must(pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS example_booked (item text, card text)"))
	eng := must(engine.New(pool, engine.Config{}))
	bank := &bank{charged: make(map[string]bool)}

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Fulfil, func(ctx context.Context, job worker.Job[Order]) (string, error) {
		charge, err := worker.Step(ctx, job, "charge", func(ctx context.Context) (string, error) {
			return bank.charge(job.Args.Card, worker.IdempotencyKey(ctx))
		})
		if err != nil {
			return "", err
		}
		booked, err := worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (bool, error) {
			if job.Args.Item == "unicorn" {
				return false, nil
			}
			_, err := tx.Exec(ctx, "INSERT INTO example_booked VALUES ($1, $2)", job.Args.Item, job.Args.Card)
			return true, err
		})
		if err != nil {
			return "", err
		}
		if job.Lease.Attempt == 0 {
			return "", errors.New("the process had a bad day") // the next attempt skips both steps
		}
		if booked {
			return job.Args.Item + " is on its way", nil
		}
		_, err = worker.Step(ctx, job, "refund", func(context.Context) (struct{}, error) {
			return struct{}{}, bank.refund(charge)
		})
		return job.Args.Item + " is sold out", err
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	for _, order := range []Order{{"ada", "lamp"}, {"bob", "unicorn"}} {
		created := must(Fulfil.Create(ctx, eng, order))
		fmt.Println(must(Fulfil.Await(ctx, eng, created.ID)))
		for _, step := range must(eng.Steps(ctx, created.ID)) {
			fmt.Printf("%s: %s in attempt %d\n", order.Card, step.Name, step.Attempt)
		}
	}
}

// bank takes the place of a payment service, which recognises repeated keys.
type bank struct {
	mu      sync.Mutex
	charged map[string]bool
}

func (b *bank) charge(card, key string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.charged[key] {
		b.charged[key] = true
		fmt.Println("charged", card)
	}
	return "charge of " + card, nil
}

func (b *bank) refund(charge string) error {
	fmt.Println("refunded:", charge)
	return nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
