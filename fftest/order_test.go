package fftest_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/worker"
)

// ledger is a payment service in memory: the keys of each card's movements.
type ledger map[string]map[string]bool

func (l ledger) book(entry, key string) {
	if l[entry] == nil {
		l[entry] = make(map[string]bool)
	}
	l[entry][key] = true
}

func (l ledger) Charge(_ context.Context, card, key string) error {
	l.book("charge "+card, key)
	return nil
}

func (l ledger) Refund(_ context.Context, card, key string) error {
	l.book("refund "+card, key)
	return nil
}

// entries lists the movements, each as often as it happened.
func (l ledger) entries() (all []string) {
	for _, entry := range slices.Sorted(maps.Keys(l)) {
		all = append(all, slices.Repeat([]string{entry}, len(l[entry]))...)
	}
	return all
}

func newShop(kit *fftest.Kit) (ledger, *int) {
	payments, mails := ledger{}, new(int)
	(&Shop{Payments: payments}).Register(kit.Worker, func(context.Context, worker.Job[Mail]) (struct{}, error) {
		*mails++
		return struct{}{}, nil
	})
	return payments, mails
}

func TestOrderIsRemindedOfAfterADay(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t, fftest.SQL(orderTables))
	_, mails := newShop(kit)
	created := fftest.Create(kit, Fulfil, Order{"ada", "lamp"})
	kit.Drain()
	fftest.RequireCreated(t, kit, Notify, fftest.Times(0))
	kit.Advance(24 * time.Hour)
	kit.Drain()
	fftest.RequireCreated(t, kit, Notify, fftest.Args(Mail{"ada", "please approve the lamp"}), fftest.Times(1))
	fftest.Send(kit, created.ID, Approved, Approval{By: "grace"})
	kit.Drain()
	fftest.RequireResult(t, kit, Fulfil, created.ID, Receipt{"lamp", "approved by grace"})
	if *mails != 1 {
		t.Errorf("%d mails", *mails)
	}
}

func TestOutcomesAreCounted(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t, fftest.SQL(orderTables))
	newShop(kit)
	for range 2 {
		fftest.Create(kit, Fulfil, Order{"bob", "unicorn"})
	}
	kit.Drain()
	var orders int
	for range 2 { // the second finds nothing new
		fftest.CatchUp(kit, "outcomes", events.Completions(events.Filter{}), CountOutcome)
		err := kit.Pool.QueryRow(t.Context(), "SELECT orders FROM outcomes WHERE outcome = 'success'").Scan(&orders)
		if err != nil || orders != 2 {
			t.Errorf("%d orders, %v", orders, err)
		}
	}
}

// Whenever a process dies, the card is charged once, and the money is given back once.
func TestSoldOutOrderIsRefundedOnce(t *testing.T) {
	fftest.Crashes(t, func(kit *fftest.Kit) any {
		payments, _ := newShop(kit)
		created := fftest.Create(kit, Fulfil, Order{"bob", "unicorn"})
		kit.Drain()
		receipt, err := Fulfil.Result(context.Background(), kit.Engine, created.ID)
		return []any{receipt, err, payments.entries()}
	}, fftest.SQL(orderTables))
}
