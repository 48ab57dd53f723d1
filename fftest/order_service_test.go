package fftest_test

// The order service that order_test.go tests: it charges a card, books the item or gives the money back, reminds the customer
// of an order that was not approved for a day, and counts the outcomes in a read model.

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/worker"
)

type (
	Order    struct{ Card, Item string }
	Receipt  struct{ Item, Status string }
	Approval struct{ By string }
	Mail     struct{ To, Text string }
)

var (
	Fulfil   = engine.Kind[Order, Receipt]{Name: "fulfil"}
	Notify   = engine.Kind[Mail, struct{}]{Name: "notify"}
	Approved = engine.Signal[Approval]{Name: "approved"}
)

const orderTables = `
CREATE TABLE stock (item text PRIMARY KEY, left_over integer NOT NULL CHECK (left_over >= 0));
CREATE TABLE outcomes (outcome text PRIMARY KEY, orders integer NOT NULL);
INSERT INTO stock VALUES ('lamp', 1)`

// Payments is a payment service that recognises repeated keys.
type Payments interface {
	Charge(ctx context.Context, card, key string) error
	Refund(ctx context.Context, card, key string) error
}

// Shop is the order service.
type Shop struct{ Payments Payments }

// Register gives a worker the handlers of the service.
func (s *Shop) Register(w *worker.Worker, mail func(context.Context, worker.Job[Mail]) (struct{}, error)) {
	worker.Handle(w, Fulfil, s.Fulfil)
	worker.Handle(w, Notify, mail)
}

// Fulfil handles an order.
func (s *Shop) Fulfil(ctx context.Context, job worker.Job[Order]) (Receipt, error) {
	order := job.Args
	_, err := worker.Step(ctx, job, "charge", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Payments.Charge(ctx, order.Card, worker.IdempotencyKey(ctx))
	})
	if err != nil {
		return Receipt{}, err
	}
	booked, err := worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (bool, error) {
		tag, err := tx.Exec(ctx, "UPDATE stock SET left_over = left_over - 1 WHERE item = $1 AND left_over > 0", order.Item)
		return tag.RowsAffected() == 1, err
	})
	switch {
	case err != nil:
		return Receipt{}, err
	case !booked:
		return Receipt{order.Item, "sold out"}, s.refund(ctx, job)
	}
	approval, err := Approved.Await(ctx, job, engine.Wait{Timeout: 24 * time.Hour})
	if errors.Is(err, fferr.ErrWaitTimeout) {
		_, err = worker.Call(ctx, job, "remind", Notify, Mail{To: order.Card, Text: "please approve the " + order.Item})
		if err == nil {
			approval, err = Approved.Await(ctx, job, engine.Wait{})
		}
	}
	return Receipt{order.Item, "approved by " + approval.By}, err
}

func (s *Shop) refund(ctx context.Context, job worker.Job[Order]) error {
	_, err := worker.Step(ctx, job, "refund", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Payments.Refund(ctx, job.Args.Card, worker.IdempotencyKey(ctx))
	})
	return err
}

// CountOutcome is the read model.
func CountOutcome(ctx context.Context, tx pgx.Tx, end events.Completion) error {
	_, err := tx.Exec(ctx, `INSERT INTO outcomes VALUES ($1, 1)
		ON CONFLICT (outcome) DO UPDATE SET orders = outcomes.orders + 1`, string(end.Outcome))
	return err
}
