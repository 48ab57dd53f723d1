//go:build unix

package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// A shop uses everything at once while processes are killed and frozen: orders in sequence by account, a budget, steps, a
// called shipping under a limit, repeated signals, turns, output streams, a schedule and a consumer of events. At the end
// its books are compared: each effect happened once, in order, within the limits, and each tick and end was seen once.
func TestEverythingIsExactUnderKills(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), shopTables); err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	goesOn := soak.For(t, time.Second)
	budgets, err := budget.Create(t.Context(), eng, budget.Spec{Limits: map[string]budget.Limit{tokens: {Hard: 1 << 40}}})
	if err != nil {
		t.Fatal(err)
	}
	ticks := schedule.Of(kindTick, "shop", struct{}{}, schedule.Spec{Every: shopTick, Missed: schedule.MissedAll, Window: time.Hour})
	if err := schedule.Put(t.Context(), eng, ticks); err != nil {
		t.Fatal(err)
	}

	f := &fleet{t: t, pool: pool, url: url, dangers: dangers{
		killOneIn: soak.Size(t, 60, 1_000), maxKills: soak.Size(t, 6, 10_000), freezeOneIn: soak.Size(t, 150, 4_000), maxFreezes: soak.Size(t, 2, 1_000),
		within: 15 * time.Millisecond,
	}}
	for range processes / 2 {
		f.start()
	}
	consuming, stopConsuming := context.WithCancel(t.Context())
	var consumer sync.WaitGroup
	consumer.Go(func() { f.consumeEnds(consuming, eng) })

	orders := f.sell(eng, budgets.ID, soak.Size(t, 150, 400), goesOn)
	if err := schedule.Delete(t.Context(), eng, schedule.Name{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	f.awaitNone("executions that have not ended", `SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled')`)
	f.awaitNone("ends that the consumer has not seen", `
		SELECT (SELECT count(*) FROM ff_completion_event WHERE outcome <> 'resumable') - (SELECT count(DISTINCT event) FROM shop_ended)`)
	f.awaitNone("reservations of lost leases", `SELECT count(*) FROM ffx_budget_reservation`)
	stopConsuming()
	consumer.Wait()
	f.stop()
	t.Logf("%d orders, %d handlers started, %d processes killed, %d frozen, %d outcomes refused", orders, f.started, f.kills, f.freezes, f.refused)
	if f.kills < 3 || f.freezes == 0 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkBooks(t, pool, orders)
	checkPlaces(t, pool, "ship/concurrency")
	if got, err := budget.Get(t.Context(), eng, budgets.ID); err != nil || got.Usage[tokens] != int64(orders)*orderTokens || got.Reserved[tokens] != 0 {
		t.Errorf("the budget has %+v, want %d used, %v", got, orders*orderTokens, err)
	}
}

// sell creates orders, each twice, and sends their decisions, twice each. It goes on while goesOn, and until some processes
// were killed, with at most open orders at once. It returns how many it sold.
func (f *fleet) sell(eng *engine.Engine, budget id.BudgetID, open int, goesOn func() bool) int {
	ctx := f.t.Context()
	var sold atomic.Int64
	enough := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.kills >= 3 && f.freezes > 0 && sold.Load() >= int64(open)
	}
	for !f.t.Failed() && (goesOn() || !enough()) {
		var batch []engine.ExecutionSpec
		for range 10 {
			n := int(sold.Add(1)) - 1
			spec := kindOrder.Spec(order{Number: n, Account: n % shopAccounts, Budget: budget})
			spec.Policy = patient
			batch = append(batch, spec, spec)
		}
		created, err := eng.CreateExecutions(ctx, batch)
		if err != nil {
			f.t.Error(err)
			return int(sold.Load())
		}
		f.decide(eng, created)
		err = progress.Poll("orders to end", func() (n int, done bool) {
			n = f.count(`SELECT count(*) FROM ff_exec_core WHERE raw_fields ->> 'execution_kind' = 'order' AND lifecycle_phase <> 'terminal'`)
			return n, n < open
		})
		if err != nil {
			f.t.Error(err)
			break
		}
	}
	return int(sold.Load())
}

