// Command sequence books in the order in which bookings were made, one at a time for each account. A failed booking stops its
// account until an operator replays it, and no other one.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

type Booking struct {
	Account string
	Cents   int
}

var Book = engine.Kind[Booking, int]{
	Name:     "book",
	Policy:   &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}},
	Sequence: func(b Booking) engine.Sequence { return engine.Sequence{Key: "account " + b.Account} },
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	balances := bank{cents: map[string]int{}}
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Book, func(_ context.Context, job worker.Job[Booking]) (int, error) {
		return balances.book(job.Args)
	})

	withdrawal := must(Book.Create(ctx, eng, Booking{"ada", -70})) // more than she has
	last := must(Book.Create(ctx, eng, Booking{"ada", 10}))
	bob := must(Book.Create(ctx, eng, Booking{"bob", 30}))

	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	fmt.Println("bob has", must(Book.Await(ctx, eng, bob.ID)))
	_, err := Book.Await(ctx, eng, withdrawal.ID)
	if failed, ok := errors.AsType[*fferr.EndedError](err); ok {
		fmt.Println("ada:", failed.Failure)
	}
	waiting := must(eng.DescribeExecution(ctx, last.ID))
	fmt.Println("waits behind", waiting.Sequence.Ahead)

	balances.lend("ada", 100)
	must(operator.Replay(ctx, eng, withdrawal.ID))
	fmt.Println("ada has", must(Book.Await(ctx, eng, withdrawal.ID)))
	fmt.Println("ada has", must(Book.Await(ctx, eng, last.ID)))
}

type bank struct {
	mu    sync.Mutex
	cents map[string]int
}

func (b *bank) book(booking Booking) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cents[booking.Account]+booking.Cents < 0 {
		return 0, errors.New("not enough money")
	}
	b.cents[booking.Account] += booking.Cents
	return b.cents[booking.Account], nil
}

func (b *bank) lend(account string, cents int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cents[account] += cents
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
