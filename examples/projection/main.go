// Command projection counts the outcomes of executions in a table. It stores the position in the transaction that counts,
// so each end is counted once, whenever the program stops. Here it stops after two events and continues.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/worker"
)

var Parse = engine.Kind[string, int]{Name: "parse"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	must(pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS ends (outcome text PRIMARY KEY, count integer NOT NULL);
		CREATE TABLE IF NOT EXISTS checkpoint (cursor text NOT NULL);
		INSERT INTO checkpoint SELECT '' WHERE NOT EXISTS (SELECT FROM checkpoint)`))
	check(project(ctx, pool, eng, 0)) // store the starting position

	working, done := context.WithCancel(ctx)
	defer done()
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Parse, func(_ context.Context, job worker.Job[string]) (n int, err error) {
		_, err = fmt.Sscan(job.Args, &n)
		return n, worker.Permanent(err)
	})
	go func() { check(w.Run(working)) }()
	for _, text := range []string{"1", "2", "three", "4"} {
		must(Parse.Create(ctx, eng, text))
	}

	check(project(ctx, pool, eng, 2)) // as if the process died afterwards
	check(project(ctx, pool, eng, 2)) // and another one continued
	rows := must(pool.Query(ctx, "SELECT outcome || ': ' || count FROM ends"))
	for _, line := range must(pgx.CollectRows(rows, pgx.RowTo[string])) {
		fmt.Println(line)
	}
}

// project counts n ends after the checkpoint, and moves it.
func project(ctx context.Context, pool *pgxpool.Pool, eng *engine.Engine, n int) error {
	var stored string
	if err := pool.QueryRow(ctx, "SELECT cursor FROM checkpoint").Scan(&stored); err != nil {
		return err
	}
	var after events.Cursor
	if err := after.UnmarshalText([]byte(stored)); err != nil {
		return err
	}
	sub, err := events.Subscribe(ctx, eng, events.Completions(events.Filter{}), events.Options{After: after})
	if err != nil {
		return err // events.ErrGap: the process was away for longer than events are kept; count the executions again
	}
	defer sub.Close()
	if after.IsZero() {
		_, err := pool.Exec(ctx, "UPDATE checkpoint SET cursor = $1", sub.Position().String())
		return err
	}
	for range n {
		end, err := sub.Next(ctx)
		if corrupt, ok := errors.AsType[*events.CorruptEventError](err); ok {
			log.Print(corrupt)
			continue
		}
		if err != nil {
			return err
		}
		if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO ends VALUES ($1, 1)
				ON CONFLICT (outcome) DO UPDATE SET count = ends.count + 1`, string(end.Outcome)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE checkpoint SET cursor = $1", sub.Position().String())
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(err error) { must(0, err) }