// patient is the policy of orders: the test makes their failures.
var patient = &policy.Execution{
	Retry: &policy.Retry{MaxRetries: 100, Backoff: policy.Fixed(50 * time.Millisecond)}, MaxReclaims: 1_000,
}

// decide sends the two decisions of each order.
func (f *fleet) decide(eng *engine.Engine, created []fferr.Outcome[engine.Created]) {
	ctx := f.t.Context()
	for _, outcome := range created {
		if outcome.Err != nil {
			f.t.Error(outcome.Err)
			continue
		}
		for n := range 2 {
			err := decided.Send(ctx, eng, outcome.Value.ID, n, engine.Once(fmt.Sprint("decision ", n)))
			f.tolerate(ctx, "decide", ignore(err, fferr.ErrEnded))
		}
	}
}

// consumeEnds writes down each end of an execution in the transaction that moves the consumer.
func (f *fleet) consumeEnds(ctx context.Context, eng *engine.Engine) {
	consumer := events.Consumer{Name: "shop", From: events.Beginning, MaxTries: events.TryForever, Backoff: policy.Fixed(time.Millisecond)}
	err := events.HandleWith(ctx, eng, consumer, events.Completions(events.Filter{}), func(ctx context.Context, tx pgx.Tx, e events.Completion) error {
		_, err := tx.Exec(ctx, "INSERT INTO shop_ended VALUES ($1, $2)", e.ID, e.Execution.UUID())
		return err
	})
	if err != nil && ctx.Err() == nil {
		f.t.Error(err)
	}
}

// checkBooks compares the books with the orders, the ticks and the ends.
func checkBooks(t *testing.T, pool *pgxpool.Pool, orders int) {
	t.Helper()
	wantNone(t, pool, "an execution has not completed", `
		SELECT execution_id, raw_fields ->> 'execution_kind' AS kind, public_state FROM ff_exec_core WHERE public_state <> 'completed'`)
	wantNone(t, pool, "an order has other entries than its own, once each", `
		SELECT number, array_agg(entry ORDER BY place) AS entries FROM shop_entry GROUP BY number
		HAVING array_agg(entry ORDER BY place) <> '{charged,shipped,decided,decided,closed}' OR count(DISTINCT signal) <> 3`)
	wantNone(t, pool, "orders are missing", "SELECT count(DISTINCT number) FROM shop_entry HAVING count(DISTINCT number) <> $1", orders)
	wantNone(t, pool, "an account's order has begun before the one before it was closed", `
		SELECT account, number, before FROM (
			SELECT account, number, lag(number) OVER o AS before, min(place) AS first, lag(max(place)) OVER o AS last
			FROM shop_entry GROUP BY account, number WINDOW o AS (PARTITION BY account ORDER BY min(place))
		) AS s WHERE s.before IS NOT NULL AND (s.before > s.number OR s.last > s.first)`)
	wantNone(t, pool, "a tick was handled twice, or is missing", `
		SELECT at, count(*) AS times, at - lag(at) OVER (ORDER BY at) AS since_the_last FROM shop_tick GROUP BY at
		HAVING count(*) > 1
		UNION ALL
		SELECT s.at, 0, s.gap FROM (SELECT at, at - lag(at) OVER (ORDER BY at) AS gap FROM shop_tick) AS s WHERE s.gap <> $1::interval`, shopTick)
	wantNone(t, pool, "an end was seen twice, or not at all", `
		SELECT e.event_id, count(s.event) AS seen FROM ff_completion_event AS e LEFT JOIN shop_ended AS s ON s.event = e.event_id
		WHERE e.outcome <> 'resumable' GROUP BY e.event_id HAVING count(s.event) <> 1`)
	wantNone(t, pool, "an order has not one frame", `
		SELECT e.execution_id, count(f.seq) AS frames FROM ff_exec_core AS e LEFT JOIN ff_stream_frame AS f USING (partition_key, execution_id)
		WHERE e.raw_fields ->> 'execution_kind' = 'order' GROUP BY e.execution_id HAVING count(f.seq) <> 1`)
}
