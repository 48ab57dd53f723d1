package budget_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
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

// A tenant may use 1,000 tokens a day. A report above the limit counts nothing.
func Example() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	acme, err := budget.Create(ctx, eng, budget.Spec{
		Key: "tenant/acme", Limits: map[string]budget.Limit{"tokens": {Hard: 1_000, Soft: 800}}, ResetEvery: 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, answer := range []struct {
		id     string
		tokens int64
	}{{"answer-1", 500}, {"answer-2", 400}, {"answer-2", 400}, {"answer-3", 300}} {
		result, err := budget.Report(ctx, eng, budget.Usage{
			Budget: acme.ID, Amounts: map[string]int64{"tokens": answer.tokens}, Key: answer.id, // a repeated answer counts once
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.id, result.Outcome, "left:", result.Left["tokens"])
	}
	// Output:
	// answer-1 Ok left: 500
	// answer-2 SoftBreach left: 100
	// answer-2 SoftBreach left: 100
	// answer-3 HardBreach left: 100
}

// The holder of a lease reserves an estimate before asking a model, and settles the tokens used by the answer.
func ExampleReserve() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	run, err := budget.Create(ctx, eng, budget.Spec{Limits: map[string]budget.Limit{"tokens": {Hard: 100}}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Lane: "research", Kind: "ask"}); err != nil {
		log.Fatal(err)
	}
	claimed, err := eng.Claim(ctx, engine.ClaimSpec{Lane: "research", Worker: "asker", Instance: "asker-1", LeaseTTL: time.Minute}, 1)
	if err != nil {
		log.Fatal(err)
	}
	fence := claimed[0].Lease.Fence

	held, err := budget.Reserve(ctx, eng, fence, budget.ReserveSpec{
		Budgets: []id.BudgetID{run.ID}, Amounts: map[string]int64{"tokens": 80},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("reserved:", held.Outcome, "left:", held.Left["tokens"])

	settled, err := budget.Settle(ctx, eng, fence, budget.SettleSpec{
		Budgets: []id.BudgetID{run.ID}, Used: map[string]int64{"tokens": 30},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("settled:", settled.Outcome, "left:", settled.Left["tokens"])
	// Output:
	// reserved: Ok left: 20
	// settled: Ok left: 70
}
