//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/worker"
)

// shopTables are a shop's books. They have no keys that would hide an effect that happened twice.
const shopTables = intervalTable + `;
	CREATE TABLE shop_entry (place bigint GENERATED ALWAYS AS IDENTITY, number integer, account integer, entry text, signal text);
	CREATE TABLE shop_tick (at timestamptz);
	CREATE TABLE shop_ended (event bigint, execution uuid)`

const (
	shopAccounts = 40 // each handles its orders one after the other
	shopTick     = time.Second
	orderTokens  = 2 // of the budget, for each order
)

// order is an order of the shop.
type order struct {
	Number, Account int
	Budget          id.BudgetID
}

func (o order) enter(ctx context.Context, tx pgx.Tx, entry, signal string) error {
	_, err := tx.Exec(ctx, "INSERT INTO shop_entry (number, account, entry, signal) VALUES ($1, $2, $3, $4)", o.Number, o.Account, entry, signal)
	return err
}

var (
	kindOrder = engine.Kind[order, result]{
		Name: "order", Lane: lane,
		Sequence: func(o order) engine.Sequence { return engine.Sequence{Key: fmt.Sprint("account ", o.Account)} },
		Options: func(o order) []engine.CreateOption {
			return []engine.CreateOption{engine.WithKey(id.IdempotencyKey(fmt.Sprint("order ", o.Number)))}
		},
	}
	kindShip   = engine.Kind[order, int]{Name: "ship", Lane: lane, Limits: []engine.Limit[order]{engine.Concurrency[order](maxPlaces)}}
	kindTick   = engine.Kind[struct{}, struct{}]{Name: "tick", Lane: lane}
	decided    = engine.Signal[int]{Name: "decided"}
	errAsMeant = errors.New("as it was meant to")
)

// handleShop registers the handlers of the shop.
func handleShop(w *worker.Worker) {
	worker.Handle(w, kindOrder, handleOrder)
	worker.Handle(w, kindShip, func(ctx context.Context, job worker.Job[order]) (int, error) {
		if job.Args.Number%5 == 0 && job.Retries == 0 {
			return 0, errAsMeant
		}
		return worker.StepTx(ctx, job, "ship", func(ctx context.Context, tx pgx.Tx) (int, error) {
			return job.Args.Number, job.Args.enter(ctx, tx, "shipped", "")
		})
	})
	worker.HandleFunc(w, kindTick, func(ctx context.Context, job worker.Job[struct{}]) error {
		_, err := worker.StepTx(ctx, job, "tick", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			_, err := tx.Exec(ctx, "INSERT INTO shop_tick VALUES ($1)", job.Tick())
			return struct{}{}, err
		})
		return err
	})
}

// handleOrder spends tokens, charges, calls the shipping, waits for two decisions, and closes the order in a turn.
func handleOrder(ctx context.Context, job worker.Job[order]) (result, error) {
	if err := spend(ctx, job); err != nil {
		return result{}, err
	}
	if _, err := worker.StepTx(ctx, job, "charge", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		return struct{}{}, job.Args.enter(ctx, tx, "charged", "")
	}); err != nil {
		return result{}, err
	}
	if job.Args.Number%7 == 0 && job.Retries == 0 {
		return result{}, errAsMeant
	}
	if _, err := worker.Call(ctx, job, "ship", kindShip, job.Args); err != nil {
		return result{}, err
	}
	for round := range 2 {
		signal, err := engine.AwaitAny(ctx, job, engine.Wait{}, engine.Received(decided.Name))
		if err != nil {
			return result{}, err
		}
		if _, err := worker.StepTx(ctx, job, worker.Key("decide", round), func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			return struct{}{}, job.Args.enter(ctx, tx, "decided", signal.ID.String())
		}); err != nil {
			return result{}, err
		}
	}
	return result{}, worker.Turn(ctx, job, "close", func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
		if err := job.Args.enter(ctx, tx, "closed", ""); err != nil {
			return err
		}
		if err := t.WriteFrame(ctx, stream.FrameSpec{Type: "event", Payload: []byte("closed")}); err != nil {
			return err
		}
		return t.Complete(resultOf(job.Lease))
	})
}

// spend reserves an order's tokens and settles them with a key, so that a run after a kill counts nothing twice.
func spend(ctx context.Context, job worker.Job[order]) error {
	used := map[string]int64{tokens: orderTokens}
	held, err := job.Reserve(ctx, job.Args.Budget, used)
	if err != nil {
		return err
	}
	if held.Outcome == budget.HardBreach {
		return worker.Permanent(fmt.Errorf("a budget without end is used up: %+v", held))
	}
	held.Key = fmt.Sprint("order ", job.Args.Number)
	_, err = held.Settle(ctx, used)
	return err
}
