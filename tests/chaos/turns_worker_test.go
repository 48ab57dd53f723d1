//go:build unix

package chaos

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// turnTables are a user's ledger, and what each turn did. They have no constraints that would hide a second turn.
const turnTables = `
	CREATE TABLE ledger (account integer PRIMARY KEY, balance bigint NOT NULL);
	INSERT INTO ledger SELECT n, 0 FROM generate_series(0, 199) AS n;
	CREATE TABLE turn_done (
		id bigint GENERATED ALWAYS AS IDENTITY, execution uuid, turn integer, attempt integer, source integer, target integer, child uuid, signalled uuid
	)`

const (
	accounts          = 200
	turnsPerExecution = 20

	// What turns do beside moving money.
	createsOneIn = 5 // a child
	signalling   = 4 // sends a signal to the next execution
	awaiting     = 9 // waits for that of the previous one
	sleeping     = 14
)

// ring is the next execution, which gets a signal.
type ring struct{ Next id.ExecutionID }

var (
	kindTurns = engine.Kind[ring, int]{Name: "turns", Lane: lane}
	kindChild = engine.Kind[int, int]{Name: "child", Lane: lane}
)

// turns runs its turns, one after the other. The last one completes the execution.
func (s *shapeWorker) turns(ctx context.Context, job worker.Job[ring]) (int, error) {
	for i := range turnsPerExecution {
		err := worker.Turn(ctx, job, worker.Key("turn", i), func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
			if err := turn(ctx, tx, t.Engine(), job, i); err != nil {
				return err
			}
			switch i {
			case awaiting:
				return t.Await(goOn.Received(), engine.Wait{})
			case sleeping:
				return t.Sleep(time.Millisecond)
			case turnsPerExecution - 1:
				return t.Complete(i)
			}
			return nil
		})
		if err == nil && i == awaiting {
			_, err = goOn.Await(ctx, job, engine.Wait{})
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// turn moves one unit of money from one account to another, in the order of their locks, and says so. Some turns create an
// execution or send a signal.
func turn(ctx context.Context, tx pgx.Tx, eng *engine.Engine, job worker.Job[ring], i int) error {
	seed := int(job.ID.UUID()[15])*31 + int(job.ID.UUID()[14]) + i*7
	source := seed % accounts
	target := (source + 1 + seed%(accounts-1)) % accounts
	for _, account := range []int{min(source, target), max(source, target)} {
		change := 1
		if account == source {
			change = -1
		}
		if _, err := tx.Exec(ctx, "UPDATE ledger SET balance = balance + $2 WHERE account = $1", account, change); err != nil {
			return err
		}
	}
	var child, signalled *id.ExecutionUUID
	if i%createsOneIn == 0 {
		created, err := kindChild.Create(ctx, eng, i)
		if err != nil {
			return err
		}
		uuid := created.ID.UUID()
		child = &uuid
	}
	if i == signalling {
		if err := goOn.Send(ctx, eng, job.Args.Next, i); err != nil {
			return err
		}
		uuid := job.Args.Next.UUID()
		signalled = &uuid
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO turn_done (execution, turn, attempt, source, target, child, signalled) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		job.ID.UUID(), i, job.Lease.Attempt, source, target, child, signalled)
	return err
}
