package events_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
)

// TestMain runs the examples on the migrated database that FF_EXAMPLES names. A test in the tests module sets it; this module
// cannot start a server and only compiles them.
func TestMain(m *testing.M) {
	databaseURL := os.Getenv("FF_EXAMPLES")
	_ = os.Setenv("DATABASE_URL", databaseURL)
	if databaseURL == "" {
		flag.Parse()
		_ = flag.Set("test.skip", "^Example")
	}
	m.Run()
}

// connect opens a pool and an engine on it.
func connect(ctx context.Context) (*pgxpool.Pool, *engine.Engine) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return pool, eng
}

// cancelOne causes an event: it creates an execution and cancels it.
func cancelOne(ctx context.Context, eng *engine.Engine) {
	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Kind: "resize", Lane: "images"})
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.CancelExecution(ctx, engine.CancelSpec{ID: created.ID}); err != nil {
		log.Fatal(err)
	}
}

// A subscription reports every execution that ends from now on.
func ExampleSubscribe() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	sub, err := events.Subscribe(ctx, eng, events.Completions(events.Filter{Namespace: "default"}), events.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()

	cancelOne(ctx, eng)
	for end, err := range sub.All() {
		if corrupt, ok := errors.AsType[*events.CorruptEventError](err); ok {
			log.Print(corrupt) // one event that cannot be read; the loop goes on
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(end.Outcome)
		break
	}
	// Output: cancelled
}

// A stored position lets a reader continue where it stopped.
func ExampleSubscription_Position() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	ends := events.Completions(events.Filter{})
	sub, err := events.Subscribe(ctx, eng, ends, events.Options{})
	if err != nil {
		log.Fatal(err)
	}
	stored := sub.Position().Bytes() // nine bytes, for a column or a file
	sub.Close()

	cancelOne(ctx, eng) // no reader is running

	after, err := events.ParseCursor(stored)
	if err != nil {
		log.Fatal(err)
	}
	sub, err = events.Subscribe(ctx, eng, ends, events.Options{After: after})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	end, err := sub.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(end.Outcome)
	// Output: cancelled
}

// The handler writes one bill for each end, even across crashes and restarts: the consumer's position moves in the
// transaction that writes the bills.
//
//pace:allow the example ends by itself
func ExampleHandle() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, eng := connect(ctx)
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS bills (execution text PRIMARY KEY, outcome text NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	cancelOne(ctx, eng)

	billing := events.Consumer{Name: "billing", From: events.Beginning}
	err := events.HandleWith(ctx, eng, billing, events.Completions(events.Filter{}), func(ctx context.Context, tx pgx.Tx, end events.Completion) error {
		_, err := tx.Exec(ctx, "INSERT INTO bills VALUES ($1, $2)", end.Execution.String(), string(end.Outcome))
		time.AfterFunc(time.Second, stop) // stop this program after a second
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
}
