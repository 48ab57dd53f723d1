package reconcile_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/reconcile"
)

// A process that does background work alone. Prepare names a missing grant before anything is tried.
func ExampleReconciler_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Prepare(ctx, engine.RoleWorker); err != nil {
		log.Fatal(err)
	}
	jobs, err := reconcile.New(eng, reconcile.Config{})
	if err != nil {
		log.Fatal(err)
	}
	jobs.Run(ctx)
}
